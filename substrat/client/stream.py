"""A Trio conversation for one task, which reads the socket itself: no further task and no queue."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import trio

from substrat import __version__, errors, paths
from substrat.protocol.conversation import ClientConversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from substrat.protocol.objects import EventObject

CHUNK = 64 * 1024
"""Bytes read at once: as many as a page of a subscription."""
PAUSE_S = 0.05
"""Between attempts to reach a daemon whose socket isn't there, or whose queue of connections is full."""


class TaskConnection:
    """One conversation for one task. After a cancellation while it sends it is of no use any more.

    Args:
        stream: the connected socket.
        client: the program's name and version, which `hello` tells.
        path: the operator socket, for messages.
    """

    def __init__(self, stream: trio.SocketStream, client: str, path: str) -> None:
        self.conversation = ClientConversation(client, path)
        self._stream = stream
        self._unsent = self.conversation.hello()

    async def submit(self, method: str, params: dict[str, object]) -> int:
        """Make a request, in one packet with `hello` if it is the first, and return its number."""
        number, line = self.conversation.request(method, params)
        line, self._unsent = self._unsent + line, b""
        # Closed by the daemon already? Then reading tells why.
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(line)
        return number

    async def answer(self, number: int) -> object:
        """Wait for the answer to a request and return its result.

        Raises:
            SubstratError: the error it was answered with.
            ConnectionLost: the daemon went away before.
        """
        while not self.conversation.has_answer(number):
            await self._receive()
        return self.conversation.take_answer(number)

    async def next_event(self, until: int | None = None) -> dict[str, object] | None:
        """Wait for the next event's notification and return its parameters; None: the answer to a request came first.

        Args:
            until: the number of that request.

        Raises:
            ConnectionLost: the daemon went away before.
        """
        events = self.conversation.notifications
        while not events and not (until is not None and self.conversation.has_answer(until)):
            await self._receive()
        return events.popleft() if events else None

    async def _receive(self) -> None:
        self.conversation.check()
        try:
            data = await self._stream.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        self.conversation.receive(bytes(data))


class Events:
    """The events of one subscription, in order; get one from `Client.events`.

    It has no task and no queue: the consumer reads the socket. One task at a time may wait for an event.
    """

    def __init__(self, stream: trio.SocketStream, path: str) -> None:
        self._connection = TaskConnection(stream, f"substrat.Client {__version__}", path)
        self._cursor = 0

    @property
    def cursor(self) -> int:
        """Where to subscribe again after a loss: the cursor of the last event that was received."""
        return self._cursor

    def __aiter__(self) -> AsyncIterator[EventObject]:
        return self

    async def __anext__(self) -> EventObject:
        return await self.receive()

    async def start(self, agent: str | None, since: int | None) -> None:
        """Greet and subscribe in one packet, and wait for the two answers."""
        number = await self._connection.submit("events.subscribe", {"agent": agent, "since": since})
        self._cursor = _cursor(await self._connection.answer(number))

    async def receive(self) -> EventObject:
        """Wait for the next event object. Cancelling it loses nothing.

        Raises:
            ConnectionLost: the daemon went away; a subscription never ends by itself.
        """
        await trio.lowlevel.checkpoint()
        try:
            params = await self._connection.next_event()
        except errors.ConnectionLost:
            raise errors.ConnectionLost(
                f"the daemon closed the subscription: check that it runs, then subscribe again since {self._cursor}"
            ) from None
        event = params.get("event") if params is not None else None
        self._cursor = _cursor(event)
        return cast("EventObject", event)


def _cursor(holder: object) -> int:
    cursor = holder.get("cursor") if isinstance(holder, dict) else None
    if not isinstance(cursor, int):
        raise errors.SubstratError("the daemon sent an event without a cursor; are both of one version?")
    return cursor


async def open_stream(path: str) -> trio.SocketStream:
    """Connect to the daemon.

    Args:
        path: the operator socket.

    Raises:
        DaemonNotRunning: no daemon listens there.
    """
    directory = None
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.setblocking(False)
    connected = False
    try:
        short, directory = paths.short_socket_path(path)
        await trio.lowlevel.checkpoint()
        while not connected:
            try:
                connecting.connect(short)
                connected = True
            except BlockingIOError:
                # The daemon's queue of connections is full, and a socket that doesn't block can't wait for room
                # (connect(2)). Trio's own connect takes this for a connection under way.
                await trio.sleep(PAUSE_S)
    except OSError as problem:
        raise errors.DaemonNotRunning(
            f"can't reach {path}: {problem.strerror or 'no daemon listens on it'}; start one with 'substratd' or "
            f"'systemctl --user start substratd'"
        ) from None
    finally:
        if not connected:
            connecting.close()
        if directory is not None:
            os.close(directory)
    return trio.SocketStream(trio.socket.from_stdlib_socket(connecting))
