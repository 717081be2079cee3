"""Daemons for tests, forked from a process that has imported all of the daemon once: most of a start is importing.

Such a daemon has its own arguments, environment, directory, log and name, and runs `substratd`'s `main` to its end and the
interpreter's. Two things are not its own: what `/proc` tells of its environment and its command line. With
`SUBSTRAT_TEST_DAEMONS=executed` every daemon is the installed program, as it is where a test asks for that: CI runs both.

Run as a program it is the process that forks: it reads requests from its standard input, a socket, as lines of JSON, and
answers with the pid of each daemon and later with how that ended.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from _typeshed import StrPath

EXECUTED = os.environ.get("SUBSTRAT_TEST_DAEMONS") == "executed"
PR_SET_NAME = 15


class Forked:
    """As much of a `subprocess.Popen` as tests use."""

    stdin: None = None
    stdout: None = None
    stderr: None = None

    def __init__(self, server: ForkServer, number: int, pid: int) -> None:
        self._server = server
        self._number = number
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status(self._number, 0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._server.status(self._number, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(["substratd"], timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks, as tests see it. It ends with them, because its socket does."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
            command = [sys.executable, "-I", __file__]
            self._process = subprocess.Popen(
                command, env=environment, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd="/"
            )
        self._lines = self._socket.makefile("rb", buffering=0)  # else what `select` would tell is read already
        self._numbers = itertools.count()  # the kernel gives a pid out again
        self._ended: dict[int, int] = {}
        atexit.register(self._end)

    def _end(self) -> None:
        self._lines.close()
        self._socket.close()
        self._process.wait()

    def spawn(
        self, arguments: Sequence[StrPath], *, environment: Mapping[str, str], log: Path, directory: StrPath
    ) -> Forked:
        """Start a daemon that writes to a file that is there."""
        number = next(self._numbers)
        request = [number, [os.fspath(word) for word in arguments], environment, os.fspath(log), os.fspath(directory)]
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            kind, _, pid = self._read()
            if kind == "started":
                return Forked(self, number, pid)

    def status(self, number: int, timeout: float | None) -> int | None:
        """How a daemon ended; None if it didn't in so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while number not in self._ended:
            left = None if deadline is None else max(0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return None
            self._read()
        return self._ended[number]

    def _read(self) -> tuple[str, int, int]:
        kind, number, value = json.loads(self._lines.readline())
        if kind == "ended":
            self._ended[number] = value
        return kind, number, value


@functools.cache
def fork_server() -> ForkServer:
    """The fork server of this process, started when it is first needed."""
    return ForkServer()


def start(
    program: Sequence[StrPath],
    arguments: Sequence[StrPath],
    *,
    environment: Mapping[str, str],
    log: Path,
    directory: StrPath,
    executed: bool = False,
) -> Forked | subprocess.Popen[bytes]:
    """Start a daemon; its output goes to the end of a file."""
    if not (executed or EXECUTED):
        log.touch()
        return fork_server().spawn(arguments, environment=environment, log=log, directory=directory)
    with log.open("ab") as output:
        return subprocess.Popen(
            [*program, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory
        )


# What forks


def wait_for_requests(control: socket.socket) -> list[Any]:
    """Fork a daemon for each request; returns only in a daemon, with its request."""
    lines = control.makefile("rb", buffering=0)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    daemons: dict[int, tuple[int, int]] = {}  # by the descriptor that tells their end
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in daemons:
                poll.unregister(descriptor)
                os.close(descriptor)
                number, pid = daemons.pop(descriptor)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(OSError):  # the tests have ended
                    control.sendall(json.dumps(["ended", number, os.waitstatus_to_exitcode(status)]).encode() + b"\n")
                continue
            line = lines.readline()
            if not line:
                os._exit(0)
            number, *request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                for other in daemons:
                    os.close(other)
                lines.close()
                control.close()
                return request
            ending = os.pidfd_open(pid)
            daemons[ending] = number, pid
            poll.register(ending, select.POLLIN)
            control.sendall(json.dumps(["started", number, pid]).encode() + b"\n")


def main() -> None:
    from substrat.daemon.main import main as daemon

    gc.collect()
    gc.freeze()  # what is never looked at isn't copied
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    arguments, environment, log, directory = wait_for_requests(control)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["substratd", *arguments]
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"substratd", 0, 0, 0)
    sys.exit(daemon())


if __name__ == "__main__":
    main()
