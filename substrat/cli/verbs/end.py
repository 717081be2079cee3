"""`end`: finishes agents for good; their files and events stay until `rm`."""

from __future__ import annotations

from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "end",
    VERBS["end"],
    "NAME...|--all",
    most=None,
    options=(many.ALL, Option("--alone", about="leave the agents that descend from it")),
    notes=(
        f"An agent's descendants end with it. --all takes each agent that isn't ended. {many.GLOB_NOTE}\n{many.JSON_NOTE}"
    ),
)
_ENDABLE = ("idle", "queued", "running", "suspended", "failed")


def run(arguments: Arguments) -> int:
    """Finish the agents, report each and return the exit status."""
    many.check_all(arguments, arguments.words)
    takes_along = not arguments.flag("alone") and not arguments.flag("all")
    with Connection() as connection:
        names = many.chosen(arguments, connection, _ENDABLE)
        if takes_along:
            for name, others in many.descendants(connection, names):
                output.note(f"{name} takes along {', '.join(others)} ('end --alone' would leave them)")
        agents, status = many.stop(connection, "agent.end", names, family=takes_along or None)
    many.report(arguments, agents, status, "ended", everyone=arguments.flag("all"))
    return status
