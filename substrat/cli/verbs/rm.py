"""`rm`: forgets agents that aren't running, with their files and events; workspaces and chats stay."""

from __future__ import annotations

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "rm",
    VERBS["rm"],
    "NAME...|--ended",
    most=None,
    options=(Option("--ended", about="all agents that are ended"),),
    notes=f"{many.JSON_NOTE}\nEach object is the agent as it last was.",
)


def run(arguments: Arguments) -> int:
    """Remove the agents, report each and return the exit status."""
    many.check_all(arguments, arguments.words, "ended")
    with Connection() as connection:
        names = many.chosen(arguments, connection, ("ended",), "ended")
        found, status = many.ask_objects(connection, "agent.show", names)
        outcomes = connection.each([("agent.rm", {"agent": agent["id"]}) for agent in found])
    _, failed = many.settle(outcomes)
    agents = [
        agent for agent, outcome in zip(found, outcomes, strict=True) if not isinstance(outcome, errors.SubstratError)
    ]
    status = status or failed
    if arguments.json:
        many.put_json(arguments, agents, status)
    elif arguments.flag("ended"):
        print(f"{many.counted(len(agents))} removed")
    else:
        for agent in agents:
            print(f"{output.text_of(agent['name'])}  removed")
    return status
