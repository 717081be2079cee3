"""Ends what is due and sets the daemon's timer for what is due next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from substrat.daemon.agents.disk_gate import PAUSE
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.agents.registry import Registry

log = structlog.get_logger("substrat.due")


def end_due(registry: Registry, *ends: Callable[[float], float | None]) -> None:
    """End reminders, waits and the like whose time has come; on a full disk, try again a little later.

    Args:
        registry: the agents.
        ends: each ends one kind, given the time, and returns when the next of it is due; None: none is.
    """
    for end in ends:
        now = registry.now()
        try:
            coming = end(now)
        except StorageFailed as problem:
            log.error("not told in time", reason=problem.message)  # noqa: TRY400 - the sentence says it all
            coming = now + PAUSE
        if coming is not None:
            registry.wake_at(coming)
