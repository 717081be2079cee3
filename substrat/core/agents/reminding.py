"""Decides when a reminder is due, and when again. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime

from substrat.errors import InvalidParams

LONGEST_S = 366 * 86400.0
"""Seconds, a year: a later time is more likely a mistake of the model's than a wish."""
SHORTEST_PERIOD_S = 1.0
"""Seconds between two reminders: one that comes while the last one waits unread isn't told, so they don't pile up."""


@dataclass(frozen=True, slots=True)
class Reminder:
    """Something an agent wants to be told later.

    Args:
        id: its number.
        agent: whose it is.
        due: when it is to be told, in seconds since the epoch.
        text: its words.
        every: after how many seconds it is told again; None: it is told once.
        times: how often it is still told; None: until it is cancelled or its time is over.
        until: the last moment at which it may be told, in seconds since the epoch.
    """

    id: int
    agent: str
    due: float
    text: str
    every: float | None = None
    times: int | None = None
    until: float | None = None


def moment(text: str) -> float:
    """Read a time such as `2026-01-31T18:00:00Z`, in seconds since the epoch.

    Raises:
        InvalidParams: it is none, or says no time zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidParams(f"{text[:40]!r} is no time: write it like 2026-01-31T18:00:00Z") from None
    if found.tzinfo is None:
        raise InvalidParams(f"{text!r} has no time zone: add Z for UTC, or an offset like +01:00")
    return found.timestamp()


def first_due(now: float, in_s: float | None, at: str | None, every_s: float | None) -> float:
    """Return when a reminder is first due, in seconds since the epoch.

    Args:
        now: seconds since the epoch.
        in_s: how many seconds from now.
        at: or the time, as text.
        every_s: the seconds between two reminders, if there are several; the first comes after as many.

    Raises:
        InvalidParams: not one of them was given, or the time is too far off.
    """
    if (in_s is not None) + (at is not None) > 1 or (in_s is None and at is None and every_s is None):
        raise InvalidParams("give in_s or at, or every_s alone")
    due = moment(at) if at is not None else now + (in_s if in_s is not None else every_s or 0.0)
    if not now - LONGEST_S <= due <= now + LONGEST_S:
        raise InvalidParams(f"a reminder can be up to {LONGEST_S:.0f} seconds from now, not {due - now:g}")
    return due


def check_period(due: float, every_s: float | None, times: int | None, until: float | None) -> None:
    """Raise `InvalidParams` if a reminder would come too often, for ever, or has an end that means nothing.

    Args:
        due: when it is first due, in seconds since the epoch.
        every_s: the seconds between two.
        times: how often in all.
        until: the time after which there are no more.
    """
    if every_s is None:
        if times is not None or until is not None:
            raise InvalidParams("times and until go with every_s")
    elif not SHORTEST_PERIOD_S <= every_s <= LONGEST_S:
        raise InvalidParams(f"every_s can be {SHORTEST_PERIOD_S:g} to {LONGEST_S:.0f} seconds, not {every_s:g}")
    elif times is None and until is None:
        raise InvalidParams("every_s needs an end: give times or until")
    elif until is not None and until < due:
        raise InvalidParams("until comes before the first reminder, so there would be none")


def following(reminder: Reminder, now: float) -> Reminder | None:
    """Return a reminder that was told now as it is due next, None when that was the last time.

    Those whose time passed while no daemon ran are told once, together: a reminder for each hour that is told five hours
    late is due again at the next full hour.
    """
    if reminder.every is None:
        return None
    times = reminder.times - 1 if reminder.times is not None else None
    due = reminder.due + reminder.every * (math.floor(max(0.0, now - reminder.due) / reminder.every) + 1)
    if times == 0 or (reminder.until is not None and due > reminder.until):
        return None
    return replace(reminder, due=due, times=times)
