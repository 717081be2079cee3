"""Events as JSON: the event object of one row and the agent's line, with or without the line's bytes.

For example `{"cursor":7,"agent":"…","turn":"…","time":"2026-01-31T12:00:00Z","kind":"assistant","text":"hello","raw":{…},
"data":null,"cause":null}`.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from substrat.core.agents.prompts import timestamp
from substrat.core.programs import lenient
from substrat.core.programs.ndjson import Line
from substrat.core.programs.table import decode
from substrat.daemon.state.event_lines import MAX_RAW

if TYPE_CHECKING:
    from substrat.core.programs.program import LineEvent
    from substrat.daemon.state.event_lines import LineReader
    from substrat.daemon.state.rows import EventRow


class EncodedEvent(NamedTuple):
    """An event ready to be sent: the JSON text of the event object, and where the agent's line is."""

    cursor: int
    agent: str
    json: bytes
    row: EventRow


class EventJson(NamedTuple):
    """An event as it is sent to a client, perhaps with the agent's line."""

    cursor: int
    json: bytes


def fitting(events: list[EncodedEvent], most: int) -> list[EventJson]:
    """Return the first events, up to and including the one with which their JSON is over `most` bytes."""
    found, size = [], 0
    for event in events:
        found.append(EventJson(event.cursor, event.json))
        size += len(event.json)
        if size > most:
            break
    return found


def event_json(reader: LineReader, item: EventRow | EncodedEvent, lines: bool) -> EventJson:
    """Return an event's JSON, with the agent's line if `lines` is true."""
    event, line = (item, reader.line_of(item.row)) if isinstance(item, EncodedEvent) else read_event(reader, item)
    return EventJson(event.cursor, with_line(event, line) if lines else event.json)


def read_event(reader: LineReader, row: EventRow) -> tuple[EncodedEvent, bytes | None]:
    """Return an event and its line."""
    line = reader.line_of(row)
    if line is None:
        return encode(row, None), None
    data = line.removesuffix(b"\n")
    return encode(row, decode(Line(row.offset or 0, row.length or 0, data)), data), line


def with_line(event: EncodedEvent, line: bytes | None) -> bytes:
    """Return an event's JSON with `line`, the agent's bytes in base64, and `line_size`, how many the line has.

    Both count the newline, which the last line of a program that was killed hasn't got.
    """
    if line is None:
        return event.json
    size = max(len(line), event.row.length or 0)
    extra = f',"line":"{base64.b64encode(line).decode()}","line_size":{size}}}'
    return event.json[:-1] + extra.encode()


@lru_cache(maxsize=64)  # Lines that were stored together have one time, and writing it is a tenth of reading an event.
def _moment(seconds: float) -> str:
    """Write a time; a wrong one in a damaged row must not keep the other events from being read."""
    try:
        return timestamp(seconds)
    except (ValueError, OverflowError, OSError):
        return timestamp(0.0)


def encode(row: EventRow, event: LineEvent | None, data: bytes = b"") -> EncodedEvent:
    """Encode an event.

    Args:
        row: its row.
        event: the agent's line decoded; None for the daemon's own events, and where the line is gone.
        data: the agent's line without its newline.
    """
    text = row.text if row.text is not None or event is None else event.text
    raw: object = None
    if event is not None and event.body is not None and len(data) <= MAX_RAW:
        raw = msgspec.Raw(data) if event.verbatim else msgspec.Raw(event.written or lenient.as_json(event.body))
    elif event is None and row.offset is not None:
        text = text or "[this line was removed from the turn's output]"
    body = {
        "cursor": row.cursor,
        "agent": row.agent,
        "turn": row.turn,
        "time": _moment(row.time),
        "kind": row.kind,
        "text": text,
        "raw": raw,
        "data": msgspec.Raw(row.data.encode()) if row.data is not None else None,
        "cause": row.cause,
    }
    return EncodedEvent(row.cursor, row.agent, msgspec.json.encode(body), row)


def text_of(reader: LineReader, row: EventRow) -> str:
    """Return the text of an event of an agent program's, empty when its line is gone."""
    data = reader.line_of(row)
    if data is None:
        return ""
    return decode(Line(row.offset or 0, row.length or 0, data.removesuffix(b"\n"))).text or ""
