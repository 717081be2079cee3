"""Watches the directories that hold protected paths, and tells which sandboxes show a path whose name has changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrat.daemon.kernel.inotify import DROPPED, EntryWatcher
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Collection

    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox


class ProtectedNames:
    """The watched names of one daemon's sandboxes."""

    def __init__(self) -> None:
        self._watcher = EntryWatcher()
        self._directories: dict[str, int] = {}
        self._showing: dict[tuple[int, bytes], frozenset[str]] = {}
        self._names: frozenset[bytes] = frozenset()

    def close(self) -> None:
        """Give the kernel's queue back."""
        self._watcher.close()

    def watch(self, sandboxes: Collection[ProtectedSandbox], *, strict: bool = True) -> None:
        """Watch the directories that hold protected paths, and only those.

        Args:
            sandboxes: all that run or are about to be started.
            strict: whether a directory that can't be watched is an error.

        Raises:
            SandboxFailed: one can't be watched.
        """
        showing: dict[str, set[str]] = {}
        for sandbox in sandboxes:
            for path in sandbox.protected.mounts:
                showing.setdefault(path, set()).add(sandbox.name)
        found: dict[str, int] = {}
        for directory in {os.path.dirname(path) for path in showing}:
            try:
                found[directory] = self._watcher.watch(directory)
            except OSError as problem:
                if strict and not isinstance(problem, FileNotFoundError | NotADirectoryError | PermissionError):
                    raise SandboxFailed(
                        f"{directory} can't be watched ({problem.strerror}): raise fs.inotify.max_user_watches"
                    ) from None
                if directory in self._directories:
                    found[directory] = self._directories[directory]  # perhaps only renamed, and shown to sandboxes still
        for number in set(self._directories.values()) - set(found.values()):
            self._watcher.forget(number)
        self._directories = found
        self._showing = {
            (found[head], os.fsencode(name)): frozenset(sandboxes)
            for path, sandboxes in showing.items()
            for head, _, name in [path.rpartition("/")]
            if head in found
        }
        self._names = frozenset(name for _, name in self._showing)

    async def wait(self) -> None:
        """Wait until something has changed."""
        await self._watcher.wait()

    def changed(self) -> set[str] | None:
        """Return the names of the sandboxes that show a changed path; None: any may, because the kernel dropped changes."""
        found: set[str] = set()
        for change in self._watcher.changes(self._names):
            if change == DROPPED or not change.name:
                return None
            found.update(self._showing.get(change, ()))
        return found
