"""Tells a shortage of descriptors or room from other obstacles, and waits for descriptors for what runs already."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog
import trio

from substrat.daemon.kernel import descriptors
from substrat.daemon.state.storing import disk_is_full
from substrat.errors import DescriptorsUsedUp, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.errors import SubstratError

T = TypeVar("T")

log = structlog.get_logger("substrat.shortage")

PAUSE = 1.0
"""Seconds until it is tried again whether there is a descriptor: nothing tells when one is closed."""


def error(problem: OSError, said: str) -> SubstratError | None:
    """Return the error for something that failed for want of descriptors or room on the disk, None for another obstacle.

    Args:
        problem: the obstacle.
        said: what failed, for example `the turn's files can't be made: No space left on device`.
    """
    if descriptors.is_short(problem):
        return DescriptorsUsedUp(descriptors.sentence(problem))
    return StorageFailed(f"{said}; make room") if disk_is_full(problem) else None


async def patiently(look: Callable[[], T]) -> T:
    """Look at, or act on, the files or processes of a turn, as soon as there is a descriptor for that.

    Raises:
        OSError: it failed for another reason.
    """
    while True:
        try:
            return look()
        except OSError as problem:
            if not descriptors.is_short(problem):
                raise
            log.error("waiting to look at a turn", reason=descriptors.sentence(problem))  # noqa: TRY400
        await trio.sleep(PAUSE)
