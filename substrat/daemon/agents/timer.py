"""Wakes the daemon at the earliest of the times that it was asked for; one timer serves all agents."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_AGAIN_S = 60.0
"""Seconds: the loop's clock stands still while the machine sleeps; the wall clock doesn't, and it can be set."""


class Timer:
    """A timer.

    Args:
        now: the wall clock, in seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._times: list[float] = []
        self._earlier = trio.Event()

    def ring_at(self, when: float) -> None:
        """Ring once at a time, in seconds since the epoch, also if it is set to others."""
        if when in self._times:
            return
        heapq.heappush(self._times, when)
        if self._times[0] == when:
            self._earlier.set()

    async def run(self, ring: Callable[[], None]) -> None:
        """Call `ring` at each of the times until cancelled."""
        while True:
            self._earlier = trio.Event()
            if not self._times:
                await self._earlier.wait()
            elif (left := self._times[0] - self._now()) > 0:
                with trio.move_on_after(min(left, _LOOK_AGAIN_S)):
                    await self._earlier.wait()
            else:
                while self._times and self._times[0] <= self._now():
                    heapq.heappop(self._times)
                ring()
                await trio.lowlevel.checkpoint()
