"""Bytes carried between this process's standard input, output and error and pipes that are made for a lent command.

What a command has it can open again through /proc/self/fd, for writing too, and give another mode (fchmod(2)). So it is
never lent what the caller has, be it a file, a pipe or /dev/null, but only pipes that end here.

The caller's descriptors are its shell's too, so they stay blocking. They are read when poll(2) says that something is
there, and written when it says that there is room, at most PIPE_BUF bytes at a time: a pipe with room takes those at once.
So a slow reader holds neither signals nor the rest up. It still blocks where another process is faster (it reads the same
input, or fills the same pipe) and at a terminal that is stopped meanwhile (^S): signals come through when it goes on.
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    Watched = tuple[int, int, Callable[[], object]]
    """A descriptor, the poll(2) events that are waited for, and what is called when one has come."""

CHUNK = 1 << 16
"""How many bytes are read at a time."""

_NOTHING = memoryview(b"")


class StdioPipes:
    """Carries the bytes of a command from when it was started to its end. Owns its pipes: use it with `closing`.

    Args:
        numbers: which of 0, 1 and 2 are carried.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        self.lent: dict[int, int] = {}
        """What the command is to have in their place."""
        self._input = _Input() if 0 in numbers else None
        self._outputs: list[_Output] = []
        if self._input is not None:
            self.lent[0] = self._input.lent
        for number in sorted({1, 2}.intersection(numbers)):
            # As after `2>&1`, and on one terminal, where the order has to stay. A file that was opened twice counts as
            # well: what would have been overwritten by the other of the two follows it then.
            if self._outputs and os.path.samestat(os.fstat(1), os.fstat(2)):
                self.lent[number] = self.lent[1]
            else:
                self._outputs.append(_Output(number))
                self.lent[number] = self._outputs[-1].lent

    def let_go(self) -> None:
        """Leave the lent ends of the outputs to the command alone, so that they end with it."""
        for output in self._outputs:
            output.let_go()

    def watched(self) -> Iterator[Watched]:
        """Give what is to be waited for now."""
        if self._input is not None:
            yield from self._input.watched()
        for output in self._outputs:
            yield from output.watched()

    def finish(self) -> None:
        """Take what the command has left in its pipes when it is gone: nothing more is read, here or there."""
        if self._input is not None:
            self._input.finish()
        for output in self._outputs:
            output.finish()

    def check(self) -> None:
        """Raise a `SubstratError` if something couldn't be read or written, so that its bytes are missing."""
        for carried in (self._input, *self._outputs):
            if carried is not None and carried.problem is not None:
                raise errors.SubstratError(carried.problem)

    def close(self) -> None:
        """Give up what is still on its way."""
        self.finish()
        for output in self._outputs:
            output.give()
            output.let_go()


class _Input:
    """Standard input, on its way to the command.

    A terminal isn't read: while the output goes elsewhere, what is typed is for who reads that, a pager or sudo's question
    for a password. The command finds the input at its end.
    """

    def __init__(self) -> None:
        # Kept here too: so writing never fails, and at the end it tells how much nobody has read.
        self.lent, self._pipe = os.pipe()
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
        """Close everything. A file is put back to what wasn't read, as in `while read line; do substratctl exec ...`."""
        if self.lent < 0:
            return
        # The command may have written into its own input, which isn't more than was taken.
        unread = min(len(self._pending) + _waiting(self.lent), self._taken)
        if unread and stat.S_ISREG(os.fstat(0).st_mode):
            with suppress(OSError):  # somebody else has put it elsewhere, where there is no room before
                os.lseek(0, -unread, os.SEEK_CUR)
        self._pending = _NOTHING
        self._pipe, self.lent = _closed(self._pipe), _closed(self.lent)

    def _take(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except BlockingIOError:  # the caller's own choice, and another process was faster
            return
        except OSError as problem:
            data = b""
            if problem.errno != errno.EBADF:  # it isn't open for reading, which nohup(1) does: so there is no input
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
        self._pipe, self.lent = os.pipe()
        os.set_blocking(self._pipe, False)
        self.problem: str | None = None
        self._number = number
        self._pending = _NOTHING
        self._room = select.poll()
        self._room.register(number, select.POLLOUT)

    def let_go(self) -> None:
        """Close the lent end."""
        self.lent = _closed(self.lent)

    def watched(self) -> Iterator[Watched]:
        if self._pending:
            yield self._number, select.POLLOUT, self.give
        elif self._pipe >= 0:
            yield self._pipe, select.POLLIN, self._take
            yield self._number, 0, self._give_up  # poll(2) tells when nobody reads there any more

    def finish(self) -> None:
        """Take what is left, however much others who may have got hold of the pipe still write."""
        if self._pipe >= 0:
            with suppress(BlockingIOError):
                self._pending = memoryview(bytes(self._pending) + os.read(self._pipe, _waiting(self._pipe)))
            self._pipe = _closed(self._pipe)

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
            self.problem = _complaint(f"{name} can't be written, and what the command wrote is lost", problem)
            self._give_up()

    def _take(self) -> None:
        if self._pipe < 0:  # given up since poll(2) said that something is there
            return
        with suppress(BlockingIOError):  # the command may read its own output
            data = os.read(self._pipe, CHUNK)
            if not data:
                self._pipe = _closed(self._pipe)
            self._pending = memoryview(data)
            self.give()

    def _give_up(self) -> None:
        """Nobody reads any more: let the command find that out, as it would without us."""
        self._pending = _NOTHING
        self._pipe = _closed(self._pipe)


def _waiting(pipe: int) -> int:
    """Return how many bytes are in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _closed(descriptor: int) -> int:
    """Close a descriptor if it is one; returns what stands for none."""
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _complaint(what: str, problem: OSError) -> str:
    return f"{what}: {(problem.strerror or str(problem)).lower()}"
