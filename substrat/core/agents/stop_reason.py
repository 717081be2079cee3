"""Why a turn is being stopped, as a value: a kind, and a detail in words where the kind needs one. Pure.

`str` gives the stored form, for example `suspended` or `time limit of 90 s`, and `parse` reads it, also as older daemons
wrote it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_MIB = 1024 * 1024


class StopKind(StrEnum):
    """The kinds of reasons for stopping a turn; a kind's value begins its stored form."""

    SUSPENDED = "suspended"
    INTERRUPTED = "interrupted"
    ENDED = "ended"
    TIME_LIMIT = "time limit"
    SILENCE_LIMIT = "silence limit"
    TOOL_LIMIT = "tool limit"
    OUTPUT_LIMIT = "output limit"
    HOME_LIMIT = "home limit"
    DISK_NEARLY_FULL = "disk nearly full"
    PROTECTION = "protection lost"
    """Its agent may have reached a protected file."""
    BUDGET = "budget"
    """What it may use with its family is used up; it goes on when a person gives that more."""
    AFTER_RESULT = "went on after its result"
    """The one kind that doesn't change the turn's outcome. It is never stored: the next daemon finds the result again."""


_LIMITS = frozenset(kind for kind in StopKind if kind.endswith(" limit"))


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why a turn is being stopped.

    Args:
        kind: the kind.
        detail: for example `90 s`, the limit that was reached; empty where the kind says it all.
    """

    kind: StopKind
    detail: str = ""

    def __str__(self) -> str:
        if not self.detail:
            return self.kind.value
        return f"{self.kind}{' of ' if self.kind in _LIMITS else ': '}{self.detail}"


def parse(text: str) -> StopReason:
    """Read the stored form of a reason; raises `ValueError` if no daemon has written it."""
    kind, *detail = re.split(" of |: ", text, maxsplit=1)
    return StopReason(StopKind(kind), *detail)


SUSPENDED, INTERRUPTED, ENDED, AFTER_RESULT = map(
    StopReason, (StopKind.SUSPENDED, StopKind.INTERRUPTED, StopKind.ENDED, StopKind.AFTER_RESULT)
)


def is_pause(reason: StopReason | None) -> bool:
    """Say whether a turn that was stopped for a reason is gone on with later: it was suspended, or out of budget."""
    return reason is not None and reason.kind in {StopKind.SUSPENDED, StopKind.BUDGET}


def out_of_budget(used: str) -> StopReason:
    """Return the reason for stopping a turn whose budget is used up, for example `90 of 90 minutes`."""
    return StopReason(StopKind.BUDGET, used)


def took_too_long(limit: float) -> StopReason:
    """Return the reason for stopping a turn that took longer than so many seconds."""
    return StopReason(StopKind.TIME_LIMIT, f"{limit:g} s")


def silent_too_long(limit: float) -> StopReason:
    """Return the reason for stopping a turn that printed nothing, and ran no tool, for so many seconds."""
    return StopReason(StopKind.SILENCE_LIMIT, f"{limit:g} s")


def call_too_long(limit: float, call: str) -> StopReason:
    """Return the reason for stopping a turn whose tool call, given in one line, printed nothing for so many seconds."""
    return StopReason(StopKind.TOOL_LIMIT, f"{limit:g} s: {call}")


def over_output_limit(limit: int) -> StopReason:
    """Return the reason for stopping a turn that wrote more than so many bytes."""
    return StopReason(StopKind.OUTPUT_LIMIT, f"{limit} bytes")


def over_home_limit(limit: int) -> StopReason:
    """Return the reason for stopping a turn whose agent's own directories hold more than so many bytes."""
    return StopReason(StopKind.HOME_LIMIT, f"{limit} bytes")


def fills_disk(wrote: int, free: int) -> StopReason:
    """Return the reason for stopping a turn that was filling the disk.

    Args:
        wrote: how many bytes it wrote since it was last looked at.
        free: how many bytes were left.
    """
    said = f"{free // _MIB} MiB were left and it had just written {-(-wrote // _MIB)} MiB"
    return StopReason(StopKind.DISK_NEARLY_FULL, said)
