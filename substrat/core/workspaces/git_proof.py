"""Proves that a file stood at a commit, from objects of git's whose contents give their own ids. Pure.

Who can write to a repository can put any content under any id, and git reads an object without hashing it. So each id is
computed here, from the commit's down to the file's.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_DIGITS = 10
"""Digits of a size: some gigabytes, far more than is ever printed."""
_SHA1 = 20
"""Bytes of an id in a tree."""


class GitObject(NamedTuple):
    """An object: `commit`, `tag`, `tree` or `blob`, and its content."""

    kind: bytes
    content: bytes


def object_id(kind: bytes, content: bytes) -> str:
    """Return an object's id in a repository with sha1 (gitformat-pack(5))."""
    return hashlib.sha1(b"%b %d\0%b" % (kind, len(content), content), usedforsecurity=False).hexdigest()


def read(printed: bytes) -> dict[str, GitObject]:
    """Return the objects that `git cat-file --batch` has printed, by the ids that their contents give."""
    found: dict[str, GitObject] = {}
    at = 0
    while (end := printed.find(b"\n", at)) >= 0:
        words = printed[at:end].split(b" ")
        at = end + 1
        if len(words) == 3 and words[2].isdigit() and len(words[2]) <= _DIGITS:
            size = int(words[2])
            content = printed[at : at + size]
            found[object_id(words[1], content)] = GitObject(words[1], content)
            at += size + 1
    return found


def stands_at(tips: Iterable[str], path: bytes, data: bytes, objects: Mapping[str, GitObject]) -> bool:
    """Say whether a file with some content stood at one of some commits, or annotated tags of commits.

    Args:
        tips: their ids.
        path: the file's path from the repository's top.
        data: its content.
        objects: what `read` returned.
    """
    blob, names = object_id(b"blob", data), path.split(b"/")
    return any(tip in objects and _id_at(tip, names, objects) == blob for tip in tips)


def _id_at(start: str, names: list[bytes], objects: Mapping[str, GitObject]) -> str | None:
    found = objects.get(start)
    if found is None or not names:
        return None if names else start
    if found.kind in {b"commit", b"tag"}:
        # `tree ID` and `object ID` are always the first line.
        return _id_at(found.content.partition(b"\n")[0].partition(b" ")[2].decode("latin-1"), names, objects)
    inner = dict(_entries(found.content)).get(names[0]) if found.kind == b"tree" else None
    return _id_at(inner, names[1:], objects) if inner is not None else None


def _entries(tree: bytes) -> Iterator[tuple[bytes, str]]:
    """Read the files and directories of a tree: `MODE NAME`, NUL and an id each; no links, no submodules."""
    at = 0
    while (end := tree.find(b"\0", at)) >= 0:
        mode, _, name = tree[at:end].partition(b" ")
        at = end + 1 + _SHA1
        if mode.startswith((b"100", b"40")):
            yield name, tree[end + 1 : at].hex()
