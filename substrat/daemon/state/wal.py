"""SQLite's write-ahead log, looked at from outside: whether commits were in it that SQLite does not take any more.

SQLite reads a log up to the first frame whose checksum is wrong and goes on from there without a word, and it takes a log
that is missing for an empty one. Two things tell of commits that are lost by that: frames of the same generation that end
a transaction behind the last frame SQLite accepts, and the index in `-shm`, in which the daemon that wrote the log noted
how many frames were committed. Formats: sqlite.org/fileformat2.html#walformat and sqlite.org/walformat.html.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from typing import NamedTuple

_HEADER = struct.Struct(">4s7I")
"""Magic, version, page size, checkpoint number, two salts, two checksums."""
_FRAME = struct.Struct(">6I")
"""Page number, pages of the database after a commit (0: no commit), two salts, two checksums."""
_VERSION = 3007000
_MAGIC_LITTLE = b"\x37\x7f\x06\x82"
_MAGIC_BIG = b"\x37\x7f\x06\x83"
_INDEX = struct.Struct("=3I2B H 2I 2I 2I 2I")
"""In the machine's byte order: version, unused, change counter, initialised, checksum order, page size, frames, pages, then
checksums of frames, salts and of this header. It stands twice, and behind it how many frames are checkpointed."""
_MOST_FRAMES = 1_000_000
"""Frames that are looked at, which takes about a second: 4 GB of pages."""


class Log(NamedTuple):
    """A log as it was found.

    Args:
        salts: the generation its frames belong to; None: the file is missing or empty.
        commits: the numbers of the frames that end a transaction, the first frame being 1.
        frames: how many whole frames of the generation there are.
        committed: how many frames were committed, as the index tells; None: it doesn't.
        checkpointed: how many of them are in the database, as the index tells.
    """

    salts: bytes | None
    commits: tuple[int, ...]
    frames: int
    committed: int | None
    checkpointed: int


def is_strange(path: str) -> bool:
    """Say whether SQLite would ignore a log altogether, and with it the commits in it.

    A power failure can leave zeros, and may take the last commits back anyway.

    Args:
        path: the log.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER.size)
    except FileNotFoundError:
        return False
    if not any(head):
        return False
    if len(head) < _HEADER.size:
        return True
    magic, version, *_, first, second = _HEADER.unpack(head)
    order = {_MAGIC_LITTLE: "<", _MAGIC_BIG: ">"}.get(magic)
    return order is None or version != _VERSION or _checksum(head[:24], order) != (first, second)


def _checksum(data: bytes, order: str) -> tuple[int, int]:
    first = second = 0
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def look(path: str) -> Log:
    """Read the heads of a log's frames and the index beside it.

    Args:
        path: the log; to be looked at before the database is opened, which writes the index anew.
    """
    salts: bytes | None = None
    commits: list[int] = []
    frames = 0
    with suppress(FileNotFoundError), open(path, "rb", buffering=1 << 16) as file:
        head = file.read(_HEADER.size)
        if len(head) == _HEADER.size and any(head):
            salts, page_size = head[16:24], _HEADER.unpack(head)[2]
            size = os.fstat(file.fileno()).st_size
            while frames < _MOST_FRAMES and file.tell() + _FRAME.size + page_size <= size:
                frame = file.read(_FRAME.size)
                if frame[8:16] != salts:
                    break
                frames += 1
                if _FRAME.unpack(frame)[1]:
                    commits.append(frames)
                file.seek(page_size, os.SEEK_CUR)
    committed, checkpointed = _index(path.removesuffix("-wal") + "-shm", salts)
    return Log(salts, tuple(commits), frames, committed, checkpointed)


def _index(path: str, salts: bytes | None) -> tuple[int | None, int]:
    data = b""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        data = file.read(2 * _INDEX.size + 4)
    if len(data) < 2 * _INDEX.size + 4 or data[: _INDEX.size] != data[_INDEX.size : 2 * _INDEX.size]:
        return None, 0
    fields = _INDEX.unpack_from(data)
    frames, own_salts, sums = fields[6], data[32:40], fields[-2:]
    order = "<" if sys.byteorder == "little" else ">"
    if fields[0] != _VERSION or not fields[3] or _checksum(data[: _INDEX.size - 8], order) != sums:
        return None, 0
    if salts is not None and own_salts != salts:
        return None, 0
    return frames, min(frames, struct.unpack_from("=I", data, 2 * _INDEX.size)[0])


def losses(log: Log, accepted: int) -> str | None:
    """Say which commits a log had that are lost, as part of a sentence; None: nothing tells of any.

    Args:
        log: as it was before the database was opened.
        accepted: how many frames SQLite takes.
    """
    if log.committed is not None and log.committed > max(accepted, log.checkpointed):
        if log.salts is None:
            return f"the log with the last {log.committed - log.checkpointed} pages that were written is gone"
        return f"the log is damaged or cut: of {log.committed} pages that were committed {accepted} can be read"
    behind = [number for number in log.commits if number > accepted]
    # A daemon that is killed while it commits leaves one such frame, the last, with the page not written yet.
    if behind and behind[0] < log.frames:
        return f"the log is damaged at page {accepted + 1} of {log.frames}: {len(behind)} commits behind it can't be read"
    return None
