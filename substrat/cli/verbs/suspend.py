"""`suspend`: stops turns and keeps the sessions; the daemon answers when the processes are gone."""

from __future__ import annotations

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection, as_object
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "suspend",
    VERBS["suspend"],
    "NAME...|--all",
    most=None,
    options=(many.ALL, Option("--freeze", about="stop the turn in memory, where it is: no process ends")),
    notes="--all takes each agent that is idle, queued or running. --json gives a list of agent objects.",
)


def run(arguments: Arguments) -> int:
    """Suspend the agents, report each and return the exit status."""
    names = arguments.words
    many.check_all(arguments, names)
    with Connection() as connection:
        if arguments.flag("all"):
            names = many.names_in(connection.call_list("agent.list"), ("idle", "queued", "running"))
        results, status = many.ask_each(connection, "agent.suspend", names, freeze=arguments.flag("freeze") or None)
    agents = [as_object("agent.suspend", result) for result in results]
    if arguments.json and (agents or status == errors.DONE):
        output.put_json(agents)
    elif not arguments.json:
        for agent in agents:
            print(f"{output.text_of(agent['name'])}  {output.text_of(agent['state'])}")
    return status
