"""Copies a workspace's own `.cursor` for the sandbox; no link is followed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from substrat.core.programs.table import CURSOR
from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces.checking import check_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.daemon.workspaces.checking import DirectoryId

_MAX_OVERLAY_FILES = 2000
_MAX_OVERLAY_BYTES = 32 * 1024 * 1024
_MAX_OVERLAY_DEPTH = 12
"""How much of a workspace's `.cursor` is copied at each turn's start: rules and settings have some kilobytes, and a turn's
start waits for the copy."""
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def copy_cursor_directory(source: str, target: str, expected: DirectoryId | None = None) -> str | None:
    """Copy a workspace's own `.cursor` without following any link in it, or on the way to it.

    Args:
        source: the directory; its parent is the workspace.
        target: where it is copied to.
        expected: which directory the workspace is; None: whichever is there.

    Returns:
        A sentence about files that were left out, or None.

    Raises:
        WorkspaceUnusable: there is another directory by now where the workspace was.
        OSError: the source is a link, or lies behind one.
    """
    budget = _OverlayBudget()
    head, name = os.path.split(source)
    is_absolute = os.path.isabs(head)
    workspace = nofollow.open_path(head) if is_absolute else os.open(head, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        check_same(workspace, expected, head)
        root = os.open(name, _NO_FOLLOW | os.O_DIRECTORY, dir_fd=workspace)
    except FileNotFoundError:
        return None
    finally:
        os.close(workspace)
    try:
        _copy_directory(root, target, budget, depth=0)
    finally:
        os.close(root)
    names = ", ".join(name.encode("utf-8", "replace").decode() for name in budget.skipped[:5])
    return f"left out of the workspace's {CURSOR.places.workspace}: {names}" if budget.skipped else None


class _OverlayBudget:
    """How much of a `.cursor` may still be copied, and the names that were skipped."""

    def __init__(self) -> None:
        self.files = _MAX_OVERLAY_FILES
        self.bytes = _MAX_OVERLAY_BYTES
        self.skipped: list[str] = []

    def takes(self, size: int) -> bool:
        """Say whether a file of this size fits, and count it."""
        if self.files < 1 or self.bytes < size:
            return False
        self.files -= 1
        self.bytes -= size
        return True


def _copy_directory(directory: int, target: str, budget: _OverlayBudget, depth: int) -> None:
    os.makedirs(target, mode=0o755, exist_ok=True)
    for name in sorted(os.listdir(directory)):
        to = os.path.join(target, name)
        try:
            entry = os.open(name, _NO_FOLLOW, dir_fd=directory)
        except OSError:  # a link (ELOOP), a socket (ENXIO), or not ours to read
            budget.skipped.append(name)
            continue
        try:
            found = os.fstat(entry)
            if stat.S_ISDIR(found.st_mode) and depth < _MAX_OVERLAY_DEPTH:
                _copy_directory(entry, to, budget, depth + 1)
            elif stat.S_ISREG(found.st_mode) and budget.takes(found.st_size):
                _copy_file(entry, to, found)
            else:
                budget.skipped.append(name)
        finally:
            os.close(entry)


def _copy_file(source: int, target: str, found: os.stat_result) -> None:
    with open(target, "wb") as file:
        for part in _parts(source, found.st_size):
            file.write(part)
        os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode) & 0o755 | 0o400)


def _parts(source: int, size: int) -> Iterator[bytes]:
    """Read no more than the size that was counted, though the file may grow meanwhile."""
    while size > 0 and (part := os.read(source, min(size, 1 << 20))):
        size -= len(part)
        yield part
