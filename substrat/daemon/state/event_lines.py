"""Reads the lines of events from the turns' output, many in a row: each file is looked up and opened once.

The lines of a turn follow one another in its file, so a window of the file is read ahead and most lines are cut out of
it: 300,000 events of one turn cost some thousand reads instead of 300,000 queries, opens and reads.
"""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Self

from substrat.daemon.state.archive import SUFFIX, ArchiveDamaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.state.archive import Archives
    from substrat.daemon.state.rows import EventRow

MAX_RAW = 8 * 1024 * 1024
"""Bytes; a longer line is not sent inside an event. It stays in the turn's stdout file."""
WINDOW = 64 * 1024
"""Bytes read ahead: a page of a subscription, and cheap to read in vain where turns alternate."""
_OPEN_FILES = 64
"""As many turns as run side by side on a busy machine; a page of 1,000 events of more turns opens some twice."""


class _Output:
    """A turn's open output, plain or as an archive; without a descriptor one that can't be read."""

    __slots__ = ("archived", "descriptor", "start", "window")

    def __init__(self, descriptor: int | None, *, archived: bool) -> None:
        self.descriptor = descriptor
        self.archived = archived
        self.start = 0
        self.window = b""


class LineReader:
    """The lines of events. Owns the files it opens: use it in a `with` statement, for one page.

    Args:
        stdout_of: finds a turn's stdout file from the agent's and the turn's id; None when it is gone.
        archives: reads the archives that have taken the files' places.
    """

    def __init__(self, stdout_of: Callable[[str, str], str | None], archives: Archives) -> None:
        self._stdout_of = stdout_of
        self._archives = archives
        self._outputs: OrderedDict[str, _Output] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._outputs:
            _close(self._outputs.popitem()[1])

    def line_of(self, row: EventRow) -> bytes | None:
        """Read an event's line, with its newline if it has one, cut at `MAX_RAW` bytes.

        Returns:
            The bytes, or None when they aren't there or aren't the same any more.
        """
        if row.offset is None or row.length is None or row.turn is None or row.offset < 0 or row.length < 0:
            return None
        output = self._output_of(row.agent, row.turn)
        if output.descriptor is None:
            return None
        kept = min(row.length, MAX_RAW)
        try:
            data = self._bytes_at(output, row.offset, kept + 1)
        except (OSError, OverflowError, ArchiveDamaged):
            return None
        if zlib.crc32(data[:kept]) != row.checksum:
            return None
        return data if kept == row.length else data[:kept]

    def prepare(self, row: EventRow) -> None:
        """Open the file with an event's line. `line_of` may be called in a thread then, where the store can't be asked."""
        if row.turn is not None:
            self._output_of(row.agent, row.turn)

    def _output_of(self, agent: str, turn: str) -> _Output:
        output = self._outputs.get(turn)
        if output is None:
            path = self._stdout_of(agent, turn)
            output = self._outputs[turn] = _open(path) if path is not None else _Output(None, archived=False)
            if len(self._outputs) > _OPEN_FILES:
                _close(self._outputs.popitem(last=False)[1])
        return output

    def _bytes_at(self, output: _Output, offset: int, length: int) -> bytes:
        at = offset - output.start
        if at < 0 or at + length > len(output.window):
            # An output that has grown since, the end of a file and a jump are all alike: read anew from here.
            output.window = self._read(output, offset, max(length, WINDOW))
            output.start, at = offset, 0
        return output.window[at : at + length]

    def _read(self, output: _Output, offset: int, length: int) -> bytes:
        assert output.descriptor is not None
        if output.archived:
            return self._archives.read_open(output.descriptor, offset, length)
        return os.pread(output.descriptor, length, offset)


def _open(path: str) -> _Output:
    for name, archived in ((path, False), (path + SUFFIX, True)):
        try:
            return _Output(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), archived=archived)
        except FileNotFoundError:
            continue
        except OSError:
            break
    return _Output(None, archived=False)


def _close(output: _Output) -> None:
    if output.descriptor is not None:
        os.close(output.descriptor)
