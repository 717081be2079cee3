"""Looks at files and processes that wait for a descriptor: what runs already can't be given up for want of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog
import trio

from substrat.daemon.kernel import descriptors

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

log = structlog.get_logger("substrat.shortage")

PAUSE = 1.0
"""Seconds until it is tried again whether there is a descriptor: nothing tells when one is closed."""


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
