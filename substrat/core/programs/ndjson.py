"""Cuts an agent's output into lines with their offsets, in bounded memory; it doesn't parse them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE = 8 * 1024 * 1024
"""An edit's result holds the whole file, so megabytes are normal; a longer line stays whole in the file and is cut here."""
_BLOCK = 64 * 1024
"""Pieces are gathered to blocks of this size, because each object costs more than the few bytes that may be in it."""


class Line(NamedTuple):
    """One line of output.

    Args:
        offset: where it starts in the stream, in bytes.
        length: its bytes in the stream, without the newline.
        data: its first `MAX_LINE` bytes.
        ended: whether a newline closed it (the last line of a killed program has none).
    """

    offset: int
    length: int
    data: bytes
    ended: bool = True

    @property
    def cut(self) -> bool:
        """Whether `data` isn't the whole line."""
        return len(self.data) < self.length


class Splitter:
    """Takes in bytes, gives out lines: `ab` and `c` with a newline after it give `abc`.

    Args:
        offset: where the stream is taken up.
        limit: how much of a line is kept.
    """

    def __init__(self, offset: int = 0, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self.consumed = offset
        """The offset after the last complete line: where a reader that starts anew should begin."""
        self._length = 0
        self._kept: list[bytes | bytearray] = []
        self._kept_bytes = 0

    @property
    def position(self) -> int:
        """The offset after the last byte taken in."""
        return self.consumed + self._length

    def feed(self, data: bytes) -> Iterator[Line]:
        """Take in the next bytes and give out each line they complete."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._take(part)
            yield self._emit(ended=True)
        self._take(rest)

    def finish(self) -> Iterator[Line]:
        """Give out the last line of a stream that ended without a newline."""
        if self._length:
            yield self._emit(ended=False)

    def _take(self, part: bytes) -> None:
        self._length += len(part)
        room = self._limit - self._kept_bytes
        if part and room > 0:
            self._keep(part[:room])

    def _keep(self, piece: bytes) -> None:
        self._kept_bytes += len(piece)
        last = self._kept[-1] if self._kept else None
        if isinstance(last, bytearray) and len(last) < _BLOCK:
            last += piece
        else:
            # Most lines come in one piece, which needs no block.
            self._kept.append(piece if last is None else bytearray(piece))

    def _emit(self, *, ended: bool) -> Line:
        line = Line(self.consumed, self._length, b"".join(self._kept), ended)
        self.consumed += self._length + ended
        self._length = 0
        self._kept.clear()
        self._kept_bytes = 0
        return line
