"""Puts the files of an agent's clone back to how a turn left them.

The sandbox shows the clone, the directory `OUT` that `keep` has left, and the objects that the clone borrows;
`substrat.daemon.clones.restoring` runs it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from substrat.inside.clone import files
from substrat.inside.clone.cursor import skip
from substrat.inside.clone.git import CLONE, OUT, TREE, Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GIT = f"{TREE}/.git"
_INDEX = f"{_GIT}/index.substrat"
_UNFINISHED = (
    "rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "AUTO_MERGE",
    "MERGE_AUTOSTASH", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_LOG", "BISECT_START",
    "BISECT_TERMS", "BISECT_NAMES", "BISECT_EXPECTED_REV", "BISECT_ANCESTORS_OK", "index.lock", "HEAD.lock", "config.lock",
    "packed-refs.lock",
)  # fmt: skip
"""What git leaves in its directory while a command isn't finished (gitrepository-layout(5))."""


_git = CLONE.given(GIT_NO_REPLACE_OBJECTS="1")
_with_new_index = _git.given(GIT_INDEX_FILE=_INDEX)


def restore(request: dict[str, Any]) -> dict[str, object]:
    """Change the files first, and HEAD's branch afterwards.

    Args:
        request: `before`, the commit of the files that are there, or null when there are none; `head` and `wip`, the turn's
            commits, of which `head` may be null; `branch`, the clone's own branch; `cursor`, the directory that is mounted
            over.
    """
    before, head, wip, cursor = request["before"], request["head"], request["wip"], request["cursor"]
    empty = _git("hash-object", "-t", "tree", "-w", "--stdin").strip()
    start = before or empty
    _check_room(start, wip)
    _make_index(start)
    skip(cursor, _with_new_index)
    _with_new_index("read-tree", "-m", "-u", start, wip)
    branch_ref = _unfinished_branch()
    for name in _UNFINISHED:
        _remove(f"{_GIT}/{name}")
    _repair_head(branch_ref, request["branch"])
    _remove(f"{_GIT}/index")
    os.replace(_INDEX, f"{_GIT}/index")
    if head is None:
        _git("update-ref", "-d", "HEAD")
        _git("read-tree", "--empty")
    else:
        _git("reset", "-q", "--mixed", head)
        skip(cursor, _git)
    return {}


# Files


def _check_room(before: str, wip: str) -> None:
    """Raise `Failed` if a file of the turn would overwrite something that isn't kept, because git ignores it."""
    tracked = set(_listed("ls-tree", "-r", "-z", "--name-only", "--full-tree", before))
    for path in _listed("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=AT", before, wip):
        if (obstacle := _in_the_way(path, tracked)) is not None:
            raise Failed(f"{obstacle}, which git ignores, is in the way of the turn's {path}: move or remove it first")


def _in_the_way(path: str, tracked: set[str]) -> str | None:
    """Return a file that isn't kept in the place of another, or of one of the directories that it is in."""
    parts = path.split("/")
    for number in range(1, len(parts) + 1):
        outer = "/".join(parts[:number])
        at = f"{TREE}/{outer}"
        if not os.path.lexists(at):
            return None
        if os.path.islink(at) or not os.path.isdir(at):
            return None if outer in tracked else outer
    for directory, _, names in os.walk(f"{TREE}/{path}"):
        inside = os.path.relpath(directory, TREE)
        found = next((f"{inside}/{name}" for name in names if f"{inside}/{name}" not in tracked), None)
        if found is not None:
            return found
    return None


def _make_index(before: str) -> None:
    """Make an index in which every file is as it is; `keep` has left one, if nothing has changed since."""
    _remove(_INDEX)
    _remove(f"{_INDEX}.lock")
    with suppress(OSError):
        files.copy_index(f"{OUT}/index", _INDEX)
    done = _with_new_index.run("write-tree")
    if done.returncode or done.stdout.strip().decode() != _git("rev-parse", f"{before}^{{tree}}").strip():
        _remove(_INDEX)
        _with_new_index("read-tree", before)
    _with_new_index.run("update-index", "-q", "--refresh")


# HEAD


def _unfinished_branch() -> str | None:
    """Return the branch that an unfinished rebase or bisection has taken HEAD away from."""
    for name in ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
        with suppress(OSError, UnicodeDecodeError), open(f"{_GIT}/{name}", encoding="utf-8") as file:
            found = file.read(1024).strip()
            ref = found if found.startswith("refs/heads/") else f"refs/heads/{found}"
            if _git.run("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}").returncode == 0:
                return ref
    return None


def _repair_head(branch_ref: str | None, branch: str) -> None:
    """Put HEAD back on a branch where an unfinished command has taken it away, or where it can't be read."""
    if branch_ref is not None:
        _git("symbolic-ref", "HEAD", branch_ref)
    elif _git.run("symbolic-ref", "-q", "HEAD").returncode and _git.run("rev-parse", "-q", "--verify", "HEAD").returncode:
        _git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    ref = _git.run("symbolic-ref", "-q", "HEAD").stdout.strip().decode("utf-8", "surrogateescape")
    if ref:
        _remove(f"{_GIT}/{ref}.lock")


# git


def _listed(*arguments: str) -> list[str]:
    return [name for name in _git(*arguments).split("\0") if name]


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
