"""Runs the HTTP server that agents connect to, on this machine's loopback: `filtered` allows its address and name."""

from __future__ import annotations

import re
from collections import Counter

import trio

BODY = 64 * 1024
"""Bytes that each request carries up and each answer down: more than a socket's or a pipe's buffer takes at once."""
HELD_S = 30.0
"""How long `/held` is kept open: longer than a turn, so that ends of turns, changes of the list and kills cut it."""


class Server:
    """Counts connections by the agent's network, and the bytes each way.

    Give `serve` to a nursery's `start`; `port` is known then.
    """

    def __init__(self) -> None:
        self.port = 0
        self.requests: Counter[str] = Counter()
        self.received = 0
        self.sent = 0

    async def serve(self, task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, on both loopback addresses where there are two."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        try:
            listeners += await trio.open_tcp_listeners(self.port, host="::1")
        except OSError:
            print("  no IPv6 loopback: IPv4 only", flush=True)
        await trio.serve_listeners(self._answer, listeners, task_status=task_status)

    async def _answer(self, stream: trio.SocketStream) -> None:
        try:
            await self._converse(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.requests["cut"] += 1

    async def _converse(self, stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = await stream.receive_some(64 * 1024)
            if not data:
                return
            head += data
        head, _, body = head.partition(b"\r\n\r\n")
        found = re.match(rb"[A-Z]+ (?:http://[^/]+)?/([a-z]+)", head)
        kind = found[1].decode() if found is not None else "unknown"
        self.requests[kind] += 1
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        missing = int(length[1]) - len(body) if length is not None else 0
        if missing > 0 and re.search(rb"(?i)\r\nexpect: *100-continue", head):
            await stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.received += len(body)
        while missing > 0:
            data = await stream.receive_some(64 * 1024)
            if not data:
                return
            missing -= len(data)
            self.received += len(data)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % BODY)
        if kind == "held":
            with trio.move_on_after(HELD_S):
                await stream.receive_some(1)
            return
        await stream.send_all(bytes(BODY))
        self.sent += BODY
