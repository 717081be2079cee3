"""Decides which turns are stopped because their agents' directories are too big, or because they fill the disk. Pure.

Two rules. An agent's own directories (`~/.cache`, `~/.cursor`, its chats) may hold `disk.agent_home` bytes; a turn
that runs while they hold more is stopped. And when less than half of `disk.free` is left, the turn that has written
the most since the last look is stopped, then the next one if it goes on writing. Example: `disk.free` is 512 MiB and
200 MiB are left; of three turns one wrote 3 GiB in the last five seconds, one 80 MiB, one 20 KiB: the first is
stopped now, the second at a later look, the third never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_BYTES = 4096
"""For how many bytes of `disk.agent_home` an agent's own directories may have a file: file systems run out of files
too, and each file costs time whenever the directories are measured. It is the usual size of a block, the least that
a file with data takes."""
LEAST = 64 * 1024
"""Bytes; a turn that wrote less since the last look is never stopped for it: so much ordinary turns say and
note down."""


class DiskUse(NamedTuple):
    """The space that one running turn takes of the disk that the state is on.

    Args:
        turn: its id.
        home: bytes on disk of its agent's own directories.
        files: how many files and directories these have.
        unmeasured: whether a part of them can't be looked into.
        wrote: bytes it has written since the last look.
        stopping: whether it is being stopped already.
    """

    turn: str
    home: int
    files: int
    unmeasured: bool
    wrote: int
    stopping: bool


class DiskLimits(NamedTuple):
    """The space that turns may take.

    Args:
        home: bytes on disk of one agent's own directories (`disk.agent_home`); 0: no limit.
        free: bytes that must be free for a turn to start (`disk.free`); 0: nothing is done about a full disk.
    """

    home: int
    free: int


class HomeTooBig(NamedTuple):
    """Stop a turn whose agent's own directories hold more than they may, or hide their contents."""

    turn: str
    limit: int


class DiskNearlyFull(NamedTuple):
    """Stop the turn that has written the most while the disk was getting full."""

    turn: str
    wrote: int
    free: int


def decide(uses: Sequence[DiskUse], free: int, limits: DiskLimits) -> list[HomeTooBig | DiskNearlyFull]:
    """Decide which turns are stopped.

    Args:
        uses: the space that each running turn takes.
        free: bytes that are free where the state is.
        limits: the space that they may take.

    Returns:
        Those whose agents' directories are too big, or else at most one that is filling the disk.
    """
    running = [use for use in uses if not use.stopping]
    too_big = [HomeTooBig(use.turn, limits.home) for use in running if limits.home and _is_too_big(use, limits.home)]
    # One at a time: a stopped turn may delete its last files itself, and another may have been stopped by a person.
    if too_big or len(running) < len(uses) or not limits.free or free >= limits.free / 2:
        return list(too_big)
    most = max(running, key=lambda use: use.wrote, default=None)
    return [DiskNearlyFull(most.turn, most.wrote, free)] if most is not None and most.wrote >= LEAST else []


def most_files(limit: int) -> int:
    """Return how many files and directories an agent's own directories may have.

    Args:
        limit: how many bytes they may hold.
    """
    return max(limit // FILE_BYTES, 1000)


def _is_too_big(use: DiskUse, limit: int) -> bool:
    return use.home > limit or use.files > most_files(limit) or use.unmeasured
