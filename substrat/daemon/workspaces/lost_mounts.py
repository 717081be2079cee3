"""Finds the protected paths whose mounts a running sandbox has lost, mounts them anew, and looks at what is there now."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from sandbox.bwrap import STAGE
from substrat.daemon.kernel import fingerprint, helper, procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from substrat.core.agents.stop_reason import StopReason
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

_MOUNT_SECONDS = 10.0
"""Mounting takes some milliseconds; a machine that is short of memory may take some seconds."""
_MOST_FILES = 4096
"""Files of one protected directory that are looked for among the open ones: hooks and editors' settings are some 20."""


class SandboxControl(Protocol):
    """Controls a running sandbox, a turn's or that of a person's command."""

    def first_process(self) -> int | None:
        """Return the pid of its first process, None while there is none or when it has ended."""

    def is_stopped(self) -> bool:
        """Say whether all of it is stopped in memory already."""

    async def hold(self) -> bool:
        """Stop all of it in memory until `release`; says whether that was possible: a command is never held."""

    def release(self) -> None:
        """Let it go on, unless it is frozen."""

    def end(self, reason: StopReason) -> None:
        """Kill it, and let its turn end for a reason; to be called after that was committed."""


class ProtectedSandbox(NamedTuple):
    """A sandbox whose protected paths are watched.

    Args:
        name: the turn's id, or another name of its own.
        agent: the agent's id.
        turn: the turn's id, None for a person's command.
        protected: the workspace's protected paths.
        roots: where the agent may write.
        control: the running sandbox.
        save: writes the inodes and the fingerprints of replaced paths down, for the look at the turn's end and for the next
            daemon.
    """

    name: str
    agent: str
    turn: str | None
    protected: ProtectedPaths
    roots: tuple[str, ...]
    control: SandboxControl
    save: Callable[[dict[str, int], dict[str, str]], None]

    @property
    def place(self) -> str:
        """The directory by which its files are named where these don't answer."""
        return self.roots[0] if self.roots else self.name


class Look(NamedTuple):
    """What is at replaced paths.

    Args:
        changed: those that aren't as at the turn's start.
        is_reached: whether the sandbox may have one open, or one has another name.
        contents: fingerprints of what is there.
        inodes: which files these are.
    """

    changed: list[str]
    is_reached: bool
    contents: dict[str, str]
    inodes: dict[str, int]


def is_set_up(first: int) -> bool:
    """Say whether a sandbox has everything mounted and runs; stopped in memory before that, it would never come to it.

    Args:
        first: its first process.
    """
    try:
        # While it waits for late mounts (`bwrap.GATE`), they stand where only `remount` moves them from.
        return bool(procfs.children(first)) and not any(one.point.startswith(f"{STAGE}/") for one in procfs.mounts(first))
    except ProcessLookupError:
        return False


def lost(protected: ProtectedPaths, first: int) -> list[str]:
    """Return the protected paths that aren't mounted, though there is something to mount them over or in; outer ones first.

    A workspace that is renamed on the host is still there in the sandbox, which shows it under its old path.

    Raises:
        OSError: the sandbox's mounts can't be read.
    """
    inside, writable = f"/proc/{first}/root", protected.writable

    def can_be_mounted(path: str) -> bool:
        is_there, base = (os.path.lexists, path) if path in writable else (os.path.isdir, os.path.dirname(path))
        return is_there(base) or is_there(inside + base)

    return sorted(filter(can_be_mounted, unmounted(protected, first)), key=lambda path: path.count("/"))


def unmounted(protected: ProtectedPaths, first: int) -> list[str]:
    """Return the protected paths that aren't mounted in a sandbox, none where it has ended; raises as `lost`."""
    try:
        mounted = frozenset(mount.point for mount in procfs.mounts(first))
    except ProcessLookupError:
        return []
    return [path for path in protected.mounts if path not in mounted]


def mountable(protected: ProtectedPaths, paths: Sequence[str], first: int) -> tuple[list[str], list[str]]:
    """Return which of some lost paths, or their placeholders, can be made anew, and what else has to be made first."""
    inside, writable = f"/proc/{first}/root", protected.writable  # a workspace that is renamed on the host is still there
    gone = {path for path in paths if not os.path.lexists(inside + path) and path not in writable}
    keepers = [one for one in protected.keepers if os.path.dirname(one) in gone]
    return sorted(path for path in gone if os.path.isdir(os.path.dirname(path))), keepers


def shown(paths: Sequence[str], first: int) -> list[str]:
    """Return those of some paths that are there in a sandbox."""
    return [path for path in paths if os.path.lexists(f"/proc/{first}/root{path}")]


def replaced(protected: ProtectedPaths) -> list[str]:
    """Return the paths that may have been replaced since a record of them was written."""
    return [path for path in (*protected.read_only, *protected.missing) if inode(path) != protected.inodes.get(path)]


def inode(path: str) -> int | None:
    """Return a path's inode, None where nothing is."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


async def mount_again(program: tuple[str, ...], first: int, protected: ProtectedPaths, paths: list[str]) -> str | None:
    """Mount protected paths over themselves again in a running sandbox; returns why that failed, None if it didn't.

    Args:
        program: the command line that starts `sandbox/remount.py`.
        first: the pid of the sandbox's first process.
        protected: the workspace's protected paths.
        paths: the paths, outer ones first.
    """
    writable = protected.writable
    modes = "".join("w" if path in writable else "r" for path in paths)
    try:
        with trio.fail_after(_MOUNT_SECONDS):
            done = await helper.run((*program, "cover", str(first), modes, *paths), {})
    except (OSError, trio.TooSlowError) as problem:
        return getattr(problem, "strerror", None) or "it took too long"
    return done.stderr.decode("utf-8", "replace").strip() if done.returncode else None


def look(protected: ProtectedPaths, roots: tuple[str, ...], paths: Sequence[str], first: int) -> Look:
    """Look at replaced paths of a sandbox that is stopped in memory; an agent decides how much there is to read.

    Args:
        protected: the workspace's protected paths.
        roots: where the agent may write.
        paths: the replaced ones.
        first: the sandbox's first process.
    """
    inodes = set[tuple[int, int]]()
    changed: list[str] = []
    contents: dict[str, str] = {}
    writable, before = protected.writable, protected.contents or {}
    has_more_names = False
    for path in paths:
        # A workspace that is renamed on the host is still there in the sandbox, with other files than those looked at here.
        head = os.path.dirname(path)
        is_there = _identity(head) == _identity(f"/proc/{first}/root{head}")
        if path in writable:
            # A file `.git` would lead git to another repository, and a link to another directory.
            if not (is_there and os.path.isdir(path) and not os.path.islink(path)):
                changed.append(path)
            continue
        if (seen := content(protected, path, roots)) is not None:
            contents[path] = seen
        if not is_there or seen != before.get(path, ""):
            changed.append(path)
        for found in islice(_files(_obeyed(protected, path)), _MOST_FILES):
            inodes.add((found.st_dev, found.st_ino))
            has_more_names = has_more_names or (stat.S_ISREG(found.st_mode) and found.st_nlink > 1)
    is_held = bool(inodes) and any(procfs.reaches(pid, inodes) for pid in procfs.tree(first))
    numbers = {path: number for path in paths if (number := inode(path)) is not None}
    return Look(changed, has_more_names or is_held, contents, numbers)


def content(protected: ProtectedPaths, path: str, roots: tuple[str, ...]) -> str | None:
    """Return a fingerprint of a path's type, modes and content, None where it can't be compared; a placeholder is nothing.

    Args:
        protected: the workspace's protected paths.
        path: one of them.
        roots: where the agent may write.
    """
    return fingerprint.content_of(fingerprint.of(_obeyed(protected, path), roots))


def _obeyed(protected: ProtectedPaths, path: str) -> tuple[str, ...]:
    """Return what counts of a path: of a whole git directory the files that git obeys, for each commit changes others."""
    return fingerprint.obeyed_in(path) if path in protected.whole else (path,)


def _files(paths: Iterable[str]) -> Iterator[os.stat_result]:
    """Give what is at some paths, and in them."""
    for path in paths:
        inner = (os.path.join(top, name) for top, directories, names in os.walk(path) for name in (*directories, *names))
        for one in chain([path], inner):
            with suppress(OSError):
                yield os.lstat(one)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
