"""The transparent form of a turn's `filtered` network: answers its DNS, and finds each connection's target.

Every connection that a sandbox makes, to any address, ends at one of its listeners here, and `getsockname` tells where it
was going (see `sandbox.netlaunch`). DNS gives each allowed name an address of its own, so the address tells
the name: `pypi.org` may be 198.18.0.2. `connections` and `dialer` do the rest.

A network owns its listeners and its connections; both end with the task that serves it.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from substrat.core.netfilter import dns, proxying
from substrat.core.netfilter.names import NoName, canonical, listed, remedy
from substrat.daemon.kernel import nofollow
from substrat.daemon.kernel.ratelimit import TokenBucket
from substrat.daemon.kernel.sockets import exactly
from substrat.daemon.network import plain_http
from substrat.daemon.network.connections import (
    BURST,
    HELLO_SECONDS,
    MAX_CONNECTIONS,
    RATE,
    ConnectionRelay,
    reset,
)
from substrat.daemon.network.decisions import printable
from substrat.daemon.network.dialer import NotConnected, Target

if TYPE_CHECKING:
    from collections.abc import Sequence


POOL_V4 = ipaddress.IPv4Address("198.18.0.2")
"""Where the addresses for names begin; the one before is the name server's (`netlaunch.NAMESERVER`)."""
POOL_V6 = ipaddress.IPv6Address("fd53:7562:7374::2")

_DNS_PORT = 53  # RFC 1035, 4.2
_WEB_PORT = 443
"""The port in a refused name's remedy; a DNS question names none."""
_MAX_NAMES = 4096
"""Of one turn: the file is read again by each daemon, and a browser looks up some hundreds a day."""
_NAMES_BYTES = _MAX_NAMES * 254
"""A name has 253 characters at most."""
_MAX_DNS_CONNECTIONS = 16
"""DNS over TCP is for answers too long for UDP, which ours never are."""


def read_names(path: str) -> list[str] | None:
    """Return the names that a turn's network has given addresses to, None when there is no such list.

    Raises:
        OSError: there are no descriptors left.
    """
    data = nofollow.read_own(path, _NAMES_BYTES)
    return listed(data, _MAX_NAMES) if data is not None else None


class Names:
    """The name of each address, kept in a file, so that the next daemon gives the same answers.

    An unreadable file counts as empty; `damage.examine` has reported a turn's before.

    Args:
        path: the file, a name a line in the order of the addresses; None keeps nothing.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._names: list[str] = []
        if path is not None:
            with suppress(OSError):
                self._names = read_names(path) or []
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def number(self, name: str) -> int | None:
        """Return the number of a canonical name, a new one if need be; None when there are no more."""
        known = self._numbers.get(name)
        if known is not None or len(self._names) >= _MAX_NAMES:
            return known
        if self._path is not None:
            with open(self._path, "a", encoding="ascii", opener=nofollow.open_file) as file:
                file.write(name + "\n")
        self._names.append(name)
        return self._numbers.setdefault(name, len(self._names) - 1)

    def name(self, address: str) -> str | None:
        """Return the name an address was given to."""
        parsed = ipaddress.ip_address(address)
        first: int = int(POOL_V4 if parsed.version == 4 else POOL_V6)
        number = int(parsed) - first
        return self._names[number] if 0 <= number < len(self._names) else None


class TransparentNetwork:
    """Serves the network of one turn."""

    def __init__(self, relay: ConnectionRelay, names: Names) -> None:
        self._relay = relay
        self._names = names
        self._connections = trio.Semaphore(MAX_CONNECTIONS)
        self._dns_connections = trio.Semaphore(_MAX_DNS_CONNECTIONS)

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Serve a turn's listeners until cancelled, and close them."""
        served = [trio.socket.from_stdlib_socket(listener) for listener in listeners]
        accept = self._relay.accept
        try:
            async with trio.open_nursery() as nursery:
                for listener in served:
                    if listener.type == socket.SOCK_DGRAM:
                        nursery.start_soon(self._answer_datagrams, listener)
                    elif listener.getsockname()[1] == _DNS_PORT:
                        nursery.start_soon(accept, listener, nursery, self._dns_connections, self._answer_stream)
                    else:
                        nursery.start_soon(accept, listener, nursery, self._connections, self._serve_connection)
        finally:
            for listener in served:
                listener.close()
            self._relay.close()

    async def _serve_connection(self, inside: trio.socket.SocketType) -> None:
        """Relay one connection to its target for as long as that is allowed."""
        address, port = inside.getsockname()[:2]
        name = self._names.name(address)
        target = Target(address if name is None else name, port, is_name=name is not None)
        data, request = bytearray(), None
        try:
            if port == plain_http.PORT and self._relay.has_proxy_for(target):
                with suppress(proxying.BadRequest):  # another protocol, which the proxy is asked to CONNECT
                    request = await plain_http.read_request(inside, data, name)
            if request is not None:
                await plain_http.pass_on(self._relay, inside, target, request)
            else:
                tunnel = self._relay.tunnel
                await self._relay.connect(inside, target, lambda made: tunnel(inside, made.socket, target, bytes(data)))
        except NotConnected:
            reset(inside)

    # DNS

    async def _answer_datagrams(self, listener: trio.socket.SocketType) -> None:
        limiter = TokenBucket(RATE, BURST)
        while True:
            await limiter.wait()
            with suppress(OSError):
                message, sender = await listener.recvfrom(65535)
                answer = self.answer(message)
                if answer is not None:
                    await listener.sendto(answer, sender)

    async def _answer_stream(self, connection: trio.socket.SocketType) -> None:
        """Answer the queries of one TCP connection, each with its length in front (RFC 1035, 4.2.2)."""
        limiter = TokenBucket(RATE, BURST)
        stream = trio.SocketStream(connection)
        while True:
            await limiter.wait()
            with trio.move_on_after(HELLO_SECONDS):
                head = await exactly(stream, 2)
                message = await exactly(stream, int.from_bytes(head, "big")) if head is not None else None
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
            self._relay.decisions.denied(f"{printable(query.name)}:{_DNS_PORT}", f"the name isn't looked up: {problem}")
            return dns.answer(query, dns.NO_SUCH_NAME)
        if not self._relay.allowed.mentions(name) or query.cls != dns.IN:
            why = "the name isn't looked up: it isn't on the allow-list"
            self._relay.decisions.denied(f"{name}:{_DNS_PORT}", why, remedy(name, _WEB_PORT))
            return dns.answer(query, dns.NO_SUCH_NAME)
        if query.type not in {dns.A, dns.AAAA}:
            return dns.answer(query, dns.NO_ERROR)
        number = self._names.number(name)
        if number is None:
            self._relay.decisions.denied(f"{name}:{_DNS_PORT}", f"the name isn't looked up: {_MAX_NAMES} others were")
            return dns.answer(query, dns.REFUSED)
        return dns.answer(query, dns.NO_ERROR, (str((POOL_V4 if query.type == dns.A else POOL_V6) + number),))
