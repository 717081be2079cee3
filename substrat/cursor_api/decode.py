"""Decodes lines of cursor-agent's output to documented events, by the decoder that the daemon's log has its events from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from substrat.core.programs import lenient
from substrat.core.programs.cursor import dialects, stream, tool_calls
from substrat.cursor_api import dialect
from substrat.cursor_api.model import AgentEvent, EventType

if TYPE_CHECKING:
    from substrat.core.programs.ndjson import Line

RAW = "raw"
"""The `raw_type` of a line that is no JSON object; its words are the event's `text`, its `data` is empty."""
_TYPES = {kind.value: kind for kind in EventType}


class Decoder:
    """Decodes the lines of one run; between lines it keeps only the open tool calls."""

    def __init__(self) -> None:
        self._calls = tool_calls.Pairing()

    def line(self, line: Line) -> AgentEvent | None:
        """Decode a line; a blank one is no event."""
        if not line.data.strip() and not line.cut:
            return None
        event, call = stream.decode_with_call(line, self._calls)
        return _documented(event.kind, event.body, call) if event.body is not None else raw_event(event.text or "")

    def body(self, body: dict[str, Any]) -> AgentEvent:
        """Decode a line's object, which becomes the event's `data` as it is."""
        event, call = stream.read(body, self._calls)
        return _documented(event.kind, body, call)


def raw_event(text: str) -> AgentEvent:
    """Make the event of a line that is no JSON object."""
    return AgentEvent(EventType.UNKNOWN, RAW, None, dialect.EventData({}), text=text)


def _documented(kind: str, body: dict[str, Any], call: tool_calls.Call | None) -> AgentEvent:
    shape = dialects.normalise(body)
    raw_type, subtype, session = body.get("type"), body.get("subtype"), shape.get("session_id")
    text = stream.own_words(shape)
    if text is None and "" in (shape.get("text"), shape.get("result")):
        text = ""  # an answer without words is an answer
    return AgentEvent(
        type=_TYPES.get(kind, EventType.UNKNOWN),
        raw_type=raw_type if isinstance(raw_type, str) else "",
        subtype=subtype if isinstance(subtype, str) else None,
        data=dialect.EventData(body, call),
        text=text,
        session_id=session if isinstance(session, str) and session else None,
        timestamp_ms=lenient.whole(shape.get("timestamp_ms")),
    )
