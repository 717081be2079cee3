"""`ls`: lists the agents; the start-up time of this verb is the yardstick for the whole program."""

from __future__ import annotations

import sys
import time

from substrat.cli import output, waiting
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.cli.output import Agent

COMMAND = Command("ls", VERBS["ls"], options=(Option("--quiet", "-q", about="the names only, one a line"),))
_TITLES = ("NAME", "STATE", "ATTENTION", "TURN", "MODEL", "NETWORK", "UNREAD", "AGE", "WORKSPACE")


def run(arguments: Arguments) -> int:
    """Print all agents and return the exit status."""
    if arguments.flag("quiet"):
        return _print_names(json=arguments.json)
    with Connection() as connection:
        agents = connection.call_list("agent.list")
        waiting.explain(connection, agents)
    if arguments.json:
        output.put_json(agents)
    else:
        rows = [_row(agent, time.time()) for agent in agents]
        sys.stdout.write(output.table(_TITLES, rows, colour=output.has_colour(sys.stdout), painted=1))
    return 0


def _print_names(*, json: bool) -> int:
    with Connection() as connection:
        agents = connection.call_list("agent.list", fields=["name"])
    if json:
        output.put_json(agents)
    else:
        sys.stdout.write("".join(f"{output.text_of(agent.get('name'))}\n" for agent in agents))
    return 0


def _row(agent: Agent, now: float) -> list[str]:
    text = output.text_of
    return [
        text(agent.get("name")),
        text(agent.get("state")),
        _attention(agent),
        output.turn_summary(agent),
        text(agent.get("model")),
        text(agent.get("network")),
        text(agent.get("unread")),
        output.age(agent.get("created_at"), now),
        text(agent.get("workspace")),
    ]


def _attention(agent: Agent) -> str:
    """Name why an agent needs a person; `-` for one that doesn't."""
    found = agent.get("attention")
    return output.text_of(found.get("kind")) if isinstance(found, dict) and found.get("level") != "info" else "-"
