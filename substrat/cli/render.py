"""Turns event objects into text for people, with a small state machine. Pure.

Theory of operation
-------------------
An agent speaks in fragments (`assistant:delta`, `thinking:delta`) and then says the whole segment again (`assistant`).
The renderer writes fragments as they come and passes over the repetition. On a terminal a line may stay unfinished
while its fragments come (`flow`); elsewhere a fragment is held back until its line is whole.

`_open` names the kind of the unfinished line: speech, thought, or the call whose start was shown. An event that doesn't
belong to it ends the line first. A call is one line: its start if nothing came between, then its outcome. When nothing
comes for a moment (`pause`), the held-back text is written: the beginning of a line, and calls that run.

Events that are read from the middle on may begin in the middle of a word. Such fragments are held back (`_cut`) until the
whole segment comes, which is written in their place; where something else comes first, their whole words are written.

An agent is hostile: every text goes through `output.neutralise` before it is put together with our own codes.
"""

from __future__ import annotations

import re
import zlib

from substrat.cli import output
from substrat.cli.output import BLUE, BOLD, CYAN, DIM, GREEN, MAGENTA, RED, YELLOW, one_line, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Event = dict[str, object]

_SPEECH = "speech"
_THOUGHT = "thought"
_USER_LENGTH = 160  # two lines of a terminal: a person knows their prompt, and `transcript` has all of it
_NOTE_LENGTH = 500  # some six lines: longer notes quote output, which `transcript` has
# The daemon's text after a call's summary: `→ exit 0 (0.2 s)`, `→ done`, `→ failed: why`.
_OUTCOME = re.compile(r"^(?P<outcome>.*?)(?: \((?P<took>\d+(?:\.\d+)?) s\))?$", re.DOTALL)
_GOOD = re.compile(r"(?:exit 0|done)(?: after [\d.]+ s)?|(?:runs|goes on) in the background.*", re.DOTALL)
"""Outcomes of calls that went well (`verdict` of core/programs/cursor/tool_calls.py)."""
_FAILED_LINES = 10
"""The last lines of a failed command's output: an error stands at its end. `transcript` has all of it."""
_NAME_WIDTH = 20
"""The widest column of names: agents' words need the rest of an 80-column terminal."""
_VOICES = (CYAN, YELLOW, MAGENTA, BLUE, GREEN)
"""The colours of agents' names, one after the other; red is for failures."""
_TURN_FAILED = re.compile(r"turn \d+ (error|timed_out|lost)\b")
_WARNINGS = frozenset({
    "network:denied", "question:asked", "turn:waiting", "turn:retry", "turn:home-too-big", "turn:fills-disk",
    "turn:output-truncated", "turn:output-unread", "turn:ran-out", "state:damaged", "session:refused", "session:changed",
    "mcp:not-contacted", "workspace:touched", "workspace:unprotected",
})  # fmt: skip
"""Kinds of events that may need a person; they are yellow."""
_NOISE = ("system:", "unknown", "connection:", "retry:", "interaction_query:")
"""Kinds of events about the agent program itself; they are dim."""


class Renderer:
    """Renders one agent's events.

    Args:
        flow: whether a line may be left unfinished, as on a terminal.
        colour: whether to use colours.
        clock: whether to put the time on the daemon's own lines.
        whole_lines: whether only whole lines may be written, as in a chorus.
        midway: whether the first events may be the rest of a segment.
        output_of: returns a completed call's output from its event; shown for calls that failed.
    """

    def __init__(
        self,
        *,
        flow: bool,
        colour: bool,
        clock: bool = True,
        whole_lines: bool = False,
        midway: bool = False,
        output_of: Callable[[Event], str] = lambda _: "",
    ) -> None:
        self._flow = flow
        # The fragments of a segment whose beginning isn't known; None: there was something else since.
        self._cut: list[Event] | None = [] if midway else None
        self._clock = clock
        self._colour = colour
        self._open: str | None = None
        self._held = ""
        # Elsewhere than on a terminal: whether `pause` has written the beginning of the line under way.
        self._partial = False
        self._heard_deltas = False
        self._spoke = False
        self._calls: dict[str, str] = {}
        self._shown_running: set[str] = set()
        self._whole_lines = whole_lines
        # In a chorus an agent's name stands before each line, and sets it apart already.
        self._indent = "" if whole_lines else "  "
        self._output_of = output_of

    def feed(self, event: Event) -> str:
        """Take in an event and return the text to write now."""
        kind = str(event.get("kind"))
        text = event.get("text")
        text = text if isinstance(text, str) else ""
        if self._cut is not None:
            if kind.endswith(":delta") and all(kind == one.get("kind") for one in self._cut):
                self._cut.append(event)
                return ""
            if kind == "assistant":
                self._cut = None
            return self._whole_words() + self.feed(event)
        match kind:
            case "assistant:delta":
                self._heard_deltas = self._spoke = True
                return self._fragment(_SPEECH, text)
            case "thinking:delta":
                return self._fragment(_THOUGHT, text)
            case "thinking:completed":
                return self._end_line(_THOUGHT)
            case "prompt:queued":
                return ""  # its turn repeats the prompt
            case "assistant":
                return self._segment(text)
            case "tool-call-started":
                return self._call_started(_call_id(event), text)
            case "tool-call-completed":
                return self._call_completed(_call_id(event), text, event)
            case "result:success":
                # The result repeats the last speech; it is shown only for an agent that said nothing else.
                return self._end_line() if self._spoke else self._segment(text)
        # A call may be under way while the daemon has something to say; only the end of a turn ends it too.
        before = self._end_turn() if kind in {"turn:started", "turn:ended"} else self._end_line()
        return before + self._single_line(event, kind, text)

    def interrupt(self) -> str:
        """Return the text that ends a line under way on a terminal, so that something else can be written there."""
        return self._end_line() if self._flow else ""

    def pause(self) -> str:
        """Return the held-back text, when nothing has come for a moment."""
        words = self._whole_words()
        if self._flow:
            return words
        held, self._held = self._held, ""
        text = words + self._tinted(self._open or "", held)
        self._partial = self._partial or bool(held)
        running = self._running_calls()
        return text + (self._end_line() + running if running or self._whole_lines else "")

    def finish(self) -> str:
        """Return the remaining text at the end of the events: the rest of a line, and the calls that still run."""
        words = self._whole_words()
        if self._open in self._calls:
            self._shown_running.add(self._open)
            ended = "  " + paint("… running", DIM, on=self._colour) + "\n"
            self._open = None
        else:
            ended = self._end_line()
        running = self._running_calls()
        self._forget_calls()
        return words + ended + running

    def _whole_words(self) -> str:
        """Return the whole words of a segment whose beginning isn't known, as if they came now."""
        cut, self._cut = self._cut, None
        rest = re.search(r"\s+(?=\S)", "".join(str(one.get("text")) for one in cut or ()))
        return self.feed({**cut[0], "text": f"… {rest.string[rest.end() :]}"}) if cut and rest else ""

    def _end_turn(self) -> str:
        """Return the remaining text at the end of a turn: the rest of a line, and calls of which no outcome is known."""
        ended = self._end_line()
        lost = [self._call_line(summary, "", note="no outcome was seen") + "\n" for summary in self._calls.values()]
        self._forget_calls()
        return ended + "".join(lost)

    def _running_calls(self) -> str:
        """Return a line for each call that has started and was not shown as running before."""
        fresh = [call for call in self._calls if call not in self._shown_running]
        self._shown_running.update(fresh)
        return "".join(self._call_line(self._calls[call], "", note="running") + "\n" for call in fresh)

    def _forget_calls(self) -> None:
        self._calls.clear()
        self._shown_running.clear()
        self._heard_deltas = False

    def _fragment(self, block: str, text: str) -> str:
        start = "" if self._open == block else self._end_line()
        self._open = block
        if not self._flow:
            whole, newline, rest = (self._held + text).rpartition("\n")
            self._held = rest
            self._partial = self._partial and not newline
            text = whole + newline
        return start + self._tinted(block, text)

    def _segment(self, text: str) -> str:
        """A whole segment of speech: new only when its fragments weren't heard."""
        heard, self._heard_deltas, self._spoke = self._heard_deltas, False, True
        ended = self._end_line()
        if heard or not text:
            return ended
        return ended + output.neutralise(text.rstrip("\n")) + "\n"

    def _call_started(self, call: str, summary: str) -> str:
        ended = self._end_line()
        summary = one_line(summary)
        self._calls[call] = summary
        # A segment before a call may come without its repetition.
        self._heard_deltas = False
        if not self._flow:
            return ended
        self._open = call
        return ended + self._call_line(summary, "")

    def _call_completed(self, call: str, text: str, event: Event) -> str:
        started = self._calls.pop(call, None)
        self._shown_running.discard(call)
        summary, outcome = _split_outcome(one_line(text), started)
        failed = "" if _is_good(outcome) else self._failed_output(event)
        if self._open == call:
            self._open = None
            return self._outcome(outcome) + "\n" + failed
        return self._end_line() + self._call_line(summary, outcome) + "\n" + failed

    def _failed_output(self, event: Event) -> str:
        """Return the last lines that a failed call gave, each as a line below it."""
        lines = output.neutralise(self._output_of(event)).split("\n")
        lines = [line for line in lines if line.strip()]
        kept = lines[-_FAILED_LINES:]
        if len(kept) < len(lines):
            more = output.lines_more(len(lines) - len(kept))
            kept = [f"… {more}, 'substratctl transcript NAME --whole' shows them", *kept]
        return "".join(paint(f"{self._indent}  {line}", DIM, on=self._colour) + "\n" for line in kept)

    def _call_line(self, summary: str, outcome: str, *, note: str = "") -> str:
        if note:
            return f"{self._indent}{summary}  " + paint(f"… {note}", DIM, on=self._colour)
        return f"{self._indent}{summary}{self._outcome(outcome) if outcome else ''}"

    def _outcome(self, text: str) -> str:
        found = _OUTCOME.match(text)
        assert found is not None
        good = _is_good(text)
        took = "  " + paint(f"{found['took']}s", DIM, on=self._colour) if found["took"] else ""
        mark = "✓" if good else "✗"
        return "  " + paint(f"{mark} {found['outcome']}", GREEN if good else RED, on=self._colour) + took

    def _single_line(self, event: Event, kind: str, text: str) -> str:
        on = self._colour
        if kind == "user":
            return paint(f"> {one_line(text, _USER_LENGTH)}", BOLD, on=on) + "\n"
        if kind == "result:error":
            return paint(f"✗ {one_line(text, _NOTE_LENGTH) or 'the agent reported an error'}", RED, on=on) + "\n"
        said = one_line(text, _NOTE_LENGTH)
        if kind == "raw":
            return paint(f"  | {said}", DIM, on=on) + "\n"
        if kind == "turn:started":
            self._spoke = False
        what = said or _name_of(event, kind)
        if not kind.startswith(("turn:", "system:", "unknown")) and said:
            what = f"{one_line(kind)}: {said}"
        what = output.in_local_time(what)
        clock = f"{output.clock(event.get('time'))} " if self._clock else ""
        return paint(f"• {clock}{what}", _tint_of(kind, text), on=on) + "\n"

    def _end_line(self, block: str | None = None) -> str:
        """End the unfinished line, if there is one and it belongs to the block."""
        if self._open is None or (block is not None and self._open != block):
            return ""
        held, opened, partial = self._held, self._open, self._partial
        self._held, self._open, self._partial = "", None, False
        if not self._flow:
            return self._tinted(opened, held) + "\n" if held or partial else ""
        return "\n"

    def _tinted(self, block: str, text: str) -> str:
        # Line by line, because a chorus puts a head before each.
        on = self._colour and block == _THOUGHT
        return "\n".join(paint(line, DIM, on=on) for line in output.neutralise(text).split("\n"))


class Chorus:
    """Renders the events of many agents as whole lines, each with its time and its agent's name.

    Args:
        names: agents' names by their ids; ids that aren't in it are shown shortened.
        colour: whether to use colours; each agent's name has one of its own then.
        aligned: whether names fill a column as wide as the longest, as on a terminal.
        midway: as for `Renderer`.
        output_of: as for `Renderer`.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        *,
        colour: bool,
        aligned: bool = False,
        midway: bool = False,
        output_of: Callable[[Event], str] = lambda _: "",
    ) -> None:
        self._names = names
        self._midway = midway
        self._colour = colour
        self._aligned = aligned
        self._output_of = output_of
        self._voices: dict[str, Renderer] = {}
        # When each of the voices was last heard.
        self._times: dict[str, object] = {}

    def feed(self, event: Event) -> str:
        """Take in an event and return the lines to write now."""
        agent = str(event.get("agent") or "")
        voice = self._voices.get(agent)
        if voice is None:
            voice = self._voices[agent] = Renderer(
                flow=False,
                colour=self._colour,
                clock=False,
                whole_lines=True,
                midway=self._midway,
                output_of=self._output_of,
            )
        text = voice.feed(event)
        self._times[agent] = event.get("time")
        if event.get("kind") == "turn:ended":
            # Between its turns an agent has nothing unfinished, and a year's agents needn't be remembered.
            del self._voices[agent], self._times[agent]
        return self._prefixed(event.get("time"), agent, text)

    def pause(self) -> str:
        """Return the held-back lines, when nothing has come for a moment."""
        return "".join(self._prefixed(self._times[agent], agent, voice.pause()) for agent, voice in self._voices.items())

    def finish(self) -> str:
        """Return the lines that are still held back."""
        return "".join(self._prefixed(self._times[agent], agent, voice.finish()) for agent, voice in self._voices.items())

    def _prefixed(self, time: object, agent: str, text: str) -> str:
        if not text:
            return ""
        name = one_line(self._names.get(agent, agent[:8])) or "substratd"
        clock = paint(output.clock(time), DIM, on=self._colour)
        tint = _VOICES[zlib.crc32(agent.encode()) % len(_VOICES)]
        if self._aligned:
            width = min(_NAME_WIDTH, max(map(len, [*self._names.values(), name])))
            name = output.padded(output.shortened(name, width), width)
        head = f"{clock} {paint(name, tint, on=self._colour)}"
        return "".join(f"{head}  {line}\n" for line in text.split("\n")[:-1])


def _tint_of(kind: str, text: str) -> str:
    """Return the colour of a line that is neither speech nor a call: red for a failed turn, yellow for a warning."""
    if kind == "turn:ended" and _TURN_FAILED.match(text):
        return RED
    if kind in _WARNINGS:
        return YELLOW
    return DIM if kind.startswith(_NOISE) else BOLD


def _is_good(outcome: str) -> bool:
    found = _OUTCOME.match(outcome)
    return outcome == "" or (found is not None and _GOOD.fullmatch(found["outcome"]) is not None)


def _split_outcome(text: str, started: str | None) -> tuple[str, str]:
    """Split `SUMMARY → OUTCOME`; the summary may hold arrows of its own."""
    if started is not None and text.startswith(f"{started} → "):
        return started, text[len(started) + 3 :]
    summary, _, outcome = text.rpartition(" → ")
    return (summary, outcome) if summary else (text, "")


def _call_id(event: Event) -> str:
    raw = event.get("raw")
    return "call " + str(raw.get("call_id", "") if isinstance(raw, dict) else "")


def _name_of(event: Event, kind: str) -> str:
    raw = event.get("raw")
    if kind == "unknown" and isinstance(raw, dict):
        return one_line(f"unknown event {raw.get('type')}/{raw.get('subtype')}", _NOTE_LENGTH)
    return one_line(kind.replace(":", " "))
