"""Sends events as they come: server-sent events, and WebSocket messages with one event object, or with all, one a line.

A client is sent all that is there for it at once. One that takes nothing for 10 s is dropped, with the close code 4008 on
a WebSocket; it comes back at its cursor and misses nothing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import msgspec
from starlette.websockets import WebSocketDisconnect

from substrat import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import Receive, Send
    from starlette.websockets import WebSocket

    from substrat.web.fanout import Reader
    from substrat.web.window import EncodedEvent

    Headers = list[tuple[bytes, bytes]]

_LOG = logging.getLogger(__name__)
SLOW_S = 10.0
"""How long a client may take nothing while something waits for it."""
SLOW, _OVER = 4008, 1000
_KEPT_S = 30.0
"""How long the close code waits for a slow client."""
_REASON_BYTES = 123
"""The longest reason that a WebSocket's close frame has room for (RFC 6455, 5.5)."""
_GONE = (OSError, WebSocketDisconnect)
"""What sending raises once the client is gone."""


async def send_events(reader: Reader, receive: Receive, send: Send, headers: Headers) -> None:
    """Answer with server-sent events (html.spec.whatwg.org, "Server-sent events") until the client goes or is too slow."""
    kind = (b"content-type", b"text/event-stream")
    await send({"type": "http.response.start", "status": 200, "headers": [*headers, kind]})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
        taken = True
        with suppress(*_GONE):
            try:
                while taken:
                    text = b"".join(map(_message, await reader.next())) or b": quiet\n\n"
                    taken = await _in_time(send({"type": "http.response.body", "body": text, "more_body": True}))
            except errors.SubstratError as problem:
                _reason(problem)
        tasks.cancel_scope.cancel()


async def send_messages(reader: Reader, socket: WebSocket, *, gathered: bool) -> None:
    """Send event objects until the client goes or is too slow.

    Args:
        reader: has the events.
        socket: the client's.
        gathered: whether a message has all events that are there, one a line, and not a single one.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_closed, socket, tasks.cancel_scope)
        taken, why = True, "nothing was read for 10 s: come back at your cursor"
        with suppress(*_GONE):
            try:
                while taken:
                    found = [event.json for event in await reader.next()]
                    for message in [b"\n".join(found)] if gathered and found else found:
                        taken = taken and await _in_time(socket.send_text(message.decode()))
            except errors.SubstratError as problem:
                why = _reason(problem)
            with anyio.move_on_after(_KEPT_S):
                await socket.close(_OVER if taken else SLOW, why)
        tasks.cancel_scope.cancel()


def _reason(problem: errors.SubstratError) -> str:
    """Return why a stream ends, cut to what a close frame holds; log it unless it is to be expected."""
    if isinstance(problem, errors.NotFound | errors.CursorUnknown):
        return "its agent is gone, or the daemon has another state"
    _LOG.warning("a stream ends: %s: %s", type(problem).__name__, problem)
    return str(problem).encode()[:_REASON_BYTES].decode(errors="ignore")


def _message(event: EncodedEvent) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (event.cursor, event.json)


async def _in_time(sending: Awaitable[None]) -> bool:
    """Send something; False when the client takes nothing for too long."""
    with anyio.move_on_after(SLOW_S):
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
