"""Daemons and commands for tests, forked from a fork server, which has imported `substratd` or `substratctl` once: a start
is mostly importing.

For example `run("substratctl", ["ls"], …)` asks the fork server of `substratctl`, which this process starts once, for a
fork that runs `ls`. The installed program is executed instead where a test asks for it, where a fork would differ (`run`),
and everywhere with `SUBSTRAT_TEST_DAEMONS=executed`, as in CI's slow tests.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import database, descriptors
from tests.support.waiting import is_readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import StrPath

EXECUTED = os.environ.get("SUBSTRAT_TEST_DAEMONS") == "executed"
SERVER = Path(__file__).with_name("fork_server.py")
RUN = 40.0  # seconds that a command may take


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
            raise subprocess.TimeoutExpired([self._server.program], timeout or 0.0)
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

    def __init__(self, program: str) -> None:
        self.program = program
        self._socket, theirs = socket.socketpair()
        with theirs:
            environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
            command = [sys.executable, "-I", os.fspath(SERVER), program]
            self._process = subprocess.Popen(
                command, env=environment, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd="/"
            )
        descriptors.keep(self._socket.fileno())
        self._lines = self._socket.makefile("rb", buffering=0)  # else what `select` would tell is read already
        self._numbers = itertools.count()  # the kernel gives a pid out again
        self._ended: dict[int, int] = {}
        atexit.register(self._end)

    def _end(self) -> None:
        self._lines.close()
        self._socket.close()
        self._process.wait()

    def spawn(
        self, arguments: Sequence[StrPath], *, environment: Mapping[str, str], files: Sequence[StrPath], directory: StrPath
    ) -> Forked:
        """Start a process whose standard input, output and errors are files that are there."""
        number = next(self._numbers)
        words = [os.fspath(word) for word in arguments]
        request = [number, words, dict(environment), [os.fspath(file) for file in files], os.fspath(directory)]
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            kind, _, pid = self._read()
            if kind == "started":
                return Forked(self, number, pid)
            if kind == "refused":
                raise OSError(pid, os.strerror(pid))

    def status(self, number: int, timeout: float | None) -> int | None:
        """How a fork ended; None if it didn't in so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while number not in self._ended:
            left = None if deadline is None else max(0, deadline - time.monotonic())
            if not is_readable(self._socket, left):
                return None
            self._read()
        return self._ended[number]

    def _read(self) -> tuple[str, int, int]:
        kind, number, value = json.loads(self._lines.readline())
        if kind == "ended":
            self._ended[number] = value
        return kind, number, value


@functools.cache
def fork_server(program: str) -> ForkServer:
    """A program's fork server of this process, started when it is first needed."""
    return ForkServer(program)


def start(
    program: Sequence[StrPath],
    arguments: Sequence[StrPath],
    *,
    environment: Mapping[str, str],
    log: Path,
    state: Path,
    directory: StrPath,
    executed: bool = False,
) -> Forked | subprocess.Popen[bytes]:
    """Start a daemon, `executed` or forked; its output goes to the end of a file.

    Where there is no `state` directory, an executed one makes it, and a forked one finds an empty database of this version.
    """
    if not (executed or EXECUTED):
        database.lay_down_state(state)
        log.touch()
        files = (os.devnull, log, log)
        return fork_server("substratd").spawn(arguments, environment=environment, files=files, directory=directory)
    with log.open("ab") as output:
        return subprocess.Popen(
            [*program, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory
        )


def run(
    program: StrPath, arguments: Sequence[StrPath], *, environment: Mapping[str, str], stdin: bytes, directory: StrPath
) -> tuple[int, bytes, bytes]:
    """Run a command to its end; returns its exit status, its output and its errors."""
    # More than a pipe holds would have to be written meanwhile; what the interpreter reads at its start has been read.
    if EXECUTED or len(stdin) > select.PIPE_BUF or any(name.startswith(("PYTHON", "LC_")) for name in environment):
        command = [program, *arguments]
        done = subprocess.run(
            command, env=environment, input=stdin, capture_output=True, cwd=directory, timeout=RUN, check=False
        )
        return done.returncode, done.stdout, done.stderr
    (given, give), (out, printed), (err, complained) = [os.pipe() for _ in range(3)]
    try:
        files = [f"/proc/{os.getpid()}/fd/{descriptor}" for descriptor in (given, printed, complained)]
        os.write(give, stdin)
        server = fork_server("substratctl")
        process = server.spawn(arguments, environment=environment, files=files, directory=directory)
        for descriptor in (given, give, printed, complained):
            os.close(descriptor)
        found = read_to_the_end(process, out, err)
        return process.wait(RUN), found[out], found[err]
    finally:
        for descriptor in (out, err):
            os.close(descriptor)


def read_to_the_end(process: Forked, *descriptors: int) -> dict[int, bytes]:
    """Read all that is printed by a process, which is killed if it takes too long."""
    found, deadline = dict.fromkeys(descriptors, b""), time.monotonic() + RUN
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            if time.monotonic() > deadline:
                process.kill()
                raise subprocess.TimeoutExpired(["substratctl"], RUN)
            for key, _ in selector.select(1.0):
                data = os.read(key.fd, 1 << 16)
                found[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return found
