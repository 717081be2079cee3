"""Finds the working trees of a repository that hold a branch: they have it checked out, rebase it or bisect from it. Pure.

git moves no branch that is held (git-branch(1), `--force`). For example after `git rebase topic` in a checkout of `main`
its HEAD is detached until the rebase is over, and `rebase-merge/head-name` says `refs/heads/main`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

CHECKED_OUT = "checked out"
STATES = {
    "rebase-merge/head-name": "a rebase", "rebase-merge/update-refs": "a rebase", "rebase-apply/head-name": "a rebase",
    "BISECT_START": "a bisect",
}  # fmt: skip
"""Files of a working tree's git directory that name branches, and what is under way while they are there."""
END = "end"
SCRIPT = f"""\
for place in "$GIT_DIR" "$GIT_DIR"/worktrees/*
do for name in {" ".join(STATES)}
    do
        [ -f "$place/$name" ] && grep -qxF -e "refs/heads/$1" -e "$1" "$place/$name" || continue
        printf '%s\\0' "$name"; [ "$place" = "$GIT_DIR" ] || cat "$place/gitdir"; printf '\\0'
    done
done
printf '{END}\\0'
git worktree list --porcelain -z
"""
"""Prints what `parse` reads; $1 is the branch."""


class Holder(NamedTuple):
    """A working tree that holds a branch.

    Args:
        path: its path; of the one that `.git` lies in the git directory's.
        how: `CHECKED_OUT`, `a rebase` or `a bisect`.
        is_locked: whether it may be missing because its disk is (git-worktree(1), `lock`).
    """

    path: str
    how: str
    is_locked: bool = False


def parse(output: bytes, branch: str, git_dir: str) -> tuple[Holder, ...]:
    """Return the holders of a branch.

    Args:
        output: for each file of `STATES` that names the branch, its name and the path of the working tree's `.git`, empty
            for the one that the git directory lies in; then `END`; then the output of `git worktree list --porcelain`;
            each part, and each line of the list, ended by a NUL.
        branch: the branch.
        git_dir: the git directory.
    """
    fields = iter(os.fsdecode(output).split("\0"))
    found = []
    for name in fields:
        if name == END:
            break
        place = next(fields, "").removesuffix("\n").removesuffix("/.git")
        found.append(Holder(place or git_dir, STATES[name]))
    path, has_it, is_locked = "", False, False
    for field in fields:
        key, _, value = field.partition(" ")
        if not field and path:
            if has_it:
                found.append(Holder(path, CHECKED_OUT, is_locked))
            path, has_it, is_locked = "", False, False
        path = value if key == "worktree" else path
        has_it = has_it or field == f"branch refs/heads/{branch}"
        is_locked = is_locked or key == "locked"
    return tuple(found)
