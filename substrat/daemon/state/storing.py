"""Commits that wait for room: an observation is written again and again until the full disk takes it."""

from __future__ import annotations

import errno
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

import structlog
import trio

from substrat.daemon.kernel.inotify import WatchesUsedUp
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

log = structlog.get_logger("substrat.storing")


class Patience(Enum):
    """How long a change waits for room while the disk is full but for the reserve; `Registry.change` takes it.

    | | the change | example |
    |---|---|---|
    | `WAITS` | fails; `until_stored` makes it again until there is room, and a request is refused | a network's decision |
    | `TURNS_END` | as `WAITS`, and as `URGENT` once its turn is being stopped, whose end waits for it | a finding |
    | `URGENT` | is committed in the reserve, and fails where that is used up | the last lines of a turn that is stopped |

    A busy database and a broken disk are waited for in the same way. Where descriptors are short, no change is at stake:
    `turns/shortage.patiently` looks again at a turn's files and processes until there is one.
    """

    WAITS = auto()
    TURNS_END = auto()
    URGENT = auto()


FULL_DISK_PAUSE = 1.0
"""Seconds between two tries: people free room by hand, and a try costs one failed write."""


async def until_stored(write: Callable[[], T]) -> T:
    """Commit something, as often as it takes: on a full disk it waits until there is room.

    Args:
        write: commits it, or raises `StorageFailed` and has changed nothing.

    Returns:
        What `write` has returned.
    """
    while True:
        try:
            return write()
        except StorageFailed as problem:
            log.error("waiting to write the state", reason=problem.message)  # noqa: TRY400 - the sentence says it all
            await trio.sleep(FULL_DISK_PAUSE)


def disk_is_full(problem: OSError) -> bool:
    """Say whether something failed for want of room, on the disk or in a quota."""
    return problem.errno in {errno.ENOSPC, errno.EDQUOT} and not isinstance(problem, WatchesUsedUp)
