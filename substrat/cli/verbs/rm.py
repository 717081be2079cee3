"""`rm`: forgets an agent that isn't running, with its files and events; the workspace and the chat stay."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command("rm", VERBS["rm"], "NAME", least=1, most=1, notes="--json gives the agent object as it last was.")


def run(arguments: Arguments) -> int:
    """Remove the agent and return the exit status."""
    with Connection() as connection:
        agent = connection.call_object("agent.show", agent=arguments.words[0])
        connection.call("agent.rm", agent=agent["id"])
    if arguments.json:
        output.put_json(agent)
    else:
        print(f"{output.text_of(agent['name'])}  removed")
    return 0
