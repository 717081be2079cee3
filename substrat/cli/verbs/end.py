"""`end`: finishes agents for good; their files and events stay until `rm`."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "end",
    "NAME...|--all",
    options=(many.ALL, Option("--alone", about="leave the agents that descend from it")),
    notes=(
        "An agent's descendants end with it. --all takes each agent that isn't ended, and asks first where there is a "
        f"terminal. {many.GLOB_NOTE}\n{many.JSON_NOTE}"
    ),
)
_ENDABLE = ("idle", "queued", "running", "suspended", "failed")


def run(arguments: Arguments) -> int:
    """Finish the agents, report each and return the exit status."""
    many.check_all(arguments, arguments.words)
    takes_along = not arguments.flag("alone") and not arguments.flag("all")
    with Connection() as connection:
        names = many.chosen(arguments, connection, _ENDABLE)
        can_ask = arguments.flag("all") and sys.stdin.isatty() and not arguments.json
        if can_ask and names and not _agrees(connection, names):
            output.note("nothing was ended")
            return errors.FAILED
        if takes_along:
            for name, others in many.descendants(connection, names):
                output.note(f"{name} takes along {', '.join(others)} ('end --alone' would leave them)")
        agents, status = many.stop(connection, "agent.end", names, family=takes_along or None)
    many.report(arguments, agents, status, "ended", everyone=arguments.flag("all"))
    return status


def _agrees(connection: Connection, names: list[str]) -> bool:
    """Say how many turns would be stopped, and ask whether all agents are ended."""
    agents = connection.call_list("agent.list", fields=["turn"], names=names)
    turns = sum((turn := output.turn_of(one)) is not None and turn.get("outcome") is None for one in agents)
    running = f"{turns} turns run" if turns > 1 else f"{turns or 'no'} turn runs"
    return output.agrees(f"{running}. End {many.counted(len(names))} for good?")
