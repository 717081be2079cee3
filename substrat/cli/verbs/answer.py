"""`answer`: answers a question or a message of the inbox; the answer starts the agent's next turn."""

from __future__ import annotations

from substrat.cli import output, turns
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS
from substrat.cli.verbs.inbox import number_of

COMMAND = Command(
    "answer",
    VERBS["answer"],
    "ID [TEXT]",
    least=1,
    most=2,
    options=(Option("--prompt-file", value="F", about="read the answer from a file, '-' is standard input"),),
    notes="A TEXT that is '-' is read from standard input.",
)


def run(arguments: Arguments) -> int:
    """Send the answer and return the exit status."""
    number = number_of(arguments, arguments.words[0])
    text = turns.read_prompt(arguments, arguments.words[1] if len(arguments.words) > 1 else None)
    if text is None:
        raise COMMAND.wrong("the answer is missing")
    with Connection() as connection:
        answered = connection.call_object("inbox.answer", id=number, text=text)
    agent, _ = turns.agent_and_message("inbox.answer", answered)
    if arguments.json:
        output.put_json(answered)
    else:
        print(f"{output.text_of(agent['name'])}  answered ({output.text_of(agent['state'])})")
    return 0
