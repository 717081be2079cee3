"""Says which agents need a person, why, and the next command: one vocabulary for all verbs."""

from __future__ import annotations

from collections import Counter

from substrat.cli import output
from substrat.protocol import attention
from substrat.protocol.attention import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.cli.output import Agent

_KNOWN = {kind: kind for kind in KINDS}
_PLACES = {kind: place for place, kind in enumerate(KINDS)}
_STILL = frozenset({"failed", "suspended"})
"""States that an agent's row names, also where they are its lead's to settle and its kind is `idle`."""
_SEVERAL = frozenset({"failed", "merge", "suspended"})
"""Kinds whose command takes several agents."""
_MOST_NAMES = 40
"""Columns of the names in such a command."""
_COLOURS = {
    "answer": output.RED, "unsafe": output.RED, "unkept": output.RED, "failed": output.RED, "stuck": output.RED,
    "budget": output.YELLOW, "merge": output.YELLOW, "held": output.YELLOW, "suspended": output.YELLOW,
    "working": output.GREEN, "checking": output.CYAN, "queued": output.CYAN, "idle": output.DIM, "done": output.DIM,
}  # fmt: skip


def kind(agent: Agent) -> str:
    """Return the kind of an agent's attention; `-` where there is none."""
    try:
        return _KNOWN[agent["attention"]["kind"]]  # type: ignore[index]  # several times for each row, so nothing is asked first
    except (KeyError, TypeError):
        return output.text_of(_member(agent, "kind"))


def level(agent: Agent) -> str:
    """Return how much a person should care: `urgent`, `action` or `info`."""
    return output.text_of(_member(agent, "level"))


def since(agent: Agent) -> object:
    """Return the time since which an agent has its attention."""
    return _member(agent, "since")


def weight(agent: Agent) -> tuple[int, str]:
    """Return a key that sorts agents: the weightiest kind first, then the oldest."""
    return place_of(kind(agent)), str(since(agent))


def place_of(of: str) -> int:
    """Return the place of a kind among all, the weightiest first."""
    return _PLACES.get(of, len(KINDS))


def has_failed(agent: Agent) -> bool:
    """Say whether an agent has failed, and no person has accepted that: one that is led says so in its text alone."""
    return kind(agent) == "failed" or _text(agent).startswith("failed: ")


def said(agent: Agent) -> str:
    """Return an agent's attention: its kind and, if it adds something, its text."""
    return kind(agent) if level(agent) in {"info", "-"} else f"{kind(agent)}: {_text(agent)}"


def command(agent: Agent, *, is_shown: bool = False, names: str = "") -> str:
    """Return the next command for an agent, without the program's name; empty where nothing has to be done.

    Args:
        agent: the agent object.
        is_shown: whether the person sees the output of `show` already.
        names: the agents that it names; empty: this one.
    """
    of = kind(agent)
    if of not in attention.COMMANDS:
        return ""
    if of == "budget" and (asked := _budget_command(agent)):
        return asked
    of = "unlandable" if of == "merge" and not output.has_commits(agent) else of
    name = names or output.text_of(agent.get("name"))
    found = attention.command(of, name, _member(agent, "item"), frozen=bool(_member(agent, "frozen")))
    return found.rpartition(", then ")[2] if is_shown else found


def command_of(family: Sequence[Agent]) -> str:
    """Return the next command for a family, sorted by weight: that of the first, and of as many that need the same."""
    found = command(family[0])
    if kind(family[0]) not in _SEVERAL or "TEXT" in found:
        return found
    alike = [one for one in family if command(one, names="NAME") == command(family[0], names="NAME")]
    names = [output.text_of(one.get("name")) for one in alike]
    while len(" ".join(names)) > _MOST_NAMES and len(names) > 1:
        names.pop()
    return command(family[0], names=" ".join(names))


def doing_of(family: Sequence[Agent], root: Agent) -> str:
    """Say what a family does: `5 working, 1 asks, 2 merged into lead`, then why it needs a person, or what its root does.

    Args:
        family: its members, sorted by weight.
        root: the one at its top, which isn't counted.
    """
    if len(family) == 1:
        return doing(root)
    words = [_word(one) for one in family if one is not root]
    parts = [_counted(words.count(word), word) for word in dict.fromkeys(words)]
    first = family[0] if command(family[0]) else root
    why = "" if kind(first) == "waiting" else doing(first)  # its waits are those of the counts
    of = "" if first is root else f"{output.text_of(first.get('name'))}: "
    return ", ".join(parts) + (f"; {of}{why}" if why not in {"", "-", kind(first)} else "")


def _word(agent: Agent) -> str:
    """Return the word that an agent is counted by in its family's row."""
    of, clone = kind(agent), agent.get("clone")
    if of not in {"idle", "done"}:
        return of
    if (state := agent.get("state")) in _STILL:
        return output.text_of(state)
    record = clone.get("work") if isinstance(clone, dict) else None
    holder = record.get("in") if isinstance(record, dict) else None
    return f"merged into {output.text_of(holder)}" if holder else of


def _counted(number: int, word: str) -> str:
    said = {"answer": "asks" if number == 1 else "ask", "merge": "to merge"}.get(word, word)
    return f"{number} {said}"


def doing(agent: Agent) -> str:
    """Return why an agent needs a person or waits, its activity, or the first line of its last words; `-` for nothing."""
    of, activity = kind(agent), agent.get("activity")
    if of == "working" and isinstance(activity, dict):
        text = output.text_of(activity.get("text"))
    elif of in {"idle", "done"} and agent.get("state") not in _STILL:
        last = agent.get("last")
        text = output.text_of(str(last).strip().partition("\n")[0]) if last else "-"
    else:
        # The row is about an agent, and few columns are left for its program.
        return _text(agent).removeprefix("the agent program ").replace("failed: the agent program ", "failed: ", 1)
    refusal = _text(agent).partition("; refused ")[2] if "refused" in str(_member(agent, "text")) else ""
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
    numbers = Counter(kinds)
    parts = [f"{numbers[one]} {one}" for one in (*KINDS, "-") if one in numbers]
    total = f"{len(kinds)} agent{'' if len(kinds) == 1 else 's'}"
    return f"{total}: {', '.join(parts)}" if parts else total


def need(agent: Agent) -> str:
    """Say in a line that an agent needs a person: why, and the command to type."""
    said = f"{output.text_of(agent.get('name'))} needs you: {_text(agent)}"
    return f"{said}: substratctl {command(agent)}"


def _budget_command(agent: Agent) -> str:
    """Return the command at the end of the text about a budget that is used up: `budget lead --add turns=10`."""
    _, found, rest = output.text_of(_member(agent, "text")).rpartition(": budget ")
    return f"budget {rest}" if found else ""


def _text(agent: Agent) -> str:
    """Return the text of an agent's attention without the command at its end, which is shown by itself."""
    text = output.in_local_time(output.text_of(_member(agent, "text")))
    if kind(agent) == "budget":
        text = text.removesuffix(f": {_budget_command(agent)}")
    return text.removesuffix(f": resume {output.text_of(agent.get('name'))}")


def _member(agent: Agent, name: str) -> object:
    found = agent.get("attention")
    return found.get(name) if isinstance(found, dict) else None
