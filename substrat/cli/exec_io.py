"""Connects a command that the daemon runs to this process's standard input, output and error.

The command gets none of the three itself (`stdio_copies`). Where input and output are a terminal it gets a terminal of its
own (pty(7)), so that it can't touch the person's, and job control works; otherwise it has pipes.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import termios
import time
import tty
from contextlib import ExitStack, closing, contextmanager, suppress

from substrat import errors, paths
from substrat.cli.connection import SILENCE_S
from substrat.cli.stdio_copies import StdioCopies
from substrat.protocol.signals import FORWARDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.cli.connection import Connection

# The second of these ends a command that ignored the first.
_INSISTENT = (signal.SIGHUP, signal.SIGTERM)


def run(connection: Connection, agent: str, command: list[str]) -> int:
    """Have a command run in an agent's sandbox, with this process's input, output and signals.

    Args:
        connection: to the daemon.
        agent: whose sandbox.
        command: the program and its arguments.

    Returns:
        The command's exit status.

    Raises:
        SubstratError: it couldn't be run, or some of its input or output was lost.
        ConnectionLost: the daemon went away, and the command with it.
    """
    with ExitStack() as stack:
        # First in, last out: no signal comes between a person and their terminal as it was.
        signals, wake = stack.enter_context(_signals())
        terminal = stack.enter_context(_terminal()) if os.isatty(0) and os.isatty(1) else None
        copies = StdioCopies(terminal, wake)
        stack.callback(copies.restore)
        stack.callback(copies.let_go)
        listener = stack.enter_context(closing(_Listener(connection)))
        params: dict[str, object] = {"agent": agent, "command": command, "descriptors": listener.path}
        if terminal is not None:
            params["terminal"] = os.environ.get("TERM") or "dumb"
        number = connection.submit("agent.exec", params)
        connection.send_queued()
        _ExecIO(connection, number, listener, copies, signals, terminal[0] if terminal is not None else None).serve()
    result = connection.take_answer(number)
    copies.check()
    if not isinstance(result, dict):
        raise errors.SubstratError("the daemon's answer to agent.exec has another form than expected: upgrade it")
    return int(result["exit_code"])


class _ExecIO:
    """The descriptors and signals of a running command: hands the former to the daemon, and passes the latter on."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        listener: _Listener,
        copies: StdioCopies,
        signals: int,
        terminal: int | None,
    ) -> None:
        self._connection = connection
        self._number = number
        self._listener: _Listener | None = listener
        self._copies = copies
        self._signals = signals
        self._terminal = terminal
        self._channel: socket.socket | None = None
        self._seen: set[int] = set()
        self._asked_at, self._is_noted = time.monotonic(), False

    def serve(self) -> None:
        """Serve until the daemon has answered and all output of the command is written."""
        try:
            while not self._connection.has_answer(self._number):
                self._wait()
        except errors.ConnectionLost:
            self._write_the_rest()
            raise
        self._write_the_rest()

    def _wait(self) -> None:
        """Wait for a signal, the daemon's connection to the listener or its answer, and handle them."""
        handlers = {self._signals: self._take_signals, self._connection.fileno(): self._connection.take_in}
        if self._listener is not None:
            handlers[self._listener.fileno()] = self._hand_over
        poll = select.poll()
        for descriptor in handlers:
            poll.register(descriptor, select.POLLIN)
        patience = self._time_to_answer()
        for descriptor, _ in poll.poll(None if patience is None else patience * 1000):
            handlers[descriptor]()

    def _time_to_answer(self) -> float | None:
        """Return how many seconds the daemon may still take to fetch the descriptors; write a notice when they are over.

        None: it has fetched them, or the notice is written.
        """
        if self._listener is None or self._is_noted:
            return None
        left = self._asked_at + SILENCE_S - time.monotonic()
        if left > 0:
            return left
        self._is_noted = True
        self._connection.report_silence()
        return None

    def _write_the_rest(self) -> None:
        """Write the rest of the output when the command has ended; a signal now ends this program as any other."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        while self._copies.are_writing():
            select.select([self._signals], [], [])
            self._take_signals()

    def _hand_over(self) -> None:
        assert self._listener is not None
        channel = self._listener.accept()
        if channel is None:
            return
        self._channel, self._listener = channel, None
        socket.send_fds(channel, [b"\0"], self._copies.command_ends)
        self._copies.begin()

    def _take_signals(self) -> None:
        for number in os.read(self._signals, 256):
            if number == signal.SIGWINCH and self._terminal is not None:
                _resize(self._terminal)
            elif number in FORWARDED:
                self._forward(number)

    def _forward(self, number: int) -> None:
        if self._channel is None or (number in _INSISTENT and number in self._seen):
            raise SystemExit(128 + number)
        self._seen.add(number)
        with suppress(OSError):  # the daemon has gone, which its connection reports
            self._channel.send(bytes((number,)))


def complete_descriptors() -> None:
    """Open those of standard input, output and error that the caller has closed: no other file may get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one


class _Listener:
    """Waits for the daemon beside its own socket, where only its user and root can be."""

    def __init__(self, connection: Connection) -> None:
        name = f"exec-{os.getpid()}-{os.urandom(4).hex()}.sock"
        self.path = os.path.join(os.path.dirname(os.path.abspath(connection.path)), name)
        self._daemon = connection.peer_uid()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        spelling, directory = paths.short_socket_path(self.path)
        try:
            self._socket.bind(spelling)
            os.chmod(spelling, 0o600)
            if os.geteuid() != self._daemon:
                os.chown(spelling, self._daemon, -1)
            self._socket.listen(1)
        except OSError as problem:
            self.close()
            reason = (problem.strerror or str(problem)).lower()
            raise errors.SubstratError(f"can't make {self.path}: {reason}; check its directory") from None
        finally:
            if directory is not None:
                os.close(directory)

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Accept the daemon's connection and close the listener; refuse any other, and return None."""
        channel, _ = self._socket.accept()
        peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if int.from_bytes(peer[4:8], sys.byteorder) != self._daemon:
            channel.close()
            return None
        self.close()
        return channel

    def close(self) -> None:
        """Close it and remove its file; closing it twice is fine."""
        if self._socket.fileno() >= 0:
            self._socket.close()
            with suppress(FileNotFoundError):
                os.unlink(self.path)


@contextmanager
def _signals() -> Iterator[tuple[int, Callable[[], object]]]:
    """Collect signals; gives a descriptor on which their numbers can be read, and a function that makes it readable."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {number: signal.signal(number, lambda *_: None) for number in (*FORWARDED, signal.SIGWINCH)}
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        # Both stay open: a thread that copies may end after this.
        yield reading, lambda: os.write(writing, b"\0")
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    """Make a terminal like the person's, which passes everything on as it is typed meanwhile; gives its two ends.

    The second is closed by `StdioCopies`, the first with this process: threads read and write it.
    """
    settings = termios.tcgetattr(0)
    master, slave = os.openpty()
    try:
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        _resize(master)
        tty.setraw(0, termios.TCSADRAIN)  # keys that were typed already stay
        yield master, slave
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, settings)


def _resize(terminal: int) -> None:
    """Make a terminal as large as the person's."""
    with suppress(termios.error, OSError):
        termios.tcsetwinsize(terminal, termios.tcgetwinsize(0))
