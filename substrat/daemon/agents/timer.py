"""Wakes the daemon at the earliest of the times that it was asked for; one timer serves all agents."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Timer:
    """A timer of the wall clock.

    Args:
        now: the wall clock, in seconds since the epoch.
        wait: waits until a time of it, or until it is set (`kernel.clocks.WallAlarm`).
    """

    def __init__(self, now: Callable[[], float], wait: Callable[[float], Awaitable[None]]) -> None:
        self.now = now
        self._wait = wait
        self._times: list[float] = []
        self._waiting = trio.CancelScope()

    def ring_at(self, when: float) -> None:
        """Ring once at a time, in seconds since the epoch, also if it is set to others."""
        if when in self._times:
            return
        heapq.heappush(self._times, when)
        if self._times[0] == when:
            self._waiting.cancel()

    async def run(self, ring: Callable[[], None]) -> None:
        """Call `ring` at each of the times, and whenever the clock is set, until cancelled."""
        while True:
            with trio.CancelScope() as self._waiting:
                await self._wait(self._times[0] if self._times else math.inf)
            if self._waiting.cancelled_caught:
                continue
            while self._times and self._times[0] <= self.now():
                heapq.heappop(self._times)
            ring()
            await trio.lowlevel.checkpoint()
