"""`end`: finishes agents for good; their files and events stay until `rm`."""

from __future__ import annotations

from substrat.cli import many
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command(
    "end",
    VERBS["end"],
    "NAME...|--all",
    most=None,
    options=(many.ALL,),
    notes=f"--all takes each agent that isn't ended.\n{many.JSON_NOTE}",
)
_ENDABLE = ("idle", "queued", "running", "suspended", "failed")


def run(arguments: Arguments) -> int:
    """Finish the agents, report each and return the exit status."""
    many.check_all(arguments, arguments.words)
    with Connection() as connection:
        names = many.chosen(arguments, connection, _ENDABLE)
        agents, status = many.stop(connection, "agent.end", names)
    many.report(arguments, agents, status, "ended", everyone=arguments.flag("all"))
    return status
