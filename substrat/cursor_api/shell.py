"""How the steps of a run wait: they are coroutines, written once, and a shell does the waiting; this one blocks."""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from substrat.client.events import TaskConnection

T = TypeVar("T")
_LONGEST_WAIT = 3600.0
"""Seconds: poll(2) counts milliseconds in 31 bits. Callers wait again."""


class Shell:
    """Blocks the thread in each wait; a subclass waits in another way."""

    async def readable(self, descriptor: int, seconds: float) -> None:
        """Wait until a descriptor is readable, or so many seconds; infinity is no limit."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(None if math.isinf(seconds) else min(seconds, _LONGEST_WAIT) * 1000)

    async def connect(self, path: str) -> BlockingConnection | TaskConnection:
        """Connect to the operator socket.

        Raises:
            DaemonNotRunning: no daemon listens there.
        """
        return BlockingConnection(path)

    async def shielded(self, closing: Awaitable[None]) -> None:
        """Perform steps that no cancellation keeps from their end."""
        await closing


class BlockingConnection:
    """The blocking connection of `substratctl`, with the methods of `TaskConnection`.

    Args:
        path: the operator socket.
    """

    def __init__(self, path: str) -> None:
        from substrat.cli.connection import Connection

        self._connection = Connection(path)

    async def submit(self, method: str, params: dict[str, object]) -> int:
        """Make a request and return its number."""
        return self._connection.submit(method, params)

    async def answer(self, number: int) -> object:
        """Wait for the answer to a request, and return its result or raise its error."""
        return self._connection.answer(number)

    async def next_event(self, until: int | None = None) -> dict[str, Any] | None:
        """Wait for a notification's parameters; None: the answer to request `until` came first."""
        return self._connection.next_event(until)[0]

    async def aclose(self) -> None:
        """Close the socket."""
        self.abandon()

    def abandon(self) -> None:
        """Close the socket outside any event loop."""
        self._connection.__exit__()


BLOCKING = Shell()


def finish(steps: Coroutine[Any, Any, T]) -> T:
    """Perform steps whose every wait blocks, and return their result."""
    try:
        steps.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a blocking step waited for an event loop")
