"""The work in a clone that isn't HEAD's: other branches, stashes and worktrees."""

from __future__ import annotations

import os
from typing import NamedTuple

from substrat.inside.clone.git import Failed, Git, failure

ASIDES = """\
for name in rebase-merge/autostash rebase-apply/autostash MERGE_AUTOSTASH
do
    [ -f "$GIT_DIR/$name" ] || continue
    git rev-parse -q --verify --end-of-options "$(head -c 64 "$GIT_DIR/$name")^{commit}" | sed 's/^/stash /'
done
git for-each-ref '--format=branch %(objectname) %(refname:strip=2)' refs/heads
[ ! -f "$GIT_DIR/logs/refs/stash" ] || git stash list '--format=stash %H'
[ ! -d "$GIT_DIR/worktrees" ] || git worktree list --porcelain
"""
"""A shell's program that prints where the work is that isn't HEAD's: a line for each branch (`branch 1f2e… topic`) and each
stash, one that a rebase or merge under way has made too, and some for each further worktree (git-worktree(1))."""
_MOST_NAMED, _MOST_ASIDES, _LONGEST_NAME = 100, 5000, 200
"""Branches that are named and counted, each by a start of git; and branches and stashes that one commit is made of."""


class Asides(NamedTuple):
    """The work in the clone that isn't HEAD's.

    Args:
        said: the words of `ASIDES`.
        commits: the commits of branches, stashes and worktrees that neither HEAD nor a branch of the user's has.
        branches: each such branch, or worktree without one, with how many commits are its own.
        stashes: how many stashes there are.
        text: names them, a line each, in the order of their commits.
    """

    said: bytes
    commits: tuple[str, ...] = ()
    branches: tuple[tuple[str, int], ...] = ()
    stashes: int = 0
    text: str = ""


def find_asides(git: Git, head: str | None) -> Asides:
    """Find the work that isn't HEAD's, and name it."""
    done = git.command("sh", "-c", ASIDES)
    if done.returncode:
        raise failure("for-each-ref", done)
    named, stashes, worktree = dict[str, str](), list[str](), ""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "branch" and not rest.startswith("refs/"):
            commit, _, name = rest.partition(" ")
            named[name] = commit
        elif kind == "stash":
            stashes.append(rest)
        elif kind == "worktree":
            worktree = rest
        elif kind == "HEAD" and rest not in named.values():
            short = f"HEAD of {os.path.basename(worktree)}"
            named[short if short not in named else f"HEAD of {worktree}"] = rest
    others = {name: commit for name, commit in named.items() if commit != head and commit.strip("0")}
    counted = {name: _own_commits(git, commit, head) for name, commit in list(others.items())[:_MOST_NAMED]}
    branches = {name: commit for name, commit in others.items() if counted.get(name, 1)}
    commits = dict.fromkeys((*branches.values(), *stashes))
    if len(commits) > _MOST_ASIDES:
        raise Failed(f"it has {len(commits)} branches and stashes with work of their own, more than {_MOST_ASIDES}")
    lines = (*(f"branch {name}\n" for name in branches), *(f"stash {number}\n" for number in range(len(stashes))))
    listed = tuple((name[:_LONGEST_NAME], counted[name]) for name in branches if name in counted)
    text = f"Other branches and stashes\n\n{''.join(lines)}"
    return Asides(done.stdout, tuple(commits), listed, len(stashes), text)


def _own_commits(git: Git, commit: str, head: str | None) -> int:
    """Count the commits that neither HEAD nor a branch of the user's has; 0 for a branch whose commit isn't there."""
    known = ("--not", *((head,) if head is not None else ()), "--remotes")
    return int(git("rev-list", "--count", commit, *known, fine=(0, 128)) or 0)
