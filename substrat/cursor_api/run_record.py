"""Collects the events of one run and derives its result. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from substrat.core.programs import lenient
from substrat.cursor_api import decode, dialect
from substrat.cursor_api.model import AgentEvent, AgentResult, EventType

if TYPE_CHECKING:
    from collections.abc import Callable

CANCELLED = "the answer was cancelled"
_UNFINISHED = "the answer wasn't read to its end"
_FINAL = frozenset({EventType.RESULT_SUCCESS, EventType.RESULT_ERROR})


class RunRecord:
    """The events of one run.

    Args:
        session_id: the chat that was asked to be resumed, until the run names its own.
        on_session: is told the chat's id whenever the run names another one.
    """

    def __init__(self, session_id: str | None = None, on_session: Callable[[str], None] | None = None) -> None:
        self.events: list[AgentEvent] = []
        self.session_id = session_id or ""
        self.final: AgentEvent | None = None
        self._on_session = on_session
        self._segments: list[str] = []
        self._pieces: list[str] = []
        self._printed: str | None = None
        self._problem = _UNFINISHED

    def add(self, event: AgentEvent) -> AgentEvent:
        """Note an event and return it."""
        self.events.append(event)
        if event.session_id and event.session_id != self.session_id:
            self.session_id = event.session_id
            if self._on_session is not None:
                self._on_session(event.session_id)
        if event.type is EventType.ASSISTANT:
            self._segments.append(event.text or "")
            self._pieces.clear()
        elif event.type is EventType.ASSISTANT_DELTA:
            self._pieces.append(event.text or "")
        elif event.type in _FINAL:
            self.final = event
        return event

    def cancel(self) -> None:
        """Note that the rest isn't wanted."""
        self._problem = CANCELLED

    def printed(self, text: str) -> None:
        """Note the whole answer of a run that prints plain text."""
        self._printed = text

    def fail(self, problem: str) -> AgentEvent:
        """Note that the run is over without a result, and return an event that says so.

        The program reports such failures on standard error only. The event has the documented form of a failed result;
        `synthetic` in its data tells that no program printed it.
        """
        body: dict[str, Any] = {"type": "result", "subtype": "error", "is_error": True, "error": problem, "synthetic": True}
        if self.session_id:
            body["session_id"] = self.session_id
        return self.add(decode.Decoder().body(body))

    def result(self) -> AgentResult:
        """Return the run's result, as far as it has come."""
        if self.final is None:
            done = self._printed is not None
            text = self._printed if self._printed is not None else self._said()
            return AgentResult(done, text, self.session_id, error=None if done else self._problem, events=self.events)
        data = self.final.data
        success = self.final.type is EventType.RESULT_SUCCESS
        request = data.get("request_id")
        return AgentResult(
            success=success,
            result=(self.final.text or self._said()) if success else self._said(),
            session_id=self.session_id,
            request_id=request if isinstance(request, str) else None,
            duration_ms=lenient.whole(data.get("duration_ms")),
            duration_api_ms=lenient.whole(data.get("duration_api_ms")),
            error=None if success else dialect.error_words(data),
            events=self.events,
        )

    def _said(self) -> str:
        """Join the segments, which repeat their pieces, and the pieces of a segment that wasn't completed."""
        return "".join([*self._segments, *self._pieces])
