"""Finds what has to stay read-only in a workspace; it makes nothing (`standins`) and mounts nothing.

The names are `sandbox.protect`'s. The workspace may be an agent's own work of yesterday, so it is walked without following
a link, and no further than a bound: what lies beyond isn't protected, and a note says so.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sandbox import protect
from substrat.daemon import nofollow
from substrat.daemon.gitlink import link_of
from substrat.errors import WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable

# Installed by the ten thousand; looked at already; read-only with all that is in it.
_NOT_ENTERED = frozenset({"node_modules", ".git", *protect.NAMES})
_TOLD = 5


class Bounds(NamedTuple):
    """How far a workspace is looked through.

    Args:
        entries: files and directories.
        depth: directories within one another.
        seconds: of time.
        mounts: paths that are protected in nested directories; each costs a sandbox's start some 0.1 ms.
    """

    entries: int = 200_000
    depth: int = 24
    seconds: float = 0.5
    mounts: int = 160


class Guard(msgspec.Struct, frozen=True):
    """What of a workspace is protected in a turn.

    Args:
        kept: directories that are mounted over themselves, writable, so that they can't be renamed with what is in them.
        closed: files and directories that are read-only.
        missing: what is refused to be made; something has to stand there to be mounted over.
        shared: git directories elsewhere that the workspace's repository is in.
        own: what of those the workspace may write though it lies in something closed.
        seen: which files all these are: their inodes.
        notes: what can't be protected, and why.
    """

    kept: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    seen: dict[str, int] = {}
    notes: tuple[str, ...] = ()


def look(
    workspace: str,
    shared: tuple[str, ...] = (),
    own: tuple[str, ...] = (),
    further: tuple[str, ...] = (),
    bounds: Bounds | None = None,
) -> Guard:
    """Look a workspace through for what has to be protected.

    Args:
        workspace: its physical path.
        shared: git directories elsewhere, as `shared_with` returns them.
        own: what of those is the workspace's own.
        further: what else the agent may write to.
        bounds: how far to look.

    Raises:
        WorkspaceUnusable: something at its top, or of its own repository, is a link where none can be protected.
    """
    walk = _Walk(bounds or Bounds())
    try:
        for directory in (workspace, *further):
            walk.workspace(directory)
        for directory in shared:
            walk.shared(directory, own)
    except OSError as problem:
        where = problem.filename if isinstance(problem.filename, str) else workspace
        raise WorkspaceUnusable(
            f"{os.path.join(workspace, where)} can't be looked at ({problem.strerror}), so it can't be protected: "
            f"put a file or directory of your own there"
        ) from None
    return walk.found(shared, own)


def shared_with(workspace: str, closed: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Find the git directories elsewhere that a workspace's `.git` file leads to, if they lead back.

    Args:
        workspace: its physical path.
        closed: places that no agent may see.

    Returns:
        The directories, what of them is the workspace's own, and why there are none, if that has to be told.
    """
    try:
        link = link_of(workspace, closed)
    except WorkspaceUnusable as problem:
        return (), (), problem.message
    if link is None:
        return (), (), None
    return (link.common,), (link.own,) if link.own != link.common else (), None


def news(before: Guard, after: Guard) -> str | None:
    """Say what has appeared, or was replaced, during a turn, and so wasn't protected in it; None when nothing has.

    Args:
        before: what was found at the turn's start.
        after: what is there at its end.
    """
    had = set(before.missing)
    changed = sorted(path for path, inode in after.seen.items() if before.seen.get(path) != inode and path not in had)
    outer = [path for path in changed if not any(path.startswith(other + "/") for other in changed)]
    if not outer:
        return None
    more = f" and {len(outer) - _TOLD} more" if len(outer) > _TOLD else ""
    return (
        f"made or replaced during the turn, so not protected in it: {', '.join(map(_printable, outer[:_TOLD]))}{more}; "
        f"look at what is there before git, an editor or a shell of yours does"
    )


class _Walk:
    """A walk through a workspace, and what it has found so far."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._entries = bounds.entries
        self._until = time.monotonic() + bounds.seconds
        self._mounts = bounds.mounts
        self._kept: dict[str, None] = {}
        self._closed: dict[str, None] = {}
        self._missing: dict[str, None] = {}
        self._seen: dict[str, int] = {}
        self._links: list[str] = []
        self._named_twice: list[str] = []
        self._beyond: list[str] = []
        self._strict = True
        self._root = ""

    def found(self, shared: tuple[str, ...], own: tuple[str, ...]) -> Guard:
        """Return what was found."""
        return Guard(
            tuple(self._kept), tuple(self._closed), tuple(self._missing), shared, own, self._seen, tuple(self._notes())
        )

    def _notes(self) -> Iterable[str]:
        if self._links:
            yield f"links can't be protected: {_some(self._links)}"
        if self._named_twice:
            yield f"what has another name (a hard link) can be changed by that: {_some(self._named_twice)}"
        if self._beyond:
            yield f"too much to look through: repositories in {_some(self._beyond)} aren't protected"

    def workspace(self, path: str) -> None:
        """Walk through a whole workspace."""
        self._root = path
        with nofollow.opened(path) as root:
            if stat.S_ISDIR(os.fstat(root).st_mode):
                self._directory(root, path, 0)

    def shared(self, path: str, own: tuple[str, ...]) -> None:
        """Look at a git directory that lies elsewhere."""
        self._strict = True
        with nofollow.opened(path) as directory:
            self._git_directory(directory, path, own)

    def _directory(self, beneath: int, path: str, depth: int) -> None:
        """Look at a directory of the workspace and go on to those in it."""
        reading = nofollow.open_directory(".", beneath)
        try:
            with os.scandir(reading) as entries:
                kinds = {entry.name: entry for entry in entries}
            self._entries -= len(kinds)
            self._strict = depth == 0
            self._of_workspace(kinds, path, top=depth == 0)
            if kinds.keys() >= protect.IS_GIT_DIRECTORY:
                self._ancestors(path)
                self._git_directory(reading, path)
                return
            if ".git" in kinds:
                self._repository(kinds[".git"], reading, path)
            for name, kind in kinds.items():
                if name not in _NOT_ENTERED and kind.is_dir(follow_symlinks=False):
                    self._enter(name, reading, path, depth + 1)
        finally:
            os.close(reading)

    def _enter(self, name: str, reading: int, path: str, depth: int) -> None:
        inner = f"{path}/{name}"
        if depth > self._bounds.depth or self._entries < 0 or self._mounts < 0 or time.monotonic() > self._until:
            self._beyond.append(inner)
            return
        try:
            directory = nofollow.open_directory(name, reading)
        except OSError:  # gone since, or not ours to look into: then it isn't ours to be attacked through either
            return
        try:
            self._directory(directory, inner, depth)
        finally:
            os.close(directory)

    def _of_workspace(self, kinds: dict[str, os.DirEntry[str]], path: str, *, top: bool) -> None:
        for name in protect.NAMES & kinds.keys():
            if kinds[name].is_symlink():
                self._link(f"{path}/{name}")
            else:
                self._close(f"{path}/{name}", kinds[name].stat(follow_symlinks=False))
        if top:
            for entry in protect.WORKSPACE:
                if entry.new and entry.name not in kinds:
                    self._missing[f"{path}/{entry.name}"] = None

    def _repository(self, entry: os.DirEntry[str], reading: int, path: str) -> None:
        """Protect what a directory's `.git` is: the repository, a file that leads to it, or a link."""
        git = f"{path}/.git"
        self._ancestors(path)
        if entry.is_symlink():
            self._link(git)
        elif entry.is_dir(follow_symlinks=False):
            with nofollow.opened(".git", reading) as directory:
                self._git_directory(directory, git)
        else:
            self._close(git, entry.stat(follow_symlinks=False))

    def _ancestors(self, path: str) -> None:
        """Keep what a nested repository lies in from being renamed away and made anew."""
        while len(path) > len(self._root):
            self._kept[path] = None
            path = path.rpartition("/")[0]

    def _git_directory(self, directory: int, path: str, own: tuple[str, ...] = ()) -> None:
        """Protect what git obeys in a git directory, those of submodules and linked worktrees in it included."""
        if path != self._root:
            self._keep(path, os.fstat(directory).st_ino)
        for entry in protect.GIT:
            self._git_entry(directory, path, entry.name)
        if self._stat(directory, path, "modules") is not None:
            self._keep(f"{path}/modules", None)
            with nofollow.opened("modules", directory) as modules:
                self._modules(modules, f"{path}/modules", 0)
        if self._stat(directory, path, "worktrees") is not None:
            with nofollow.opened("worktrees", directory) as worktrees:
                self._worktrees(worktrees, f"{path}/worktrees", own)

    def _git_entry(self, directory: int, path: str, name: str) -> None:
        outer = name.rpartition("/")[0]
        if outer:
            if self._stat(directory, path, outer) is None:
                return
            self._keep(f"{path}/{outer}", None)
        found = self._stat(directory, path, name)
        if found is not None:
            self._close(f"{path}/{name}", found)
        elif f"{path}/{name}" not in self._links:
            self._missing[f"{path}/{name}"] = None

    def _modules(self, directory: int, path: str, depth: int) -> None:
        """A submodule's name may have slashes in it, so its git directory may lie deeper."""
        for name in _directories(directory):
            inner = f"{path}/{name}"
            if depth > self._bounds.depth or self._mounts < 0:
                self._beyond.append(inner)
                return
            self._keep(inner, None)
            with nofollow.opened(name, directory) as module:
                if self._stat(module, inner, "HEAD") is not None:
                    self._git_directory(module, inner)
                else:
                    self._modules(module, inner, depth + 1)

    def _worktrees(self, directory: int, path: str, own: tuple[str, ...]) -> None:
        """Protect where the repository's worktrees look; seen from one of them, the others are read-only altogether."""
        (self._closed if own else self._kept)[path] = None
        for name in _directories(directory):
            inner = f"{path}/{name}"
            if own and inner not in own:
                continue
            self._keep(inner, None)
            with nofollow.opened(name, directory) as worktree:
                for file in protect.GIT_WORKTREE:
                    found = self._stat(worktree, inner, file)
                    if found is not None:
                        self._close(f"{inner}/{file}", found)

    def _stat(self, directory: int, path: str, name: str) -> os.stat_result | None:
        """Say what something is, None when there is nothing, or a link, which is noted or refused."""
        try:
            with nofollow.opened(name, directory) as found:
                return os.fstat(found)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                self._link(f"{path}/{name}")
            elif problem.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                raise
            return None

    def _keep(self, path: str, inode: int | None) -> None:
        self._mounts -= 1
        self._kept[path] = None
        if inode is not None:
            self._seen[path] = inode

    def _close(self, path: str, found: os.stat_result) -> None:
        self._mounts -= 1
        self._closed[path] = None
        self._seen[path] = found.st_ino
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            self._named_twice.append(path)
        elif stat.S_ISDIR(found.st_mode):
            self._look_for_links(path)

    def _look_for_links(self, path: str) -> None:
        """Look for files in a read-only directory that have another name, which may be writable."""
        with suppress(OSError), nofollow.opened(path) as closed:  # gone since: then nothing of it is mounted either
            for top, directories, names, directory in os.fwalk(".", dir_fd=closed):
                self._entries -= len(directories) + len(names)
                if self._entries < 0 or time.monotonic() > self._until or top.count("/") >= self._bounds.depth:
                    directories.clear()
                for name in names:
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                        self._named_twice.append(os.path.normpath(f"{path}/{top}/{name}"))

    def _link(self, path: str) -> None:
        if self._strict:
            raise WorkspaceUnusable(
                f"{path} is a link, so it can't be protected from the agent: put a file or directory in its place"
            )
        self._links.append(path)


def _directories(directory: int) -> list[str]:
    try:
        reading = nofollow.open_directory(".", directory)
    except PermissionError:  # nor can the agent look into it
        return []
    try:
        with os.scandir(reading) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    finally:
        os.close(reading)


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return ", ".join(map(_printable, paths[:_TOLD])) + more


def _printable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def encode(guard: Guard) -> bytes:
    """Return a guard as JSON, for a daemon that takes the turn over; names in no encoding lose what can't be written."""
    return msgspec.json.encode({name: _clean(value) for name, value in msgspec.structs.asdict(guard).items()})


def decode(data: bytes | None) -> Guard | None:
    """Return what `encode` wrote, or None when it isn't that."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data or b"", type=Guard)
    return None


def _clean(value: object) -> object:
    match value:
        case dict():
            return {_printable(path): inode for path, inode in value.items()}
        case _:
            return [_printable(path) for path in value]  # type: ignore[attr-defined]
