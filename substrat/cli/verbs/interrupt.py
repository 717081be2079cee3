"""`interrupt`: stops an agent's turn; the agent stays and takes new prompts."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command("interrupt", VERBS["interrupt"], "NAME", least=1, most=1)


def run(arguments: Arguments) -> int:
    """Stop the turn, print the agent and return the exit status."""
    with Connection() as connection:
        agent = connection.call_object("agent.interrupt", agent=arguments.words[0])
    if arguments.json:
        output.put_json(agent)
    else:
        print(f"{output.text_of(agent['name'])}  {output.text_of(agent['state'])}")
    return 0
