"""Reads git's lists of changed files. Pure.

`git diff --raw --numstat -z` gives the raw entries first, for example `:100644 100644 1234567 89abcde M`, then the file's
name, each ended by a NUL; then, in the same order, the counts of lines, for example `3<TAB>1<TAB>src/app.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUSES = {"A": "added", "D": "deleted", "M": "modified", "R": "renamed", "C": "copied", "T": "type-changed"}
"""Git's letters (git-diff(1), "--diff-filter") as `diff --json` says them."""
LINK = "120000"
"""The mode of a symbolic link (gitdatamodel(7))."""
SUBMODULE = "160000"


class ChangedFile(NamedTuple):
    """A file that differs between two commits.

    Args:
        path: its path from the top level; the new one of a renamed file.
        old_path: its former path, if it has another one now.
        status: one of `STATUSES`.
        added: lines that came; None for a binary file.
        deleted: lines that went; None for a binary file.
        mode: its new mode, six octal digits; zeros for a deleted file.
        blob: the id of its new content.
    """

    path: str
    old_path: str | None
    status: str
    added: int | None
    deleted: int | None
    mode: str
    blob: str

    @property
    def is_binary(self) -> bool:
        """Whether git counts no lines of it."""
        return self.added is None


def parse(output: bytes) -> tuple[ChangedFile, ...]:
    """Read the output of `git diff --raw --numstat -z --no-abbrev`; raises `ValueError` if git can't have written it."""
    fields = iter(os.fsdecode(output).split("\0"))
    raw: list[tuple[str, str, str, str | None, str]] = []
    counts: list[tuple[int | None, int | None]] = []
    for field in fields:
        if field.startswith(":"):
            raw.append(_raw(field, fields))
        elif field:
            counts.append(_counts(field, fields))
    return tuple(
        ChangedFile(path, old, STATUSES.get(status[:1], "modified"), *count, mode, blob)
        for (mode, blob, status, old, path), count in zip(raw, counts, strict=True)
    )


def parse_tree(output: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read the entries of a tree that `git ls-tree -r -z` gives, then an empty one, then its links' targets in their order.

    Returns:
        Where each symbolic link points, by its path; and the paths of the other files.

    Raises:
        ValueError: git can't have written it.
    """
    listed, _, rest = output.partition(b"\0\0") if not output.startswith(b"\0") else (b"", b"", output[1:])
    links: dict[str, str] = {}
    others = []
    for entry in filter(None, listed.split(b"\0")):
        head, _, path = entry.partition(b"\t")
        if head.startswith(LINK.encode()):
            size, _, rest = rest.partition(b"\n")
            # The kernel and git take a target to its first NUL: `..\0x` leads to `..`.
            links[os.fsdecode(path)] = os.fsdecode(rest[: int(size)].partition(b"\0")[0])
            rest = rest[int(size) + 1 :]
        else:
            others.append(os.fsdecode(path))
    return links, tuple(others)


def _raw(field: str, fields: Iterator[str]) -> tuple[str, str, str, str | None, str]:
    _, mode, _, blob, status = field[1:].split(" ")
    first = next(fields)
    old, path = (first, next(fields)) if status[:1] in {"R", "C"} else (None, first)
    return mode, blob, status, old, path


def _counts(field: str, fields: Iterator[str]) -> tuple[int | None, int | None]:
    added, deleted, path = field.split("\t", 2)
    if not path:  # a renamed file's two names follow as fields of their own
        next(fields), next(fields)
    return (None, None) if added == "-" else (int(added), int(deleted))


def as_object(file: ChangedFile) -> dict[str, object]:
    """Return a file as `diff --json` shows it; bytes of its name that are no text become `?`."""

    def shown(path: str | None) -> str | None:
        return path.encode("utf-8", "replace").decode() if path is not None else None

    return {
        "path": shown(file.path),
        "old_path": shown(file.old_path),
        "status": file.status,
        "added": file.added or 0,
        "deleted": file.deleted or 0,
        "binary": file.is_binary,
    }
