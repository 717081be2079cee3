"""Reads on in a file that others append to, and notices when bytes that were read have been taken out again."""

from __future__ import annotations

import os
from typing import NamedTuple

_CHUNK = 256 * 1024
"""Bytes read at once: decoding as many takes a few milliseconds, in which the loop stands still."""
_REMEMBERED = 64
"""Bytes compared at the beginning and before the position to notice a cut: enough to tell two lines of JSON apart."""


class Cut(NamedTuple):
    """The file was cut.

    Args:
        size: how many bytes it has now.
        expected: how many had been read.
        position: where reading goes on: at the beginning if that is new, else at the end.
    """

    size: int
    expected: int
    position: int


class Tail:
    """Reads one file from a position on.

    Args:
        path: the file.
        position: where to begin, in bytes.

    Raises:
        FileNotFoundError: there is none.
        OSError: it can't be opened or read.
    """

    def __init__(self, path: str, position: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._position = position
        # The first and the last bytes that were read: when they have changed, so have those between.
        try:
            self._first = os.pread(self._descriptor, min(_REMEMBERED, position), 0)
        except OSError:  # a directory
            os.close(self._descriptor)
            raise
        self._last = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def read(self) -> bytes | Cut:
        """Return the appended bytes, b"" if there are none, or that the file was cut."""
        start = self._position - len(self._last)
        data = os.pread(self._descriptor, _CHUNK + len(self._last), start)
        if data[: len(self._last)] != self._last or len(data) < len(self._last):
            return self._cut()
        fresh = data[len(self._last) :]
        if not fresh and os.fstat(self._descriptor).st_size < self._position:
            return self._cut()
        if fresh:
            self._first += fresh[: max(0, _REMEMBERED - self._position)] if self._position < _REMEMBERED else b""
            self._position += len(fresh)
            self._last = data[-_REMEMBERED:]
        return fresh

    def _cut(self) -> Cut:
        size, expected = os.fstat(self._descriptor).st_size, self._position
        begins_anew = os.pread(self._descriptor, len(self._first), 0) != self._first
        self._position = 0 if begins_anew else size
        if begins_anew:
            self._first = b""
        self._last = b""
        return Cut(size, expected, self._position)
