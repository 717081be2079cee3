"""Passes one plain HTTP request of a sandbox to its server or to the upstream proxy, and the answer back.

In the proxy form a client sends such requests to Substrat. In the transparent form it sends them to the server, and they
are read only where an upstream proxy leads there, which is given them with their whole address.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import trio

from substrat.core.netfilter import proxying, upstream
from substrat.daemon.network.connections import HELLO_SECONDS, MAX_READS

if TYPE_CHECKING:
    from substrat.core.netfilter.proxying import Request
    from substrat.daemon.network.connections import ConnectionRelay
    from substrat.daemon.network.dialer import Dialled, Target

PORT = 80
_CHUNK = 64 * 1024
"""Bytes a read, as many as a pipe holds (pipe(7)); more saves little."""


async def read_request(inside: trio.socket.SocketType, data: bytearray, server: str | None = None) -> Request | None:
    """Read one request's head; None: the client has ended before it was whole.

    Args:
        inside: the client.
        data: is filled with all bytes that were read.
        server: the host that the client sends it to, unless that is a proxy.

    Raises:
        BadRequest: the bytes are no request, or the head takes longer than `HELLO_SECONDS`.
    """
    with trio.move_on_after(HELLO_SECONDS):
        for _ in range(MAX_READS):
            if not (piece := await inside.recv(proxying.LARGEST)):
                return None
            data += piece
            if (request := proxying.read(bytes(data), server)) is not None:
                return request
    raise proxying.BadRequest("the request's head doesn't come to an end", 408)


async def pass_on(relay: ConnectionRelay, inside: trio.socket.SocketType, target: Target, request: Request) -> None:
    """Send a request to its target and the answer to the client, until the server ends the connection.

    Raises:
        NotConnected: the target isn't allowed or can't be reached.
    """
    await relay.connect(inside, target, lambda made: _exchange(relay, inside, made, target, request), is_http=True)


async def _exchange(
    relay: ConnectionRelay, inside: trio.socket.SocketType, made: Dialled, target: Target, request: Request
) -> None:
    head, outside = request.head, made.socket
    assert head is not None
    if made.proxy is not None:
        head = upstream.plain_head(made.proxy, target.host, target.port, head)

    async def outward(scope: trio.CancelScope) -> None:
        server = trio.SocketStream(outside)
        await server.send_all(head)
        data = request.rest
        while True:
            try:
                count = request.body.take(data)
            except proxying.BadRequest:
                scope.cancel()
                return
            await server.send_all(data[:count])
            if count < len(data):  # a second request, which may name another host
                # A client that takes this for its server may pipeline, as apt does: it gets its answer and asks again.
                if made.proxy is None:
                    scope.cancel()
                return
            if not (data := await inside.recv(_CHUNK)):
                outside.shutdown(socket.SHUT_WR)
                return

    async def inward(scope: trio.CancelScope) -> None:
        if made.proxy is not None:
            begin = await outside.recv(_CHUNK)
            if (why := upstream.login_refusal(begin)) is not None:
                via = f"the upstream proxy {made.proxy.host}:{made.proxy.port}"
                relay.decisions.denied(str(target), f"{via} doesn't lead there: {why}")
            await trio.SocketStream(inside).send_all(begin)
        await relay.pump(outside, inside, scope)

    await relay.relay(inside, outside, outward, inward)
