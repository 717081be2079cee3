"""`end`: finishes an agent for good; its files and events stay until `rm`."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command("end", VERBS["end"], "NAME", least=1, most=1)


def run(arguments: Arguments) -> int:
    """Finish the agent, print it and return the exit status."""
    with Connection() as connection:
        agent = connection.call_object("agent.end", agent=arguments.words[0])
    if arguments.json:
        output.put_json(agent)
    else:
        print(f"{output.text_of(agent['name'])}  {output.text_of(agent['state'])}")
    return 0
