"""Unix sockets as the daemon uses them: listening with the right mode at any path length, reading lines in bounds."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.errors import StateUnusable
from substrat.paths import short_socket_path
from substrat.wire.framing import LineSplitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

log = structlog.get_logger("substrat.sockets")

_OVERLOADED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BACKLOG = 512
_FIRST_PASSED_FD = 3
_CHUNK = 64 * 1024


def listen(path: str, mode: int) -> trio.SocketListener:
    """Listen on a Unix socket, replacing one that a dead daemon left.

    Args:
        path: where; its directory must exist and be ours.
        mode: who may connect.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    spelling, directory = short_socket_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(spelling)
        # Nobody can connect before listen. The umask is no way to set the mode: it is the whole process's, and other
        # threads are making directories.
        os.chmod(spelling, mode)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    finally:
        if directory is not None:
            os.close(directory)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def inherited(environ: Mapping[str, str]) -> trio.SocketListener | None:
    """Return the listening Unix socket that systemd holds for this process (sd_listen_fds(3)), None when there is none.

    Args:
        environ: the process's environment.

    Raises:
        StateUnusable: what was passed on is something else.
    """
    if environ.get("LISTEN_PID") != str(os.getpid()) or environ.get("LISTEN_FDS", "0") == "0":
        return None
    sock = socket.socket(fileno=_FIRST_PASSED_FD)
    is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if environ["LISTEN_FDS"] != "1" or (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_STREAM) or not is_listening:
        sock.close()
        raise StateUnusable("the socket unit must have one ListenStream= and that a path: install the service again")
    sock.set_inheritable(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def peer_uid(stream: trio.SocketStream) -> int:
    """Return the user at the other end (SO_PEERCRED, unix(7))."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)


async def accept_forever(
    listener: trio.SocketListener, limit: int, serve: Callable[[trio.SocketStream], Awaitable[None]]
) -> None:
    """Serve each connection in a task of its own; what breaks in one ends that one.

    Args:
        listener: closed when this ends.
        limit: how many connections at once; more wait unaccepted.
        serve: serves one connection; it is closed afterwards.
    """
    room = trio.Semaphore(limit)

    async def serve_one(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                await serve(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("a client went away")
        except Exception:
            log.exception("a connection broke")
        finally:
            room.release()

    async with listener, trio.open_nursery() as nursery:
        while True:
            await room.acquire()
            try:
                stream = await listener.accept()
            except OSError as problem:
                room.release()
                if problem.errno not in _OVERLOADED:
                    raise
                # Descriptors are used up: somebody has to close one before another connection makes sense.
                log.warning("can't accept a connection", reason=problem.strerror)
                await trio.sleep(0.1)
            else:
                nursery.start_soon(serve_one, stream)


async def lines(stream: trio.SocketStream, limit: int) -> AsyncIterator[bytes]:
    """Give out the lines a peer sends, without their newlines; empty ones are left out.

    Raises:
        MessageTooLarge: a line is over the limit.
    """
    splitter = LineSplitter(limit)
    while data := await stream.receive_some(_CHUNK):
        for line in splitter.feed(data):
            if line.strip():
                yield line
