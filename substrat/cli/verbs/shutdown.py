"""`shutdown`: stops the daemon and waits until its socket is gone; turns go on unless they are suspended first."""

from __future__ import annotations

import time

from substrat import errors
from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command, Option
from substrat.cli.table import VERBS

COMMAND = Command(
    "shutdown",
    VERBS["shutdown"],
    options=(Option("--suspend", about="suspend every agent before, so that nothing runs afterwards"),),
)
_PATIENCE_S = 60.0  # the daemon ends within seconds; a busy machine takes longer
_PAUSE_S = 0.02  # between two attempts: shorter than a person notices


def run(arguments: Arguments) -> int:
    """Stop the daemon and return the exit status."""
    with Connection() as connection:
        path = connection.path
        connection.call("daemon.shutdown", suspend=arguments.flag("suspend") or None)
    _wait_until_gone(path, time.monotonic() + _PATIENCE_S)
    if arguments.json:
        output.put_json({"stopped": True, "socket": path})
    else:
        print("substratd stopped")
    return 0


def _wait_until_gone(path: str, deadline: float) -> None:
    """Connect again and again until that fails: the kernel has no notification for a closed listener."""
    while time.monotonic() < deadline:
        try:
            with Connection(path):
                time.sleep(_PAUSE_S)
        except errors.DaemonNotRunning:
            return
    raise errors.WaitTimedOut(
        f"the daemon was told to stop but still listens on {path} after {_PATIENCE_S:g} s; its log says why"
    )
