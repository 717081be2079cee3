"""Unix sockets as the daemon uses them: listening with the right mode at any path length, reading lines within a limit."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
import sys
import termios
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.daemon.kernel import descriptors
from substrat.errors import StateUnusable
from substrat.paths import short_socket_path
from substrat.protocol.framing import LineSplitter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from substrat.daemon.kernel.ratelimit import TokenBucket

log = structlog.get_logger("substrat.sockets")

OVERLOADED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept(2) that pass when another connection is closed."""
_BACKLOG = 512
"""Connections that wait to be accepted: as many as the operator socket serves at once."""
_FIRST_PASSED_FD = 3
_CHUNK = 64 * 1024
"""Bytes received at once: most requests in one piece, and cheap for each of hundreds of connections."""
GREETING_SECONDS = 10
"""How long a connection may take to its greeting; a program sends it at once."""
_WARNING_PAUSE = 60.0
"""Seconds between two warnings that all places are taken: the log isn't filled by a client that connects in a loop."""


def listen(path: str, mode: int) -> trio.SocketListener:
    """Listen on a Unix socket, replacing one that a dead daemon left.

    Args:
        path: where; its directory must exist and be ours.
        mode: who may connect.

    Raises:
        StateUnusable: something that isn't a socket or a file is in its place.
    """
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as problem:
        raise StateUnusable(f"{path} is in the way of a socket ({problem.strerror}): move it away") from None
    spelling, directory = short_socket_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(spelling)
        # No client can connect before listen. The umask is no way to set the mode: it is the whole process's, and other
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
        StateUnusable: another kind of descriptor was passed on.
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


def peer_pid(stream: trio.SocketStream) -> int:
    """Return the process that connected (SO_PEERCRED, unix(7))."""
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack("3i", stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(pid)


def unread_by_peer(stream: trio.SocketStream) -> int:
    """Return the memory that sent bytes take until the peer has read them (SIOCOUTQ, unix(7) and unix_ioctl in Linux)."""
    found = fcntl.ioctl(stream.socket.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(found, sys.byteorder)


async def receive_descriptors(connection: trio.socket.SocketType, most: int) -> list[int]:
    """Take the descriptors of one message, close-on-exec from the first instant (unix(7), SCM_RIGHTS).

    `socket.recv_fds` isn't used because it drops its `flags` argument (CPython 3.11 to 3.13).

    Args:
        connection: a Unix socket.
        most: how many there may be.

    Returns:
        Them; the caller closes them. None came when the other end was closed before.

    Raises:
        OSError: EMFILE: they don't all fit into this process's limit of open files; EMSGSIZE: there are more than `most`.
            In both cases those that came are closed.
    """
    size = array.array("i").itemsize
    _, rights, flags, _ = await connection.recvmsg(1, socket.CMSG_SPACE(most * size), socket.MSG_CMSG_CLOEXEC)
    found = array.array("i")
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % size])
    # The space is rounded up, so there may be room for one more than asked for. Those that don't fit the kernel drops.
    if len(found) > most or flags & socket.MSG_CTRUNC:
        for descriptor in found:
            os.close(descriptor)
        number = errno.EMFILE if len(found) < most else errno.EMSGSIZE
        raise OSError(number, os.strerror(number))
    return list(found)


class _Arrivals:
    """The connections of one socket that haven't greeted yet, the oldest first."""

    def __init__(self) -> None:
        self._waiting: dict[trio.SocketStream, tuple[trio.CancelScope, int]] = {}
        self._some = trio.Event()
        self._warned_at = -_WARNING_PAUSE

    def add(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """Take a new one up; cancelling the scope closes it."""
        self._waiting[stream] = scope, 0
        self._some.set()

    def remove(self, stream: trio.SocketStream) -> None:
        """Note that one has greeted or has ended."""
        self._waiting.pop(stream, None)

    def make_room(self, limit: int) -> None:
        """Close the oldest for a new one, if there is one, and warn now and then that all places are taken."""
        oldest = next(iter(self._waiting), None)
        if trio.current_time() >= self._warned_at + _WARNING_PAUSE:
            self._warned_at = trio.current_time()
            pid = peer_pid(oldest) if oldest is not None else None
            log.warning("all connections are taken", limit=limit, without_greeting=len(self._waiting), pid_of_oldest=pid)
        if oldest is not None:
            scope, _ = self._waiting.pop(oldest)
            scope.cancel()

    async def send_silent_away(self) -> None:
        """Close those that take too long.

        It is counted in seconds that this process has run: one that was stopped meanwhile has yet to read the greeting.
        """
        while True:
            await self._some.wait()
            await trio.sleep(1)
            for stream, (scope, seconds) in list(self._waiting.items()):
                if seconds < GREETING_SECONDS:
                    self._waiting[stream] = scope, seconds + 1
                else:
                    log.info("a connection without a greeting was closed", pid=peer_pid(stream))
                    self.remove(stream)
                    scope.cancel()
            if not self._waiting:
                self._some = trio.Event()


async def exactly(stream: trio.SocketStream, length: int) -> bytes | None:
    """Read so many bytes; None: the other end has closed before."""
    found = bytearray()
    while len(found) < length:
        piece = await stream.receive_some(length - len(found))
        if not piece:
            return None
        found += piece
    return bytes(found)


async def accept_forever(
    listener: trio.SocketListener,
    limit: int,
    serve: Callable[[trio.SocketStream, Callable[[], None]], Awaitable[None]],
    *,
    spares_reserve: bool = False,
    limiter: TokenBucket | None = None,
) -> None:
    """Serve each connection in a task of its own; an error in one ends that one.

    One that hasn't greeted is closed after `GREETING_SECONDS`, and before if a new one has no place otherwise.

    Args:
        listener: closed when this ends.
        limit: how many connections at once; more wait unaccepted when all have greeted.
        serve: serves one connection, and calls the function that it is given when the other side has greeted; the
            connection is closed afterwards.
        spares_reserve: whether the descriptors that are kept for the operator aren't used for these connections.
        limiter: slows down a peer that connects again and again; None: nothing does.
    """
    room = trio.Semaphore(limit)
    arrivals = _Arrivals()

    async def serve_one(stream: trio.SocketStream) -> None:
        try:
            with trio.CancelScope() as scope:
                async with stream:
                    arrivals.add(stream, scope)
                    try:
                        await serve(stream, partial(arrivals.remove, stream))
                    finally:
                        # Before it is closed: of a closed one the others couldn't even ask who is at its other end.
                        arrivals.remove(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("a client went away")
        except Exception:
            log.exception("a connection broke")
        finally:
            room.release()

    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(arrivals.send_silent_away)
        while True:
            await trio.lowlevel.wait_readable(listener.socket)
            if not room.value:
                arrivals.make_room(limit)
            await room.acquire()
            if limiter is not None:
                await limiter.wait()
            stream = await _accepted(listener, spares_reserve=spares_reserve)
            if stream is not None:
                nursery.start_soon(serve_one, stream)
            else:
                room.release()
                await trio.sleep(0.1)


async def _accepted(listener: trio.SocketListener, *, spares_reserve: bool) -> trio.SocketStream | None:
    """Accept a connection; None when there is no descriptor for it."""
    try:
        stream = await listener.accept()
    except OSError as problem:
        if problem.errno not in OVERLOADED:
            raise
        # Descriptors are used up: one must be closed before another connection makes sense.
        log.warning("can't accept a connection", reason=problem.strerror)
        return None
    if spares_reserve and descriptors.is_reserved(stream.socket.fileno()):
        log.warning("a connection is refused", reason=descriptors.sentence(OSError(errno.EMFILE, "")))
        await trio.aclose_forcefully(stream)
        return None
    return stream


async def lines(stream: trio.SocketStream, limit: int) -> AsyncGenerator[bytes, None]:
    """Give out the lines a peer sends, without their newlines; empty ones are left out.

    Raises:
        MessageTooLarge: a line is over the limit.
    """
    splitter = LineSplitter(limit)
    while data := await stream.receive_some(_CHUNK):
        for line in splitter.feed(data):
            if line.strip():
                yield line
