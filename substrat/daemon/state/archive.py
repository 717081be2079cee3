"""A turn's output, compressed in independent blocks so that a line can be read without the lines before it.

The file is a header, the blocks (each a zlib stream of at most `BLOCK` bytes of output), an index with where each block
is and the checksum of its content, and a footer with where the index is. Numbers are little-endian.

It is written under another name, flushed and renamed, and only then the original is removed, so at every instant there
is the original or the finished archive; a temporary file that a crash leaves is removed by the next sweep.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar

from substrat.daemon.kernel import nofollow

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

BLOCK = 256 * 1024
"""Bytes compressed together: larger blocks compress little better, and reading a line decompresses all of one."""
SUFFIX = ".z"
PART_SUFFIX = ".z.part"
VERSION = 1

_MAGIC = b"SBTA"
_HEADER = struct.Struct("<4sBxxxI")
_ENTRY = struct.Struct("<QII")
"""Where a block starts, how many bytes it has there, the checksum of its contents."""
_FOOTER = struct.Struct("<QQII4s")
"""How many bytes the output has, where the index starts, how many blocks there are, the index's checksum."""
_KEPT_ARCHIVES = 8
"""Archives whose index stays in memory: as many as a page of events usually touches."""
_KEPT_BLOCKS = 8
"""Decompressed blocks kept, 2 MiB in all."""


class ArchiveDamaged(Exception):
    """An archive differs from the bytes that were written."""


def compress(path: str) -> int:
    """Put a file's archive in its place; blocks for as long as that takes, so call it in a thread.

    Args:
        path: the file; no process writes to it any more.

    Returns:
        How many bytes the archive has.

    Raises:
        OSError: it can't be read or there is no room; the file is as it was.
    """
    part = path + PART_SUFFIX
    try:
        with (
            open(path, "rb", opener=nofollow.open_file) as source,
            open(part, "wb", opener=nofollow.open_file) as target,
        ):
            size = _write(source, target)
            target.flush()
            os.fsync(target.fileno())
        os.rename(part, path + SUFFIX)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    _flush_directory(os.path.dirname(path))
    os.unlink(path)
    return size


def _write(source: BinaryIO, target: BinaryIO) -> int:
    index = bytearray()
    blocks = size = 0
    at = target.write(_HEADER.pack(_MAGIC, VERSION, BLOCK))
    while block := source.read(BLOCK):
        packed = zlib.compress(block, 6)
        index += _ENTRY.pack(at, len(packed), zlib.crc32(block))
        at += target.write(packed)
        size += len(block)
        blocks += 1
    target.write(index)
    target.write(_FOOTER.pack(size, at, blocks, zlib.crc32(index), _MAGIC))
    return at + len(index) + _FOOTER.size


def _flush_directory(path: str) -> None:
    """Make a rename last: the name is in the directory, which is flushed by itself."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Index(NamedTuple):
    """An archive's contents: its output's size, bytes a block, and the blocks."""

    size: int
    block: int
    entries: bytes


class Archives:
    """Reads archives, and remembers the newest indexes and blocks: lines are mostly read one after the other."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[object, _Index] = OrderedDict()
        self._blocks: OrderedDict[object, bytes] = OrderedDict()

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes of the output that an archive holds, fewer at its end.

        Args:
            path: the archive.
            offset: where they start in the output.
            length: how many there are.

        Raises:
            OSError: there is no such archive, or it can't be read.
            ArchiveDamaged: it differs from the bytes that were written.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return self.read_open(descriptor, offset, length)
        finally:
            os.close(descriptor)

    def read_open(self, descriptor: int, offset: int, length: int) -> bytes:
        """Return bytes of the output that an open archive holds, like `read`; the descriptor stays open."""
        known = os.fstat(descriptor)
        key = (known.st_dev, known.st_ino, known.st_mtime_ns, known.st_size)
        index = _remembered(self._indexes, key, _KEPT_ARCHIVES, partial(_read_index, descriptor, known.st_size))
        end = min(offset + length, index.size)
        data = bytearray()
        for number in range(offset // index.block, -(-end // index.block)):
            read = partial(_read_block, descriptor, index, number)
            block = _remembered(self._blocks, (key, number), _KEPT_BLOCKS, read)
            start = number * index.block
            data += block[max(0, offset - start) : end - start]
        return bytes(data)


def _remembered(memory: OrderedDict[object, T], key: object, room: int, find: Callable[[], T]) -> T:
    """Return the value remembered under a key, or find it and forget the one that wasn't asked for longest."""
    if key not in memory:
        memory[key] = find()
        if len(memory) > room:
            memory.popitem(last=False)
    memory.move_to_end(key)
    return memory[key]


def _read_index(descriptor: int, size: int) -> _Index:
    header = os.pread(descriptor, _HEADER.size, 0)
    footer = os.pread(descriptor, _FOOTER.size, max(0, size - _FOOTER.size))
    if len(header) < _HEADER.size or len(footer) < _FOOTER.size:
        raise ArchiveDamaged("it is cut")
    magic, version, block = _HEADER.unpack(header)
    output, at, blocks, checksum, end = _FOOTER.unpack(footer)
    if magic != _MAGIC or end != _MAGIC or version != VERSION:
        raise ArchiveDamaged("it is no archive of this version")
    if at + blocks * _ENTRY.size + _FOOTER.size != size or not block or -(-output // block) != blocks:
        raise ArchiveDamaged("its index doesn't fit")
    entries = os.pread(descriptor, blocks * _ENTRY.size, at)
    if zlib.crc32(entries) != checksum:
        raise ArchiveDamaged("its index has changed")
    return _Index(output, block, entries)


def _read_block(descriptor: int, index: _Index, number: int) -> bytes:
    at, length, checksum = _ENTRY.unpack_from(index.entries, number * _ENTRY.size)
    expected = min(index.block, index.size - number * index.block)
    try:
        block = zlib.decompressobj().decompress(os.pread(descriptor, length, at), index.block)
    except zlib.error as problem:
        raise ArchiveDamaged(f"block {number}: {problem}") from None
    if len(block) != expected or zlib.crc32(block) != checksum:
        raise ArchiveDamaged(f"block {number} has changed")
    return block
