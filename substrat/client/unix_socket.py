"""Connects to the operator socket under asyncio and Trio alike."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import anyio
from anyio.abc import SocketAttribute, UNIXSocketStream
from anyio.lowlevel import checkpoint

from substrat import errors, paths

CHUNK = 64 * 1024
"""Bytes read at once: as many as a page of a subscription."""
PAUSE_S = 0.05
"""Between attempts to reach a daemon whose socket isn't there, or whose queue of connections is full."""


async def open_stream(path: str) -> UNIXSocketStream:
    """Connect to the daemon.

    Args:
        path: the operator socket.

    Raises:
        DaemonNotRunning: no daemon listens there.
    """
    connecting = directory = None
    connected = False
    try:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.setblocking(False)
        short, directory = paths.short_socket_path(path)
        await checkpoint()
        while not connected:
            try:
                connecting.connect(short)
                connected = True
            except BlockingIOError:
                # The daemon's queue of connections is full, and a socket that doesn't block can't wait for room
                # (connect(2)). Both loops' own connect take this for a connection under way.
                await anyio.sleep(PAUSE_S)
    except OSError as problem:
        raise errors.DaemonNotRunning.at(path, problem.strerror or "no daemon listens on it") from None
    finally:
        if not connected and connecting is not None:
            connecting.close()
        if directory is not None:
            os.close(directory)
    return await UNIXSocketStream.from_socket(connecting)


def send_now(stream: UNIXSocketStream, data: bytes) -> int:
    """Send as much as the socket takes at once, without a checkpoint, and return how many bytes that are.

    A socket that is closed or whose other end is gone takes none.
    """
    try:
        return _raw(stream).send(data)
    except OSError:
        return 0


def close_sending(stream: UNIXSocketStream) -> None:
    """Tell the daemon that no further request comes; answers still do."""
    with suppress(OSError):
        _raw(stream).shutdown(socket.SHUT_WR)


def close_now(stream: UNIXSocketStream) -> None:
    """Close a socket that no task waits for, without a checkpoint."""
    _raw(stream).close()


def _raw(stream: UNIXSocketStream) -> socket.socket:
    return stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - not Django's
