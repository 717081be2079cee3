"""Draws agents under the agents that spawned them, for `ls --tree`; an agent whose parent was removed is a root."""

from __future__ import annotations

import sys

from substrat.cli import attention, output
from substrat.cli.connection import Connection
from substrat.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from substrat.cli.output import Agent

    Families = dict[object, list[Agent]]

_FIELDS = ["id", "name", "parent", "state", "attention", "activity", "last", "clone", "waits"]
_LEAST = 20
"""Columns that the last words of a line have on the narrowest terminal."""


def show(names: Sequence[str], *, as_json: bool) -> None:
    """Print families.

    Args:
        names: the agents that stand at the left; none: all without a parent.
        as_json: prints the agents' objects, each with the member `children`.

    Raises:
        NotFound: there is no agent of one of the names.
    """
    with Connection() as connection:
        fields, named = None if as_json else _FIELDS, list(names) or None
        agents = connection.call_list("agent.list", fields=fields, names=named, family=bool(named) or None)
        waits = connection.call_list("wait.list") if any(agent.get("waits") for agent in agents) and not as_json else []
    families = _families(agents)
    roots = [root for name in names for root in _named(agents, name)] if names else families.get(None, [])
    if as_json:
        output.put_json([_with_children(families, root) for root in roots])
        return
    if not roots:
        print(attention.counts([]))
        return
    colour, width = output.has_colour(sys.stdout), output.terminal_width(sys.stdout)
    rows = [row for root in roots for row in [("", root), *_branches(families, root, "")]]
    cells = [_cells(lead, agent) for lead, agent in rows]
    if all(work == "-" for *_, work in cells):
        cells = [(name, kind, "") for name, kind, _ in cells]
    sizes = [max(map(output.width, column)) for column in zip(*cells, strict=True)]
    awaited: dict[object, list[str]] = {}
    for wait in waits:
        awaited.setdefault(wait.get("agent"), []).append(_awaited(wait))
    for row, (_, agent) in zip(cells, rows, strict=True):
        why = "; ".join(awaited.get(agent["name"], ())) if attention.kind(agent) == "waiting" else ""
        print(_line(row, sizes, why or attention.doing(agent), width, colour=colour))


def _awaited(wait: dict[str, object]) -> str:
    """Say which agents a wait is for, and how many of them have finished."""
    names, done = wait.get("names"), wait.get("done")
    if not (names and isinstance(names, list) and isinstance(done, list)):
        return ""  # its attention says it
    return f"waits for {', '.join(map(str, names))}: {len(done)} of {len(names)} finished"


def _named(agents: list[Agent], name: str) -> list[Agent]:
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


def _cells(lead: str, agent: Agent) -> tuple[str, str, str]:
    """Return an agent's name below its parent's, its attention and its work."""
    return lead + output.text_of(agent.get("name")), attention.kind(agent), output.work_of(agent)


def _line(row: Sequence[str], sizes: Sequence[int], why: str, width: int | None, *, colour: bool) -> str:
    """Return a line: the cells, and the rest if it adds something; a column of no width is left out."""
    shown = [output.padded(cell, size) for cell, size in zip(row, sizes, strict=True) if size]
    if why not in {"-", row[1]}:
        room = None if width is None else max(width - sum(sizes) - 2 * len(shown), _LEAST)
        shown.append(why if room is None else output.shortened(why, room))
    shown[1] = attention.paint(row[1], row[1], on=colour) + shown[1][len(row[1]) :]
    return "  ".join(shown).rstrip()
