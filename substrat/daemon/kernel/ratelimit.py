"""Slows down whoever asks for too much, so that they wait and not the daemon; it refuses nothing."""

from __future__ import annotations

import trio


class RateLimiter:
    """So much at once, and so much a second from then on.

    Args:
        rate: how often a second.
        burst: how often at once, after a time of quiet.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = trio.current_time()

    async def wait(self, weight: int = 1) -> None:
        """Wait for the next one's turn.

        Args:
            weight: as how many it counts.
        """
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - weight
        self._at = now
        if self._left < 0:
            await trio.sleep(-self._left / self._rate)


class Share:
    """A part of a processor's time for work that others can make more of: so much at once, and so much of it from then on.

    Args:
        part: of one processor.
        burst: seconds of a processor's time at once, after a time of quiet.
    """

    def __init__(self, part: float, burst: float) -> None:
        self._part = part
        self._burst = burst
        self._left = burst
        self._at = trio.current_time()

    def spend(self, seconds: float) -> None:
        """Count some seconds of a processor's time."""
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._at) * self._part) - seconds
        self._at = now

    async def wait(self) -> None:
        """Wait until what was spent too much has been made up for; at once when nothing was."""
        self.spend(0)
        if self._left < 0:
            await trio.sleep(-self._left / self._part)
