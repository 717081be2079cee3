"""`version`: the versions of this program and of the daemon, if one runs."""

from __future__ import annotations

from substrat import __version__, errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import COMMAND_NAME, VERBS

COMMAND = Command("version", VERBS["version"])
RESTART = "restart the daemon, turns go on: 'systemctl --user restart substratd', or end substratd and start it again"
"""The remedy where the daemon that runs is of another version than this program, as after an upgrade."""


def run(arguments: Arguments) -> int:
    """Print the versions and return the exit status."""
    server = _server()
    if arguments.json:
        output.put_json({"client": __version__, "server": server})
    else:
        print(f"{COMMAND_NAME} {__version__}")
        print("no daemon is running" if server is None else f"daemon {output.one_line(server)}")
        if server is not None and server.rpartition(" ")[2] != __version__:
            output.note(RESTART)
    return 0


def _server() -> str | None:
    try:
        with Connection() as connection:
            return str(connection.greet().get("server", "of an unknown version"))
    except (errors.DaemonNotRunning, errors.ConnectionLost):
        return None
