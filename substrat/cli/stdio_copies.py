"""Copies bytes between this process's standard input, output and error and those of a command of `exec`.

A command can open its descriptors again through /proc/self/fd, for writing too, and change their files' mode (fchmod(2)).
So it never gets the caller's own descriptors, be they a file, a pipe or /dev/null, but pipes and a terminal that end here.

Each has a thread of its own, because the caller's descriptors are its shell's too and stay blocking: a slow reader holds up
neither signals nor other output. A thread that still waits for input ends with this process.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
from contextlib import suppress

from substrat import errors
from substrat.cli.terminal_output import TerminalOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 1 << 16
"""How many bytes are read at a time: as many as a pipe holds (pipe(7))."""
_PROBLEMS = (
    "standard input can't be read",
    "standard output can't be written, and the command's output is lost",
    "standard error can't be written, and the command's output is lost",
)


class StdioCopies:
    """Copies the bytes of a command, from the time that the daemon has its descriptors.

    Args:
        terminal: the two ends of a terminal, this process's and the command's, for those of the three that are a terminal;
            None: there are only pipes, and a terminal's input isn't read, because typed keys are for a pager.
        ended: a thread calls it when an output has ended.
    """

    def __init__(self, terminal: tuple[int, int] | None, ended: Callable[[], object]) -> None:
        self.command_ends: list[int] = []
        """The descriptors for the command, by number."""
        self._copies: list[_Copy] = []
        for number in range(3):
            if terminal is not None and os.isatty(number):
                self.command_ends.append(terminal[1])
                if number != 2:
                    self._copies.append(_Copy(number, terminal[0], ended))
            # As after `2>&1`, where the order must stay. A file that was opened twice counts as well: its two outputs then
            # follow each other instead of overwriting each other.
            elif number == 2 and os.path.samestat(os.fstat(1), os.fstat(2)):
                self.command_ends.append(self.command_ends[1])
            else:
                reading, writing = os.pipe()
                ours, its = (writing, reading) if number == 0 else (reading, writing)
                self.command_ends.append(its)
                self._copies.append(_Copy(number, ours, ended))

    def begin(self) -> None:
        """Close this process's copies of the command's ends, which the daemon has, and begin to copy."""
        self.let_go()
        for copy in self._copies:
            copy.start()

    def let_go(self) -> None:
        """Close the command's ends."""
        for descriptor in set(self.command_ends):
            os.close(descriptor)
        self.command_ends.clear()

    def are_writing(self) -> bool:
        """Say whether some of the command's output isn't written yet."""
        return any(copy.number != 0 and copy.ident is not None and not copy.is_over for copy in self._copies)

    def check(self) -> None:
        """Raise a `SubstratError` if something couldn't be read or written, so that its bytes are missing."""
        for copy in self._copies:
            if copy.problem is not None:
                reason = (copy.problem.strerror or str(copy.problem)).lower()
                raise errors.SubstratError(f"{_PROBLEMS[copy.number]}: {reason}")

    def restore(self) -> None:
        """Put back the modes of the person's terminal that the command has changed."""
        for copy in self._copies:
            copy.restore()


class _Copy(threading.Thread):
    """The way of one of the three: from standard input to the command, or from the command to an output.

    Args:
        number: which of the three.
        ours: this process's end of its pipe, which it closes in the end, or of the terminal.
        ended: is called in the end.
    """

    def __init__(self, number: int, ours: int, ended: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.is_over = False
        self.problem: OSError | None = None
        self._ours = ours
        self._is_pipe = not os.isatty(ours)
        self._ended = ended
        self._shown = TerminalOutput() if number != 0 and os.isatty(number) else None

    def run(self) -> None:
        try:
            if self.number == 0:
                self._give_input()
            else:
                self._take_output()
        except BrokenPipeError:
            pass  # the command reads no more; or the last reader has gone, so its pipe is closed, and it gets SIGPIPE
        except OSError as problem:
            # It isn't open that way, as input under nohup(1), or the last reader's socket has gone as a pipe does.
            if problem.errno != errno.EBADF and (self.number == 0 or problem.errno != errno.ECONNRESET):
                self.problem = problem
        finally:
            if self._is_pipe:
                os.close(self._ours)
            self.is_over = True
            self._ended()

    def _give_input(self) -> None:
        if self._is_pipe and os.isatty(0):
            return
        while data := _read(0):
            _write(self._ours, data)
        if not self._is_pipe:
            os.kill(os.getpid(), signal.SIGHUP)  # the person's terminal has hung up, and so does the command's

    def _take_output(self) -> None:
        while data := _read(self._ours):
            _write(self.number, data if self._shown is None else self._shown.take(data))

    def restore(self) -> None:
        if self._shown is not None:
            with suppress(OSError):  # it has hung up
                _write(self.number, self._shown.restoring())


def _read(descriptor: int) -> bytes:
    """Read the next bytes; returns none at the end, which a terminal that no process has open tells by EIO."""
    while True:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            _wait(descriptor, select.POLLIN)
        except OSError as problem:
            if problem.errno == errno.EIO and os.isatty(descriptor):
                return b""
            raise


def _write(descriptor: int, data: bytes) -> None:
    """Write all bytes, also to one whose caller has made it non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait(descriptor, select.POLLOUT)


def _wait(descriptor: int, events: int) -> None:
    poll = select.poll()
    poll.register(descriptor, events)
    poll.poll()
