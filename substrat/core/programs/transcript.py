"""Puts an agent's events together as a transcript: prompts, speech, thoughts, tool calls with their output. Pure.

It takes event objects as the protocol gives them and gives steps back, in order and as soon as they are whole, so that a
transcript of any length takes little memory. `cli.transcripts` renders the steps.

Speech comes in three shapes. Fragments (`assistant:delta`) are held until the whole segment (`assistant`) comes; when it
never comes, because the program was killed or speaks a dialect without it, the fragments are the segment.
"""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.programs.cursor import dialects, tool_calls
from substrat.core.programs.cursor.tool_calls import Call, Pairing
from substrat.core.programs.cursor.tool_output import output

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, object]

MAX_TEXT = 1024 * 1024
"""The longest text put together from fragments, in characters."""
_MAX_HELD = 1000
_SILENT = frozenset({"system:init", "thinking:completed", "turn:started", "prompt:queued"})


class Tool(NamedTuple):
    """A tool call.

    Args:
        id: pairs it with the program's own lines.
        kind: the tool, such as `shell`.
        group: calls of one model step share it; None when the line doesn't say.
        args: its arguments, None when no line had them.
        status: `done`, `failed`, `denied`, `rejected`, `timed out`, or `open` when no end was seen.
        verdict: how it ended, in a few words.
        output: its output.
        exit_code: a command's.
        seconds: how long it took, if that is known.
    """

    id: str
    kind: str
    group: str | None
    args: Object | None
    status: str
    verdict: str
    output: str
    exit_code: int | None
    seconds: float | None


class TranscriptStep(NamedTuple):
    """One step of a transcript.

    Args:
        turn: the id of its turn, None for an event between turns.
        time: when its first event was stored, as the event has it.
        kind: `prompt`, `text`, `thinking`, `tool` or `note`.
        text: the words said; a call's summary; a note's sentence.
        event: a note's event kind.
        tool: the call, for `tool`.
    """

    turn: str | None
    time: str
    kind: str
    text: str
    event: str | None = None
    tool: Tool | None = None

    def as_object(self) -> Object:
        """Return the step as JSON has it: without the fields that say nothing, and without its turn."""
        found: Object = {"time": self.time, "kind": self.kind, "text": self.text}
        if self.event is not None:
            found["event"] = self.event
        if self.tool is not None:
            found["tool"] = self.tool._asdict()
        return found


class Transcript:
    """Puts one agent's events together.

    Args:
        midway: whether the first event isn't the agent's first, but follows one after which another was at rest.
    """

    def __init__(self, *, midway: bool = False) -> None:
        self._midway = midway
        self._turn: str | None = None
        self._pairing = Pairing()
        self._speech = _Fragments("text")
        self._thought = _Fragments("thinking")
        self._repeated: str | None = None
        self._has_spoken = False
        self._steps: deque[TranscriptStep] = deque()
        self._open: dict[str, TranscriptStep] = {}

    def feed(self, event: Mapping[str, object]) -> list[TranscriptStep]:
        """Take in the next event.

        Args:
            event: an event object.

        Returns:
            The steps that are whole now.
        """
        kind, text = str(event.get("kind")), event.get("text")
        self._take(kind, text if isinstance(text, str) else "", event)
        return self._whole()

    def finish(self) -> list[TranscriptStep]:
        """Return the steps that were still held back, at the end of the events."""
        self._end_fragments()
        for step in self._open.values():
            assert step.tool is not None
            # Its turn hasn't ended, as far as the events tell.
            _replace(self._steps, step, step._replace(tool=step.tool._replace(verdict="it goes on")))
        self._open.clear()
        return self._whole()

    @property
    def is_at_rest(self) -> bool:
        """Whether another that begins midway with the next event would give the same steps from here on."""
        held = self._steps or self._open or self._speech.is_held or self._thought.is_held or self._repeated
        return not held and (self._turn is None or self._has_spoken)

    def _take(self, kind: str, text: str, event: Mapping[str, object]) -> None:
        turn = event.get("turn")
        time = str(event.get("time"))
        if isinstance(turn, str) and turn != self._turn:
            self._begin_turn(turn)
            self._has_spoken = self._midway and kind != "turn:started"
        self._midway = False
        match kind:
            case "assistant:delta":
                self._thought.end_into(self._steps)
                self._speech.add(self._turn, time, text)
                return
            case "thinking:delta":
                self._end_speech()
                self._thought.add(self._turn, time, text)
                return
            case "assistant" | "text":
                self._segment(time, text)
                return
        self._end_fragments()
        match kind:
            case "user":
                self._add(TranscriptStep(self._turn, time, "prompt", text))
            case "tool-call-started":
                self._call_started(time, _call(event))
            case "tool-call-completed":
                self._call_ended(time, self._pairing.end(_call(event)))
            case "result:success":
                # It repeats the agent's words; an agent that said nothing else is heard here.
                if not self._has_spoken:
                    self._segment(time, text)
            case _ if kind not in _SILENT:
                self._add(TranscriptStep(self._turn, time, "note", text, kind))
        if kind == "turn:ended":
            self._open.clear()
            self._turn = None

    def _begin_turn(self, turn: str) -> None:
        self._end_fragments()
        self._open.clear()
        self._pairing = Pairing()
        self._turn, self._repeated, self._has_spoken = turn, None, False

    def _segment(self, time: str, text: str) -> None:
        """A whole segment of speech: it takes the place of its fragments."""
        first = self._speech.drop()
        self._thought.end_into(self._steps)
        repeated, self._repeated = self._repeated, None
        if text and text != repeated:
            self._has_spoken = True
            self._add(TranscriptStep(self._turn, first or time, "text", text))

    def _call_started(self, time: str, call: Call) -> None:
        self._pairing.start(call)
        step = TranscriptStep(self._turn, time, "tool", tool_calls.summary(call), tool=_open_tool(call))
        self._open[call.id] = step
        self._add(step)

    def _call_ended(self, time: str, call: Call) -> None:
        started = self._open.pop(call.id, None)
        step = TranscriptStep(
            self._turn, started.time if started else time, "tool", tool_calls.summary(call), tool=_ended_tool(call)
        )
        if started is None or not _replace(self._steps, started, step):
            self._add(step)

    def _end_fragments(self) -> None:
        self._thought.end_into(self._steps)
        self._end_speech()

    def _end_speech(self) -> None:
        text = self._speech.end_into(self._steps)
        if text:
            # A program that repeats the segment late doesn't say it twice.
            self._has_spoken, self._repeated = True, text

    def _add(self, step: TranscriptStep) -> None:
        self._steps.append(step)

    def _whole(self) -> list[TranscriptStep]:
        """Take the steps off the front that are whole; a program that never ends its calls doesn't hold up for ever."""
        whole = []
        waiting = {id(step) for step in self._open.values()}
        while self._steps and (id(self._steps[0]) not in waiting or len(self._steps) > _MAX_HELD):
            whole.append(self._steps.popleft())
        return whole


class _Fragments:
    """Text that comes in pieces."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._turn: str | None = None
        self._time = ""
        self._pieces: list[str] = []
        self._length = 0

    def add(self, turn: str | None, time: str, text: str) -> None:
        """Take in a piece; beyond `MAX_TEXT` they are dropped."""
        if not self._pieces:
            self._turn, self._time, self._length = turn, time, 0
        if self._length < MAX_TEXT:
            self._pieces.append(text)
            self._length += len(text)

    @property
    def is_held(self) -> bool:
        """Whether there are pieces."""
        return bool(self._pieces)

    def drop(self) -> str | None:
        """Forget the pieces, and return when the first of them came."""
        first = self._time if self._pieces else None
        self._pieces.clear()
        return first

    def end_into(self, steps: deque[TranscriptStep]) -> str:
        """Make the pieces a step of their own, if there are any, and return their text."""
        text = "".join(self._pieces)
        if text:
            steps.append(TranscriptStep(self._turn, self._time, self._kind, text))
        self._pieces.clear()
        return text


class TranscriptDocument:
    """Writes a transcript as one JSON document, piece by piece, however long it gets.

    Args:
        agent: the agent object.
        turns: its turn objects by their ids.
    """

    def __init__(self, agent: Mapping[str, object], turns: Mapping[str, object]) -> None:
        self._agent = agent
        self._turns = turns
        self._opened = False
        self._turn: str | None = None

    def head(self) -> str:
        """Return the piece before the first step."""
        return f'{{"agent":{_json(self._agent)},"turns":['

    def piece(self, step: TranscriptStep) -> str:
        """Return the piece for the next step; the first one of a turn opens it."""
        if self._opened and step.turn == self._turn:
            return "," + _json(step.as_object())
        before = "]}," if self._opened else ""
        self._opened, self._turn = True, step.turn
        turn = self._turns.get(step.turn) if step.turn is not None else None
        return f'{before}{{"turn":{_json(turn)},"steps":[{_json(step.as_object())}'

    def tail(self) -> str:
        """Return the piece after the last step."""
        return "]}]}" if self._opened else "]}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def call_id(event: Mapping[str, object]) -> str:
    """Return the id that pairs a tool call's start with its end; empty when the event is neither or has none."""
    return _call(event).id if str(event.get("kind")).startswith("tool-call-") else ""


def output_of(event: Mapping[str, object]) -> str:
    """Return a completed tool call's output from its event object; empty when it has none."""
    return output(_call(event))


def _call(event: Mapping[str, object]) -> Call:
    raw = event.get("raw")
    return tool_calls.read(dialects.normalise(raw) if isinstance(raw, dict) else {})


def _open_tool(call: Call) -> Tool:
    return Tool(call.id, call.kind, call.group, call.args, "open", "no end was seen", "", None, None)


def _ended_tool(call: Call) -> Tool:
    seconds = call.took_ms / 1000 if call.took_ms is not None else None
    return Tool(
        call.id, call.kind, call.group, call.args, tool_calls.status(call), tool_calls.verdict(call), output(call),
        call.exit_code, seconds,
    )  # fmt: skip


def _replace(steps: deque[TranscriptStep], old: TranscriptStep, new: TranscriptStep) -> bool:
    """Put a step in another's place; the other may have gone out already."""
    for index, step in enumerate(steps):
        if step is old:
            steps[index] = new
            return True
    return False
