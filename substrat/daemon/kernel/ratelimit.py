"""Slows callers down that ask for too much: a token bucket for requests and for processor time."""

from __future__ import annotations

import trio


class TokenBucket:
    """A token bucket: so much at once, and so much a second from then on.

    For example 20 requests a second after a burst of 100: `TokenBucket(20, 100)`.

    Args:
        rate: how much a second; of a processor's time its part.
        burst: how much at once, after a time of quiet.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = trio.current_time()

    def spend(self, weight: float) -> None:
        """Count something."""
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - weight
        self._at = now

    async def wait(self, weight: float = 1) -> None:
        """Count something, and wait until what was overspent has been made up for; at once when nothing was."""
        self.spend(weight)
        if self._left < 0:
            await trio.sleep(-self._left / self._rate)
