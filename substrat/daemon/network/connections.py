"""What both forms of the `filtered` network share: decides where a connection may go, dials, moves its bytes, tells.

It neither listens nor knows how a client said where it wants to go: that is `gateway`'s and `proxy`'s. How to decide is
in `core.names`, `core.addresses` and `core.tls`. Names are looked up here; only addresses that were judged are dialled.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat.core.netfilter import addresses, tls, upstream
from substrat.core.netfilter.names import NoName, canonical, remedy
from substrat.daemon.kernel import descriptors, routes
from substrat.daemon.kernel.ratelimit import RateLimiter
from substrat.daemon.kernel.splice import Pipes, splice
from substrat.daemon.network.decisions import Decisions, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from substrat.core.netfilter.names import AllowList
    from substrat.core.netfilter.upstream import Upstream
    from substrat.daemon.network.decisions import Decision

log = structlog.get_logger("substrat.carrier")

MAX_CONNECTIONS = 256
HELLO_SECONDS = 30.0
MAX_READS = 64
"""How many pieces the beginning of a connection may come in."""
RATE, BURST = 200.0, 400.0
"""Queries a second and a listener, connections likewise: beyond that the sandbox waits, not the daemon."""

_MAX_LOOKUPS = 4  # at once, so that one turn with a slow resolver doesn't take the others' threads
_MAX_ADDRESSES = 8
_LOOKUP_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_UPSTREAM_SECONDS = 30.0
"""How long an upstream proxy may take to reach a host."""
_LOCALHOST = "localhost"
_IDLE_SECONDS = 1800.0
BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Target(NamedTuple):
    """Where a connection wants to go.

    Args:
        host: a canonical name, or an address in its plain spelling.
        port: the port there.
        is_name: whether it is a name.
    """

    host: str
    port: int
    is_name: bool

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NotCarried(Exception):
    """A connection doesn't get where it wants to go; the message says why, for whoever made it.

    Args:
        why: the reason.
        is_decided: whether that was decided, and isn't the network's doing.
    """

    def __init__(self, why: str, *, is_decided: bool = True) -> None:
        super().__init__(why)
        self.is_decided = is_decided


async def resolve_with_host(name: str, port: int) -> list[str]:
    """Look a name up the way the host does (hosts file, resolver).

    Raises:
        OSError: it has no address.
    """
    found = await trio.to_thread.run_sync(
        lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), abandon_on_cancel=True
    )
    return [str(entry[4][0]) for entry in found]


class ConnectionRelay:
    """Carries the connections of one turn.

    Args:
        allow: what may be reached.
        tell: writes a decision down.
        resolve: finds a name's addresses, outside the sandbox.
        upstream: the proxy that connections to names go through, but for private ones; None: they go there directly.
    """

    def __init__(
        self,
        allow: AllowList,
        tell: Callable[[Decision], None],
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] = resolve_with_host,
        upstream: Upstream | None = None,
    ) -> None:
        self.allowed = allow
        self._upstream = upstream
        self.teller = Decisions(tell)
        self._resolve = resolve
        self._pipes = Pipes()
        self._lookups = trio.CapacityLimiter(_MAX_LOOKUPS)
        self._carried: dict[trio.CancelScope, Target] = {}

    def close(self) -> None:
        """Close what is kept for connections to come."""
        self._pipes.close()

    def allow(self, allow: AllowList) -> None:
        """Let the turn reach this from now on; connections to what isn't allowed any more end."""
        self.allowed = allow
        self.teller.forget()
        for scope, target in self._carried.items():
            if not (allow.allows(target.host, target.port) or allow.allows_address(target.host, target.port)):
                self.teller.denied(str(target), "it isn't allowed any more, so its connection was ended")
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
            listener: what they come in through.
            nursery: where their tasks live.
            room: how many there may be.
            serve: serves one of them; it is closed afterwards.
        """
        pace = RateLimiter(RATE, BURST)
        while True:
            await pace.wait()
            try:
                connection, _ = await listener.accept()
            except OSError as problem:
                # A connection gone before it was accepted, or no descriptors left: neither ends the turn's network.
                if problem.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    await trio.sleep(0.1)
                continue
            if descriptors.is_reserved(connection.fileno()):
                self.teller.denied("connections", descriptors.sentence(OSError(errno.EMFILE, "")))
                reset(connection)
                await trio.sleep(0.1)
                continue
            try:
                room.acquire_nowait()
            except trio.WouldBlock:
                self.teller.denied("connections", f"there are {MAX_CONNECTIONS} already")
                reset(connection)
                continue
            nursery.start_soon(_serve_one, connection, room, serve)

    async def carry(
        self, inside: trio.socket.SocketType, target: Target, serve: Callable[[trio.socket.SocketType], Awaitable[None]]
    ) -> None:
        """Take a connection to where it wants to go and let it be served there, as long as it is allowed.

        Args:
            inside: the connection; one that isn't allowed any more is reset.
            target: where to.
            serve: is given the other end, which is closed afterwards.

        Raises:
            NotCarried: it doesn't get there, which has been told.
        """
        with trio.CancelScope() as scope:
            self._carried[scope] = target
            try:
                outside = await (self._dial_name(target) if target.is_name else self._dial_address(target))
                with outside:
                    for end in (inside, outside):
                        if end.family != socket.AF_UNIX:
                            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    await serve(outside)
            finally:
                del self._carried[scope]
        if scope.cancelled_caught:
            reset(inside)

    async def tunnel(
        self, inside: trio.socket.SocketType, outside: trio.socket.SocketType, target: Target, first: bytes = b""
    ) -> None:
        """Move bytes both ways, once the TLS name in a client's first ones, if there is any, agrees with the target's.

        A server may ask for a second ClientHello. So nothing that follows the first is passed on before the server's answer
        to it is seen, and the second has to agree too.

        Args:
            inside: the client.
            outside: the server.
            target: where the client wanted to go.
            first: what the client has said already.
        """
        answer = _Answer()

        async def upstream(scope: trio.CancelScope) -> None:
            if target.is_name:
                if not await self._agrees(inside, outside, target, first, answer):
                    reset(inside)
                    scope.cancel()
                    return
            elif first:
                await trio.SocketStream(outside).send_all(first)
            await self._pump(inside, outside, scope)

        async def downstream(scope: trio.CancelScope) -> None:
            if target.is_name:
                await _pass_answer(outside, inside, answer)
            await self._pump(outside, inside, scope)

        await self.relay(inside, outside, upstream, downstream)

    async def relay(
        self,
        inside: trio.socket.SocketType,
        outside: trio.socket.SocketType,
        upstream: Callable[[trio.CancelScope], Awaitable[None]],
        downstream: Callable[[trio.CancelScope], Awaitable[None]] | None = None,
    ) -> None:
        """Move bytes both ways until both ends have said all, one broke, or neither has said anything for long.

        Args:
            inside: the client.
            outside: the server.
            upstream: moves the client's bytes; it is given what to cancel to end everything.
            downstream: the same for the server's, if they aren't just moved.
        """
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            scope.deadline = trio.current_time() + _IDLE_SECONDS
            nursery.start_soon(_ending_both, scope, lambda: upstream(scope))
            down = downstream or (lambda scope: self._pump(outside, inside, scope))
            nursery.start_soon(_ending_both, scope, lambda: down(scope))

    async def _dial_name(self, target: Target) -> trio.socket.SocketType:
        name, port, what = target.host, target.port, str(target)
        if not self.allowed.allows(name, port):
            mentioned = self.allowed.mentions(name)
            why = "the name isn't allowed at this port" if mentioned else "it isn't on the allow-list"
            raise self._denied(what, why, remedy=remedy(name, port))
        is_private = self.allowed.may_be_private(name, port)
        if self._upstream is not None and not is_private and name != _LOCALHOST:
            self.teller.allowed(name, port, "on the allow-list, through the upstream proxy")
            return await self._dial_through(self._upstream, target)
        found = await self._look_up(name, port, what)
        refused = await self._refusals(found, port, may_be_private=is_private)
        refusals = [
            self._denied(what, f"it leads to {address}, {why}", remedy=_private_remedy(target, address))
            for address, why in refused.items()
        ]
        usable = [address for address in found if address not in refused][:_MAX_ADDRESSES]
        if not usable:
            raise refusals[0] if refusals else NotCarried("the name has no address", is_decided=False)
        self.teller.allowed(name, port, "on the allow-list")
        return await self._connect_judged(what, usable, port, may_be_private=is_private)

    async def _look_up(self, name: str, port: int, what: str) -> list[str]:
        """Find a name's addresses as the host does; raises `NotCarried`."""
        try:
            with trio.fail_after(_LOOKUP_SECONDS):
                async with self._lookups:
                    return list(dict.fromkeys(addresses.plain(address) for address in await self._resolve(name, port)))
        except (OSError, UnicodeError, trio.TooSlowError) as problem:
            reason = getattr(problem, "strerror", None) or "no answer in time"
            raise self._denied(what, f"the name can't be looked up: {reason}", is_decided=False) from None

    async def _dial_address(self, target: Target) -> trio.socket.SocketType:
        address, port, what = target.host, target.port, str(target)
        if not self.allowed.allows_address(address, port):
            may_be_named = addresses.refusal(address, may_be_private=True) is None
            known = remedy(address, port) if may_be_named else None
            raise self._denied(what, "no allowed name has this address", remedy=known)
        if self.allowed.names_address(address, port):
            self.teller.allowed(address, port, "the address is on the allow-list")
            return await self._connect(what, [address], port)
        if (why := (await self._refusals([address], port)).get(address)) is not None:
            raise self._denied(what, f"it is {why}")
        self.teller.allowed(address, port, "its network is on the allow-list")
        return await self._connect_judged(what, [address], port)

    async def _connect_judged(
        self, what: str, usable: list[str], port: int, *, may_be_private: bool = False
    ) -> trio.socket.SocketType:
        """Connect to the first address that takes it, if it still may be dialled then."""
        outside = await self._connect(what, usable, port)
        try:
            # This machine may have been given the address since it was judged.
            address = addresses.plain(outside.getpeername()[0])
            why = (await self._refusals([address], port, may_be_private=may_be_private)).get(address)
        except BaseException:
            outside.close()
            raise
        if why is None:
            return outside
        outside.close()
        raise self._denied(what, f"it leads to {address}, {why}")

    async def _dial_through(self, proxy: Upstream, target: Target) -> trio.socket.SocketType:
        """Ask the upstream proxy for a connection; it looks the name up, and decides for itself what it lets through."""
        what = str(target)
        where = f"the upstream proxy {proxy.host}:{proxy.port}"
        found = await self._look_up(proxy.host, proxy.port, f"{what}: {where}")
        outside = await self._connect(what, found[:_MAX_ADDRESSES], proxy.port)
        refusal: str | None = "no answer in time"
        try:
            with trio.move_on_after(_UPSTREAM_SECONDS):
                await trio.SocketStream(outside).send_all(upstream.request(proxy, target.host, target.port))
                refusal = await _read_answer(outside)
        except BROKEN as problem:
            refusal = f"it ended the connection: {problem}"
        except BaseException:
            outside.close()
            raise
        if refusal is None:
            return outside
        outside.close()
        raise self._denied(what, f"{where} doesn't lead there: {refusal}", is_decided=False)

    def _denied(self, what: str, why: str, *, is_decided: bool = True, remedy: str | None = None) -> NotCarried:
        """Tell of a refusal, and return it."""
        self.teller.denied(what, why, remedy)
        return NotCarried(why, is_decided=is_decided)

    async def _refusals(self, found: list[str], port: int, *, may_be_private: bool = False) -> dict[str, str]:
        """Return those of some addresses that may not be dialled, each with the reason."""
        judged = [address for address in found if not self.allowed.names_address(address, port)]
        asked = tuple(dict.fromkeys(chain.from_iterable(map(addresses.leads_to, judged))))
        try:
            # In a thread, because the kernel lets a question about routes wait while routes are changed.
            local = await trio.to_thread.run_sync(routes.local_ones, asked, limiter=self._lookups) if asked else frozenset()
        except OSError as problem:
            log.error("the kernel doesn't say which addresses are this machine's", reason=str(problem))  # noqa: TRY400
            return dict.fromkeys(judged, "which may be this machine's: the kernel doesn't say")
        refused = {}
        for address in judged:
            is_listed = may_be_private or self.allowed.allows_address(address, port)
            if (why := addresses.refusal(address, local, may_be_private=is_listed)) is not None:
                refused[address] = why
        return refused

    async def _connect(self, what: str, usable: list[str], port: int) -> trio.socket.SocketType:
        """Connect to the first address that takes it; exactly the ones that were judged, nothing is looked up again."""
        problem = "no answer in time"
        for address in usable:
            try:
                outside = trio.socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            except OSError as failed:
                problem = descriptors.sentence(failed) if descriptors.is_short(failed) else failed.strerror or "no socket"
                break
            if descriptors.is_reserved(outside.fileno()):
                outside.close()
                problem = descriptors.sentence(OSError(errno.EMFILE, ""))
                break
            try:
                with trio.move_on_after(_CONNECT_SECONDS):
                    await outside.connect((address, port))
                    return outside
            except OSError as failed:
                problem = failed.strerror or "no connection"
            except BaseException:
                outside.close()
                raise
            outside.close()
        log.info("nobody answered a sandbox", to=what, reason=problem)
        raise NotCarried(f"nobody answered: {problem}", is_decided=False)

    async def _agrees(
        self,
        inside: trio.socket.SocketType,
        outside: trio.socket.SocketType,
        target: Target,
        data: bytes,
        answer: _Answer,
    ) -> bool:
        """Hold the client's first bytes until they tell which server it means, then pass them on if it is this one."""
        server = trio.SocketStream(outside)
        passed, found = 0, tls.read(data)
        for _ in range(MAX_READS):
            if found.kind not in {tls.Kind.INCOMPLETE, tls.Kind.UNDECIDED}:
                break
            if found.kind is tls.Kind.UNDECIDED:
                await server.send_all(data[passed:])
                passed = len(data)
            # Another protocol's client may wait for the server first, so only a begun hello has to go on.
            piece = await _read(inside, HELLO_SECONDS if found.kind is tls.Kind.INCOMPLETE else float("inf"))
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
        if found.kind is tls.Kind.OTHER:
            await server.send_all(data[passed:])
            return True
        end = tls.end_of_hello(data)
        await server.send_all(data[:end])
        await answer.is_known.wait()
        return await self._agrees_again(inside, server, target, data[end:], answer)

    async def _agrees_again(
        self, inside: trio.socket.SocketType, server: trio.SocketStream, target: Target, data: bytes, answer: _Answer
    ) -> bool:
        """Hold what follows a ClientHello to the same, if the server has asked for another one."""
        if answer.wants_another:
            found, reads = tls.read_second(data), 0
            while found.kind is tls.Kind.INCOMPLETE and reads < MAX_READS and (piece := await _read(inside, HELLO_SECONDS)):
                data += piece
                reads += 1
                found = tls.read_second(data)
            if not self._is_meant(found, target):
                return False
        await server.send_all(data)
        return True

    def _is_meant(self, found: tls.Hello, target: Target) -> bool:
        """Say whether a client's bytes mean the server it looked up; tell when they don't."""
        why = _disagreement(found, target.host)
        if why is not None:
            self.teller.denied(str(target), why)
        return why is None

    async def _pump(self, source: trio.socket.SocketType, sink: trio.socket.SocketType, scope: trio.CancelScope) -> None:
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


def target_of(host: str, port: int) -> Target:
    """Return where something that was written means: an address, or a name in its canonical form.

    Args:
        host: a name or an address, an IPv6 one without brackets.
        port: the port there.

    Raises:
        NoName: it is neither.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return Target(canonical(host), port, is_name=True)
    return Target(addresses.plain(host), port, is_name=False)


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


async def _read_answer(outside: trio.socket.SocketType) -> str | None:
    """Read an upstream proxy's answer and nothing behind it; returns why there is no connection, None when there is one."""
    data = b""
    while True:
        piece = await outside.recv(upstream.LONGEST_ANSWER, socket.MSG_PEEK)
        if not piece:
            return "it ended the connection"
        found = upstream.answer(data + piece)
        await outside.recv(len(piece) if found is None else max(0, found.length - len(data)))
        if found is not None:
            return found.refusal
        data += piece


def _private_remedy(target: Target, address: str) -> str | None:
    """Return what would let a name lead to a private address, if that is all that is in the way."""
    is_private = addresses.refusal(address) is not None and addresses.refusal(address, may_be_private=True) is None
    return f"{remedy(target.host, target.port, preset=False)}=private" if is_private else None


async def _read(source: trio.socket.SocketType, seconds: float) -> bytes:
    """Read what comes next, nothing when that takes too long."""
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
    if found.kind in {tls.Kind.BROKEN, tls.Kind.INCOMPLETE, tls.Kind.UNDECIDED}:
        return "its TLS handshake can't be read"
    if found.name is None:
        return None
    try:
        said = canonical(found.name)
    except NoName:
        return f"its TLS handshake names {shown(found.name)}, which is no host name"
    return None if said == name else f"its TLS handshake names {said} instead"


def reset(connection: trio.socket.SocketType) -> None:
    """Let a connection end with a reset, so that the client knows at once that nobody wants it."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
