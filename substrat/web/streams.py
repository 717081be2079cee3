"""Sends events as they come: server-sent events, and one event object a WebSocket message.

Each client has a subscription of its own, which it reads at its own speed: the daemon holds what comes later in its
journal, so nothing piles up here. A client that takes nothing for 10 s is dropped, with the close code 4008 on a
WebSocket; it comes back at its cursor and misses nothing.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio
import msgspec
from starlette.websockets import WebSocketDisconnect

from substrat import errors
from substrat.client import Client
from substrat.client.events import follow
from substrat.core.programs.transcript import call_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    from starlette.types import Receive, Send
    from starlette.websockets import WebSocket

    from substrat.client.events import Events
    from substrat.protocol.objects import EventObject

    Headers = list[tuple[bytes, bytes]]

CLIENT = "web"
SLOW_S = 10.0
"""How long a client may take nothing while something waits for it."""
SLOW, _OVER = 4008, 1000
_KEPT_S = 30.0
"""How long the close code waits for a slow client."""
_QUIET_S = 15.0
"""A comment goes out this often: proxies end connections that say nothing for a minute."""
_MAX_OPEN = 1000
_LOOK_BACK = (1_000, 50_000)
"""How many events are searched for a call's start that a stream hasn't sent."""
_MOST_SEARCHES = 20
"""How often that is done for one agent: it may end calls that it never began, and each search takes a second. A stream that
begins amid a turn misses the starts of the calls that are open then, which are few."""

_GONE = (OSError, WebSocketDisconnect)
"""What sending raises once the client is gone."""

Object = dict[str, object]


class OpenStreams:
    """The streams that are open, which have no end of their own."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a stream while the context lasts; `end` ends it."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        """End all streams."""
        for scope in self._scopes:
            scope.cancel()


class Wanted(NamedTuple):
    """The events that a client asks for.

    Args:
        socket: the operator socket.
        agent: only those of this agent; None: of all.
        since: the cursor to start after; None: only later ones.
        journal: the id of the cursor's journal; None: it isn't looked at.
        without_thinking: whether `thinking:*` is left out.
    """

    socket: str
    agent: str | None
    since: int | None
    journal: str | None
    without_thinking: bool


class Feed:
    """The events of one client, also across restarts of the daemon; made by `opened`."""

    def __init__(self, wanted: Wanted, events: Events) -> None:
        self._wanted = wanted
        self._events = events
        self._open: dict[tuple[str, str], Object] = {}
        self._searches: Counter[str] = Counter()

    async def next(self) -> Object | None:
        """Wait for the next event object; None after a while without any.

        A completed tool call has the member `call`: the cursor and the raw object of the event that started it, or null.

        Raises:
            CursorUnknown: the daemon came back with another state.
            NotFound: the agent was removed while the daemon was away.
        """
        while True:
            event = None
            with anyio.move_on_after(_QUIET_S):
                event = await self._events.receive()
            if event is None:
                return None
            if not (self._wanted.without_thinking and event["kind"].startswith("thinking:")):
                return await self._paired(event)

    async def _paired(self, event: EventObject) -> Object:
        whole: Object = {**event}
        key = (event["agent"], call_id(whole))
        if event["kind"] == "tool-call-started" and key[1]:
            self._open[key] = {"cursor": event["cursor"], "raw": event["raw"]}
            if len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]
        elif event["kind"] == "tool-call-completed":
            whole["call"] = self._open.pop(key, None) or await self._look_back(event, key[1])
        return whole

    async def _look_back(self, event: EventObject, sought: str) -> Object | None:
        """Find the start of a call before the events of this stream, in its agent's newest ones."""
        if not sought or self._searches[event["agent"]] >= _MOST_SEARCHES:
            return None
        self._searches[event["agent"]] += 1
        with suppress(errors.SubstratError):  # the daemon is being restarted, or the agent was removed
            async with Client.connect(self._wanted.socket, client=CLIENT) as client:
                return await _start_of(client, event, sought)
        return None


async def _start_of(client: Client, event: EventObject, sought: str) -> Object | None:
    """Find the start of a call in the events before its end."""
    for distance in _LOOK_BACK:
        cursor, page = max(0, event["cursor"] - distance), [event]
        while page and cursor < event["cursor"]:
            page, cursor = await client.read_events(event["agent"], cursor)
            for one in page:
                if one["kind"] == "tool-call-started" and call_id({**one}) == sought:
                    return {"cursor": one["cursor"], "raw": one["raw"]}
    return None


@asynccontextmanager
async def opened(wanted: Wanted) -> AsyncIterator[Feed]:
    """Subscribe.

    Raises:
        CursorUnknown: the daemon's journal has no such cursor.
        DaemonNotRunning: no daemon listens.
        NotFound: there is no such agent.
    """
    subscribed = follow(
        wanted.socket, client=CLIENT, agent=wanted.agent, since=wanted.since, journal=wanted.journal,
        reconnect=float("inf"),
    )  # fmt: skip
    async with subscribed as events:
        yield Feed(wanted, events)


async def send_events(feed: Feed, receive: Receive, send: Send, headers: Headers) -> None:
    """Answer with server-sent events (html.spec.whatwg.org, "Server-sent events") until the client goes or is too slow."""
    kind = (b"content-type", b"text/event-stream")
    await send({"type": "http.response.start", "status": 200, "headers": [*headers, kind]})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
        taken = True
        with suppress(errors.NotFound, errors.CursorUnknown):
            while taken:
                event = await feed.next()
                text = b": quiet\n\n" if event is None else _message(event)
                taken = await _in_time(send({"type": "http.response.body", "body": text, "more_body": True}))
        tasks.cancel_scope.cancel()


async def send_messages(feed: Feed, socket: WebSocket) -> None:
    """Send one event object a message until the client goes or is too slow."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_closed, socket, tasks.cancel_scope)
        taken, why = True, "its agent is gone, or the daemon has another state"
        with suppress(errors.NotFound, errors.CursorUnknown):
            while taken:
                event = await feed.next()
                taken = event is None or await _in_time(socket.send_text(encode(event).decode()))
            why = "nothing was read for 10 s: come back at your cursor"
        with anyio.move_on_after(_KEPT_S), suppress(*_GONE):
            await socket.close(_OVER if taken else SLOW, why)
        tasks.cancel_scope.cancel()


def _message(event: Object) -> bytes:
    return f"id: {event['cursor']}\ndata: ".encode() + encode(event) + b"\n\n"


async def _in_time(sending: Awaitable[None]) -> bool:
    """Send something; False when the client is gone, or takes nothing for too long."""
    with anyio.move_on_after(SLOW_S), suppress(*_GONE):
        await sending
        return True
    return False


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _until_closed(socket: WebSocket, scope: anyio.CancelScope) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass  # the client has nothing to say
    scope.cancel()


def encode(value: object) -> bytes:
    """Write a value as JSON."""
    return msgspec.json.encode(value)
