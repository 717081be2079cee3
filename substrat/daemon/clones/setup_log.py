"""Writes the output of a clone's set-up to a file of bounded size: its beginning and its end."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from substrat.daemon.kernel import nofollow

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_MOST_BEGINNING, _MOST_END = 256 << 10, 256 << 10
"""Bytes: some thousand lines each. A failure's cause is in the last ones, the versions that were chosen in the first."""
MOST = _MOST_BEGINNING + _MOST_END + 4096


class SetupLog:
    """The output of one set-up."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._left = _MOST_BEGINNING
        self._end: deque[bytes] = deque()
        self._end_bytes = self._dropped = 0
        self._last = b""

    def __enter__(self) -> Self:
        self._file = open(self._path, "wb", buffering=0, opener=nofollow.open_file)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        with self._file:
            if self._dropped:
                self._file.write(b"\n[%d bytes are left out here]\n" % self._dropped)
            self._file.write(b"".join(self._end))

    def write(self, data: bytes) -> None:
        """Add output."""
        self._last = (self._last + data)[-1000:]
        beginning, rest = data[: self._left], data[self._left :]
        self._left -= len(beginning)
        if beginning:
            self._file.write(beginning)
        if rest:
            self._end.append(rest)
            self._end_bytes += len(rest)
        while self._end_bytes > _MOST_END:
            gone = self._end.popleft()
            self._end_bytes -= len(gone)
            self._dropped += len(gone)

    @property
    def last_line(self) -> str:
        """The last line that isn't empty, of printable characters."""
        lines = [line for line in self._last.decode("utf-8", "replace").splitlines() if line.strip()]
        return "".join(one if one.isprintable() else "?" for one in lines[-1])[:300] if lines else ""


def read(path: str) -> str | None:
    """Return the output of a set-up so far, None when there was none."""
    found = nofollow.read_own(path, MOST)
    return found.decode("utf-8", "replace") if found is not None else None
