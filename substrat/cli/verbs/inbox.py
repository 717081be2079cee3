"""`inbox`: what agents ask and tell the operator, until it is answered or dismissed; `answer` answers."""

from __future__ import annotations

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "inbox",
    VERBS["inbox"],
    options=(Option("--dismiss", value="ID", about="take this one off the inbox, without an answer; may be repeated"),),
    notes="Reading takes nothing away. `substratctl answer ID TEXT` answers a question or a message.",
)


def run(arguments: Arguments) -> int:
    """Print what waits, or take some of it off, and return the exit status."""
    numbers = [number_of(arguments, text) for text in arguments.values("dismiss")]
    with Connection() as connection:
        for number in numbers:
            connection.call("inbox.dismiss", id=number)
        items = connection.call_list("inbox.list") if not numbers or arguments.json else []
    if arguments.json:
        output.put_json(items)
        return 0
    for item in items:
        head = "  ".join(output.text_of(item.get(key)) for key in ("id", "time", "from"))
        kind = "  asks" if item.get("kind") == "question" else ""
        text = output.neutralise(str(item.get("text", ""))).rstrip()
        print(head + kind + "\n  " + text.replace("\n", "\n  "))
    return 0


def number_of(arguments: Arguments, text: str) -> int:
    """Read an item's number.

    Raises:
        UsageError: it isn't one.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise arguments.command.wrong(f"{text!r} is no number of `substratctl inbox`")
    return int(text)
