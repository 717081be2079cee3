"""Lets the programs in a sandbox list the keys of a person's ssh-agent and sign with them, and do nothing else there."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.agents import ssh_requests
from substrat.daemon.kernel import nofollow
from substrat.daemon.kernel.sockets import exactly

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("substrat.ssh_agent")


async def serve_one(path: str, stream: trio.SocketStream, greeted: Callable[[], None]) -> None:
    """Serve one connection from a sandbox over a connection of its own to the ssh-agent.

    Args:
        path: the ssh-agent's socket; a link is not followed, because it may lead to another program of the person's.
        stream: the connection.
        greeted: called when the first request has come.
    """
    if (message := await _read(stream)) is None:
        return
    greeted()
    try:
        upstream = await _connected(path)
    except OSError as problem:
        log.info("an ssh-agent isn't there", path=path, reason=problem.strerror)
        return
    async with upstream:
        while message is not None:
            if not ssh_requests.passes(message):
                await stream.send_all(ssh_requests.REFUSAL)
            else:
                await upstream.send_all(ssh_requests.framed(message))
                if (answer := await _read(upstream)) is None:
                    return
                await stream.send_all(ssh_requests.framed(answer))
            message = await _read(stream)


async def _connected(path: str) -> trio.SocketStream:
    connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with nofollow.opened(path) as descriptor:
            await connection.connect(f"/proc/self/fd/{descriptor}")
    except BaseException:
        connection.close()
        raise
    return trio.SocketStream(connection)


async def _read(stream: trio.SocketStream) -> bytes | None:
    """Read one message; None: the other end has closed, or says that a message is longer than any may be."""
    head = await exactly(stream, ssh_requests.LENGTH)
    length = int.from_bytes(head, "big") if head is not None else 0
    if head is None or length > ssh_requests.LONGEST:
        return None
    return await exactly(stream, length)
