"""Lines of cursor-agent's output to documented events, one each; it keeps only which tool calls are under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from substrat.core.programs.cursor import dialects, stream, tool_calls
from substrat.cursor_api import dialect
from substrat.cursor_api.model import AgentEvent, EventType

if TYPE_CHECKING:
    from substrat.core.programs.ndjson import Line

RAW = "raw"
"""The `raw_type` of a line that is no JSON object; its words are the event's `text`, its `data` is empty."""


class Decoder:
    """Decodes the lines of one run."""

    def __init__(self) -> None:
        self._calls = tool_calls.Pairing()

    def line(self, line: Line) -> AgentEvent | None:
        """Decode a line; a blank one is no event."""
        if not line.data.strip() and not line.cut:
            return None
        event = stream.decode(line)
        return self.body(event.body) if event.body is not None else raw_event(event.text or "")

    def body(self, body: dict[str, Any]) -> AgentEvent:
        """Decode a line's object, which becomes the event's `data` as it is."""
        shape = dialects.normalise(body)
        raw_type, subtype, session = body.get("type"), body.get("subtype"), shape.get("session_id")
        return AgentEvent(
            type=type_of(shape),
            raw_type=raw_type if isinstance(raw_type, str) else "",
            subtype=subtype if isinstance(subtype, str) else None,
            data=dialect.EventData(body, self._call(shape)),
            text=dialect.text_of(shape),
            session_id=session if isinstance(session, str) and session else None,
            timestamp_ms=dialect.whole(shape.get("timestamp_ms")),
        )

    def _call(self, shape: dialect.Object) -> tool_calls.Call | None:
        """Pair a call's end with its start: an end may come without the tool's name, arguments and times."""
        if shape.get("type") != "tool_call":
            return None
        call = tool_calls.read(shape)
        if shape.get("subtype") == "started":
            self._calls.start(call)
            return call
        return self._calls.end(call)


def raw_event(text: str) -> AgentEvent:
    """Make the event of a line that is no JSON object."""
    return AgentEvent(EventType.UNKNOWN, RAW, None, dialect.EventData({}), text=text)


def type_of(shape: dialect.Object) -> EventType:
    """Say what an event is.

    Args:
        shape: the event in the one shape (`core.dialects.normalise`).
    """
    match shape.get("type"), shape.get("subtype"):
        case "system", "init":
            return EventType.SYSTEM_INIT
        case "user", _:
            return EventType.USER
        case "thinking", "delta":
            return EventType.THINKING_DELTA
        case "thinking", "completed":
            return EventType.THINKING_COMPLETED
        case "assistant", _:
            return EventType.ASSISTANT_DELTA if dialect.is_delta(shape) else EventType.ASSISTANT
        case "tool_call", "started":
            return EventType.TOOL_CALL_STARTED
        case "tool_call", "completed":
            return EventType.TOOL_CALL_COMPLETED
        case "result", _:
            return EventType.RESULT_ERROR if dialect.failed(shape) else EventType.RESULT_SUCCESS
    return EventType.UNKNOWN
