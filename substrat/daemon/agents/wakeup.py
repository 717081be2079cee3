"""Wakes a waiting task; any number of wake-ups while it is busy count as one."""

from __future__ import annotations

import trio


class Wakeup:
    """Wakes one task."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake the task, now or when it waits next."""
        self._event.set()

    def clear(self) -> None:
        """Count wake-ups from now on."""
        if self._event.is_set():
            self._event = trio.Event()

    async def wait(self) -> None:
        """Wait for a wake-up since the last `clear`."""
        await self._event.wait()


async def first_of(*events: trio.Event) -> None:
    """Wait for the first of several events."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(wait, event)
