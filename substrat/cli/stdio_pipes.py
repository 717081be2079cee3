"""Copies bytes between this process's standard input, output and error and the pipes that a command of `exec` gets.

A command can open its descriptors again through /proc/self/fd, for writing too, and change their files' mode (fchmod(2)).
So it never gets the caller's own descriptors, be they a file, a pipe or /dev/null, but only pipes that end here.

The caller's descriptors are its shell's too, so they stay blocking. They are read when poll(2) reports input, and written
when it reports room, at most PIPE_BUF bytes at a time: a pipe with room takes those at once. So a slow reader holds up
neither signals nor other output. A call still blocks where another process is faster (it reads the same input, or fills
the same pipe) and at a terminal that is stopped meanwhile (^S): signals come through when it goes on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import sys
import termios
from contextlib import suppress

from substrat import errors
from substrat.cli.terminal_output import TerminalOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Watched = tuple[int, int, Callable[[], object]]
    """A descriptor, the poll(2) events that are waited for, and the function to call when one has come."""

CHUNK = 1 << 16
"""How many bytes are read at a time: as many as a pipe holds (pipe(7))."""

_NOTHING = memoryview(b"")


class StdioPipes:
    """Copies the bytes of a command from its start to its end. Owns its pipes: use it with `closing`.

    Args:
        numbers: those of 0, 1 and 2 that get a pipe.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        self.command_ends: dict[int, int] = {}
        """The command's ends of the pipes, by number."""
        self._input = _Input() if 0 in numbers else None
        self._outputs: list[_Output] = []
        if self._input is not None:
            self.command_ends[0] = self._input.command_end
        for number in sorted({1, 2}.intersection(numbers)):
            # As after `2>&1`, and on one terminal, where the order must stay. A file that was opened twice counts as well:
            # its two outputs then follow each other instead of overwriting each other.
            if self._outputs and os.path.samestat(os.fstat(1), os.fstat(2)):
                self.command_ends[number] = self.command_ends[1]
            else:
                self._outputs.append(_Output(number))
                self.command_ends[number] = self._outputs[-1].command_end

    def let_go(self) -> None:
        """Close this process's copies of the outputs' command ends, so that they end with the command."""
        for output in self._outputs:
            output.let_go()

    def watched(self) -> Iterator[Watched]:
        """Yield the descriptors and events to wait for now."""
        if self._input is not None:
            yield from self._input.watched()
        for output in self._outputs:
            yield from output.watched()

    def finish(self) -> None:
        """Copy the bytes that an ended command has left in its pipes; the input is read no further."""
        if self._input is not None:
            self._input.finish()
        for output in self._outputs:
            output.finish()

    def check(self) -> None:
        """Raise a `SubstratError` if something couldn't be read or written, so that its bytes are missing."""
        for end in (self._input, *self._outputs):
            if end is not None and end.problem is not None:
                raise errors.SubstratError(end.problem)

    def close(self) -> None:
        """Close the pipes; bytes in them are lost."""
        self.finish()
        for output in self._outputs:
            output.give()
            output.let_go()


class _Input:
    """Standard input, on its way to the command.

    A terminal isn't read: while the output goes elsewhere, typed keys are for a pager, or for sudo's question for a
    password. The command finds the input at its end.
    """

    def __init__(self) -> None:
        # Kept open here too, so that writing never fails, and the pipe shows at the end how much is unread.
        self.command_end, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self.problem: str | None = None
        self._pending = _NOTHING
        self._taken = 0
        if os.isatty(0):
            self._pipe = _closed(self._pipe)

    def watched(self) -> Iterator[Watched]:
        if self._pending:
            yield self._pipe, select.POLLOUT, self._give
        elif self._pipe >= 0:
            yield 0, select.POLLIN, self._take

    def finish(self) -> None:
        """Close everything. A file's offset is put back to its unread bytes, as `while read line; do … exec …` needs it."""
        if self.command_end < 0:
            return
        # The command may have written into its own input, so the count is limited to the bytes taken from here.
        unread = min(len(self._pending) + _waiting(self.command_end), self._taken)
        if unread and stat.S_ISREG(os.fstat(0).st_mode):
            with suppress(OSError):  # another process has moved the offset to near the file's beginning
                os.lseek(0, -unread, os.SEEK_CUR)
        self._pending = _NOTHING
        self._pipe, self.command_end = _closed(self._pipe), _closed(self.command_end)

    def _take(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except BlockingIOError:  # the caller's own choice, and another process was faster
            return
        except OSError as problem:
            data = b""
            if problem.errno != errno.EBADF:  # it isn't open for reading, as under nohup(1): there is no input
                self.problem = _complaint("standard input can't be read", problem)
        self._pending = memoryview(data)
        self._taken += len(data)
        if data:
            self._give()
        else:
            self._pipe = _closed(self._pipe)

    def _give(self) -> None:
        with suppress(BlockingIOError):
            self._pending = self._pending[os.write(self._pipe, self._pending) :]


class _Output:
    """Standard output or error, on its way from the command.

    Args:
        number: which of the two.
    """

    def __init__(self, number: int) -> None:
        self._pipe, self.command_end = os.pipe()
        os.set_blocking(self._pipe, False)
        self.problem: str | None = None
        self._number = number
        self._terminal = TerminalOutput() if os.isatty(number) else None
        self._pending = _NOTHING
        self._room = select.poll()
        self._room.register(number, select.POLLOUT)

    def let_go(self) -> None:
        """Close this process's copy of the command's end."""
        self.command_end = _closed(self.command_end)

    def watched(self) -> Iterator[Watched]:
        if self._pending:
            yield self._number, select.POLLOUT, self.give
        elif self._pipe >= 0:
            yield self._pipe, select.POLLIN, self._take
            yield self._number, 0, self._give_up  # poll(2) reports that the last reader has gone

    def finish(self) -> None:
        """Copy the bytes that are left now; processes that hold the pipe may go on writing, and aren't waited for."""
        if self._pipe >= 0:
            with suppress(BlockingIOError):
                self._pending = memoryview(bytes(self._pending) + self._shown(os.read(self._pipe, _waiting(self._pipe))))
            self._pipe = _closed(self._pipe)
        if self._terminal is not None:
            self._pending = memoryview(bytes(self._pending) + self._terminal.restoring())

    def give(self) -> None:
        """Write as far as there is room."""
        try:
            while self._pending and self._room.poll(0):
                self._pending = self._pending[os.write(self._number, self._pending[: select.PIPE_BUF]) :]
        except BlockingIOError:  # the caller's own choice, and another process was faster
            return
        except (BrokenPipeError, ConnectionResetError):
            self._give_up()
        except OSError as problem:
            name = "standard output" if self._number == 1 else "standard error"
            self.problem = _complaint(f"{name} can't be written, and the command's output is lost", problem)
            self._give_up()

    def _take(self) -> None:
        if self._pipe < 0:  # given up since poll(2) said that something is there
            return
        with suppress(BlockingIOError):  # the command may read its own output
            data = os.read(self._pipe, CHUNK)
            if not data:
                self._pipe = _closed(self._pipe)
            self._pending = memoryview(self._shown(data))
            self.give()

    def _shown(self, data: bytes) -> bytes:
        return data if self._terminal is None else self._terminal.take(data)

    def _give_up(self) -> None:
        """Close the pipe when the last reader has gone, so that the command gets SIGPIPE as it would without us."""
        self._pending = _NOTHING
        self._pipe = _closed(self._pipe)


def _waiting(pipe: int) -> int:
    """Return how many bytes are in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _closed(descriptor: int) -> int:
    """Close a descriptor if it is one; return -1, which stands for none."""
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _complaint(sentence: str, problem: OSError) -> str:
    return f"{sentence}: {(problem.strerror or str(problem)).lower()}"
