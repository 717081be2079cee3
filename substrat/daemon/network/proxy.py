"""The proxy form of a turn's `filtered` network: serves HTTP's CONNECT and plain requests at a Unix socket in its sandbox.

`sandbox.netrelay` takes each connection made to the sandbox's proxy here. `core.netfilter.proxying` reads the requests,
`connections` and `dialer` do the rest. A refusal is answered with a sentence, which curl and pip show to a person:
`403 Forbidden`, "example.com isn't on the allow-list".

A proxy owns its listener and its connections; both end with the task that serves it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import trio

from substrat.core.netfilter import proxying
from substrat.core.netfilter.names import NoName
from substrat.daemon.network import plain_http
from substrat.daemon.network.connections import MAX_CONNECTIONS, ConnectionRelay
from substrat.daemon.network.decisions import printable
from substrat.daemon.network.dialer import BROKEN, NotConnected, target_of

if TYPE_CHECKING:
    from substrat.daemon.network.dialer import Target

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_STATUSES = {
    400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 431: "Request Header Fields Too Large",
    502: "Bad Gateway", 505: "HTTP Version Not Supported",
}  # fmt: skip
_ANSWER_SECONDS = 5.0
"""How long a refused client may take to read the answer: it is on the same machine."""
_MOST_UNREAD = 1 << 20
"""Bytes read from a refused client: a request's body that fits is taken, so that the client sees the answer."""
_CHUNK = 64 * 1024  # bytes a read, as many as a pipe holds (pipe(7)); more saves little


class Proxy:
    """Serves the network of one turn."""

    def __init__(self, relay: ConnectionRelay) -> None:
        self._relay = relay
        self._connections = trio.Semaphore(MAX_CONNECTIONS)

    async def serve(self, listener: trio.SocketListener) -> None:
        """Serve a turn's listener until cancelled, and close it."""
        try:
            async with trio.open_nursery() as nursery:
                await self._relay.accept(listener.socket, nursery, self._connections, self._serve_one)
        finally:
            listener.socket.close()
            self._relay.close()

    async def _serve_one(self, inside: trio.socket.SocketType) -> None:
        """Serve one connection, which has one request; bytes behind it are never read as a second."""
        try:
            request = await plain_http.read_request(inside, bytearray())
        except proxying.BadRequest as problem:
            await _answer(inside, problem.status, f"substrat: {problem}")
            return
        if request is None:
            return
        asked = f"{printable(request.host)}:{request.port}"
        try:
            target = target_of(request.host, request.port)
        except NoName as problem:
            self._relay.decisions.denied(asked, f"the name isn't looked up: {problem}")
            await _answer(inside, 403, f"substrat: {asked} is refused: {problem}")
            return
        try:
            if request.is_tunnel:
                first = request.rest
                await self._relay.connect(inside, target, lambda made: self._tunnel(inside, made.socket, target, first))
            else:
                await plain_http.pass_on(self._relay, inside, target, request)
        except NotConnected as refusal:
            verdict = "is refused" if refusal.is_decided else "can't be reached"
            await _answer(inside, 403 if refusal.is_decided else 502, f"substrat: {target} {verdict}: {refusal}")

    async def _tunnel(
        self, inside: trio.socket.SocketType, outside: trio.socket.SocketType, target: Target, first: bytes
    ) -> None:
        await trio.SocketStream(inside).send_all(_ESTABLISHED)
        await self._relay.tunnel(inside, outside, target, first)


async def _answer(inside: trio.socket.SocketType, status: int, text: str) -> None:
    """Answer a refused request, and wait until the client has read the answer: closing at once would discard it."""
    stream = trio.SocketStream(inside)
    with trio.move_on_after(_ANSWER_SECONDS):
        try:
            await stream.send_all(proxying.answer(status, _STATUSES[status], text))
            inside.shutdown(socket.SHUT_WR)
            unread = 0
            while unread < _MOST_UNREAD and (piece := await inside.recv(_CHUNK)):
                unread += len(piece)
        except BROKEN:
            return
