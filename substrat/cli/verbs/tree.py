"""`tree`: prints agents under the agents that spawned them; an agent whose parent was removed is a root."""

from __future__ import annotations

import sys

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.cli.output import Agent

    Families = dict[object, list[Agent]]

COMMAND = Command("tree", VERBS["tree"])


def run(arguments: Arguments) -> int:
    """Print the tree and return the exit status."""
    with Connection() as connection:
        agents = connection.call_list("agent.list")
    if arguments.json:
        output.put_json(nested(agents))
        return 0
    colour = output.has_colour(sys.stdout)
    families = _families(agents)
    for root in families.get(None, []):
        print(_label(root, colour=colour))
        for line in _branches(families, root, "", colour=colour):
            print(line)
    return 0


def nested(agents: list[Agent]) -> list[Agent]:
    """Return the roots; each agent object has a list `children` of agent objects."""
    families = _families(agents)
    return [_with_children(families, root) for root in families.get(None, [])]


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


def _branches(families: Families, agent: Agent, indent: str, *, colour: bool) -> Iterator[str]:
    children = families.get(agent["id"], [])
    for number, child in enumerate(children, 1):
        last = number == len(children)
        yield f"{indent}{'└─ ' if last else '├─ '}{_label(child, colour=colour)}"
        yield from _branches(families, child, indent + ("   " if last else "│  "), colour=colour)


def _label(agent: Agent, *, colour: bool) -> str:
    state = output.paint_state(output.text_of(agent.get("state")), on=colour)
    return f"{output.text_of(agent.get('name'))}  {state}  {output.turn_summary(agent)}"
