"""Scans a workspace for the paths that must stay read-only; it creates nothing (`placeholders`) and mounts nothing.

The names are `sandbox.protect`'s. The workspace may be an agent's own work of yesterday, so the scan follows no link and
goes no further than `Bounds`: paths beyond are unprotected, and a note says so.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from typing import TYPE_CHECKING

from sandbox import protect
from substrat.daemon.kernel import descriptors, nofollow
from substrat.daemon.workspaces.git_scan import GitScan
from substrat.daemon.workspaces.scan_record import Bounds, ScanRecord
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

_INSTALLED = "node_modules"
"""Packages lie there by the ten thousand: only their repositories count, which an index can make git on the host enter."""


def scan(
    workspace: str,
    shared: tuple[str, ...] = (),
    own: tuple[str, ...] = (),
    further: tuple[str, ...] = (),
    bounds: Bounds | None = None,
    user_configs: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
) -> ProtectedPaths:
    """Scan a workspace for the paths that must be protected.

    Args:
        workspace: its physical path.
        shared: git directories elsewhere, as `shared_with` returns them.
        own: those of them that are the workspace's own.
        further: the other directories that the agent may write to.
        bounds: how far to scan.
        user_configs: git's configuration files that hold for all repositories of the user, by their paths.
        private: directories of the host in which the agent writes and nothing can be protected, such as its `~/.cache`.

    Raises:
        WorkspaceUnusable: something at its top, or of its own repository, is a link where none can be protected.
    """
    record = ScanRecord(bounds or Bounds(), (workspace, *further))
    git = GitScan(record)
    walk = _WorkspaceScan(record, git)
    try:
        for directory in (workspace, *further):
            walk.workspace(directory)
        for directory in shared:
            walk.shared(directory, own)
        walk.installed()
        git.follow_all(private)
        git.programs(workspace, shared, user_configs)
        record.note_sockets(walk.sockets)
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        where = os.path.join(workspace, problem.filename if isinstance(problem.filename, str) else workspace)
        remedy = "put a file or directory of your own there"
        if problem.errno == errno.EACCES:
            remedy = f"`chmod u+rwx {shlex.quote(where)}`"
        raise WorkspaceUnusable(
            f"{where} can't be looked at ({problem.strerror}), so it can't be protected: {remedy}"
        ) from None
    return record.result(shared, own)


class _WorkspaceScan:
    """Walks through workspaces."""

    def __init__(self, record: ScanRecord, git: GitScan) -> None:
        self._record = record
        self._git = git
        self._installed: list[tuple[str, str]] = []
        self.sockets: list[str] = []

    def workspace(self, path: str) -> None:
        """Walk through a whole workspace; one that lies in another can't be renamed away either."""
        outer = max((root for root in self._record.roots if path != root and is_within(path, root)), key=len, default=path)
        inner = path
        while len(inner) > len(outer):
            self._record.pinned[inner] = None
            inner = inner.rpartition("/")[0]
        with nofollow.opened(path) as root:
            if stat.S_ISDIR(os.fstat(root).st_mode):
                self._directory(root, path, 0)

    def shared(self, path: str, own: tuple[str, ...]) -> None:
        """Look at a git directory that lies elsewhere."""
        self._record.strict = True
        with nofollow.opened(path) as directory:
            self._git.git_directory(directory, path, own, is_nested=False)

    def installed(self) -> None:
        """Look for repositories among the packages, which are many, when everything else has been looked at."""
        self._record.strict = False
        self._record.give_time()
        for path, name in self._installed:
            with self._record.forgiving(path), nofollow.opened(path) as outer:
                self._enter(name, outer, path, 1, installed=True)

    def _directory(self, beneath: int, path: str, depth: int, *, installed: bool = False) -> None:
        """Look at a directory of the workspace and go on to those in it; of an installed one only repositories count."""
        reading = nofollow.open_directory(".", beneath)
        try:
            with os.scandir(reading) as entries:
                kinds = {entry.name: entry for entry in entries}
            self._record.entries -= len(kinds)
            self._record.strict = depth == 0
            if not installed:
                self._of_workspace(kinds, path, top=depth == 0)
            for name in [name for name in kinds if name.lower() == ".git"]:
                with self._record.forgiving(f"{path}/{name}"):
                    self._git.repository(name, kinds[name].stat(follow_symlinks=False), reading, path)
            if any(kinds.keys() >= names for names in (protect.IS_GIT_DIRECTORY, protect.IS_JOINED_GIT_DIRECTORY)):
                # An agent can make three such names anywhere, so the other entries are scanned all the same.
                self._record.pin_ancestors(path)
                with self._record.forgiving(path):
                    self._git.git_directory(reading, path, is_nested=depth > 0)
            for name, kind in kinds.items():
                inner = f"{path}/{name}"
                is_known = not installed and protect.is_protected(name)
                is_left = name.lower() == ".git" or is_known or inner in self._record.read_only
                if name.lower() == _INSTALLED and not installed and kind.is_dir(follow_symlinks=False):
                    self._installed.append((path, name))
                elif not is_left and kind.is_dir(follow_symlinks=False):
                    self._enter(name, reading, path, depth + 1, installed=installed)
                elif not (kind.is_file(follow_symlinks=False) or kind.is_dir(follow_symlinks=False) or kind.is_symlink()):
                    self.sockets.append(inner)  # or a FIFO, which no socket is bound to
        finally:
            os.close(reading)

    def _enter(self, name: str, reading: int, path: str, depth: int, *, installed: bool) -> None:
        inner = f"{path}/{name}"
        if depth > self._record.bounds.depth or self._record.is_used_up:
            self._record.skipped.append(inner)
            return
        try:
            directory = nofollow.open_directory(name, reading)
        except PermissionError:
            if os.stat(name, dir_fd=reading, follow_symlinks=False).st_uid == os.geteuid():
                self._record.inaccessible.append(inner)  # whose owner, and so the agent, can open it again at any time
            return
        except OSError:  # gone since
            return
        try:
            self._directory(directory, inner, depth, installed=installed)
        finally:
            os.close(directory)

    def _of_workspace(self, kinds: dict[str, os.DirEntry[str]], path: str, *, top: bool) -> None:
        directory = os.path.basename(path)
        names = [name for name in kinds if protect.is_protected(name, directory)]
        alike = [name for name in names if name not in protect.NAMES]
        if top and len(alike) > self._record.bounds.top:
            raise WorkspaceUnusable(
                f"{path} has {len(alike)} files like {min(alike)!r}, which programs on your host obey, and at most "
                f"{self._record.bounds.top} can be protected: move those that aren't yours elsewhere"
            )
        for name in names:
            if not top and self._record.is_full(f"{path}/{name}"):
                return
            if kinds[name].is_symlink():
                self._record.note_link(f"{path}/{name}")
                continue
            with self._record.forgiving(f"{path}/{name}"):
                found = kinds[name].stat(follow_symlinks=False)
                self._record.pin_ancestors(path)
                self._record.protect(f"{path}/{name}", found)
        if top:
            is_home = _is_home(path)
            for entry in protect.WORKSPACE:
                if entry.new and (is_home or not entry.home) and entry.name not in kinds:
                    self._record.missing[f"{path}/{entry.name}"] = None


def _is_home(path: str) -> bool:
    """Say whether a directory is the home of the user whose it is."""
    try:
        return os.path.realpath(pwd.getpwuid(os.stat(path).st_uid).pw_dir) == path
    except (KeyError, OSError):
        return False
