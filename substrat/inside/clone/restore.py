"""Puts the files of an agent's clone back to how a turn left them; run by the daemon in a sandbox without a network.

It sees the clone, the directory `OUT` that `treekeeper` has left, and the objects that the clone borrows. It runs with any
Python that the system has, so it imports next to nothing; `substrat.daemon.clones.restoring` runs it.

Usage: a JSON object with the members `before`, the commit of the files that are there, or null when there are none; `head`
and `wip`, the turn's commits, of which `head` may be null; `branch`, the clone's own branch; `cursor`, the directory that
is mounted over. Exit status 0: done; 3: it can't be done, and stderr says why in one line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TREE = "/run/substrat/tree"
OUT = "/run/substrat/out"
FAILED = 3

_GIT = f"{TREE}/.git"
_INDEX = f"{_GIT}/index.substrat"
_UNFINISHED = (
    "rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "AUTO_MERGE",
    "MERGE_AUTOSTASH", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_LOG", "BISECT_START",
    "BISECT_TERMS", "BISECT_NAMES", "BISECT_EXPECTED_REV", "BISECT_ANCESTORS_OK", "index.lock", "HEAD.lock", "config.lock",
    "packed-refs.lock",
)  # fmt: skip
"""What git leaves in its directory while a command isn't finished (gitrepository-layout(5))."""


class Failed(Exception):
    """It can't be done; the message says why."""


def main(line: Sequence[str]) -> int:
    """Put the clone back; returns the exit status."""
    request = json.loads(line[0])
    try:
        restore(request["before"], request["head"], request["wip"], request["branch"], request["cursor"])
    except (Failed, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return FAILED
    return 0


def restore(before: str | None, head: str | None, wip: str, branch: str, cursor: str) -> None:
    """Change the files first, and HEAD's branch afterwards.

    Args:
        before: the commit of the files that are there.
        head: the turn's head.
        wip: the turn's files.
        branch: the clone's own branch.
        cursor: the directory that is mounted over.
    """
    empty = _git("hash-object", "-t", "tree", "-w", "--stdin").strip()
    start = before or empty
    _check_room(start, wip)
    _make_index(start)
    _hide(cursor, _INDEX)
    _git("read-tree", "-m", "-u", start, wip, index=_INDEX)
    branch_ref = _unfinished_branch()
    for name in _UNFINISHED:
        _remove(f"{_GIT}/{name}")
    _repair_head(branch_ref, branch)
    _remove(f"{_GIT}/index")
    os.replace(_INDEX, f"{_GIT}/index")
    own = f"{_GIT}/index"
    if head is None:
        _git("update-ref", "-d", "HEAD")
        _git("read-tree", "--empty", index=own)
    else:
        _git("reset", "-q", "--mixed", head, index=own)
        _hide(cursor, own)


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
    for directory, _, files in os.walk(f"{TREE}/{path}"):
        inside = os.path.relpath(directory, TREE)
        found = next((f"{inside}/{name}" for name in files if f"{inside}/{name}" not in tracked), None)
        if found is not None:
            return found
    return None


def _make_index(before: str) -> None:
    """Make an index in which every file is as it is; `treekeeper` has left one, if nothing has changed since."""
    _remove(_INDEX)
    _remove(f"{_INDEX}.lock")
    with suppress(OSError):
        shutil.copyfile(f"{OUT}/index", _INDEX)
    done = _run("write-tree", index=_INDEX)
    if done.returncode or done.stdout.strip().decode() != _git("rev-parse", f"{before}^{{tree}}").strip():
        _remove(_INDEX)
        _git("read-tree", before, index=_INDEX)
    _run("update-index", "-q", "--refresh", index=_INDEX)


def _hide(cursor: str, index: str) -> None:
    """Leave the files of a directory alone that is mounted over in each turn."""
    tracked = _git("ls-files", "-z", "--", cursor, index=index)
    if tracked:
        _git("update-index", "-z", "--skip-worktree", "--stdin", index=index, given=tracked)


# HEAD


def _unfinished_branch() -> str | None:
    """Return the branch that an unfinished rebase or bisection has taken HEAD away from."""
    for name in ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
        with suppress(OSError, UnicodeDecodeError), open(f"{_GIT}/{name}", encoding="utf-8") as file:
            found = file.read(1024).strip()
            ref = found if found.startswith("refs/heads/") else f"refs/heads/{found}"
            if _run("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}").returncode == 0:
                return ref
    return None


def _repair_head(branch_ref: str | None, branch: str) -> None:
    """Put HEAD back on a branch where an unfinished command has taken it away, or where it can't be read."""
    if branch_ref is not None:
        _git("symbolic-ref", "HEAD", branch_ref)
    elif _run("symbolic-ref", "-q", "HEAD").returncode and _run("rev-parse", "-q", "--verify", "HEAD").returncode:
        _git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
    ref = _run("symbolic-ref", "-q", "HEAD").stdout.strip().decode("utf-8", "surrogateescape")
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


def _git(*arguments: str, index: str | None = None, given: str = "") -> str:
    done = _run(*arguments, index=index, given=given)
    if done.returncode:
        lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        raise Failed(f"git {arguments[0]}: {lines[-1] if lines else done.returncode}")
    return os.fsdecode(done.stdout)


def _run(*arguments: str, index: str | None = None, given: str = "") -> subprocess.CompletedProcess[bytes]:
    environ = {
        **os.environ, "GIT_DIR": _GIT, "GIT_WORK_TREE": TREE, "GIT_NO_REPLACE_OBJECTS": "1",
        **({"GIT_INDEX_FILE": index} if index is not None else {}),
    }  # fmt: skip
    line = ("git", *arguments)
    return subprocess.run(line, cwd=TREE, env=environ, input=os.fsencode(given), capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
