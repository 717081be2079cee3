"""Finds in a git index the nested repositories, and the files of which git shows no changes (gitformat-index(5)). Pure.

Nested repositories are the entries with mode 160000; `git update-index --skip-worktree` marks a file as unchanged. An agent
may have written the index, so a name need not exist, and the file may hold any bytes. It is read as git reads it
(read-cache.c, `create_from_disk`), which looks at the mode's kind alone and trusts the lengths.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEADER = struct.Struct(">4sII")
_EXTENSION = struct.Struct(">4sI")
_STAT = 40
"""Bytes of times, device, inode, mode, owner and size; the object's name follows."""
_KIND = 26
"""The offset, in an entry, of the half byte that gives the file's kind."""
_GITLINK = 0xE0
_NAME_LENGTH, _EXTENDED, _VALID = 0xFFF, 0x4000, 0x8000
_SKIPPED = 0x40
"""In the first byte of the extended flags."""
_LONGEST_NAME = 4096
"""Bytes (limits.h, PATH_MAX): git can't open a file with a longer name."""


class IndexEntries(NamedTuple):
    """The entries of an index that matter to a person.

    Args:
        paths: where the nested repositories are, from the worktree's top, in the index's order.
        base: the name of the index that this one only changes (git-update-index(1), "Split index"), in hexadecimal digits.
        is_all: whether no more were left out than those of `base`, and those in a file that git refuses to read.
        marked: the files of which git shows no changes, each with the mark: `skip-worktree a.py`.
        is_whole: whether no marked file was left out; else the index has names that no file can have.
    """

    paths: tuple[bytes, ...] = ()
    base: str | None = None
    is_all: bool = True
    marked: tuple[bytes, ...] = ()
    is_whole: bool = True


def read(data: bytes, most: int, digest: int = 20) -> IndexEntries:
    """Return the entries of an index that matter.

    Args:
        data: the file's content.
        most: how many nested repositories are returned.
        digest: bytes of an object's name: 20, or 32 in a repository with `extensions.objectFormat = sha256`.
    """
    if len(data) < _HEADER.size:
        return IndexEntries()
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in {2, 3, 4}:
        return IndexEntries()
    walk = _prefixed if version == 4 else _padded
    entries = _Entries(most)
    is_whole, at = walk(data, count, digest, entries)
    base = _base(data, at, digest)
    # In a split index a name may be left out that stands in the other file.
    is_all = entries.is_all and b"" not in entries.paths
    return IndexEntries(tuple(filter(None, entries.paths)), base, is_all, tuple(entries.marked), is_whole)


class _Entries:
    """Collects entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.paths: list[bytes] = []
        self.marked: list[bytes] = []
        self.is_all = True

    def add(self, kind: int, flags: int, further: int, name: bytes) -> None:
        """Take up an entry that may matter, by its mode's kind, its flags, and the first byte of the extended ones."""
        if kind == _GITLINK:
            self.is_all = len(self.paths) < self._most
            if self.is_all:
                self.paths.append(name)
        if flags & _EXTENDED and further & _SKIPPED:
            self.marked.append(b"skip-worktree " + name)
        if flags & _VALID:
            self.marked.append(b"assume-unchanged " + name)


def _padded(data: bytes, count: int, digest: int, entries: _Entries) -> tuple[bool, int]:
    """Read the entries of versions 2 and 3; returns whether all of them, and where they end."""
    at, fixed = _HEADER.size, _STAT + digest + 2
    for _ in range(count):
        start = at + fixed
        if start > len(data):
            break
        flags, further = data[start - 2] << 8 | data[start - 1], 0
        if flags & _EXTENDED:
            further = data[start] if start < len(data) else 0
            start += 2
        length = flags & _NAME_LENGTH
        if length == _NAME_LENGTH:
            end = data.find(b"\0", start)
            length = (end if end >= 0 else len(data)) - start
        kind = data[at + _KIND] & 0xF0
        if kind == _GITLINK or flags & (_EXTENDED | _VALID):
            entries.add(kind, flags, further, data[start : start + min(length, _LONGEST_NAME)].partition(b"\0")[0])
        at += (start - at + length + 8) & ~7
    return True, at


def _prefixed(data: bytes, count: int, digest: int, entries: _Entries) -> tuple[bool, int]:
    """Read the entries of version 4, whose names begin as the one before; returns the same as `_padded`."""
    at, fixed = _HEADER.size, _STAT + digest + 2
    name = b""
    for _ in range(count):
        start = at + fixed
        if start > len(data):
            break
        flags, further = data[start - 2] << 8 | data[start - 1], 0
        if flags & _EXTENDED:
            further = data[start] if start < len(data) else 0
            start += 2
        stripped, start = _varint(data, start)
        end = data.find(b"\0", start)
        if end < 0 or stripped > len(name) or end - start > _LONGEST_NAME:
            return False, at
        name = (name[: len(name) - stripped] + data[start:end])[:_LONGEST_NAME]
        kind = data[at + _KIND] & 0xF0
        if kind == _GITLINK or flags & (_EXTENDED | _VALID):
            entries.add(kind, flags, further, name)
        at = end + 1
    return True, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number as version 4 writes it (varint.c); one that is cut off or too large is larger than any name."""
    value = -1
    for at in range(at, min(at + 9, len(data))):  # noqa: B020, PLR1704 - the place moves on
        value = (value + 1) << 7 | data[at] & 0x7F
        if not data[at] & 0x80:
            return value, at + 1
    return 1 << 62, len(data)


def _base(data: bytes, at: int, digest: int) -> str | None:
    """Return the name of the index that this one changes, from its extension `link`."""
    while at + _EXTENSION.size <= len(data) - digest:
        signature, length = _EXTENSION.unpack_from(data, at)
        at += _EXTENSION.size
        if signature == b"link":
            name = data[at : at + digest]
            return name.hex() if len(name) == digest and any(name) else None
        at += length
    return None
