"""Lists what was sent to agents and by them, for `inbox NAME`; takes back what still waits."""

from __future__ import annotations

import sys
import time

from substrat import errors
from substrat.cli import many, output
from substrat.cli.connection import Connection, as_list
from substrat.cli.verbs.inbox import number_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.cli.options import Arguments


def show(arguments: Arguments) -> int:
    """Print the messages of the named agents, oldest first, or take some of one back, and return the exit status."""
    names = arguments.words
    numbers = [number_of(arguments, text) for text in arguments.values("drop")]
    if numbers and len(names) > 1:
        raise arguments.command.wrong("--drop takes one NAME")
    with Connection() as connection:
        for number in numbers:
            connection.call("message.drop", agent=names[0], id=number)
            output.note(f"message {number} is taken back")
        if numbers and not arguments.json:
            return errors.DONE
        found = {name: _messages(connection, name) for name in dict.fromkeys(names)}
    lists, status = many.settle(list(found.values()))
    if arguments.json:
        many.put_json(arguments, lists, status, names=len(names))
        return status
    for name, messages in found.items():
        if isinstance(messages, list):
            sys.stdout.write(many.title(name, more=len(names) > 1, colour=output.has_colour(sys.stdout)))
            _print(name, messages)
    return status


def _print(name: str, messages: list[dict[str, object]]) -> None:
    if not messages:
        output.note(f"nothing was sent to {name}, nor by it")
        return
    now = time.time()
    rows = [
        (
            output.text_of(message.get("id")), output.text_of(message.get("from")), output.text_of(message.get("to")),
            output.text_of(message.get("intent")), _state(message), output.age(message.get("time"), now),
            output.text_of(" ".join(str(message.get("text", ""))[:500].split())),
        )
        for message in messages
    ]  # fmt: skip
    titles = ("ID", "FROM", "TO", "INTENT", "STATE", "AGE", "TEXT")
    shown = output.cut(titles, rows, output.terminal_width(sys.stdout), {"TEXT": 20, "FROM": 10, "TO": 10})
    sys.stdout.write(output.table(titles, shown, colour=output.has_colour(sys.stdout)))


def _state(message: dict[str, object]) -> str:
    turn = message.get("turn")
    return output.text_of(f"{message.get('state')} ({turn})" if turn is not None else message.get("state"))


def _messages(connection: Connection, name: str) -> list[dict[str, object]] | errors.NotFound:
    """Return an agent's messages, read page by page, or that there is no such agent."""
    found: list[dict[str, object]] = []
    after: object = 0
    while True:
        try:
            page = connection.call_object("message.list", agent=name, after=after)
        except errors.NotFound as problem:
            return problem
        found += as_list("message.list", page.get("messages"))
        if not page.get("more"):
            return found
        after = page.get("after")
