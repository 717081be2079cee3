"""`inbox`: messages that agents sent to the operator; reading them takes nothing away."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command("inbox", VERBS["inbox"])


def run(arguments: Arguments) -> int:
    """Print the messages and return the exit status."""
    with Connection() as connection:
        messages = connection.call_list("inbox.list")
    if arguments.json:
        output.put_json(messages)
        return 0
    for message in messages:
        head = "  ".join(output.text_of(message.get(key)) for key in ("id", "time", "from"))
        text = output.neutralise(str(message.get("text", ""))).rstrip()
        print(head + "\n  " + text.replace("\n", "\n  "))
    return 0
