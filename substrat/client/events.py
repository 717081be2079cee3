"""A conversation for one task, which reads the socket itself, and the events of a subscription on top of it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import anyio
from anyio.lowlevel import checkpoint

from substrat import errors
from substrat.client.unix_socket import CHUNK, PAUSE_S, close_now, open_stream
from substrat.protocol.conversation import ClientConversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import UNIXSocketStream

    from substrat.protocol.objects import EventObject


class TaskConnection:
    """One conversation for one task. After a cancellation while it sends it is of no use any more.

    Args:
        stream: the connected socket.
        client: the program's name and version, which `hello` tells.
        path: the operator socket, for messages.
    """

    def __init__(self, stream: UNIXSocketStream, client: str, path: str) -> None:
        self.conversation = ClientConversation(client, path)
        self._stream = stream
        self._unsent = self.conversation.hello()

    async def submit(self, method: str, params: dict[str, object]) -> int:
        """Make a request, in one packet with `hello` if it is the first, and return its number."""
        number, line = self.conversation.request(method, params)
        line, self._unsent = self._unsent + line, b""
        # Closed by the daemon already? Then reading tells why.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._stream.send(line)
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

    async def aclose(self) -> None:
        """Close the socket; a task that reads it meanwhile sees the end."""
        await self._stream.aclose()

    def abandon(self) -> None:
        """Close the socket, which no task may be reading, outside any event loop too."""
        close_now(self._stream)

    async def _receive(self) -> None:
        self.conversation.check()
        try:
            data = await self._stream.receive(CHUNK)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            data = b""
        self.conversation.receive(data)


@asynccontextmanager
async def follow(
    path: str,
    *,
    client: str,
    agent: str | None = None,
    since: int | None = None,
    journal: str | None = None,
    reconnect: float = 0.0,
) -> AsyncIterator[Events]:
    """Subscribe on a connection of its own, which is closed with the context.

    Args:
        path: the operator socket.
        client: this program's name and version, for `hello`.
        agent: only the events of this agent, named by name or id; None: those of all.
        since: the cursor to start after; None: only later events.
        journal: the id of the cursor's journal; None: it isn't looked at.
        reconnect: how many seconds the daemon may be away later.

    Raises:
        CursorUnknown: the daemon's journal has no such cursor.
        DaemonNotRunning: no daemon listens.
        NotFound: there is no such agent.
    """
    events = Events(path, client, agent, journal, reconnect)
    await events.start(since)
    try:
        yield events
    finally:
        await events.aclose()


class Events:
    """The events of one subscription, in order; get one from `Client.events` or `follow`.

    It has no task and no queue: the consumer reads the socket. One task at a time may wait for an event. When the daemon
    goes away, it subscribes again at its cursor as soon as the daemon is back: no event is lost or doubled.

    Args:
        path: the operator socket.
        client: this program's name and version, for `hello`.
        agent: only the events of this agent, named by name or id; None: those of all.
        journal: the id of the journal that they must be of; None: that of the daemon that answers first.
        reconnect: how many seconds the daemon may be away.
    """

    def __init__(self, path: str, client: str, agent: str | None, journal: str | None, reconnect: float) -> None:
        self._path = path
        self._client = client
        self._agent = agent
        self._reconnect = reconnect
        self._connection: TaskConnection | None = None
        self.journal = journal
        """The id of the journal whose cursor it is; None before the first answer."""
        self.cursor = 0
        """Where to subscribe again after a loss: the cursor of the last event that was received."""

    def __aiter__(self) -> AsyncIterator[EventObject]:
        return self

    async def __anext__(self) -> EventObject:
        return await self.receive()

    async def start(self, since: int | None) -> TaskConnection:
        """Greet and subscribe in one packet, and wait for the two answers.

        Args:
            since: the cursor to start after; None: only later events.

        Raises:
            CursorUnknown: the daemon's journal has no such cursor.
            DaemonNotRunning: no daemon listens.
            NotFound: there is no such agent.
        """
        connection = TaskConnection(await open_stream(self._path), self._client, self._path)
        try:
            order: dict[str, object] = {"agent": self._agent, "since": since, "journal": self.journal}
            answer = await connection.answer(await connection.submit("events.subscribe", order))
            self.cursor = _cursor(answer)
            self.journal = cast("dict[str, str]", answer).get("journal")  # a daemon from before an upgrade has none
        except BaseException:
            connection.abandon()
            raise
        self._connection = connection
        return connection

    async def receive(self) -> EventObject:
        """Wait for the next event object. Cancelling it loses nothing.

        Raises:
            ConnectionLost: the daemon went away and didn't come back in time; a subscription never ends by itself.
            CursorUnknown: it came back with another state.
            NotFound: the agent was removed while the daemon was away.
        """
        await checkpoint()
        params = None
        while params is None:
            try:
                connection = self._connection or await self._start_again()
                params = await connection.next_event()
            except errors.ConnectionLost:
                if self._connection is None:
                    raise
                await self.aclose()
        event = params.get("event")
        self.cursor = _cursor(event)
        return cast("EventObject", event)

    async def aclose(self) -> None:
        """End the subscription."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _start_again(self) -> TaskConnection:
        """Subscribe at the cursor, as soon as a daemon listens; raises `ConnectionLost` if none did in time."""
        with anyio.move_on_after(self._reconnect):
            while True:
                await anyio.sleep(PAUSE_S)
                with suppress(errors.DaemonNotRunning, errors.ConnectionLost):
                    return await self.start(self.cursor)
        raise errors.ConnectionLost(
            f"the daemon closed the subscription: check that it runs, then subscribe again since {self.cursor}"
        )


def _cursor(holder: object) -> int:
    cursor = holder.get("cursor") if isinstance(holder, dict) else None
    if not isinstance(cursor, int):
        raise errors.SubstratError("the daemon sent an event without a cursor; are both of one version?")
    return cursor
