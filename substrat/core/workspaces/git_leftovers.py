"""Names the work that git left unfinished in a repository: a rebase under way, a lock whose git was killed. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_OPERATIONS = {
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase, or `git am`,",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisection",
}
LOCKS = ("index.lock", "HEAD.lock", "packed-refs.lock")
"""While git writes such a file, no other git does; a git that is killed leaves its lock, and others are refused."""
NAMES = (*_OPERATIONS, *LOCKS)
"""The names in a git directory that tell of unfinished work."""


def sentences(paths: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each path of unfinished work, such as `/w/.git/index.lock`."""
    return tuple(_sentence(path) for path in paths)


def _sentence(path: str) -> str:
    git, _, name = path.rpartition("/")
    if name in LOCKS:
        return f"{path} keeps git from writing: if no git runs there, `rm {shlex.quote(path)}` lets it write again"
    return f"{_OPERATIONS[name]} is under way in {git}: `git status` says how to go on with it and how to give it up"


def notice(paths: Iterable[str]) -> str:
    """Return the words about unfinished work that stand before an agent's prompt."""
    listed = "".join(f"\n- {sentence}" for sentence in sentences(paths))
    return f"From Substrat: git has unfinished work in your workspace, so commits may be refused.{listed}"


def new_locks(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """Return the locks that were made during a turn and may be removed after it.

    Only an index is one worktree's alone: a git in another worktree of the repository may hold the other locks.
    """
    return tuple(path for path, inode in after.items() if path.endswith("/index.lock") and before.get(path) != inode)
