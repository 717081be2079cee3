"""Slows callers down that ask for too much: token buckets for requests and for processor time."""

from __future__ import annotations

import trio


class RateLimiter:
    """A number of requests at once, and a number a second from then on.

    For example 20 a second after a burst of 100: `RateLimiter(20, 100)`.

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
    """A share of a processor for work that others decide about: some seconds at once, and a part of the time from then on.

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
        """Wait until the overspent time has been made up for; at once when none was."""
        self.spend(0)
        if self._left < 0:
            await trio.sleep(-self._left / self._part)
