"""`checkout`: gives a person a working copy of an agent's commits, after a look at files that the host would obey."""

from __future__ import annotations

import os
import sys

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "checkout",
    "NAME DIR",
    options=(
        Option("--accept", value="FILE", about="a file or directory that you have looked at, or `.` for all; repeatable"),
    ),
    notes=(
        "DIR becomes a linked worktree of your repository, on no branch, with the commits of the agent's last turn; "
        "uncommitted files aren't in it. Nothing that you do there reaches the agent."
    ),
)


def run(arguments: Arguments) -> int:
    """Make the working copy, and return the exit status."""
    name, directory = arguments.words
    path, accepted = os.path.abspath(directory), arguments.values("accept")
    can_ask = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    with Connection() as connection:
        done = connection.call_object("agent.checkout", agent=name, directory=path, accept=accepted or None)
        if done.get("outcome") == "held" and can_ask and _agrees(done):
            files = done.get("files")
            looked = [*accepted, *map(str, files if isinstance(files, list) else ())]
            done = connection.call_object("agent.checkout", agent=name, directory=path, accept=looked)
    if arguments.json:
        shown = {"agent": done.get("agent"), "path": done.get("path"), "commit": done.get("commit")}
        output.put_json({**shown, "protected": done.get("files")})
    if done.get("outcome") == "held":
        return output.complain(errors.Refused(str(done["text"])))
    if not arguments.json:
        print(output.text_of(done["text"]))
    return errors.DONE


def _agrees(done: dict[str, object]) -> bool:
    """Show the files that must be looked at, and ask whether the copy is made."""
    print(output.text_of(done["text"]))
    return output.agrees("Make it all the same?")
