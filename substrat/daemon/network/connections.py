"""Relays the connections of one turn, for both forms of the `filtered` network: compares TLS names, moves bytes.

`transparent` and `proxy` find out where a client wants to go, `dialer` decides whether it may. For example a connection to
`pypi.org:443` is dialled once the name is on the allow-list, and relayed once its ClientHello names `pypi.org` too.
"""

from __future__ import annotations

import errno
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.netfilter import tls
from substrat.core.netfilter.names import NoName, canonical
from substrat.daemon.kernel import descriptors, sockets
from substrat.daemon.kernel.ratelimit import TokenBucket
from substrat.daemon.kernel.splice import Pipes, splice
from substrat.daemon.network.decisions import Decisions, printable
from substrat.daemon.network.dialer import BROKEN, Dialer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from substrat.core.netfilter.names import AllowList
    from substrat.core.netfilter.upstream import Upstream
    from substrat.daemon.network.decisions import Decision
    from substrat.daemon.network.dialer import Dialled, Target

log = structlog.get_logger("substrat.connections")

MAX_CONNECTIONS = 256
"""Of one turn: browsers and package managers open some tens, and each costs the daemon two descriptors and a pipe."""
HELLO_SECONDS = 30.0
"""How long the next piece of a ClientHello may take; clients send it in one piece, at once."""
MAX_READS = 64
"""Pieces that the beginning of a connection may come in: a hello of 16 KiB in segments of 536 bytes has 31."""
RATE, BURST = 200.0, 400.0
"""Queries a second and a listener, connections likewise: beyond that the sandbox waits, not the daemon."""

_IDLE_SECONDS = 1800.0
"""Half an hour without a byte: longer than any keep-alive that is customary (TCP's own begins after 2 h)."""


class ConnectionRelay:
    """Relays the connections of one turn.

    Args:
        allow: the allow-list.
        record: records a decision.
        resolve: finds a name's addresses, outside the sandbox; None: as the host does.
        upstream: the proxy that connections to names go through, but for private ones; None: they go there directly.
    """

    def __init__(
        self,
        allow: AllowList,
        record: Callable[[Decision], None],
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None,
        upstream: Upstream | None = None,
    ) -> None:
        self.decisions = Decisions(record)
        self._dialer = Dialer(allow, self.decisions, resolve, upstream)
        self._pipes = Pipes()
        self._targets: dict[trio.CancelScope, Target] = {}

    @property
    def allowed(self) -> AllowList:
        """The allow-list in force."""
        return self._dialer.allowed

    def close(self) -> None:
        """Close the pipes that are kept for later connections."""
        self._pipes.close()

    def allow(self, allow: AllowList) -> None:
        """Apply a changed allow-list; connections to hosts that it no longer has end."""
        self._dialer.allowed = allow
        self.decisions.forget()
        for scope, target in self._targets.items():
            if not (allow.allows(target.host, target.port) or allow.allows_address(target.host, target.port)):
                self.decisions.denied(str(target), "it isn't allowed any more, so its connection was ended")
                scope.cancel()

    async def accept(
        self,
        listener: trio.socket.SocketType,
        nursery: trio.Nursery,
        room: trio.Semaphore,
        serve: Callable[[trio.socket.SocketType], Awaitable[None]],
    ) -> None:
        """Serve a listener's connections, each in a task of its own, until cancelled.

        Args:
            listener: the listening socket.
            nursery: the tasks' nursery.
            room: limits the number of connections.
            serve: serves one of them; it is closed afterwards.
        """
        limiter = TokenBucket(RATE, BURST)
        while True:
            await limiter.wait()
            try:
                connection, _ = await listener.accept()
            except OSError as problem:
                # A connection gone before it was accepted, or no descriptors left: neither ends the turn's network.
                if problem.errno in sockets.OVERLOADED:
                    await trio.sleep(0.1)
                continue
            if descriptors.is_reserved(connection.fileno()):
                self.decisions.denied("connections", descriptors.sentence(OSError(errno.EMFILE, "")))
                reset(connection)
                await trio.sleep(0.1)
                continue
            try:
                room.acquire_nowait()
            except trio.WouldBlock:
                self.decisions.denied("connections", f"there are {MAX_CONNECTIONS} already")
                reset(connection)
                continue
            nursery.start_soon(_serve_one, connection, room, serve)

    def has_proxy_for(self, target: Target) -> bool:
        """Say whether a target is allowed and reached through the upstream proxy."""
        return self._dialer.proxy_for(target) is not None

    async def connect(
        self,
        inside: trio.socket.SocketType,
        target: Target,
        serve: Callable[[Dialled], Awaitable[None]],
        *,
        is_http: bool = False,
    ) -> None:
        """Dial a connection's target and serve the connection, for as long as the target is allowed.

        Args:
            inside: the connection; one that isn't allowed any more is reset.
            target: the host and port it asks for.
            serve: is given the connection that was made, which is closed afterwards.
            is_http: whether it sends one plain HTTP request.

        Raises:
            NotConnected: the target isn't allowed or can't be reached (`Dialer.dial` says which of it is recorded).
        """
        with trio.CancelScope() as scope:
            self._targets[scope] = target
            try:
                made = await self._dialer.dial(target, is_http=is_http)
                with made.socket:
                    for end in (inside, made.socket):
                        if end.family != socket.AF_UNIX:
                            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await serve(made)
            finally:
                del self._targets[scope]
        if scope.cancelled_caught:
            reset(inside)

    async def tunnel(
        self, inside: trio.socket.SocketType, outside: trio.socket.SocketType, target: Target, first: bytes = b""
    ) -> None:
        """Move bytes both ways, once the TLS name in a client's first ones, if there is any, agrees with the target's.

        A server may ask for a second ClientHello. So nothing that follows the first is passed on before the server's answer
        to it is seen, and the second must agree too.

        Args:
            inside: the client.
            outside: the server.
            target: the host and port that the client asked for.
            first: the client's bytes so far.
        """
        answer = _Answer()

        async def outward(scope: trio.CancelScope) -> None:
            if target.is_name:
                if not await self._agrees(inside, outside, target, first, answer):
                    reset(inside)
                    scope.cancel()
                    return
            elif first:
                await trio.SocketStream(outside).send_all(first)
            await self.pump(inside, outside, scope)

        async def inward(scope: trio.CancelScope) -> None:
            if target.is_name:
                await _pass_answer(outside, inside, answer)
            await self.pump(outside, inside, scope)

        await self.relay(inside, outside, outward, inward)

    async def relay(
        self,
        inside: trio.socket.SocketType,
        outside: trio.socket.SocketType,
        outward: Callable[[trio.CancelScope], Awaitable[None]],
        inward: Callable[[trio.CancelScope], Awaitable[None]] | None = None,
    ) -> None:
        """Move bytes both ways until both ends have finished, one broke, or both are silent for `_IDLE_SECONDS`.

        Args:
            inside: the client.
            outside: the server.
            outward: moves the client's bytes; it is given the scope that ends both directions.
            inward: the same for the server's; None: they are moved unread.
        """
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            scope.deadline = trio.current_time() + _IDLE_SECONDS
            nursery.start_soon(_ending_both, scope, lambda: outward(scope))
            back = inward or (lambda scope: self.pump(outside, inside, scope))
            nursery.start_soon(_ending_both, scope, lambda: back(scope))

    async def _agrees(
        self,
        inside: trio.socket.SocketType,
        outside: trio.socket.SocketType,
        target: Target,
        data: bytes,
        answer: _Answer,
    ) -> bool:
        """Hold the client's first bytes until they name a server, then pass them on if it is the target."""
        server = trio.SocketStream(outside)
        passed, found = 0, tls.read(data)
        for _ in range(MAX_READS):
            if found.kind not in {tls.HelloKind.INCOMPLETE, tls.HelloKind.UNDECIDED}:
                break
            if found.kind is tls.HelloKind.UNDECIDED:
                await server.send_all(data[passed:])
                passed = len(data)
            # Another protocol's client may wait for the server first, so only a begun hello must go on.
            piece = await _read(inside, HELLO_SECONDS if found.kind is tls.HelloKind.INCOMPLETE else float("inf"))
            if not piece and passed == len(data):
                with suppress(OSError):
                    outside.shutdown(socket.SHUT_WR)
                return True
            if not piece:
                break
            data += piece
            found = tls.read(data)
        if not self._is_meant(found, target):
            return False
        if found.kind is tls.HelloKind.OTHER:
            await server.send_all(data[passed:])
            return True
        end = tls.end_of_hello(data)
        await server.send_all(data[:end])
        await answer.is_known.wait()
        return await self._agrees_again(inside, server, target, data[end:], answer)

    async def _agrees_again(
        self, inside: trio.socket.SocketType, server: trio.SocketStream, target: Target, data: bytes, answer: _Answer
    ) -> bool:
        """Compare the second ClientHello too, if the server has asked for one, and pass the bytes on."""
        if answer.wants_another:
            found, reads = tls.read_second(data), 0
            while (
                found.kind is tls.HelloKind.INCOMPLETE
                and reads < MAX_READS
                and (piece := await _read(inside, HELLO_SECONDS))
            ):
                data += piece
                reads += 1
                found = tls.read_second(data)
            if not self._is_meant(found, target):
                return False
        await server.send_all(data)
        return True

    def _is_meant(self, found: tls.Hello, target: Target) -> bool:
        """Say whether a client's bytes name the server it looked up; record it when they don't."""
        why = _disagreement(found, target.host)
        if why is not None:
            self.decisions.denied(str(target), why)
        return why is None

    async def pump(self, source: trio.socket.SocketType, sink: trio.socket.SocketType, scope: trio.CancelScope) -> None:
        """Move bytes one way, in the kernel, until the source has no more; then say so to the sink."""
        while True:
            await trio.lowlevel.wait_readable(source)
            pipe, waiting = self._pipes.take(), 0
            try:
                while (waiting := splice(source.fileno(), pipe[1])) > 0:
                    scope.deadline = trio.current_time() + _IDLE_SECONDS
                    while waiting > 0:
                        if (moved := splice(pipe[0], sink.fileno(), waiting)) < 0:
                            await trio.lowlevel.wait_writable(sink)
                        else:
                            waiting -= moved
                    await trio.lowlevel.checkpoint()
            finally:
                self._pipes.give(pipe, empty=waiting <= 0)
            if waiting == 0:
                sink.shutdown(socket.SHUT_WR)
                return


async def _serve_one(
    connection: trio.socket.SocketType,
    room: trio.Semaphore,
    serve: Callable[[trio.socket.SocketType], Awaitable[None]],
) -> None:
    """Serve one connection, whose failures are its own."""
    try:
        await serve(connection)
    except BROKEN as problem:
        log.debug("a sandbox's connection ended", reason=str(problem))
    except Exception:
        log.exception("a sandbox's connection broke")
    finally:
        connection.close()
        room.release()


class _Answer:
    """Whether a server asks for a second ClientHello, as soon as its first bytes tell."""

    def __init__(self) -> None:
        self.is_known = trio.Event()
        self.wants_another = False


async def _pass_answer(outside: trio.socket.SocketType, inside: trio.socket.SocketType, answer: _Answer) -> None:
    """Pass a server's first bytes on, as they come, up to those that tell whether it asks for a second ClientHello."""
    data, wanted = b"", None
    try:
        while wanted is None and (piece := await outside.recv(tls.LARGEST)):
            data += piece
            wanted = tls.wants_another(data) if len(data) < tls.LARGEST else False
            if wanted is not None:
                answer.wants_another = wanted
                answer.is_known.set()
            await trio.SocketStream(inside).send_all(piece)
    finally:
        answer.is_known.set()


async def _read(source: trio.socket.SocketType, seconds: float) -> bytes:
    """Read the next bytes; return none when that takes too long."""
    with trio.move_on_after(seconds):
        return bytes(await source.recv(tls.LARGEST))
    return b""


async def _ending_both(scope: trio.CancelScope, move: Callable[[], Awaitable[None]]) -> None:
    """Move bytes; a broken end ends the other direction too."""
    try:
        await move()
    except BROKEN:
        scope.cancel()


def _disagreement(found: tls.Hello, name: str) -> str | None:
    """Say why a client's first bytes don't fit the name it looked up; without a name in them the one looked up counts."""
    if found.kind in {tls.HelloKind.BROKEN, tls.HelloKind.INCOMPLETE, tls.HelloKind.UNDECIDED}:
        return "its TLS handshake can't be read"
    if found.name is None:
        return None
    try:
        said = canonical(found.name)
    except NoName:
        return f"its TLS handshake names {printable(found.name)}, which is no host name"
    return None if said == name else f"its TLS handshake names {said} instead"


def reset(connection: trio.socket.SocketType) -> None:
    """Let a connection end with a reset, so that the client knows at once that it is refused."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
