"""The limits of one turn: how long its parts may take, and how much it may write. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from substrat.core.agents.records import Turn


LONGEST_S = 1_000_000_000
"""The longest limit or wait in seconds, 31 years: a number that is still exact as a deadline on the loop's clock."""


class TurnLimits(NamedTuple):
    """How long things may take, in seconds, and how much a turn may write.

    Args:
        stop_grace: between the rungs of the ladder.
        result_grace: between a result and the program's end.
        time: for the whole turn.
        time_left: of these, so many are left; None: it has no limit.
        silence: without any output while no tool call is open; None: no limit.
        tool: without any output while a tool call is open; None: no limit.
        silent: the seconds that it has printed nothing by now.
        output: how many bytes it may write; 0: no limit.
    """

    stop_grace: float
    result_grace: float
    time: float = 0.0
    time_left: float | None = None
    silence: float | None = None
    tool: float | None = None
    silent: float = 0.0
    output: int = 0

    def silence_left(self, silent: float, *, is_calling: bool) -> float | None:
        """Return after how many seconds to look at a turn's silence again; 0 or less: its limit is reached; None: never.

        A build or a test may be silent for long, so the limit is another one while a tool call is open. A call may begin or
        end meanwhile, with a line, so a turn under one limit is looked at again within the other one, too.

        Args:
            silent: the seconds since the last line.
            is_calling: whether a tool call is open.
        """
        limit, other = (self.tool, self.silence) if is_calling else (self.silence, self.tool)
        if limit is None:
            return other
        return limit - silent if other is None else min(limit - silent, other)


def time_used(turn: Turn, steady: float) -> float:
    """Return the seconds that count for a turn's time limit: not those that it was frozen, or that the machine slept.

    Args:
        turn: the turn.
        steady: the steady clock's time.
    """
    if turn.begun_at is None:
        return 0.0
    return max(0.0, (steady if turn.frozen_at is None else turn.frozen_at) - turn.begun_at - turn.paused)


def time_silent(turn: Turn, steady: float, since_printed: float | None) -> float:
    """Return for how many seconds a turn has printed nothing when a daemon takes it up.

    It may have printed while no daemon listened. Its files tell when, by the wall clock, which may have been set since, or
    have gone on while the machine slept. So the smaller span counts then.

    Args:
        turn: the turn.
        steady: the steady clock's time.
        since_printed: the seconds since then, by the wall clock; None: it hasn't printed anything that wasn't read.
    """
    if turn.process is None or turn.heard_at is None:
        return 0.0
    unheard = steady - turn.heard_at
    return max(0.0, unheard if since_printed is None else min(unheard, since_printed))
