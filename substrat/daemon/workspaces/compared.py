"""Reads the files of git directories that git obeys and an agent's git must write, so that a turn's end can compare them.

An example: a line `exec touch x` in `rebase-merge/git-rebase-todo` is run by the `git rebase --continue` of a person.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from sandbox import protect
from substrat.daemon.kernel import fingerprint, nofollow

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_PACKED = 64 << 20
"""Bytes of `packed-refs`: some 900,000 refs."""


def read(git_directories: Iterable[str], roots: tuple[str, ...]) -> dict[str, str]:
    """Return hashes of what is there of these files, by their paths; `fingerprint.UNREAD` for what can't be read.

    Args:
        git_directories: those in which the agent may write.
        roots: where the agent may write.
    """
    found: dict[str, str] = {}
    for git in git_directories:
        budget = fingerprint.Budget(1 << 20, 1000)
        for name in protect.GIT_COMPARED:
            found[f"{git}/{name}"] = fingerprint.content_at(f"{git}/{name}", roots, budget)
        found[f"{git}/packed-refs"] = _replaced(f"{git}/packed-refs")
    return {path: content for path, content in found.items() if content}


def _replaced(path: str) -> str:
    """Return a hash of the replaced objects in `packed-refs`, whose other refs change with each `git gc`; empty: none."""
    data = nofollow.read_small(path, _LONGEST_PACKED)
    if data is None:
        return fingerprint.UNREAD if os.path.lexists(path) else ""
    lines = [line for line in data.splitlines() if b" refs/replace/" in line] if b" refs/replace/" in data else []
    return hashlib.sha256(b"\n".join(lines)).hexdigest() if lines else ""
