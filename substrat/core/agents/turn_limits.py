"""The limits of one turn: how long its parts may take, and how much it may write. Pure."""

from __future__ import annotations

from typing import NamedTuple


class TurnLimits(NamedTuple):
    """How long things may take, in seconds, and how much a turn may write.

    Args:
        stop_grace: between the rungs of the ladder.
        result_grace: between a result and the program's end.
        time: for the whole turn.
        time_left: of these, so many are left; None: it has no limit.
        silence: without any output while no tool call is open; None: no limit.
        tool: without any output while a tool call is open; None: no limit.
        heard_at: when its silence begins at the earliest, in seconds since the epoch.
        output: how many bytes it may write; 0: no limit.
    """

    stop_grace: float
    result_grace: float
    time: float = 0.0
    time_left: float | None = None
    silence: float | None = None
    tool: float | None = None
    heard_at: float = 0.0
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
