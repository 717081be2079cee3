"""Says which agents need a person, why, and the next command: one vocabulary for all verbs."""

from __future__ import annotations

from substrat.cli import output
from substrat.protocol import attention
from substrat.protocol.attention import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.cli.output import Agent

_KNOWN = frozenset(KINDS)
_COLOURS = {
    "answer": output.RED, "unsafe": output.RED, "unkept": output.RED, "failed": output.RED, "stuck": output.RED,
    "budget": output.YELLOW, "merge": output.YELLOW, "held": output.YELLOW, "suspended": output.YELLOW,
    "working": output.GREEN, "queued": output.CYAN, "idle": output.DIM, "done": output.DIM,
}  # fmt: skip


def kind(agent: Agent) -> str:
    """Return the kind of an agent's attention; `-` where there is none."""
    found = _member(agent, "kind")
    return found if isinstance(found, str) and found in _KNOWN else output.text_of(found)


def level(agent: Agent) -> str:
    """Return how much a person should care: `urgent`, `action` or `info`."""
    return output.text_of(_member(agent, "level"))


def since(agent: Agent) -> object:
    """Return the time since which an agent has its attention."""
    return _member(agent, "since")


def weight(agent: Agent) -> tuple[int, str]:
    """Return a key that sorts agents: the weightiest kind first, then the oldest."""
    found = kind(agent)
    return KINDS.index(found) if found in KINDS else len(KINDS), str(since(agent))


def said(agent: Agent) -> str:
    """Return an agent's attention: its kind and, if it adds something, its text."""
    return kind(agent) if level(agent) in {"info", "-"} else f"{kind(agent)}: {_text(agent)}"


def command(agent: Agent, *, is_shown: bool = False) -> str:
    """Return the next command for an agent, without the program's name; empty where nothing has to be done.

    Args:
        agent: the agent object.
        is_shown: whether the person sees the output of `show` already.
    """
    of = "unlandable" if kind(agent) == "merge" and not output.has_commits(agent) else kind(agent)
    name, item, is_frozen = output.text_of(agent.get("name")), _member(agent, "item"), bool(_member(agent, "frozen"))
    found = attention.command(of, name, item, frozen=is_frozen)
    return found.rpartition(", then ")[2] if is_shown else found


def doing(agent: Agent) -> str:
    """Return why an agent needs a person or waits, its activity, or the first line of its last words; `-` for nothing."""
    of, text = kind(agent), _text(agent)
    refusal = text.partition("; refused ")[2]
    activity = agent.get("activity")
    if of == "working" and isinstance(activity, dict):
        text = output.text_of(activity.get("text"))
    elif of in {"idle", "done"}:
        text = output.text_of(str(agent.get("last") or "").strip().partition("\n")[0])
    else:
        # The row is about an agent, and few columns are left for its program.
        return text.removeprefix("the agent program ")
    if not refusal:
        return text
    return f"refused {refusal}" if text == "-" else f"refused {refusal}; {text}"


def paint(text: str, of: str, *, on: bool) -> str:
    """Put a text in the colour of a kind, if colours are on."""
    return output.paint(text, _COLOURS.get(of, ""), on=on and of in _COLOURS)


def counts(kinds: Sequence[str]) -> str:
    """Say how many agents there are, and how many for each kind of attention, the weightiest first.

    Args:
        kinds: the kind of each agent.
    """
    parts = [f"{kinds.count(one)} {one}" for one in (*KINDS, "-") if one in kinds]
    total = f"{len(kinds)} agent{'' if len(kinds) == 1 else 's'}"
    return f"{total}: {', '.join(parts)}" if parts else total


def need(agent: Agent) -> str:
    """Say in a line that an agent needs a person: why, and the command to type."""
    said = f"{output.text_of(agent.get('name'))} needs you: {_text(agent)}"
    return f"{said}: substratctl {command(agent)}"


def _text(agent: Agent) -> str:
    """Return the text of an agent's attention without the command at its end, which is shown by itself."""
    text = output.in_local_time(output.text_of(_member(agent, "text")))
    return text.removesuffix(f": resume {output.text_of(agent.get('name'))}")


def _member(agent: Agent, name: str) -> object:
    found = agent.get("attention")
    return found.get(name) if isinstance(found, dict) else None
