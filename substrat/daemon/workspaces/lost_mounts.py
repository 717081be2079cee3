"""Finds the protected paths whose mounts a running sandbox has lost, and mounts them again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from sandbox import protect
from substrat.core.workspaces.protection import ABSENT, CopiedFile, Copy
from substrat.daemon.kernel import helper, procfs
from substrat.daemon.workspaces import copies
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from substrat.core.agents.stop_reason import StopReason
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

_MOUNT_SECONDS = 10.0
"""Mounting takes some milliseconds; a machine that is short of memory may take some seconds."""


class SandboxControl(Protocol):
    """Controls a running sandbox, a turn's or that of a person's command."""

    def first_process(self) -> int | None:
        """Return the pid of its first process, None while there is none or when it has ended."""

    async def hold(self) -> bool:
        """Stop all of it in memory until `release`; says whether that was possible."""

    def release(self) -> None:
        """Let it go on, unless a person has frozen it."""

    def end(self, reason: StopReason) -> None:
        """Kill it, and let its turn end for a reason; to be called after that was committed."""


class ProtectedSandbox(NamedTuple):
    """A sandbox whose protected paths are watched.

    Args:
        name: the turn's id, or another name of its own.
        agent: the agent's id.
        turn: the turn's id, None for a person's command.
        workspace: the agent's workspace.
        protected: the workspace's protected paths.
        copies: copies of the read-only paths, by path; changed when a path is protected again.
        control: the running sandbox.
        held_mark: a file that is there while the sandbox is held, so that the next daemon lets it go.
        save: writes the copies and `replaced` down for the next daemon.
        replaced: the inodes of the files that the daemon put there when it protected a path again, by path.
    """

    name: str
    agent: str
    turn: str | None
    workspace: str
    protected: ProtectedPaths
    copies: dict[str, Copy]
    control: SandboxControl
    held_mark: str | None
    save: Callable[[dict[str, Copy], dict[str, int]], None] | None
    replaced: dict[str, int]


def unprotected(sandbox: ProtectedSandbox, first: int) -> list[str]:
    """Return the protected paths that aren't mounted, and those with a file that hasn't been judged.

    A person's second command may put another file there just before the first one's is mounted: then that one is
    mounted, and the agent may hold it open.

    Raises:
        OSError: the sandbox's mounts can't be read.
    """
    try:
        lost = _lost(sandbox.protected, frozenset(mount.point for mount in procfs.mounts(first)), first)
    except ProcessLookupError:
        lost = []  # the sandbox has just ended
    return lost + [
        path for path, inode in sandbox.replaced.items() if path not in lost and _inode(path) not in {None, inode}
    ]


def unsettled(sandbox: ProtectedSandbox, paths: list[str]) -> list[str]:
    """Return which of some paths that were put there anew aren't as they were put there, or may not stay so."""
    return [
        path
        for path in paths
        if path in sandbox.replaced and not copies.is_settled(path, _expected(sandbox.copies.get(path, ABSENT), path))
    ]


def _expected(copy: Copy, path: str) -> Copy:
    return placeholder(path) if copy.kind == "absent" else copy


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def _lost(protected: ProtectedPaths, mounted: frozenset[str], first: int) -> list[str]:
    """Return the protected paths that aren't mounted, though there is something to mount them over or in.

    A workspace that is renamed on the host is still there in the sandbox, which shows it under its old path.
    """
    inside = f"/proc/{first}/root"
    return [
        path
        for path in protected.mounts
        if path not in mounted
        for base in [_mount_base(protected, path)]
        if os.path.lexists(base) or os.path.lexists(inside + base)
    ]


def outer_first(paths: Iterable[str]) -> list[str]:
    """Sort paths so that each comes before those in it, in the order in which they can be mounted."""
    return sorted(paths, key=lambda path: path.count("/"))


def _mount_base(protected: ProtectedPaths, path: str) -> str:
    """Return the path that has to exist for a protected one to be mounted: itself, or its directory if it may be made."""
    return path if path in protected.pinned or path in protected.own_git_dirs else os.path.dirname(path)


def moved(sandbox: ProtectedSandbox, paths: list[str]) -> str | None:
    """Return a directory that isn't the one on the host that it is in the sandbox, as after `mv workspace elsewhere`."""
    first = sandbox.control.first_process()
    for base in dict.fromkeys(_mount_base(sandbox.protected, path) for path in paths):
        # Twice, because a person's git may be making the directory anew just now.
        before, inside, after = _identity(base), _identity(f"/proc/{first}/root{base}"), _identity(base)
        if inside is not None and before == after != inside:
            return base
    return None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_git_at_work(protected: ProtectedPaths, paths: Collection[str]) -> bool:
    """Say whether a person's git is just writing some paths to the worktree, so that moving one would break it half way.

    git has `index.lock` open meanwhile. That the file is there shows nothing, because an agent can leave one; an agent's
    processes are in another pid namespace. Files in a git directory aren't waited for, because any git obeys them.
    """
    configured = (os.path.dirname(path) for path in protected.mounts if path.endswith("/config"))
    repositories = {*protected.own_git_dirs, *configured}
    if any(is_within(path, repository) for path in paths for repository in repositories):
        return False
    locks = {lock for repository in repositories if os.path.lexists(lock := f"{repository}/index.lock")}
    return bool(locks) and procfs.has_open(locks)


def placeholder(path: str) -> Copy:
    """Return a path's placeholder as a copy."""
    if path.endswith("/worktrees"):
        return keeping(Copy("directory"))
    content = protect.placeholder(path)
    return Copy("directory") if content is None else Copy("file", {"": CopiedFile(0o644, content)})


def keeping(copy: Copy) -> Copy:
    """Return git's directory `worktrees` with what keeps git from removing it, any other copy as it is."""
    if copy.kind != "directory":
        return copy
    keeper, locked = protect.WORKTREES_KEEPERS
    file = CopiedFile(0o644, protect.placeholder(f"/worktrees/{locked}") or b"")
    return Copy("directory", {**copy.files, locked: file}, tuple(dict.fromkeys((*copy.directories, keeper))))


async def mount_again(program: tuple[str, ...], first: int, modes: str, paths: list[str]) -> str | None:
    """Mount protected paths over themselves again in a running sandbox; returns why that failed, None if it didn't.

    Args:
        program: the command line that starts `sandbox/remount.py`.
        first: the pid of the sandbox's first process.
        modes: a letter for each path, `r` for read-only and `w` for writable.
        paths: the paths, outer ones first.
    """
    command = (*program, "cover", str(first), modes, *paths)
    try:
        with trio.fail_after(_MOUNT_SECONDS):
            done = await helper.run(command, {})
    except (OSError, trio.TooSlowError) as problem:
        return getattr(problem, "strerror", None) or "it took too long"
    return done.stderr.decode("utf-8", "replace").strip() if done.returncode else None
