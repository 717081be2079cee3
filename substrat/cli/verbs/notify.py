"""`notify --test`: runs the command that tells a person who needs them, with a made-up agent."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "notify",
    VERBS["notify"],
    options=(Option("--test", about="run it with one made-up agent"),),
    notes=(
        "The command is notify.command in the configuration. The daemon runs it when agents need you, once for each cause, "
        "with who and why on its standard input; docs/configuration.md has examples."
    ),
)


def run(arguments: Arguments) -> int:
    """Run the command and return the exit status."""
    if not arguments.flag("test"):
        raise COMMAND.wrong("say --test: the daemon rings by itself")
    with Connection() as connection:
        connection.call("notify.test")
    if arguments.json:
        output.put_json({})
    else:
        output.note("the command was run, and ended well")
    return 0
