"""Counts the work that no pack takes along: ignored files, and the contents of repositories inside the clone."""

from __future__ import annotations

import os

from substrat.inside.clone.git import Git
from substrat.inside.clone.status import ENTRIES, covered, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.inside.clone.status import Changes

_MOST_LOOKED_AT = 20_000
"""Entries of ignored and nested directories that are counted, in some 30 ms; further ones aren't."""
_MOST_SUBMODULES = 100
"""Each costs some starts of git."""
_STATUS = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")


def count_directories(git: Git, changes: Changes) -> tuple[int, int]:
    """Count the ignored files, and the files of repositories inside the clone, which are in no commit of it."""
    left = [_MOST_LOOKED_AT]
    ignored = nested = 0
    for path in (*changes.ignored, *changes.nested):
        if not path.endswith(b"/"):
            ignored += 1
            continue
        plain, within = _walk(git.at(path), left)
        is_nested = path in changes.nested
        ignored += 0 if is_nested else plain
        nested += max(within, 1) if is_nested else within
    return ignored, nested


def _walk(directory: bytes, left: list[int]) -> tuple[int, int]:
    """Count files below a directory, no link followed: those in no repository, and those in one."""
    plain = nested = 0
    waiting = [(directory, False)]
    while waiting and left[0] > 0:
        path, within = waiting.pop()
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        left[0] -= len(entries) + 1
        within = within or any(entry.name == b".git" for entry in entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting += [(entry.path, within)] if entry.name != b".git" else []
            elif within:
                nested += entry.name != b".git"
            else:
                plain += 1
    return plain, nested


def count_submodules(clone: Git, repositories: Sequence[bytes]) -> tuple[int, int, int]:
    """Count the commits of submodules that none of their remotes' branches has, their uncommitted files, and ignored ones.

    A repository in `.git/modules` whose submodule is gone, as after `git rm`, counts too.
    """
    commits = files = ignored = 0
    waiting, apart = [clone.at(path) for path in repositories], _absorbed(clone)
    for _ in range(_MOST_SUBMODULES):
        if not waiting:
            break
        place = waiting.pop()
        git = inside(place)
        git_dir = _said(git, "rev-parse", "--absolute-git-dir").rstrip(b"\n")
        apart.discard(git_dir)
        commits += _own_commits(git)
        for entry in filter(None, _said(git, *_STATUS).split(b"\0")):
            if entry.startswith(b"!! "):
                ignored += max(_size(place + b"/" + entry[3:]), 1)
            else:
                files += 1
        found = covered(git, _said(git, *ENTRIES))
        # Whether a marked file has changed isn't asked: it is rare, and one too many only keeps the tree.
        files += len(found.marked)
        files += sum(_size(git.at(path)) for path in found.filled)
        waiting += [git.at(path) for path in found.repositories]
    # git ends where the directory is gone that `core.worktree` names.
    alone = (Git({"GIT_DIR": ".", "GIT_WORK_TREE": "/"}, os.fsdecode(git_dir)) for git_dir in apart)
    commits += sum(_own_commits(git) for git in alone)
    return commits + len(waiting), files, ignored  # one that wasn't looked at counts as a commit


def _size(directory: bytes) -> int:
    return sum(_walk(directory, [_MOST_LOOKED_AT]))


def _absorbed(clone: Git) -> set[bytes]:
    """Return the git directories in the clone's `.git/modules`, no link followed."""
    found: set[bytes] = set()
    for directory, names, files in os.walk(clone.at(b".git/modules")):
        if b"objects" in names and b"HEAD" in files and len(found) < _MOST_SUBMODULES:
            found.add(os.path.realpath(directory))
            names[:] = [b"modules"] if b"modules" in names else []
    return found


def _own_commits(git: Git) -> int:
    """Count the commits of a repository that none of its remotes' branches has; 1 where git can't tell."""
    # A commit of the clone may name one that HEAD has left, as after `git submodule update`.
    refs = ("HEAD", "--branches", "--glob=refs/stas[h]", "--reflog", "--not", "--remotes", "--")
    said = _said(git, "rev-list", "--count", *refs)
    return int(said) if said.strip().isdigit() else 1


def _said(git: Git, *arguments: str) -> bytes:
    """Return git's output; empty when git fails, or when there is no repository."""
    done = git.run(*arguments)
    return b"" if done.returncode else done.stdout


def count_lfs(git_dir: str) -> int:
    """Count the objects of git-lfs in a git directory."""
    return sum(len(files) for _, _, files in os.walk(f"{git_dir}/lfs/objects"))
