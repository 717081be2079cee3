"""`explain`: the command that would start an agent's next turn, as text that a shell runs; it starts nothing itself."""

from __future__ import annotations

import os
import shlex
import sys

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = Command(
    "explain",
    "NAME",
    notes=(
        "'substratctl explain NAME > run; echo PROMPT | sh run' runs the agent program as a turn would, but "
        "unseen by the daemon. Secret values are neither shown nor passed on. The daemon serves neither the "
        "agent's tools nor a 'filtered' network then: connections fail, and cursor-agent goes on without the "
        "tools after 30 s. 'exec NAME' runs a command in the agent's sandbox."
    ),
)
_HIDDEN = "…"
"""The daemon's replacement for a value that may be secret."""
_NAMED = 20
"""How many of the paths without placeholders are named: all of them are in `--json`."""


def run(arguments: Arguments) -> int:
    """Print the command and return the exit status."""
    with Connection() as connection:
        agent = connection.call_object("agent.show", agent=arguments.words[0])
        explained = connection.call_object("agent.explain", agent=agent["id"])
    if arguments.json:
        output.put_json(explained)
        return 0
    for line in script(str(agent["name"]), str(agent["workspace"]), explained):
        # A file must hold the command exactly; a terminal must not get control characters from it.
        sys.stdout.write((output.neutralise(line) if sys.stdout.isatty() else line) + "\n")
    return 0


def script(name: str, workspace: str, explained: dict[str, object]) -> Iterator[str]:
    """Give the lines of a shell script that starts a sandbox.

    Args:
        name: the agent's name.
        workspace: its workspace.
        explained: the result of `agent.explain`.
    """
    from substrat.core.programs.table import CURSOR

    given, missing = explained.get("environment"), explained.get("missing")
    environment = given if isinstance(given, dict) else {}
    hidden = [variable for variable, value in environment.items() if value == _HIDDEN]
    paths = [output.one_line(str(path)) for path in missing] if isinstance(missing, list) else []
    yield f"# How the next turn of {output.one_line(name)} would be started; the prompt comes on standard input."
    yield "# A turn also has a filter of system calls."
    if paths:
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        yield f"# While it runs it has read-only placeholders for: {', '.join(paths[:_NAMED])}{more}"
    if hidden:
        yield f"# Not shown and not passed on here: {', '.join(hidden)}"
    place = shlex.quote(os.path.join(workspace, CURSOR.places.workspace))
    yield "("
    yield f"test -e {place} || {{ mkdir {place} && trap {shlex.quote(f'rmdir {place}')} EXIT; }}"
    variables = [f"{variable}={shlex.quote(str(value))}" for variable, value in environment.items() if value != _HIDDEN]
    yield " ".join(["/usr/bin/env -i", *variables, str(explained.get("command"))])
    yield ")"
