"""`tree`: prints agents under the agents that spawned them; an agent whose parent was removed is a root."""

from __future__ import annotations

import sys

from substrat.cli import attention, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS
from substrat.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.cli.output import Agent

    Families = dict[object, list[Agent]]

COMMAND = Command(
    "tree",
    VERBS["tree"],
    words="[NAME]",
    most=1,
    notes=(
        "With NAME: that agent and those below it. After an agent's attention and work stands what `ls` has as DOING: why "
        "it needs you or waits, its last tool call while it runs, or the first line of its last result."
    ),
)


_LEAST = 20
"""Columns that the last words of a line have on the narrowest terminal."""


def run(arguments: Arguments) -> int:
    """Print the tree and return the exit status."""
    with Connection() as connection:
        agents = connection.call_list("agent.list")
    families = _families(agents)
    roots = _roots(agents, families, arguments.words[0] if arguments.words else None)
    if arguments.json:
        output.put_json([_with_children(families, root) for root in roots])
        return 0
    colour, width = output.has_colour(sys.stdout), output.terminal_width(sys.stdout)
    for root in roots:
        for lead, agent in [("", root), *_branches(families, root, "")]:
            print(_line(lead, agent, width, colour=colour))
    return 0


def _roots(agents: list[Agent], families: Families, name: str | None) -> list[Agent]:
    """Return the agents that stand at the left: one by its name or id, or all without a parent."""
    if name is None:
        return families.get(None, [])
    found = [agent for agent in agents if name in {agent["name"], agent["id"]}]
    if not found:
        raise NotFound(f"there is no agent {name!r}: `substratctl ls` shows those there are")
    return found


def _families(agents: list[Agent]) -> Families:
    """Group agents by their parent's id; None for those without one that is still there."""
    known = {agent["id"] for agent in agents}
    families: Families = {}
    for agent in agents:
        parent = agent.get("parent")
        families.setdefault(parent if parent in known else None, []).append(agent)
    return families


def _with_children(families: Families, agent: Agent) -> Agent:
    return {**agent, "children": [_with_children(families, child) for child in families.get(agent["id"], [])]}


def _branches(families: Families, agent: Agent, indent: str) -> Iterator[tuple[str, Agent]]:
    """Yield the agents below one, each with the lines that lead to it."""
    children = families.get(agent["id"], [])
    for number, child in enumerate(children, 1):
        last = number == len(children)
        yield f"{indent}{'└─ ' if last else '├─ '}", child
        yield from _branches(families, child, indent + ("   " if last else "│  "))


def _line(lead: str, agent: Agent, width: int | None, *, colour: bool) -> str:
    kind, why = attention.kind(agent), attention.doing(agent)
    more = [part for part in (output.work_of(agent), why) if part not in {"-", kind}]
    parts = [lead + output.text_of(agent.get("name")), kind, *more]
    if width is not None and why in more:
        taken = output.width("  ".join(parts[:-1])) + 2
        parts[-1] = output.shortened(why, max(width - taken, _LEAST))
    parts[1] = attention.paint(kind, kind, on=colour)
    return "  ".join(parts)
