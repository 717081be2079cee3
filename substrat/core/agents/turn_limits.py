"""The limits of one turn: how long its parts may take, and how much it may write. Pure."""

from __future__ import annotations

from typing import NamedTuple


class TurnLimits(NamedTuple):
    """How long things may take, in seconds, and how much a turn may write.

    Args:
        stop_grace: between the rungs of the ladder.
        result_grace: between a result and the program's end.
        time_left: until the turn's time is up; None: it has no limit.
        silence: without any output; None: no limit.
        heard_at: when its silence begins at the earliest, in seconds since the epoch.
        output: how many bytes it may write; 0: no limit.
    """

    stop_grace: float
    result_grace: float
    time_left: float | None = None
    silence: float | None = None
    heard_at: float = 0.0
    output: int = 0
