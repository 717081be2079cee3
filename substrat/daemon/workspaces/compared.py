"""Reads the files of git directories that git obeys and an agent's git must write, so that a turn's end can compare them.

An example: a line `exec touch x` in `rebase-merge/git-rebase-todo` is run by the `git rebase --continue` of a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox import protect
from substrat.daemon.kernel import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable


def read(git_directories: Iterable[str], roots: tuple[str, ...]) -> dict[str, str]:
    """Return hashes of what is there of these files, by their paths; `fingerprint.UNREAD` for what can't be read.

    Args:
        git_directories: those in which the agent may write.
        roots: where the agent may write.
    """
    found: dict[str, str] = {}
    for git in git_directories:
        budget = fingerprint.Budget(1 << 20, 1000)
        for name in (*protect.GIT_COMPARED, "packed-refs"):
            found[f"{git}/{name}"] = fingerprint.content_at(f"{git}/{name}", roots, budget)
    return {path: content for path, content in found.items() if content}
