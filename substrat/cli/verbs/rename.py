"""`rename`: gives an agent another name."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command(
    "rename",
    VERBS["rename"],
    "OLD NEW",
    least=2,
    most=2,
    notes=(
        "The refs of its clone, below refs/substrat/OLD, move along. While a turn or a command runs in its sandbox, the "
        "agent keeps its name: suspend it first."
    ),
)


def run(arguments: Arguments) -> int:
    """Rename the agent and return the exit status."""
    old, new = arguments.words
    with Connection() as connection:
        agent = connection.call_object("agent.rename", agent=old, name=new)
    if arguments.json:
        output.put_json(agent)
    else:
        print(f"{output.text_of(old)} is called {output.text_of(agent['name'])} now")
    return 0
