"""Slows down whoever asks for too much, so that they wait and not the daemon; it refuses nothing."""

from __future__ import annotations

import trio


class Pace:
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

    async def wait(self) -> None:
        """Wait for the next one's turn."""
        now = trio.current_time()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        if self._left < 0:
            await trio.sleep(-self._left / self._rate)
