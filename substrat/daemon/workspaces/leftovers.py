"""Finds work that git left unfinished, and removes a lock whose git was killed with a turn, when no git can hold it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from substrat.core.workspaces import git_leftovers
from substrat.daemon.kernel import nofollow, procfs
from substrat.daemon.workspaces import protected_paths
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def read(git_directories: Iterable[str]) -> dict[str, int]:
    """Return the inodes of what tells of unfinished work, by path."""
    found: dict[str, int] = {}
    for git in git_directories:
        with suppress(OSError), nofollow.opened(git) as directory:
            if git != protected_paths.printable(git):
                continue  # it can't be written down as it is, so it couldn't be compared
            for name in git_leftovers.NAMES:
                with suppress(FileNotFoundError, NotADirectoryError):
                    found[f"{git}/{name}"] = os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
    return found


def remove(lock: str, inode: int, top: str) -> bool:
    """Remove a lock, and return True; False if a git that runs may hold it.

    git holds a lock by the file's being there, often without a descriptor: `git commit` does while its editor waits. So all
    processes are looked at, and one that isn't known not to be a git in this repository counts as the holder.

    Args:
        lock: its path, in a git directory.
        inode: its inode.
        top: the top of the repository's worktree.

    Raises:
        OSError: it can't be removed, or something else is in its place.
    """
    git, _, name = lock.rpartition("/")
    if any(_may_hold(process, (top, git), lock) for process in _processes()):
        return False
    with nofollow.opened(git) as directory:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if found.st_ino != inode or not stat.S_ISREG(found.st_mode):
            raise FileExistsError(errno.EEXIST, "something else is in the lock's place", lock)
        os.unlink(name, dir_fd=directory)
    return True


def _processes() -> Iterator[str]:
    own = str(os.getpid())
    return (f"/proc/{entry}" for entry in os.listdir("/proc") if entry.isdigit() and entry != own)


def _may_hold(process: str, places: tuple[str, ...], lock: str) -> bool:
    try:
        is_open = _open_paths(process, os.path.basename(lock))
        with open(f"{process}/comm", "rb") as file:
            is_git = file.read().startswith(b"git")
        if not is_open and not is_git:
            return False
        if os.readlink(f"{process}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
            return _may_see(int(os.path.basename(process)), places)
        return lock in is_open or (is_git and _works_in(process, places))
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return True  # another user's git, of which nothing can be known


def _open_paths(process: str, name: str) -> list[str]:
    """Return the files of a name that a process has open; the links are only read, because a stat might wait for a disk."""
    found = []
    with suppress(PermissionError):
        for descriptor in os.listdir(f"{process}/fd"):
            with suppress(FileNotFoundError):
                found.append(os.readlink(f"{process}/fd/{descriptor}"))
    return [path for path in found if os.path.basename(path) == name]


def _works_in(process: str, places: tuple[str, ...]) -> bool:
    """Say whether a git works in one of these directories, by where it is, its arguments and its variables."""
    here = os.readlink(f"{process}/cwd")
    with open(f"{process}/cmdline", "rb") as arguments, open(f"{process}/environ", "rb") as variables:
        words = os.fsdecode(arguments.read()).split("\0")
        given = os.fsdecode(variables.read()).split("\0")
    began = [word.removeprefix("PWD=") for word in given if word.startswith("PWD=")]
    words += [word for word in given if word.startswith("GIT_")]
    named = (os.path.join(base, word.rpartition("=")[2]) for base in (here, *began) for word in words)
    return any(is_within(os.path.realpath(path), place) for path in (here, *named) for place in places)


def _may_see(pid: int, places: tuple[str, ...]) -> bool:
    """Say whether a process in another mount namespace, such as another agent's git, may see one of these directories.

    Raises:
        OSError: its mounts can't be read; `ProcessLookupError` if it has ended.
    """
    theirs = procfs.mounts(pid)
    if not theirs:
        return True  # of a root that isn't a mount point nothing is told
    own = sorted(procfs.mounts(os.getpid()), key=lambda mount: len(mount.point))
    for place in places:
        under = [mount for mount in own if is_within(place, mount.point)][-1]
        path = os.path.normpath(os.path.join(under.root, os.path.relpath(place, under.point)))
        for mount in theirs:
            if mount.device == under.device and (is_within(path, mount.root) or is_within(mount.root, path)):
                return True
    return False
