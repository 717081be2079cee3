"""`suspend`: stops agents' turns and keeps their sessions; `resume` goes on."""

from __future__ import annotations

from substrat.cli import many
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "suspend",
    "NAME...|--all",
    options=(many.ALL, Option("--freeze", about="stop the turn in memory, where it is: no process ends")),
    notes=f"--all takes each agent that is idle, queued or running. {many.GLOB_NOTE}\n{many.JSON_NOTE}",
)


def run(arguments: Arguments) -> int:
    """Suspend the agents, report each and return the exit status."""
    many.check_all(arguments, arguments.words)
    freeze = arguments.flag("freeze")
    with Connection() as connection:
        names = many.chosen(arguments, connection, ("idle", "queued", "running"))
        together = arguments.flag("all") or None
        agents, status = many.stop(connection, "agent.suspend", names, freeze=freeze or None, together=together)
    many.report(arguments, agents, status, "suspended", everyone=arguments.flag("all"))
    return status
