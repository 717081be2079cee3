"""`answer`: answers a question or a message of the inbox; the answer starts the agent's next turn."""

from __future__ import annotations

from substrat import errors
from substrat.cli import output, turns
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.verbs.inbox import items_of, number_of
from substrat.protocol import answers

COMMAND = Command(
    "answer",
    "ID|NAME [TEXT]",
    options=(Option("--prompt-file", value="F", about="read the answer from a file, '-' is standard input"),),
    notes=(
        "NAME is an agent that has one open question. Where a question proposes answers, TEXT may be the number of one: "
        "'answer anna 2'. A TEXT that is '-' is read from standard input."
    ),
)


def run(arguments: Arguments) -> int:
    """Send the answer and return the exit status."""
    whom = arguments.words[0]
    text = turns.read_prompt(arguments, arguments.words[1] if len(arguments.words) > 1 else None)
    if text is None:
        raise COMMAND.wrong("the answer is missing")
    with Connection() as connection:
        item = _item(connection, arguments, whom)
        answered = connection.call_object("inbox.answer", id=item["id"], text=text)
    agent, _ = turns.agent_and_message("inbox.answer", answered)
    if arguments.json:
        output.put_json(answered)
        return 0
    options = item.get("options")
    option = answers.chosen(options, text) if isinstance(options, list) and options else ""
    if option is None:
        output.note("it is none of the answers that were proposed, so the agent gets your own words")
    said = f": {output.text_of(option)}" if option else ""
    print(f"{output.text_of(agent['name'])}  answered{said} ({output.text_of(agent['state'])})")
    return 0


def _item(connection: Connection, arguments: Arguments, whom: str) -> dict[str, object]:
    """Return the item of a number, or an agent's one open question."""
    if whom.isdecimal():
        return connection.call_object("inbox.show", id=number_of(arguments, whom))
    agent = connection.call_object("agent.show", agent=whom)["name"]
    asked = [item for item in items_of(connection) if item.get("from") == agent and item.get("kind") == "question"]
    if not asked:
        raise errors.NotFound(f"{agent} has no open question: 'substratctl inbox' lists those there are")
    if len(asked) > 1:
        numbers = ", ".join(str(item["id"]) for item in asked)
        raise errors.Refused(f"{agent} has {len(asked)} open questions, {numbers}: answer one by its number")
    return asked[0]
