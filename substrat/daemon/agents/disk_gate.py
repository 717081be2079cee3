"""Holds new turns back while the disk is nearly full or file descriptors are; accepted prompts stay queued."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
import structlog

from substrat.daemon.kernel import descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("substrat.disk_gate")

PAUSE = 5.0
"""Seconds until it is looked again whether there is room: no event tells when a disk has some."""
_MIB = 1024 * 1024


def free_bytes(path: str) -> int:
    """Return how many bytes are free for the daemon's user where a directory is."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def shortage(path: str, wanted: int, free: Callable[[str], int] = free_bytes) -> str | None:
    """Say that less is free than must be; None: enough is.

    Args:
        path: a directory on the disk.
        wanted: how many bytes must be free; 0: any number.
        free: how many bytes are free where a directory is.
    """
    if not wanted:
        return None
    try:
        found = free(path)
    except OSError as problem:
        return f"{path} can't be looked at: {problem.strerror}"
    if found >= wanted:
        return None
    return (
        f"{found // _MIB} MiB are free at {path}, and disk.free of the configuration asks for {-(-wanted // _MIB)} MiB: "
        f"make room"
    )


@attrs.define(eq=False)
class DiskGate:
    """Says whether turns may start.

    Args:
        state: the state directory.
        now: the clock, in seconds since the epoch.
        wake_at: wakes the daemon at a time, so that it admits agents again.
        free: how many bytes are free where a directory is.
        used_up: says why no more file descriptors may be used, None when they may.
    """

    _state: str
    _now: Callable[[], float]
    _wake_at: Callable[[float], None]
    _free: Callable[[str], int] = free_bytes
    _used_up: Callable[[], str | None] = descriptors.shortage
    _next_look: float = attrs.field(init=False, default=0.0)
    reason: str | None = attrs.field(init=False, default=None)
    """Why turns that could start don't, as a sentence; None when none is held back."""

    def look(self, wanted: int, *, needed: bool) -> bool:
        """Find out whether turns may start now.

        Args:
            wanted: how many bytes must be free; 0: any number.
            needed: whether any turn would start.
        """
        reason = self._used_up() or shortage(self._state, wanted, self._free) if needed else None
        if reason is not None and self.reason is None:
            log.warning("no turn starts", reason=reason)
        elif reason is None and self.reason is not None:
            log.info("turns start again" if needed else "no turn waits any more")
        self.reason = reason
        if reason is not None:
            self.look_again()
        return reason is None

    def look_again(self) -> None:
        """See to it that agents are admitted again in a while, once however often this is asked."""
        now = self._now()
        # A look that is about to be taken may be the one under way: a timer can go off a little early, or the clock be set.
        if not now + PAUSE / 2 <= self._next_look <= now + PAUSE:
            self._next_look = now + PAUSE
            self._wake_at(self._next_look)
