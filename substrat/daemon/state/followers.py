"""Wakes those that follow the journal; when they are many, those events that come close together wake them once."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PAUSE_PER_FOLLOWER, _LONGEST_PAUSE = 0.0001, 0.01
"""Seconds between two wakes of many. Waking a follower and sending to it takes some 10 to 20 µs however many events it is
sent, so that they take a fifth of a processor at most. A hundred wait 10 ms at the longest, which nobody notices."""
_MANY = 10
"""Fewer are always woken at once."""


class Followers:
    """Those that wait for new events; `run` must be running when they are many."""

    def __init__(self) -> None:
        self._waiting: dict[str | None, set[trio.Event]] = {}
        self._count = 0
        self._next = 0.0
        self._pending: set[str] = set()
        self._due = trio.Event()

    @contextmanager
    def following(self, agent: str | None) -> Iterator[Callable[[], trio.Event]]:
        """Register a follower; the function it gets returns an event that is set by the next publication.

        Take the event first, then read pages until one is empty, then wait for it: nothing is missed.

        Args:
            agent: the id of the one agent whose events it wants; None: those of all.
        """
        waiting = self._waiting.setdefault(agent, set())
        mine: list[trio.Event] = []

        def next_event() -> trio.Event:
            event = trio.Event()
            waiting.difference_update(mine)
            mine[:] = [event]
            waiting.add(event)
            return event

        self._count += 1
        try:
            yield next_event
        finally:
            self._count -= 1
            waiting.difference_update(mine)
            if not waiting and self._waiting.get(agent) is waiting:
                del self._waiting[agent]

    def tell(self, agents: Iterable[str]) -> None:
        """Wake those that follow some agents, now or shortly.

        Args:
            agents: the ids of agents that have new events.
        """
        if self._count < _MANY:
            self._wake(agents)
            return
        self._pending.update(agents)
        if trio.current_time() >= self._next:
            self._wake_pending()
        elif self._pending:
            self._due.set()

    async def run(self) -> None:
        """Wake those that had to wait a little, until cancelled."""
        while True:
            await self._due.wait()
            self._due = trio.Event()
            await trio.sleep_until(self._next)
            if self._pending:
                self._wake_pending()

    def _wake_pending(self) -> None:
        pending, self._pending = self._pending, set()
        self._next = trio.current_time() + min(_LONGEST_PAUSE, self._count * _PAUSE_PER_FOLLOWER)
        self._wake(pending)

    def _wake(self, agents: Iterable[str]) -> None:
        for key in (None, *agents):
            for event in self._waiting.get(key, ()):
                event.set()
