"""Watches the directories that hold protected paths, and tells which sandboxes show a path whose name has changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrat.daemon.kernel.inotify import DROPPED, EntryWatcher
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox


class ProtectedNames:
    """The watched names of one daemon's sandboxes."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._watcher = EntryWatcher()
        self._being_added = 0
        self._paths: dict[str, tuple[str, ...]] = {}
        self._directories: dict[str, int] = {}
        self._showing: dict[tuple[int, bytes], set[str]] = {}
        self._names: frozenset[bytes] = frozenset()

    def close(self) -> None:
        """Give the kernel's queue back."""
        self._watcher.close()

    async def watch(self, sandbox: ProtectedSandbox, *, strict: bool = True) -> None:
        """Watch the directories that hold a sandbox's protected paths, until `forget`.

        Args:
            sandbox: the sandbox; where it is watched already, directories may have been made anew.
            strict: whether a directory that can't be watched is an error.

        Raises:
            SandboxFailed: one can't be watched.
            NoAnswer: its workspace doesn't answer.
        """
        paths = sandbox.protected.mounts
        self._being_added += 1
        try:
            found = await self._watcher.watch(self._files, sandbox.place, {*map(os.path.dirname, paths)})
            self._paths[sandbox.name] = paths
            for directory, number in found.items():
                if not isinstance(number, OSError):
                    self._directories[directory] = number
                elif strict and not isinstance(number, FileNotFoundError | NotADirectoryError | PermissionError):
                    raise SandboxFailed(
                        f"{directory} can't be watched ({number.strerror}): raise fs.inotify.max_user_watches"
                    )
                # Else its number stays: it is perhaps only renamed, and shown to sandboxes still.
        finally:
            self._being_added -= 1
            self._arrange()

    def forget(self, name: str) -> None:
        """Watch the directories no longer that only this sandbox has needed."""
        self._paths.pop(name, None)
        self._arrange()

    def _arrange(self) -> None:
        needed = {os.path.dirname(path) for paths in self._paths.values() for path in paths}
        before = {*self._directories.values()}
        self._directories = {directory: number for directory, number in self._directories.items() if directory in needed}
        for number in before.difference(self._directories.values()):
            self._watcher.forget(number)
        self._showing = {}
        for name, paths in self._paths.items():
            for path in paths:
                head, _, entry = path.rpartition("/")
                if head in self._directories:
                    self._showing.setdefault((self._directories[head], os.fsencode(entry)), set()).add(name)
        self._names = frozenset(name for _, name in self._showing)

    async def wait(self) -> None:
        """Wait until something has changed."""
        await self._watcher.wait()

    def changed(self) -> set[str] | None:
        """Return the names of the sandboxes that show a changed path; None: any may, because the kernel dropped changes.

        So it is, too, while directories are being added, whose numbers aren't known yet.
        """
        found: set[str] = set()
        if self._being_added:
            self._watcher.changes(())
            return None
        for change in self._watcher.changes(self._names):
            if change == DROPPED or not change.name:
                return None
            found.update(self._showing.get(change, ()))
        return found
