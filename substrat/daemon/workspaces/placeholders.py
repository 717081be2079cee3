"""Creates placeholders for protected paths that don't exist yet, so that bubblewrap can mount over them.

`workspace_scan` finds the paths, `sandbox.protect` names each placeholder's content: an empty directory `.vscode`, a
`.git/commondir` with `./` in it. Each is noted before it is created, so that the next daemon removes those of a killed one.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox import protect
from substrat.daemon.kernel import nofollow
from substrat.daemon.kernel.files import NoAnswer
from substrat.errors import StorageFailed, WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files

log = structlog.get_logger("substrat.placeholders")

_REMOVED_SECONDS = 10.0
"""A command's end waits for it; a directory that doesn't answer is given up before."""
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Placeholders:
    """The placeholders of one daemon's sandboxes, and the sandboxes that need them."""

    def __init__(self, registry: Registry, files: Files) -> None:
        self._registry = registry
        self._files = files
        self._needed: dict[str, tuple[str, ...]] = {}
        self._being_removed: dict[trio.Event, list[str]] = {}
        """The placeholders of each removal, by the event that tells its end."""

    def keep(self, holder: str, roots: tuple[str, ...]) -> None:
        """Keep the placeholders in some directories, and only those, until `release`.

        Args:
            holder: the turn's id, or another name of a sandbox.
            roots: the directories.
        """
        self._needed[holder] = roots

    async def settle(self, holder: str) -> None:
        """Wait until none of a holder's placeholders are being removed, which began before they were kept."""
        for over, paths in [*self._being_removed.items()]:
            if any(is_within(path, root) for root in self._needed[holder] for path in paths):
                await over.wait()

    async def release(self, holder: str) -> None:
        """Remove the placeholders that no sandbox needs any more, now that a holder's is gone."""
        self._needed.pop(holder, None)
        await self.remove_unneeded()

    @asynccontextmanager
    async def keeping(self, holder: str, root: str) -> AsyncIterator[None]:
        """Keep the placeholders in a directory for as long as this lasts; remove those afterwards that no sandbox needs."""
        self.keep(holder, (root,))
        try:
            yield
        finally:
            with trio.move_on_after(_REMOVED_SECONDS, shield=True):
                await self.release(holder)

    async def make(self, place: str, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Create placeholders, and return the paths that exist now; a file made meanwhile is mounted over itself.

        Args:
            place: the workspace that they are for.
            paths: the paths.

        Raises:
            StorageFailed: they can't be noted; none was created.
            WorkspaceUnusable: one can't be made.
        """
        if not paths:
            return ()
        with self._registry.change("mount point noted"):
            self._registry.store.add_mount_points(paths)
        self._registry.points.before("mount point made")
        made = await self._files.run(place, make_all, paths)
        self._registry.points.after("mount point made")
        return made

    async def remove_unneeded(self) -> None:
        """Remove the placeholders that lie in no directory that a holder keeps.

        Those in a directory that doesn't answer, and those that can't be forgotten on a full disk, stay noted: the next
        turn's end, or the next daemon, removes them.
        """
        store = self._registry.store
        needed = [root for roots in self._needed.values() for root in roots]
        begun = {path for paths in self._being_removed.values() for path in paths}
        left = {*store.mount_points()} - begun
        left = {path for path in left if not any(is_within(path, root) for root in needed)}
        if not left:
            return
        over = trio.Event()
        self._being_removed[over] = sorted(left, key=_head, reverse=True)  # a directory after its entries
        try:
            for head, paths in groupby(self._being_removed[over], _head):
                await self._remove(head, [*paths])
        finally:
            del self._being_removed[over]
            over.set()

    async def _remove(self, head: str, paths: list[str]) -> None:
        self._registry.points.before("mount point removed")
        try:
            await self._files.run(head, remove_all, paths)
            self._registry.points.after("mount point removed")
            with self._registry.change("mount point forgotten"):
                self._registry.store.forget_mount_points(paths)
        except (NoAnswer, StorageFailed) as problem:
            log.warning("mount points stay for now", reason=problem.message)


def make_all(paths: Sequence[str]) -> tuple[str, ...]:
    """Create placeholders; each directory is opened once for its paths in a row.

    Args:
        paths: absolute paths.

    Returns:
        The paths that exist now. A path is left out where the user may create nothing: the agent can't either.

    Raises:
        WorkspaceUnusable: one can't be made.
    """
    made: list[str] = []
    for head, group in groupby(paths, _head):
        together = list(group)
        try:
            with nofollow.opened(head) as directory:
                made += [path for path in together if _make(path, directory)]
        except OSError as problem:
            if problem.errno not in _FORBIDDEN:
                raise _not_made(together[0], problem) from None
    return tuple(made)


def _make(path: str, directory: int) -> bool:
    name, content = path.rpartition("/")[2], protect.placeholder(path)
    try:
        if content is None:
            os.mkdir(name, 0o755, dir_fd=directory)
        else:
            made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory)
            try:
                _write_whole(made, content)
            finally:
                os.close(made)
    except FileExistsError:
        return True
    except OSError as problem:
        if problem.errno in _FORBIDDEN:
            return False
        raise _not_made(path, problem) from None
    return True


def _write_whole(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _not_made(path: str, problem: OSError) -> WorkspaceUnusable:
    return WorkspaceUnusable(f"{path} can't be made: {problem.strerror}; check the workspace")


def _head(path: str) -> str:
    return path.rpartition("/")[0]


def remove_all(paths: Sequence[str]) -> None:
    """Remove the placeholders that `make_all` created, unless something else has replaced them since."""
    for head, group in groupby(paths, _head):
        together = list(group)
        try:
            with nofollow.opened(head) as directory:
                for path in together:
                    _remove(path, directory)
        except OSError as problem:
            for path in together:
                _log_left(path, problem)


def _remove(path: str, directory: int) -> None:
    name, content = path.rpartition("/")[2], protect.placeholder(path)
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=directory)
        elif content is not None:
            found = nofollow.read_small(name, len(content), directory)
            if found is not None and protect.is_placeholder(path, found):
                os.unlink(name, dir_fd=directory)
    except OSError as problem:
        _log_left(path, problem)


def _log_left(path: str, problem: OSError) -> None:
    if problem.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP}:
        # An agent may have taken the right away; its workspace is no reason to stop.
        log.warning("a mount point stays", path=path, reason=problem.strerror)
