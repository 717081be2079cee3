"""Records the protected paths that a scan of a workspace finds, within its bounds."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from substrat.daemon.kernel import descriptors, nofollow, procfs
from substrat.daemon.kernel.fingerprint import obeyed_in
from substrat.daemon.workspaces import compared, git_places
from substrat.daemon.workspaces.protected_paths import ProtectedPaths, is_below, listed, printable
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


class Bounds(NamedTuple):
    """How far a workspace is looked through.

    Args:
        entries: files and directories.
        depth: directories within one another.
        seconds: of processor time: a busy machine makes no scan end earlier.
        patience: seconds altogether: a slow disk isn't waited for longer.
        mounts: paths that are protected below the workspace's top. bubblewrap's time grows with their square: 340 take
            half a second, 1,000 take 2.5 s.
        top: protected names at a workspace's top of which there may be any number (`*.code-workspace`); one with more is
            refused, because bubblewrap's arguments have an end.
        writable: nested git directories in which single files are read-only (some ten mounts each); those beyond are
            read-only as wholes, one mount each.
        git_mounts: mounts of nested repositories' directories and of whole git directories.
        repositories: how many repositories' configurations are read for the programs they name.
    """

    entries: int = 200_000
    depth: int = 24
    seconds: float = 0.5
    patience: float = 5.0
    mounts: int = 240
    top: int = 200
    writable: int = 16
    git_mounts: int = 500
    repositories: int = 500


class ScanRecord:
    """The protected paths that a scan has found so far, and how far it may still go.

    Args:
        bounds: how far the scan may go.
        roots: the directories that the agent may write to.
    """

    def __init__(self, bounds: Bounds, roots: tuple[str, ...]) -> None:
        self.bounds = bounds
        self.roots = roots
        self.repositories: dict[str, None] = {}
        self.unprotectable: list[tuple[str, str]] = []
        self.own_git_dirs: set[str] = set()
        self.entries = bounds.entries
        self.give_time()
        self.mounts = bounds.mounts
        self.writable = bounds.writable
        self.git_mounts = bounds.git_mounts
        self.whole: dict[str, None] = {}
        self.pinned: dict[str, None] = {}
        self.read_only: dict[str, None] = {}
        self.missing: dict[str, None] = {}
        self.keepers: list[str] = []
        self.inodes: dict[str, int] = {}
        self.links: list[str] = []
        self.hard_linked: list[str] = []
        self.odd: list[str] = []
        self.skipped: list[str] = []
        self.skipped_git: list[str] = []
        self.inaccessible: list[str] = []
        self.led_outside: dict[str, None] = {}
        self.sockets: dict[str, None] = {}
        self.strict = True

    def result(self, shared: tuple[str, ...], own: tuple[str, ...]) -> ProtectedPaths:
        """Return the paths that were found."""
        # In a whole git directory nothing needs a mount of its own, and nothing can be made.
        pinned = tuple(path for path in self.pinned if path not in self.whole and not is_below(path, self.whole))
        read_only, absent = (
            tuple(path for path in paths if not is_below(path, self.whole)) for paths in (self.read_only, self.missing)
        )
        inodes = {path: inode for path, inode in self.inodes.items() if not is_below(path, self.whole)}
        # Placeholders are noted in the database, which takes text only.
        missing = tuple(path for path in absent if path == printable(path))
        self.inaccessible += [path for path in absent if path != printable(path)]
        noted = dict(self._comparable())
        written = [git for git in (*self.repositories, *self.own_git_dirs) if git not in self.whole]
        common = shared[0] if shared else f"{self.roots[0]}/.git"
        return ProtectedPaths(
            pinned, read_only, missing, shared, own, inodes, (*noted, *self._notes()),
            tuple(self.unprotectable), compared.read(written, self.roots),
            git_places.head(own[0] if own else common, common),
            self._kept_for({*read_only, *missing}), tuple(self.whole), noted,
        )  # fmt: skip

    def _kept_for(self, protected: Collection[str]) -> tuple[str, ...]:
        """Return the keepers of those directories of worktrees that are protected by themselves."""
        return tuple(
            path
            for path in self.keepers
            if path == printable(path) and path.removesuffix("/locked").rpartition("/")[0] in protected
        )

    def _comparable(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Give the notes about files whose content can be compared, with these files."""
        if self.links:
            yield f"links can't be protected: {listed(self.links)}", tuple(self.links)
        if self.hard_linked:
            text = f"what has another name (a hard link) can be changed by that: {listed(self.hard_linked)}"
            yield text, tuple(self.hard_linked)
        if self.odd:
            where = listed(self.odd)
            text = f"git on your host writes through these, or waits at them, because they are no plain files: {where}"
            yield text, tuple(self.odd)
        if skipped := [*self.skipped, *self.skipped_git]:
            files = (*self.skipped, *(path for git in self.skipped_git for path in obeyed_in(git)))
            yield f"too much to look through or to protect: nothing is protected in {listed(skipped)}", files

    def _notes(self) -> Iterable[str]:
        if self.inaccessible:
            yield f"can't be looked at, so not all of it is protected: {listed(self.inaccessible)}"
        if self.sockets:
            where = listed([*self.sockets])
            yield f"sockets of programs on the host are reached from the sandbox whatever its network is: {where}"
        if self.led_outside:
            where = listed([*self.led_outside])
            yield f"git is led to where the agent can change everything, its configuration included: {where}"

    def is_full(self, path: str) -> bool:
        """Say whether nothing more is protected below the workspace's top, and note where."""
        if self.mounts < 0:
            self.skipped.append(path)
        return self.mounts < 0

    @contextmanager
    def forgiving(self, path: str) -> Iterator[None]:
        """Note a path that can't be read below the workspace's top instead of raising: it may be an agent's own work."""
        try:
            yield
        except OSError as problem:
            descriptors.refuse_shortage(problem)
            if self.strict:
                raise
            self.inaccessible.append(path)

    def takes_no_more(self, path: str, *, is_file: bool = False) -> bool:
        """Say whether no further nested repository is protected, and note which git directory or `.git` file isn't."""
        if self.git_mounts < 0:
            (self.skipped if is_file else self.skipped_git).append(path)
        return self.git_mounts < 0

    def is_whole(self, path: str, inode: int) -> bool:
        """Say whether a nested git directory is read-only as a whole, and record that."""
        if path in self.whole or is_below(path, self.whole):
            return True
        if path in self.repositories:
            return False
        if self.writable > 0 and self.mounts >= 0:
            self.writable -= 1
            return False
        self.git_mounts -= 1
        self.whole[path] = None
        self.read_only[path] = None
        self.inodes[path] = inode
        return True

    def pin_worktree(self, path: str) -> None:
        """Pin the directory of a nested repository, and those above."""
        if path not in self.pinned:
            self.git_mounts -= 1
            self.pinned[path] = None
        self.pin_ancestors(path.rpartition("/")[0])

    def pin_ancestors(self, path: str) -> None:
        """Pin the directories above a nested repository or another protected name, so that they can't be renamed."""
        while path not in self.roots and path not in self.pinned and "/" in path[1:]:
            self.mounts -= 1
            self.pinned[path] = None
            path = path.rpartition("/")[0]

    def note_sockets(self, found: Iterable[str]) -> None:
        """Note where programs on the host listen in the workspace: a socket in the file system belongs to no network.

        Args:
            found: sockets in the workspace, some perhaps of programs that have ended.
        """
        bound = procfs.unix_sockets()
        names = {os.path.basename(path) for path in bound}  # a path may be bound as `./x` or by way of a link
        live = (path for path in found if os.path.basename(path) in names)
        absolute = (path for path in map(os.path.normpath, bound) if self.is_inside(path) and os.path.lexists(path))
        self.sockets = dict.fromkeys(sorted({*live, *absolute}))

    @property
    def is_used_up(self) -> bool:
        """Whether the scan may enter no further directory."""
        return self.entries < 0 or time.thread_time() > self._work_ends or time.monotonic() > self._ends

    def give_time(self) -> None:
        """Give the time of the bounds to the next part of the scan, in the thread that asks."""
        self._work_ends = time.thread_time() + self.bounds.seconds
        self._ends = time.monotonic() + self.bounds.patience

    def pin(self, path: str, inode: int | None) -> None:
        """Record a directory that is mounted over itself, writable; its inode is None where it may be replaced."""
        self.mounts -= 1
        self.pinned[path] = None
        if inode is not None:
            self.inodes[path] = inode

    def protect(self, path: str, found: os.stat_result) -> None:
        """Record a file or directory that is read-only, and the hard links in it."""
        self.mounts -= 1
        self.read_only[path] = None
        self.inodes[path] = found.st_ino
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            self.hard_linked.append(path)
        elif stat.S_ISDIR(found.st_mode):
            self._note_hard_links(path)

    def _note_hard_links(self, path: str) -> None:
        """Look for files in a read-only directory that have another name, which may be writable."""
        with suppress(OSError), nofollow.opened(path) as closed:  # gone since: then nothing of it is mounted either
            for top, directories, names, directory in os.fwalk(".", dir_fd=closed):
                self.entries -= len(directories) + len(names)
                if self.is_used_up or top.count("/") >= self.bounds.depth:
                    directories.clear()
                if "objects" in directories and path.endswith("/worktrees"):
                    directories.remove("objects")  # those of submodules; `git clone` links them, and git runs none of them
                for name in names:
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                        self.hard_linked.append(os.path.normpath(f"{path}/{top}/{name}"))

    def note_link(self, path: str) -> None:
        """Note a link, which can't be protected; raises `WorkspaceUnusable` at the workspace's top."""
        if self.strict:
            raise WorkspaceUnusable(
                f"{path} is a link, so it can't be protected from the agent: put a file or directory in its place"
            )
        self.links.append(path)
        with suppress(OSError):
            # A link that is made anew often gets the same inode; the time of its last change an agent can't set.
            self.inodes[path] = os.lstat(path).st_ctime_ns

    def is_inside(self, path: str) -> bool:
        """Say whether a physical path lies where the agent may write."""
        return any(is_within(path, root) for root in self.roots)

    def stat(self, directory: int, path: str, name: str) -> os.stat_result | None:
        """Return a file's status, None if it is missing or a link, which is noted or refused."""
        try:
            with nofollow.opened(name, directory) as found:
                return os.fstat(found)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                self.note_link(f"{path}/{name}")
            elif problem.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                raise
            return None
