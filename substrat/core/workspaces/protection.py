"""Decides what becomes of a sandbox whose protected paths were replaced on the host. Pure.

The sandbox is stopped in memory by then. A replaced path has lost its read-only mount, for a mount goes with the directory
entry under it, and the agent could reach the new file for some milliseconds.
"""

from __future__ import annotations

from enum import Enum

SETTLE_SECONDS = 0.5
"""How long a path may be other than at the turn's start before that counts: `git rebase` takes files away and brings them
back, and git writes a file's content after its name."""
MOUNT_SECONDS = 10.0
"""How long paths may be without their mounts, for example beside a script that calls `git config` in a loop."""


class Treatment(Enum):
    """The treatment of a sandbox that is stopped in memory."""

    WAIT = "look again soon"
    THAW = "let it go on, and say nothing"
    FREEZE = "freeze its turn, and tell a person"
    END = "end it"


def decide(*, seconds: float, is_mounted: bool, is_as_before: bool, is_reached: bool, was_stopped: bool) -> Treatment:
    """Decide what becomes of a sandbox.

    Args:
        seconds: since when a path of it has been without its mount.
        is_mounted: whether all of its protected paths are mounted now.
        is_as_before: whether the replaced paths have the type, the modes and the content of the turn's start.
        is_reached: whether the sandbox may have one of the new files open, or they have further names: then the agent could
            write to them in spite of any mount.
        was_stopped: whether all of it was stopped in memory before, so that nothing in it has run since and nothing is to
            be told.
    """
    if is_reached:
        return Treatment.END
    if not is_mounted:
        return Treatment.WAIT if seconds < MOUNT_SECONDS else Treatment.END
    if is_as_before or was_stopped:
        return Treatment.THAW
    return Treatment.WAIT if seconds < SETTLE_SECONDS else Treatment.FREEZE
