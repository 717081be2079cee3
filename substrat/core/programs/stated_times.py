"""Finds the time at which a program says that an account's usage limit ends. Pure.

An example: `Your usage limits will reset when your monthly cycle ends on 11/17/2026.` A date without a time is its
midnight, UTC, and is written as in America: the month first.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_FURTHEST_S = 62 * 86400.0
"""Seconds: limits end with a month; a time that is further off is none, or is a mistake."""
_CUE = r"\b(?:resets?|ends?|again|until|available|renews?|retry)\b[^\n]{0,60}?"
_MOMENT = re.compile(
    _CUE + r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?) ?(Z|UTC|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_DATE = re.compile(_CUE + r"\b(?:(\d{4})-(\d\d)-(\d\d)|(\d{1,2})/(\d{1,2})/(\d{4}|\d\d))\b", re.IGNORECASE)
_UNIT = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z])"  # no months, no milliseconds
_SPAN = re.compile(_CUE + rf"\b(?:in|after) ((?:\d{{1,6}} ?{_UNIT}[, ]*(?:and )?){{1,4}})", re.IGNORECASE)
_PART = re.compile(r"(\d{1,6}) ?([dhms])", re.IGNORECASE)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def stated_time(text: str, now: float) -> float | None:
    """Return when a limit ends by a program's own words, in seconds since the epoch; None if they name no likely time."""
    for reader in (_moment, _date, _span):
        found = reader(text, now)
        if found is not None and now < found <= now + _FURTHEST_S:
            return found
    return None


def _moment(text: str, _now: float) -> float | None:
    found = _MOMENT.search(text)
    if found is None:
        return None
    zone = (found[2] or "Z").upper().replace("UTC", "Z").replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(found[1].replace(" ", "T") + zone).timestamp()
    except (ValueError, OverflowError):
        return None


def _date(text: str, _now: float) -> float | None:
    found = _DATE.search(text)
    if found is None:
        return None
    year, month, day = (found[1], found[2], found[3]) if found[1] else (found[6], found[4], found[5])
    century = 2000 if len(year) == 2 else 0
    try:
        return datetime(century + int(year), int(month), int(day), tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _span(text: str, now: float) -> float | None:
    found = _SPAN.search(text)
    if found is None:
        return None
    parts = _PART.findall(found[1])
    span = timedelta(seconds=sum(int(count) * _SECONDS[unit.lower()] for count, unit in parts))
    return now + span.total_seconds()
