"""Connects a command that the daemon runs to this process's standard input, output and error.

The command gets none of the three itself. Where input and output are a terminal it gets a terminal of its own (pty(7)), so
that it can't touch the person's, and job control works; other input and output goes through pipes (`stdio_pipes`). Where
only one of the two is a terminal, as in front of `| less`, the command has pipes only, and typed keys are for the pager.
"""

from __future__ import annotations

import errno
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
from substrat.cli.stdio_pipes import CHUNK, StdioPipes
from substrat.cli.terminal_output import TerminalOutput
from substrat.protocol.signals import FORWARDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from substrat.cli.connection import Connection
    from substrat.cli.stdio_pipes import Watched

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
        signals = stack.enter_context(_signals())
        terminal = stack.enter_context(_terminal()) if os.isatty(0) and os.isatty(1) else None
        # With a terminal, the command's input and output are that terminal, and the pipes serve the rest.
        pipes = StdioPipes([number for number in range(3) if terminal is None or not os.isatty(number)])
        stack.enter_context(closing(pipes))
        listener = stack.enter_context(closing(_Listener(connection)))
        params: dict[str, object] = {"agent": agent, "command": command, "descriptors": listener.path}
        if terminal is not None:
            params["terminal"] = os.environ.get("TERM") or "dumb"
        number = connection.submit("agent.exec", params)
        connection.send_queued()
        _ExecIO(connection, number, listener, terminal, pipes, signals).serve_to_the_end()
    result = connection.take_answer(number)
    pipes.check()
    if not isinstance(result, dict):
        raise errors.SubstratError("the daemon's answer to agent.exec has another form than expected: upgrade it")
    return int(result["exit_code"])


class _Terminal:
    """A terminal for the command, and the typed bytes on their way to it.

    Args:
        master: the end that is held here.
        slave: the command's end.
    """

    def __init__(self, master: int, slave: int) -> None:
        self.master = master
        self.slave = slave
        self.pending = b""
        self._output = TerminalOutput()

    def resize(self) -> None:
        """Make it as large as the person's."""
        with suppress(termios.error, OSError):
            termios.tcsetwinsize(self.master, termios.tcgetwinsize(0))

    def take(self) -> bool:
        """Read the typed bytes; False at the end of the input."""
        try:
            self.pending = os.read(0, CHUNK)
        except OSError:
            return False
        return bool(self.pending)

    def give(self) -> None:
        """Pass the typed bytes on, as far as there is room."""
        with suppress(BlockingIOError, InterruptedError):
            self.pending = self.pending[os.write(self.master, self.pending) :]

    def show(self) -> bool:
        """Show the command's output; False when there is none now, or never will be."""
        try:
            data = os.read(self.master, CHUNK)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno != errno.EIO:  # no process has the other end open any more
                raise
            return False
        _write(self._output.take(data))
        return True

    def restore(self) -> None:
        """Put back the modes of the person's terminal that the command has changed."""
        with suppress(OSError):  # it has hung up
            _write(self._output.restoring())


class _ExecIO:
    """The input, output and signals of a running command: hands its descriptors to the daemon, relays bytes and signals."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        listener: _Listener,
        terminal: _Terminal | None,
        pipes: StdioPipes,
        signals: int,
    ) -> None:
        self._connection = connection
        self._number = number
        self._listener: _Listener | None = listener
        self._terminal = terminal
        self._pipes = pipes
        self._signals = signals
        self._channel: socket.socket | None = None
        self._typing = terminal is not None
        self._seen: set[int] = set()
        self._asked_at, self._is_noted = time.monotonic(), False

    def serve_to_the_end(self) -> None:
        """Serve until the daemon has answered and all output of the command is written."""
        try:
            while not self._connection.has_answer(self._number):
                _serve(self._watched(), self._time_to_answer())
        except errors.ConnectionLost:
            self._write_the_rest()
            raise
        finally:
            self._hang_up()
        self._write_the_rest()

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

    def _watched(self) -> Iterator[Watched]:
        yield self._signals, select.POLLIN, self._take_signals
        if self._listener is not None:
            yield self._listener.fileno(), select.POLLIN, self._hand_over
        else:
            # The other ends are closed until they are handed over, and after the command's end, which the answer reports.
            yield from self._pipes.watched()
            if self._terminal is not None:
                pending = self._terminal.pending
                yield self._terminal.master, select.POLLIN | (select.POLLOUT if pending else 0), self._relay_terminal
                if self._typing and not pending:
                    yield 0, select.POLLIN, self._type
        yield self._connection.fileno(), select.POLLIN, self._connection.take_in

    def _write_the_rest(self) -> None:
        """Write the rest of the output when the command has ended; a signal now ends this program as any other."""
        self._hang_up()
        while self._terminal is not None and self._terminal.show():
            pass
        self._pipes.finish()
        while rest := list(self._pipes.watched()):
            _serve([(self._signals, select.POLLIN, self._take_signals), *rest])

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _hand_over(self) -> None:
        assert self._listener is not None
        channel = self._listener.accept()
        if channel is None:
            return
        self._channel, self._listener = channel, None
        slave = self._terminal.slave if self._terminal is not None else -1
        socket.send_fds(channel, [b"\0"], [self._pipes.command_ends.get(number, slave) for number in range(3)])
        self._pipes.let_go()
        if self._terminal is not None:
            os.close(self._terminal.slave)
            self._terminal.slave = -1

    def _take_signals(self) -> None:
        for number in os.read(self._signals, 256):
            if number == signal.SIGWINCH:
                if self._terminal is not None:
                    self._terminal.resize()
            elif number in FORWARDED:
                self._forward(number)

    def _forward(self, number: int) -> None:
        if self._channel is None or (number in _INSISTENT and number in self._seen):
            raise SystemExit(128 + number)
        self._seen.add(number)
        with suppress(OSError):  # the daemon has gone, which its connection reports
            self._channel.send(bytes((number,)))

    def _type(self) -> None:
        assert self._terminal is not None
        if not self._terminal.pending and not self._terminal.take():
            self._typing = False
            self._forward(signal.SIGHUP)

    def _relay_terminal(self) -> None:
        assert self._terminal is not None
        if self._terminal.pending:
            self._terminal.give()
        self._terminal.show()


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _serve(watched: Iterable[Watched], patience: float | None = None) -> None:
    """Wait for poll(2)'s events, for so many seconds at most, and call their handlers."""
    poll = select.poll()
    handlers = {}
    for descriptor, events, handle in watched:
        poll.register(descriptor, events)
        handlers[descriptor] = handle
    for descriptor, _ in poll.poll(None if patience is None else patience * 1000):
        handlers[descriptor]()


def complete_descriptors() -> None:
    """Open those of standard input, output and error that the caller has closed: no other file may get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one


class _Listener:
    """Waits for the daemon beside its own socket, where only its user and root can be.

    Args:
        connection: to the daemon.
    """

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
def _signals() -> Iterator[int]:
    """Collect signals; gives a descriptor on which their numbers can be read."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {number: signal.signal(number, lambda *_: None) for number in (*FORWARDED, signal.SIGWINCH)}
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


@contextmanager
def _terminal() -> Iterator[_Terminal]:
    """Make a terminal like the person's, which passes everything on as it is typed meanwhile."""
    settings = termios.tcgetattr(0)
    master, slave = os.openpty()
    terminal = _Terminal(master, slave)
    try:
        os.set_blocking(master, False)
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        terminal.resize()
        tty.setraw(0, termios.TCSADRAIN)  # keys that were typed already stay
        yield terminal
    finally:
        terminal.restore()
        termios.tcsetattr(0, termios.TCSADRAIN, settings)
        os.close(master)
        if terminal.slave >= 0:
            os.close(terminal.slave)
