"""The files that a move changes, and how they are: as before, as the move makes them, cut off, or a person's."""

import os
import stat
from typing import NamedTuple

from substrat.inside.branch.git import LOOK, checked, git, listed, tree
from substrat.inside.branch.index import PLAIN, remove
from substrat.inside.branch.job import Job

GITLINK = "160000"
NO_FILE = "0" * 6
"""The mode of a missing file (git-diff-tree(1))."""


class Change(NamedTuple):
    """A path that differs between two commits, with its mode and object on each side; `stays`: it can't go back."""

    path: str
    modes: tuple[str, str]
    blobs: tuple[str, str]
    stays: bool = False


class Begun(NamedTuple):
    """A move that git has begun.

    Args:
        lock: the descriptor of `index.lock`, which was written last before git began.
        mine: the files of the move that a person had changed before it; None: they aren't known, so no file is touched.
        is_fresh: whether git has ended just now, so that no other program has written in the checkout since.
    """

    lock: int
    mine: set[str] | None
    is_fresh: bool


Sorted = dict[str, list[Change]]
MADE, GONE, CUT, LEFT = "made", "gone", "cut", "left"
"""Kinds of files: as the move makes them, removed by git to be written anew, cut off, and all others, which stay."""


def changes_between(job: Job, old: str) -> list[Change]:
    """Return the paths that differ between two commits."""
    parts = listed(checked(job, "diff-tree", "-r", "-z", "--no-renames", old, job.new))
    found = []
    for about, path in zip(parts[::2], parts[1::2], strict=True):
        before, after, from_blob, to_blob, _ = about.removeprefix(":").split()
        found.append(Change(path, (before, after), (from_blob, to_blob)))
    return found


def persons(job: Job, changed: set[str]) -> set[str]:
    """Return the files of a move that aren't as the branch has them: a person has changed, staged or made them.

    git refuses most of them. Those that are already as the move makes them it takes, or refuses too, and they would be
    taken for its own.
    """
    return {
        one.path
        for one in changes_between(job, tree(job, job.old))
        if one.path in changed or (one.modes[0] == NO_FILE and is_file(job, one.path))
    }


def is_file(job: Job, path: str) -> bool:
    """Say whether something else than a directory is at a path of the checkout, behind no link."""
    whole = os.path.join(job.top, path)
    is_direct = os.path.realpath(os.path.dirname(whole)) == os.path.dirname(whole)
    return is_direct and os.path.lexists(whole) and not stat.S_ISDIR(os.lstat(whole).st_mode)


def sort(job: Job, changes: list[Change], begun: Begun) -> Sorted:
    """Sort the files of a move; those that are as before are left out."""
    found: Sorted = {MADE: [], GONE: [], CUT: [], LEFT: []}
    differ_old, differ_new = (differing(job, changes, side) for side in (0, 1))
    for one in changes:
        is_absent = "D" in {differ_old.get(one.path), differ_new.get(one.path)}
        if is_absent if one.modes[0] == NO_FILE else one.path not in differ_old:
            continue
        if one.stays:
            found[LEFT].append(one)
        elif is_absent if one.modes[1] == NO_FILE else one.path not in differ_new:
            found[MADE].append(one)
        elif is_absent:
            found[GONE].append(one)
        # Later a file that the move changes may be a person's; only one that the move adds can be told from it.
        elif (begun.is_fresh or one.modes[0] == NO_FILE) and is_beginning(job, one, begun):
            found[CUT].append(one)
        else:
            found[LEFT].append(one)
    return unblocked(found)


def unblocked(found: Sorted) -> Sorted:
    """Let those stay too that can't come back for others that stay: `e`, where a person's `e/new` is now."""
    odd = {one.path for one in found[LEFT]}
    above = {place for path in odd for place in places_of(path)}
    moved = [one for kind in (MADE, GONE, CUT) for one in found[kind]]
    blocked = {one for one in moved if one.path in above or not odd.isdisjoint(places_of(one.path))}
    free = {kind: [one for one in part if one not in blocked] for kind, part in found.items()}
    return {**free, LEFT: [*found[LEFT], *sorted(blocked)]}


def places_of(path: str) -> list[str]:
    """Return the directories that a path lies in."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def differing(job: Job, changes: list[Change], side: int) -> dict[str, str]:
    """Return how files of a move differ from one of its commits: `D` for a file that is absent, else `M` or `T`."""
    entries = [f"{one.modes[side]} {one.blobs[side]}\t{one.path}\0" for one in changes if one.modes[side] != NO_FILE]
    remove(job, LOOK)
    checked(job, "update-index", "-z", "--index-info", given="".join(entries), index=LOOK)
    git(job, "update-index", "-q", "--refresh", index=LOOK)  # compares contents, through filters
    found = listed(checked(job, "diff-files", "--name-status", "-z", index=LOOK))
    return dict(zip(found[1::2], found[::2], strict=True))


def is_beginning(job: Job, change: Change, begun: Begun) -> bool:
    """Say whether a file, written since git began, holds a beginning of its new content: git was killed in it."""
    if not is_file(job, change.path):
        return False
    with open(os.open(os.path.join(job.top, change.path), PLAIN), "rb") as file:
        about = os.fstat(file.fileno())
        # The file system's clock stands still for some milliseconds, in which git may have begun and been killed.
        if not stat.S_ISREG(about.st_mode) or about.st_ctime_ns < os.fstat(begun.lock).st_mtime_ns:
            return False
        whole = git(job, "cat-file", "--filters", f"{job.new}:{change.path}")
        return not whole.returncode and whole.stdout.startswith(file.read(len(whole.stdout) + 1))
