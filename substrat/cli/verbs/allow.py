"""`allow`: shows or changes what an agent's `filtered` network lets through; what it decided is in `show`."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "allow",
    VERBS["allow"],
    "NAME [HOST[:PORT]]...",
    least=1,
    most=None,
    options=(Option("--remove", value="HOST", about="take this off the list; may be repeated"),),
    notes="A running turn is held to the new list at once. What a parent loses its children lose too.",
)


def run(arguments: Arguments) -> int:
    """Change the list if asked to, print it and return the exit status."""
    name, *add = arguments.words
    with Connection() as connection:
        network = connection.call_object(
            "agent.network", agent=name, allow=add or None, remove=arguments.values("remove") or None
        )
    if arguments.json:
        output.put_json(network)
        return 0
    allowed = network.get("allow")
    for entry in allowed if isinstance(allowed, list) else []:
        print(output.text_of(entry))
    return 0
