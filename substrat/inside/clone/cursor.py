"""The directory of a clone that is mounted over in each turn: git leaves it alone."""

from __future__ import annotations

import os
import re

from substrat.inside.clone import files
from substrat.inside.clone.git import CLONE, TREE, Git

_GLOB, _ESCAPED = re.compile(r"([\\*?\[])"), r"\\\1"
"""The letters that mean more in a pattern (gitignore(5))."""


def leave_out(cursor: str) -> None:
    """Have git leave the directory alone: what it has there changes in commits only.

    The files that are shown there aren't git's: without `expectFilesOutsideOfPatterns` it takes them for changes of the
    agent's, and no merge goes through that touches the directory (git-config(1)). The agent's own patterns stay: the last
    one that matches a path counts (git-sparse-checkout(1)).
    """
    settings = "^(core[.]sparsecheckout|sparse[.]expectfilesoutsideofpatterns)$"
    if CLONE("config", "--local", "--bool", "--get-regexp", settings, fine=(0, 1)).split().count("true") != 2:
        CLONE("config", "core.sparseCheckout", "true")
        CLONE("config", "sparse.expectFilesOutsideOfPatterns", "true")
    path, pattern = f"{TREE}/.git/info/sparse-checkout", f"!{_pattern(cursor)}"
    known = files.read(path)
    if pattern in known.splitlines():
        return
    files.write(path, f"{known.rstrip() or '/*'}\n{pattern}\n")
    for name in skip(cursor):  # those of a clone that was made before git left the directory out
        if os.path.isfile(f"{TREE}/{name}"):
            os.unlink(f"{TREE}/{name}")


def hide(cursor: str) -> None:
    """Keep the directory out of the clone's commits, and make it, to be mounted over."""
    skip(cursor)
    files.write(f"{TREE}/.git/info/exclude", f"{_pattern(cursor)}\n")
    if not os.path.lexists(f"{TREE}/{cursor}"):
        os.makedirs(f"{TREE}/{cursor}")


def _pattern(cursor: str) -> str:
    return f"/{_GLOB.sub(_ESCAPED, cursor)}/"


def skip(cursor: str, git: Git = CLONE) -> list[str]:
    """Mark the tracked files of the directory as left out, and return them."""
    tracked = git("--literal-pathspecs", "ls-files", "-z", "--", cursor)
    if tracked:
        git("update-index", "-z", "--skip-worktree", "--stdin", given=tracked)
    return tracked.split("\0")[:-1]
