"""`version`: the versions of this program and of the daemon, if one runs."""

from __future__ import annotations

from substrat import __version__, errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import COMMAND_NAME

COMMAND = Command("version")


def run(arguments: Arguments) -> int:
    """Print the versions and return the exit status."""
    server = _server()
    if arguments.json:
        output.put_json({"client": __version__, "server": server})
    else:
        print(f"{COMMAND_NAME} {__version__}")
        print("no daemon is running" if server is None else f"daemon {output.one_line(server)}")
        if server is not None and (remedy := restart(server.rpartition(" ")[2])):
            output.note(remedy)
    return 0


def restart(running: str) -> str | None:
    """Return what to do where the daemon that runs is of another version than this program; None where it isn't.

    An example: after an upgrade the old daemon runs on.

    Args:
        running: the daemon's version.
    """
    if running == __version__:
        return None
    how = "'systemctl --user restart substratd', or end substratd and start it again"
    return f"this program is {__version__}, so restart the daemon; turns go on: {how}"


def _server() -> str | None:
    try:
        with Connection() as connection:
            return str(connection.greet().get("server", "of an unknown version"))
    except (errors.DaemonNotRunning, errors.ConnectionLost):
        return None
