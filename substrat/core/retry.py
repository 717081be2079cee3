"""Whether a failed turn is tried again, and when: only what passes by itself, and only where a second try is safe. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from substrat.core.failures import Failure

DELAYS = (2.0, 5.0, 15.0, 45.0, 120.0)
"""Seconds before each further try; after the last of them the agent has failed."""


def delay(failure: Failure | None, attempts: int, *, acted: bool) -> float | None:
    """Say after how many seconds a turn is tried again.

    Args:
        failure: what the turn failed with, if it has a name.
        attempts: how often this turn's prompt was tried again already.
        acted: whether the turn called any tool: then a second try could do things twice, and a person has to look.

    Returns:
        The seconds, or None when it isn't tried again.
    """
    if failure is None or not failure.passes or acted or attempts >= len(DELAYS):
        return None
    return DELAYS[attempts]
