"""Performs a sandboxed run's steps on a connection for one Trio task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from substrat import __version__, errors
from substrat.client.events import TaskConnection
from substrat.client.unix_socket import open_stream
from substrat.cursor_api.sandboxed import Next, OperatorAnswer, OperatorCall, Step, Submit

if TYPE_CHECKING:
    from anyio.abc import UNIXSocketStream

    from substrat.cursor_api.sandboxed import Steps

T = TypeVar("T")


class TrioConnection:
    """One conversation, made by `connect`. Owns its socket; of no use any more after a cancellation.

    Args:
        stream: the connected socket.
        path: the operator socket, for messages.
    """

    def __init__(self, stream: UNIXSocketStream, path: str) -> None:
        self._connection = TaskConnection(stream, f"substrat.cursor_api {__version__}", path)

    async def aclose(self) -> None:
        """Close the socket; a task that reads it meanwhile sees the end."""
        await self._connection.aclose()

    def abandon(self) -> None:
        """Close the socket outside Trio."""
        self._connection.abandon()

    async def drive(self, steps: Steps[T]) -> T:
        """Perform steps and return their result."""
        outcome: Any = None
        problem: errors.SubstratError | None = None
        while True:
            try:
                step = steps.send(outcome) if problem is None else steps.throw(problem)
            except StopIteration as done:
                found: T = done.value
                return found
            outcome, problem = None, None
            try:
                outcome = await self._perform(step)
            except errors.SubstratError as caught:
                problem = caught

    async def _perform(self, step: Step) -> object:
        match step:
            case OperatorCall(method, params):
                return await self._connection.answer(await self._connection.submit(method, params))
            case Submit(method, params):
                return await self._connection.submit(method, params)
            case Next(until):
                return await self._connection.next_event(until)
            case OperatorAnswer(number):
                return await self._connection.answer(number)


async def connect(path: str) -> TrioConnection:
    """Connect to the daemon.

    Args:
        path: the operator socket.

    Raises:
        DaemonNotRunning: no daemon listens there.
    """
    return TrioConnection(await open_stream(path), path)
