"""`shutdown`: stops the daemon and waits until it has hung up; turns go on unless they are suspended first."""

from __future__ import annotations

import select

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option

COMMAND = Command(
    "shutdown",
    options=(Option("--suspend", about="suspend every agent before, frozen ones too, so that nothing runs afterwards"),),
)
_PATIENCE_S = 60.0  # the daemon ends within seconds; a busy machine takes longer


def run(arguments: Arguments) -> int:
    """Stop the daemon and return the exit status."""
    with Connection() as connection:
        connection.call("daemon.shutdown", suspend=arguments.flag("suspend") or None)
        _wait_until_it_hangs_up(connection)
    if arguments.json:
        output.put_json({"stopped": True, "socket": connection.path})
    else:
        print("substratd stopped")
    return 0


def _wait_until_it_hangs_up(connection: Connection) -> None:
    """Wait for the end of this connection. Another one would start the daemon anew where systemd holds its socket."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLRDHUP)
    if not poll.poll(_PATIENCE_S * 1000):
        raise errors.WaitTimedOut(
            f"the daemon at {connection.path} was told to stop and still runs after {_PATIENCE_S:g} s; its log says why"
        )
