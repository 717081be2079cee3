"""The daemon's end of a turn's `filtered` network: answers its DNS, dials for its connections, moves their bytes.

Every connection a sandbox makes, to whatever address, ends at one of its listeners here, and `getsockname` tells where it
was going (see `sandbox.netlaunch`). The addresses are ours: DNS gives each allowed name one of its own, so the address
says which name was meant. What is decided is in `core.names`, `core.addresses` and `core.tls`; each decision is told.

A gateway owns its listeners and its connections; both end with the task that serves it.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat.core import addresses, dns, tls
from substrat.core.names import NoName, canonical
from substrat.daemon.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from substrat.core.names import AllowList

log = structlog.get_logger("substrat.gateway")

POOL_V4 = ipaddress.IPv4Address("198.18.0.2")
"""Where the addresses for names begin; the one before is the name server's (`netlaunch.NAMESERVER`)."""
POOL_V6 = ipaddress.IPv6Address("fd53:7562:7374::2")

_DNS_PORT = 53
_MAX_NAMES = 4096
_MAX_CONNECTIONS = 256
_MAX_LOOKUPS = 4  # at once, so that one turn with a slow resolver doesn't take the others' threads
_MAX_ADDRESSES = 8
_LOOKUP_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 1800.0
_HELLO_SECONDS = 30.0
_MAX_HELLO_READS = 64
_RATE, _BURST = 200.0, 400.0
"""Queries a second and a listener, connections likewise: beyond that the sandbox waits, not the daemon."""
_MAX_DNS_CONNECTIONS = 16
_CHUNK = 1 << 20
_F_SETPIPE_SZ = 1031  # fcntl(2), Linux; 64 KiB without it
_MAX_TOLD = 1000
_BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class Decision(NamedTuple):
    """What was decided, for the journal."""

    allowed: bool
    text: str


async def resolve_with_host(name: str, port: int) -> list[str]:
    """Look a name up the way the host does (hosts file, resolver).

    Raises:
        OSError: it has no address.
    """
    found = await trio.to_thread.run_sync(
        lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), abandon_on_cancel=True
    )
    return [str(entry[4][0]) for entry in found]


class Names:
    """Which name each address stands for, kept in a file, so that the next daemon gives the same answers.

    Args:
        path: the file, a name a line in the order of the addresses; None keeps nothing.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._names: list[str] = []
        if path is not None:
            with suppress(FileNotFoundError), open(path, encoding="ascii") as file:
                self._names = file.read().split("\n")[:-1]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def number(self, name: str) -> int | None:
        """Return the number of a canonical name, a new one if need be; None when there are no more."""
        known = self._numbers.get(name)
        if known is not None or len(self._names) >= _MAX_NAMES:
            return known
        if self._path is not None:
            with open(self._path, "a", encoding="ascii") as file:
                file.write(name + "\n")
        self._names.append(name)
        return self._numbers.setdefault(name, len(self._names) - 1)

    def name(self, address: str) -> str | None:
        """Return the name an address was given to."""
        parsed = ipaddress.ip_address(address)
        first: int = int(POOL_V4 if parsed.version == 4 else POOL_V6)
        number = int(parsed) - first
        return self._names[number] if 0 <= number < len(self._names) else None


class Teller:
    """Tells each allowed name once, and refusals at their first, tenth, hundredth … time.

    Args:
        tell: writes it down.
    """

    def __init__(self, tell: Callable[[Decision], None]) -> None:
        self._tell = tell
        self._allowed: set[str] = set()
        self._denied: dict[str, int] = {}

    def forget(self) -> None:
        """Tell everything anew: what was decided may be decided otherwise now."""
        self._allowed.clear()
        self._denied.clear()

    def allowed(self, name: str, port: int, why: str) -> None:
        """Note that a connection was let through."""
        what = f"{_shown(name)}:{port}"
        if what not in self._allowed and len(self._allowed) < _MAX_TOLD:
            self._allowed.add(what)
            self._tell(Decision(True, f"{what}: {why}"))

    def denied(self, what: str, why: str) -> None:
        """Note a refusal."""
        text = f"{what}: {why}"
        if text not in self._denied and len(self._denied) >= _MAX_TOLD:
            text = "others: too many different ones were refused to name them all"
        count = self._denied[text] = self._denied.get(text, 0) + 1
        if str(count).strip("0") == "1":
            self._tell(Decision(False, text if count == 1 else f"{text} ({count} times)"))


class Pipes:
    """Pipes for splice(2), one for each direction that has bytes under way, none for the many that are waiting."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Take an empty pipe."""
        if self._free:
            return self._free.pop()
        pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with suppress(OSError):  # an ordinary user may have only so many large ones (pipe(7))
            fcntl.fcntl(pipe[1], _F_SETPIPE_SZ, _CHUNK)
        return pipe

    def give(self, pipe: tuple[int, int], *, empty: bool) -> None:
        """Give a pipe back; one with bytes in it is closed."""
        if empty and len(self._free) < 4:
            self._free.append(pipe)
        else:
            os.close(pipe[0])
            os.close(pipe[1])

    def close(self) -> None:
        """Close those that nobody has."""
        while self._free:
            self.give(self._free.pop(), empty=False)


class Gateway:
    """Serves the network of one turn.

    Args:
        allow: what may be reached.
        names: the names' addresses.
        tell: writes a decision down.
        resolve: finds a name's addresses, outside the sandbox.
    """

    def __init__(
        self,
        allow: AllowList,
        names: Names,
        tell: Callable[[Decision], None],
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] = resolve_with_host,
    ) -> None:
        self._allow = allow
        self._names = names
        self._teller = Teller(tell)
        self._resolve = resolve
        self._pipes = Pipes()
        self._connections = trio.Semaphore(_MAX_CONNECTIONS)
        self._dns_connections = trio.Semaphore(_MAX_DNS_CONNECTIONS)
        self._lookups = trio.CapacityLimiter(_MAX_LOOKUPS)
        self._carried: dict[trio.CancelScope, tuple[str, int]] = {}

    def allow(self, allow: AllowList) -> None:
        """Let the turn reach this from now on; connections to what isn't allowed any more end."""
        self._allow = allow
        self._teller.forget()
        for scope, (where, port) in self._carried.items():
            if not (allow.allows(where, port) or allow.allows_address(where, port)):
                self._teller.denied(f"{_shown(where)}:{port}", "it isn't allowed any more, so its connection was ended")
                scope.cancel()

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Serve a turn's listeners until cancelled, and close them."""
        served = [trio.socket.from_stdlib_socket(listener) for listener in listeners]
        try:
            async with trio.open_nursery() as nursery:
                for listener in served:
                    if listener.type == socket.SOCK_DGRAM:
                        nursery.start_soon(self._answer_datagrams, listener)
                    elif listener.getsockname()[1] == _DNS_PORT:
                        nursery.start_soon(self._accept, listener, nursery, self._dns_connections, self._answer_stream)
                    else:
                        nursery.start_soon(self._accept, listener, nursery, self._connections, self._carry)
        finally:
            for listener in served:
                listener.close()
            self._pipes.close()

    async def _accept(
        self,
        listener: trio.socket.SocketType,
        nursery: trio.Nursery,
        room: trio.Semaphore,
        serve: Callable[[trio.socket.SocketType], Awaitable[None]],
    ) -> None:
        pace = Pace(_RATE, _BURST)
        while True:
            await pace.wait()
            try:
                connection, _ = await listener.accept()
            except OSError as problem:
                # A connection gone before it was accepted, or no descriptors left: neither ends the turn's network.
                if problem.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    await trio.sleep(0.1)
                continue
            try:
                room.acquire_nowait()
            except trio.WouldBlock:
                self._teller.denied("connections", f"there are {_MAX_CONNECTIONS} already")
                _reset(connection)
                continue
            nursery.start_soon(self._serve_one, connection, room, serve)

    async def _serve_one(
        self,
        connection: trio.socket.SocketType,
        room: trio.Semaphore,
        serve: Callable[[trio.socket.SocketType], Awaitable[None]],
    ) -> None:
        """Serve one connection, whose failures are its own."""
        try:
            await serve(connection)
        except _BROKEN as problem:
            log.debug("a sandbox's connection ended", reason=str(problem))
        finally:
            connection.close()
            room.release()

    # DNS

    async def _answer_datagrams(self, listener: trio.socket.SocketType) -> None:
        pace = Pace(_RATE, _BURST)
        while True:
            await pace.wait()
            with suppress(OSError):
                message, sender = await listener.recvfrom(65535)
                answer = self.answer(message)
                if answer is not None:
                    await listener.sendto(answer, sender)

    async def _answer_stream(self, connection: trio.socket.SocketType) -> None:
        """Answer the queries of one TCP connection, each with its length in front (RFC 1035, 4.2.2)."""
        pace = Pace(_RATE, _BURST)
        stream = trio.SocketStream(connection)
        while True:
            await pace.wait()
            with trio.move_on_after(_HELLO_SECONDS):
                head = await _exactly(stream, 2)
                message = await _exactly(stream, int.from_bytes(head, "big")) if head is not None else None
                answer = self.answer(message) if message is not None else None
                if answer is not None:
                    await stream.send_all(struct.pack("!H", len(answer)) + answer)
                    continue
            return

    def answer(self, message: bytes) -> bytes | None:
        """Answer a DNS message; None: it isn't worth an answer."""
        query = dns.parse(message)
        if isinstance(query, dns.Malformed):
            return query.answer
        try:
            name = canonical(query.name)
        except NoName as problem:
            self._teller.denied(f"{_shown(query.name)}:{_DNS_PORT}", f"the name isn't looked up: {problem}")
            return dns.answer(query, dns.NO_SUCH_NAME)
        if not self._allow.mentions(name) or query.cls != dns.IN:
            self._teller.denied(f"{name}:{_DNS_PORT}", "the name isn't looked up: it isn't on the allow-list")
            return dns.answer(query, dns.NO_SUCH_NAME)
        if query.type not in {dns.A, dns.AAAA}:
            return dns.answer(query, dns.NO_ERROR)
        number = self._names.number(name)
        if number is None:
            self._teller.denied(f"{name}:{_DNS_PORT}", f"the name isn't looked up: {_MAX_NAMES} others were")
            return dns.answer(query, dns.REFUSED)
        return dns.answer(query, dns.NO_ERROR, (str((POOL_V4 if query.type == dns.A else POOL_V6) + number),))

    # Connections

    async def _carry(self, inside: trio.socket.SocketType) -> None:
        """Take one connection to where it was going, if that is allowed and as long as it is."""
        address, port = inside.getsockname()[:2]
        name = self._names.name(address)
        with trio.CancelScope() as scope:
            self._carried[scope] = (name if name is not None else address, port)
            try:
                outside = await (self._dial_name(name, port) if name is not None else self._dial_address(address, port))
                if outside is not None:
                    with outside:
                        for end in (inside, outside):
                            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        await self._relay(inside, outside, name, port)
                        return
            finally:
                del self._carried[scope]
        _reset(inside)

    async def _dial_name(self, name: str, port: int) -> trio.socket.SocketType | None:
        what = f"{name}:{port}"
        if not self._allow.allows(name, port):
            self._teller.denied(what, "the name isn't allowed at this port")
            return None
        try:
            with trio.fail_after(_LOOKUP_SECONDS):
                async with self._lookups:
                    found = list(dict.fromkeys(addresses.plain(address) for address in await self._resolve(name, port)))
        except (OSError, UnicodeError, trio.TooSlowError) as problem:
            reason = getattr(problem, "strerror", None) or "no answer in time"
            self._teller.denied(what, f"the name can't be looked up: {reason}")
            return None
        refused = {address: why for address in found if (why := self._refusal(address, port)) is not None}
        for address, why in refused.items():
            self._teller.denied(what, f"it leads to {address}, {why}")
        usable = [address for address in found if address not in refused][:_MAX_ADDRESSES]
        if usable:
            self._teller.allowed(name, port, "on the allow-list")
        return await self._connect(what, usable, port)

    async def _dial_address(self, address: str, port: int) -> trio.socket.SocketType | None:
        what = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        if not self._allow.allows_address(address, port):
            self._teller.denied(what, "no allowed name has this address")
            return None
        self._teller.allowed(address, port, "the address is on the allow-list")
        return await self._connect(what, [address], port)

    def _refusal(self, address: str, port: int) -> str | None:
        return None if self._allow.allows_address(address, port) else addresses.refusal(address)

    async def _connect(self, what: str, usable: list[str], port: int) -> trio.socket.SocketType | None:
        """Connect to the first address that takes it; exactly the ones that were judged, nothing is looked up again."""
        problem = "no answer in time"
        for address in usable:
            outside = trio.socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
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
        if usable:
            log.info("nobody answered a sandbox", to=what, reason=problem)
        return None

    async def _relay(
        self, inside: trio.socket.SocketType, outside: trio.socket.SocketType, name: str | None, port: int
    ) -> None:
        """Move bytes both ways until both ends have said all, one broke, or neither has said anything for long."""
        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            scope.deadline = trio.current_time() + _IDLE_SECONDS

            async def upstream() -> None:
                if name is not None and not await self._agrees(inside, outside, name, port):
                    _reset(inside)
                    scope.cancel()
                    return
                await self._pump(inside, outside, scope)

            nursery.start_soon(_ending_both, scope, upstream)
            nursery.start_soon(_ending_both, scope, lambda: self._pump(outside, inside, scope))

    async def _agrees(self, inside: trio.socket.SocketType, outside: trio.socket.SocketType, name: str, port: int) -> bool:
        """Hold the client's first bytes until they tell which server it means, then pass them on if it is this one."""
        data, found = b"", tls.Hello(tls.Kind.INCOMPLETE)
        reads = 0
        while found.kind is tls.Kind.INCOMPLETE:
            # Another protocol's client may wait for the server first, so only a begun hello has to go on.
            with trio.move_on_after(_HELLO_SECONDS if data else float("inf")):
                piece = await inside.recv(tls.LARGEST)
                data += piece
                reads += 1
                found = tls.read(data)
                if piece and reads < _MAX_HELLO_READS:
                    continue
            if not data:
                with suppress(OSError):
                    outside.shutdown(socket.SHUT_WR)
                return True
            break
        why = _disagreement(found, name)
        if why is not None:
            self._teller.denied(f"{name}:{port}", why)
            return False
        await trio.SocketStream(outside).send_all(data)
        return True

    async def _pump(self, source: trio.socket.SocketType, sink: trio.socket.SocketType, scope: trio.CancelScope) -> None:
        """Move bytes one way, in the kernel, until the source has no more; then say so to the sink."""
        while True:
            await trio.lowlevel.wait_readable(source)
            pipe, waiting = self._pipes.take(), 0
            try:
                while (waiting := _splice(source.fileno(), pipe[1])) > 0:
                    scope.deadline = trio.current_time() + _IDLE_SECONDS
                    while waiting > 0:
                        if (moved := _splice(pipe[0], sink.fileno(), waiting)) < 0:
                            await trio.lowlevel.wait_writable(sink)
                        else:
                            waiting -= moved
                    await trio.lowlevel.checkpoint()
            finally:
                self._pipes.give(pipe, empty=waiting <= 0)
            if waiting == 0:
                sink.shutdown(socket.SHUT_WR)
                return


async def _ending_both(scope: trio.CancelScope, move: Callable[[], Awaitable[None]]) -> None:
    """Move bytes; a broken end ends the other direction too."""
    try:
        await move()
    except _BROKEN:
        scope.cancel()


def _splice(source: int, sink: int, count: int = _CHUNK) -> int:
    """Move what is there (splice(2)); 0 at the end, -1 when there is nothing yet or no room."""
    try:
        return os.splice(source, sink, count, flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK)
    except BlockingIOError:
        return -1


def _disagreement(found: tls.Hello, name: str) -> str | None:
    """Say why a client's first bytes don't fit the name it looked up; without a name in them the one looked up counts."""
    if found.kind in {tls.Kind.BROKEN, tls.Kind.INCOMPLETE}:
        return "its TLS handshake can't be read"
    if found.name is None:
        return None
    try:
        said = canonical(found.name)
    except NoName:
        return f"its TLS handshake names {_shown(found.name)}, which is no host name"
    return None if said == name else f"its TLS handshake names {said} instead"


def _shown(name: str) -> str:
    """Make a name fit to be told: printable, and not endless."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:253])


async def _exactly(stream: trio.SocketStream, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = await stream.receive_some(size - len(data))
        if not piece:
            return None
        data += bytes(piece)
    return data


def _reset(connection: trio.socket.SocketType) -> None:
    """Let a connection end with a reset, so that the client knows at once that nobody wants it."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
