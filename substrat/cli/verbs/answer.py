"""`answer`: answers a question or a message of the inbox; the answer starts the agent's next turn."""

from __future__ import annotations

from substrat import errors
from substrat.cli import output, turns
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS
from substrat.cli.verbs.inbox import items_of, number_of

COMMAND = Command(
    "answer",
    VERBS["answer"],
    "ID|NAME [TEXT]",
    least=1,
    most=2,
    options=(Option("--prompt-file", value="F", about="read the answer from a file, '-' is standard input"),),
    notes="NAME is an agent that has one open question. A TEXT that is '-' is read from standard input.",
)


def run(arguments: Arguments) -> int:
    """Send the answer and return the exit status."""
    whom = arguments.words[0]
    text = turns.read_prompt(arguments, arguments.words[1] if len(arguments.words) > 1 else None)
    if text is None:
        raise COMMAND.wrong("the answer is missing")
    with Connection() as connection:
        number = number_of(arguments, whom) if whom.isdecimal() else _question_of(connection, whom)
        answered = connection.call_object("inbox.answer", id=number, text=text)
    agent, _ = turns.agent_and_message("inbox.answer", answered)
    if arguments.json:
        output.put_json(answered)
    else:
        print(f"{output.text_of(agent['name'])}  answered ({output.text_of(agent['state'])})")
    return 0


def _question_of(connection: Connection, name: str) -> object:
    """Return the number of an agent's one open question."""
    agent = connection.call_object("agent.show", agent=name)["name"]
    asked = [item["id"] for item in items_of(connection) if item.get("from") == agent and item.get("kind") == "question"]
    if not asked:
        raise errors.NotFound(f"{agent} has no open question: 'substratctl inbox' lists those there are")
    if len(asked) > 1:
        numbers = ", ".join(map(str, asked))
        raise errors.Refused(f"{agent} has {len(asked)} open questions, {numbers}: answer one by its number")
    return asked[0]
