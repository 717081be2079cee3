"""What a program prints, as all readers have it: its lines, their events, the API's objects, the transcript's steps."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import Line, Splitter
from substrat.core.programs.program import LineEvent
from substrat.core.programs.transcript import Transcript
from substrat.daemon.state.event_json import encode
from substrat.daemon.state.rows import EventRow


def recorded(program: str, name: str) -> list[Line]:
    """Return the lines of a recording, such as `turn.jsonl` of codex."""
    return list(Splitter().feed((Path(__file__).parent / program / "recordings" / name).read_bytes()))


def line_of(**body: object) -> Line:
    """Return the line of an object."""
    data = json.dumps(body).encode()
    return Line(0, len(data), data)


def decoded(lines: Iterable[Line]) -> list[LineEvent]:
    """Return the events of a turn's lines."""
    pairing = Pairing()
    return [stream.decode(line, pairing) for line in lines]


def told(lines: Iterable[Line]) -> list[tuple[str, str | None]]:
    """Return the kinds and texts of a turn's events."""
    return [(event.kind, event.text) for event in decoded(lines)]


def objects(lines: list[Line]) -> list[dict[str, Any]]:
    """Return the events of a turn's lines as the API gives them."""
    return [
        json.loads(encode(EventRow(1, "a", "t", 0.0, event.kind, event.text, 0, line.length, 0), event, line.data).json)
        for line, event in zip(lines, decoded(lines), strict=True)
    ]


def steps(lines: list[Line]) -> list[Any]:
    """Return the transcript of a turn's lines."""
    transcript = Transcript()
    return [step for event in objects(lines) for step in transcript.feed(event)] + transcript.finish()
