"""Renders a transcript's steps (`substrat.core.programs.transcript`) as text or as Markdown. Pure.

An agent is hostile: text goes through `output.neutralise` before it reaches a terminal, and in Markdown every text of a
tool stands in a fence longer than any in it.
"""

from __future__ import annotations

import re

from substrat.cli import output
from substrat.cli.output import BOLD, DIM, GREEN, RED, YELLOW, one_line, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from substrat.core.programs.transcript import Tool, TranscriptStep

    Turn = Mapping[str, object]

_SHOWN_LINES = 12  # of a tool's output: half a terminal's height; `--whole` shows all
_STATUS_COLOURS = {"done": GREEN, "open": YELLOW}


def heading(turn: Turn | None) -> str:
    """Say a turn in one line: its number, how it ended, how long it took.

    Args:
        turn: the turn object; None for events between turns.
    """
    if turn is None:
        return "Between turns"
    began, ended = output.seconds_of(turn.get("started_at")), output.seconds_of(turn.get("ended_at"))
    parts = [f"Turn {output.text_of(turn.get('number'))}", output.text_of(turn.get("outcome"), "running")]
    if began is not None and ended is not None:
        parts.append(f"{ended - began:.1f} s")
    parts.append(output.local(turn.get("started_at")))
    return " · ".join(parts)


def usage_line(turn: Turn | None) -> str:
    """Return the tokens that a turn used, in one line; empty when the agent program didn't report them."""
    usage = turn.get("usage") if turn is not None else None
    if not isinstance(usage, dict) or not usage:
        return ""
    return ", ".join(f"{one_line(str(name))} {count}" for name, count in usage.items())


def as_text(step: TranscriptStep, *, colour: bool, whole: bool) -> str:
    """Return a step as lines for a terminal.

    Args:
        step: the step.
        colour: whether to use colours.
        whole: whether to show all of tools' output, not only its beginning.
    """
    text = output.neutralise(step.text.strip("\n"))
    match step.kind:
        case "prompt":
            return "".join(paint(f"> {line}", BOLD, on=colour) + "\n" for line in text.split("\n")) + "\n"
        case "text":
            return text + "\n\n" if text.strip() else ""
        case "thinking":
            return "".join(paint(f"  {line}", DIM, on=colour) + "\n" for line in text.split("\n")) + "\n"
        case "tool" if step.tool is not None:
            return _tool_text(text, step.tool, colour=colour, whole=whole)
    return paint(f"• {_note(step)}", DIM, on=colour) + "\n\n"


def as_markdown(step: TranscriptStep) -> str:
    """Return a step as a block of a Markdown document."""
    match step.kind:
        case "prompt":
            # A lone CR ends a line of Markdown too (spec.commonmark.org, 2.1), so it would end the quotation.
            return "".join(f"> {line}".rstrip() + "\n" for line in step.text.strip("\n").splitlines() or [""]) + "\n"
        case "text":
            return step.text.strip("\n") + "\n\n" if step.text.strip() else ""
        case "thinking":
            return f"<details><summary>Thinking</summary>\n\n{fenced(step.text.strip(chr(10)))}\n\n</details>\n\n"
        case "tool" if step.tool is not None:
            took = f" ({step.tool.seconds:.1f} s)" if step.tool.seconds is not None else ""
            head = f"**Tool** {code(step.text)} → {code(step.tool.verdict)}{took}\n\n"
            return head + (fenced(step.tool.output) + "\n\n" if step.tool.output else "")
    return f"*{_note(step).replace('*', '')}*\n\n"


def session_as_markdown(head: Mapping[str, object], messages: Iterator[Mapping[str, object]]) -> Iterator[str]:
    """Write a chat as a Markdown document, block by block.

    Args:
        head: the chat's metadata: `session`, `title`, `model`, `created_at`.
        messages: its messages in order: `role`, `text`, `calls`.
    """
    yield f"# {one_line(str(head.get('title') or '')) or 'Untitled chat'}\n\n"
    known = ((name, head.get(key)) for name, key in (("Session", "session"), ("model", "model"), ("begun", "created_at")))
    yield ", ".join(f"{name} {code(str(value))}" for name, value in known if value) + ".\n\n"
    for message in messages:
        text, calls = str(message.get("text") or ""), message.get("calls")
        yield f"## {one_line(str(message.get('role'))).capitalize()}\n\n"
        if text:
            yield (fenced(text) if message.get("role") == "tool" else text.strip("\n")) + "\n\n"
        for call in calls if isinstance(calls, list) else ():
            yield fenced(str(call)) + "\n\n"


def fenced(text: str) -> str:
    """Put text into a code block that nothing in it can end."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return f"{fence}\n{text}\n{fence}"


def code(text: str) -> str:
    """Put one line of text into a code span that nothing in it can end (spec.commonmark.org, 6.1)."""
    flat = one_line(text)
    mark = "`" * max([1, *(len(run) + 1 for run in re.findall(r"`+", flat))])
    pad = " " if flat.startswith("`") or flat.endswith("`") or not flat else ""
    return f"{mark}{pad}{flat}{pad}{mark}"


def _tool_text(summary: str, tool: Tool, *, colour: bool, whole: bool) -> str:
    verdict = paint(one_line(tool.verdict), _STATUS_COLOURS.get(tool.status, RED), on=colour)
    took = f" ({tool.seconds:.1f} s)" if tool.seconds is not None else ""
    lines = output.neutralise(tool.output).split("\n") if tool.output else []
    kept = lines if whole or len(lines) <= _SHOWN_LINES else lines[: _SHOWN_LINES - 1]
    shown = "".join(paint(f"    {line}", DIM, on=colour) + "\n" for line in kept)
    if len(kept) < len(lines):
        shown += paint(f"    … {output.lines_more(len(lines) - len(kept))}, --whole shows them", DIM, on=colour) + "\n"
    return f"  {one_line(summary)} → {verdict}{took}\n{shown}\n"


def _note(step: TranscriptStep) -> str:
    said = one_line(step.text)
    kind = one_line((step.event or "").replace(":", " "))
    return said if said and (step.event or "").startswith("turn:") else f"{kind}: {said}" if said else kind
