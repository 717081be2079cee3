"""`exec`: runs a command in a sandbox like the agent's, on this terminal or between these pipes, with its exit status."""

from __future__ import annotations

from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

COMMAND = Command(
    "exec",
    "NAME [-- COMMAND...]",
    notes=(
        "Without a command it is a shell. The sandbox is as the agent's next turn will find it; a turn may be "
        "running beside it. Input, output and exit status are the command's own; 127: it isn't there inside. "
        "What it leaves running is killed. Where input and output are both a terminal it has one "
        "too; otherwise it has pipes, and your typing isn't for it. It reads its input ahead, as ssh does: "
        "in a loop that reads lines, give it '< /dev/null'."
    ),
)
_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash --norc; exec /bin/sh")
"""bash where it is visible; its start file would set the prompt anew."""


def run(arguments: Arguments) -> int:
    """Run the command and return its exit status."""
    if arguments.json:
        raise COMMAND.wrong("its output is the command's own, so there is no --json")
    # Imported here because no other verb needs terminals.
    from substrat.cli import exec_io

    name, *command = arguments.words
    # Before the socket is opened: it would get the number of a closed standard descriptor, and be read or written as that.
    exec_io.complete_descriptors()
    with Connection() as connection:
        connection.greet()  # later nothing would report a daemon that doesn't answer
        return exec_io.run(connection, name, command or _shell(name))


def _shell(name: str) -> list[str]:
    """Return the command of a shell whose prompt says where one is: `[anna] /home/me/src/app $ `."""
    label = "".join(letter for letter in name if letter.isalnum() or letter in "._-")
    # The shell puts its directory in itself (POSIX, sh: PS1 is subject to parameter expansion).
    return ["/usr/bin/env", f"PS1=[{label}] $PWD \\$ ", *_SHELL]
