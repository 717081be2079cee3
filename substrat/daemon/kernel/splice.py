"""Moves bytes between sockets in the kernel, through pipes (splice(2))."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress

from substrat.daemon.kernel import descriptors

CHUNK = 1 << 20
"""Bytes moved at once: the size of a pipe that an ordinary user may have (pipe(7), pipe-max-size)."""
_F_SETPIPE_SZ = 1031  # fcntl(2), Linux; 64 KiB without it


class Pipes:
    """Pipes for splice(2), one for each direction that has bytes under way, none for the many that are waiting."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Take an empty pipe; raises `OSError` if there are no descriptors left but those in reserve."""
        if self._free:
            return self._free.pop()
        pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if descriptors.is_reserved(max(pipe)):
            os.close(pipe[0])
            os.close(pipe[1])
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        with suppress(OSError):  # an ordinary user may have only so many large ones (pipe(7))
            fcntl.fcntl(pipe[1], _F_SETPIPE_SZ, CHUNK)
        return pipe

    def give(self, pipe: tuple[int, int], *, empty: bool) -> None:
        """Give a pipe back; one with bytes in it is closed."""
        if empty and len(self._free) < 4:
            self._free.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        """Close the pipes that are not in use."""
        while self._free:
            self.give(self._free.pop(), empty=False)


def splice(source: int, sink: int, count: int = CHUNK) -> int:
    """Move the bytes that are ready (splice(2)); returns how many, 0 at the end, -1 when there are none yet or no room."""
    try:
        return os.splice(source, sink, count, flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return -1
