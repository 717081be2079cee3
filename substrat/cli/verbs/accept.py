"""`accept`: notes that a person has seen what asks for attention; `show` lists it with numbers."""

from __future__ import annotations

from substrat.cli import many, output
from substrat.cli.connection import Connection, as_object
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command(
    "accept",
    VERBS["accept"],
    "NAME... [NUMBER]...",
    least=1,
    most=None,
    notes=(
        "Without a NUMBER: all findings of each agent, and its failed turn. Numbers are those that\n"
        "'show NAME' lists, and go with one NAME. An accepted finding comes back only if it changes."
    ),
)


def run(arguments: Arguments) -> int:
    """Accept what was found and return the exit status."""
    names, numbers = _split(arguments)
    with Connection() as connection:
        results, status = many.ask_each(connection, "agent.accept", names, what=numbers or None)
    if arguments.json:
        output.put_json(results[0] if len(names) == 1 and results else results)
    else:
        for result in results:
            agent = as_object("agent.accept", result)
            print(f"{output.text_of(agent['name'])}  accepted; {output.attention_of(agent)}")
    return status


def _split(arguments: Arguments) -> tuple[list[str], list[int]]:
    first, *rest = arguments.words
    numbers = [int(word) for word in rest if word.isdecimal()]
    names = [first, *(word for word in rest if not word.isdecimal())]
    if numbers and len(names) > 1:
        raise arguments.command.wrong("numbers of findings go with one NAME")
    return names, numbers
