"""Decides whether and when a failed turn is tried again: if its failure passes by itself and a second try is safe. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.programs.failures import Failure

DELAYS = (2.0, 5.0, 15.0, 45.0, 120.0)
"""Seconds before each further try; after the last of them the agent has failed."""
_DELAYS_OF = {"rate-limited": (30.0, 60.0, 120.0, 300.0, 600.0, 900.0)}
"""The same for failures that take longer to pass: Cursor was reported to refuse one account's requests for half an hour."""

RESTORE_DELAYS = (1.0, 10.0, 60.0)
"""Seconds before each restoration within the window; the last counts for all further ones."""

EQUAL_FAILURES = 3
"""Equal failures, one after the other, after which an ancestor's message starts no turn: the first may be bad luck, and the
second may come before what the message says; after that two agents could spend turns on it for ever."""
_FAILED = {Outcome.ERROR, Outcome.TIMED_OUT, Outcome.LOST}


def fails_alike(ends: Sequence[tuple[str | None, str | None]]) -> bool:
    """Say whether an agent's newest turns, by outcome and error, have failed alike too often for another try."""
    return len(ends) == EQUAL_FAILURES and len(set(ends)) == 1 and ends[0][0] in _FAILED


def restore_delay(restored_at: Sequence[float], now: float, most: int, window: float) -> float | None:
    """Say after how many seconds an agent whose turn was lost goes on by itself.

    Args:
        restored_at: when it did so before, in seconds since the epoch.
        now: the time.
        most: how often it may within the window.
        window: in seconds.

    Returns:
        The seconds, or None when it has done so too often: then a person has to look.
    """
    recent = sum(now - window < time <= now for time in restored_at)
    return None if recent >= most else RESTORE_DELAYS[min(recent, len(RESTORE_DELAYS) - 1)]


def delay(failure: Failure | None, attempts: int, *, acted: bool) -> float | None:
    """Say after how many seconds a turn is tried again.

    Args:
        failure: the turn's failure, if it has a name.
        attempts: how often this turn's prompt was tried again already.
        acted: whether the turn called any tool: then a second try could do things twice, and a person has to look.

    Returns:
        The seconds, or None when it isn't tried again.
    """
    if failure is None or not failure.passes or acted:
        return None
    delays = _DELAYS_OF.get(failure.name, DELAYS)
    return delays[attempts] if attempts < len(delays) else None
