"""Decides where a sandbox's connection may go, and dials it: a name on the allow-list, an address, an upstream proxy.

`core.netfilter.names` and `core.netfilter.addresses` hold the rules. Names are looked up here, and only addresses that were
judged are dialled.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat.core.netfilter import addresses, upstream
from substrat.core.netfilter.names import canonical, remedy
from substrat.daemon.kernel import descriptors, routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from substrat.core.netfilter.names import AllowList
    from substrat.core.netfilter.upstream import Upstream
    from substrat.daemon.network.decisions import Decisions

log = structlog.get_logger("substrat.dialer")

_MAX_LOOKUPS = 4
"""Threads for look-ups of one turn, so that a turn whose names are never answered leaves other turns theirs."""
_MAX_ROUTE_QUERIES = 2
"""Threads for questions about routes of one turn; the kernel answers in microseconds unless routes are being changed."""
_MAX_ADDRESSES = 8
"""Addresses of one name that are tried: big services have some four, and each costs up to `_CONNECT_SECONDS`."""
_LOOKUP_SECONDS = 10.0
"""A resolver asks each of two servers for 5 s (resolv.conf(5))."""
_CONNECT_SECONDS = 5.0
"""Two lost SYN packets are sent again within 3 s (tcp(7))."""
_UPSTREAM_SECONDS = 30.0
"""How long an upstream proxy may take to reach a host: its own look-up and several addresses, one after the other."""
_LOCALHOST = "localhost"
BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""The failures of a connection that end this connection and nothing else."""


class Target(NamedTuple):
    """The host and port that a connection asks for.

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


class Dialled(NamedTuple):
    """A connection that was made.

    Args:
        socket: its outer end.
        proxy: the upstream proxy that it leads to, which is to be given a plain request; None: it leads to the target.
    """

    socket: trio.socket.SocketType
    proxy: Upstream | None = None


class NotConnected(Exception):
    """A connection can't be made to its target; the message tells the client why.

    Args:
        why: the reason.
        is_decided: True: the filter refuses it; False: the network failed.
    """

    def __init__(self, why: str, *, is_decided: bool = True) -> None:
        super().__init__(why)
        self.is_decided = is_decided


async def resolve_with_host(threads: trio.CapacityLimiter, name: str, port: int) -> list[str]:
    """Look a name up the way the host does (hosts file, resolver).

    A look-up that is given up keeps its thread until the resolver answers, so it keeps its place among `threads` too.

    Raises:
        OSError: it has no address.
    """
    found = await trio.to_thread.run_sync(
        lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), abandon_on_cancel=True, limiter=threads
    )
    return [str(entry[4][0]) for entry in found]


class Dialer:
    """Dials for the connections of one turn.

    Args:
        allow: the allow-list; assign a new one to change it.
        decisions: records each decision.
        resolve: finds a name's addresses, outside the sandbox; None: as the host does.
        upstream: the proxy that connections to names go through, but for private ones; None: they go there directly.
    """

    def __init__(
        self,
        allow: AllowList,
        decisions: Decisions,
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None,
        upstream: Upstream | None,
    ) -> None:
        self.allowed = allow
        self._decisions = decisions
        self._upstream = upstream
        self._resolve = resolve or partial(resolve_with_host, trio.CapacityLimiter(_MAX_LOOKUPS))
        self._route_queries = trio.CapacityLimiter(_MAX_ROUTE_QUERIES)

    def proxy_for(self, target: Target) -> Upstream | None:
        """Return the upstream proxy that leads to a target; None: the target isn't allowed, or reached directly."""
        name, port = target.host, target.port
        if not target.is_name or name == _LOCALHOST or not self.allowed.allows(name, port):
            return None
        return None if self.allowed.may_be_private(name, port) else self._upstream

    async def dial(self, target: Target, *, is_http: bool = False) -> Dialled:
        """Connect to a target as long as it is allowed.

        Args:
            target: the target.
            is_http: whether one plain HTTP request is to be sent: an upstream proxy is given it instead of a CONNECT.

        Raises:
            NotConnected: it isn't allowed or can't be reached. Refusals are recorded, an upstream proxy's and
                failed look-ups included. Addresses that don't answer are only logged; a name that has none isn't even that.
        """
        if (proxy := self.proxy_for(target)) is not None:
            outside = await self._dial_through(proxy, target, is_http=is_http)
            self._decisions.allowed(target.host, target.port, "on the allow-list, through the upstream proxy")
            return Dialled(outside, proxy if is_http else None)
        return Dialled(await (self._dial_name(target) if target.is_name else self._dial_address(target)))

    async def _dial_name(self, target: Target) -> trio.socket.SocketType:
        name, port, where = target.host, target.port, str(target)
        if not self.allowed.allows(name, port):
            mentioned = self.allowed.mentions(name)
            why = "the name isn't allowed at this port" if mentioned else "it isn't on the allow-list"
            raise self._denied(where, why, remedy=remedy(name, port))
        is_private = self.allowed.may_be_private(name, port)
        found = await self._look_up(name, port, where)
        refused = await self._refusals(found, port, may_be_private=is_private)
        refusals = [
            self._denied(where, f"it leads to {address}, {why}", remedy=_private_remedy(target, address))
            for address, why in refused.items()
        ]
        usable = [address for address in found if address not in refused][:_MAX_ADDRESSES]
        if not usable:
            raise refusals[0] if refusals else NotConnected("the name has no address", is_decided=False)
        self._decisions.allowed(name, port, "on the allow-list")
        return await self._connect_judged(where, usable, port, may_be_private=is_private)

    async def _look_up(self, name: str, port: int, where: str) -> list[str]:
        """Find a name's addresses as the host does; raises `NotConnected`."""
        try:
            with trio.fail_after(_LOOKUP_SECONDS):
                return list(dict.fromkeys(addresses.plain(address) for address in await self._resolve(name, port)))
        except (OSError, UnicodeError, trio.TooSlowError) as problem:
            reason = getattr(problem, "strerror", None) or "no answer in time"
            raise self._denied(where, f"the name can't be looked up: {reason}", is_decided=False) from None

    async def _dial_address(self, target: Target) -> trio.socket.SocketType:
        address, port, where = target.host, target.port, str(target)
        # A made-up address stands for a name, which the list may not have.
        is_named = self.allowed.names_address(address, port)
        if not is_named and (addresses.is_made_up(address) or not self.allowed.allows_address(address, port)):
            may_be_named = addresses.refusal(address, may_be_private=True) is None
            known = remedy(address, port) if may_be_named else None
            raise self._denied(where, "no allowed name has this address", remedy=known)
        if is_named:
            self._decisions.allowed(address, port, "the address is on the allow-list")
            return await self._connect(where, [address], port)
        if (why := (await self._refusals([address], port)).get(address)) is not None:
            raise self._denied(where, f"it is {why}")
        self._decisions.allowed(address, port, "its network is on the allow-list")
        return await self._connect_judged(where, [address], port)

    async def _connect_judged(
        self, where: str, usable: list[str], port: int, *, may_be_private: bool = False
    ) -> trio.socket.SocketType:
        """Connect to the first address that takes it, if it still may be dialled then."""
        outside = await self._connect(where, usable, port)
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
        raise self._denied(where, f"it leads to {address}, {why}")

    async def _dial_through(self, proxy: Upstream, target: Target, *, is_http: bool) -> trio.socket.SocketType:
        """Connect to the upstream proxy and ask it for a connection, unless it is given a plain request.

        The proxy looks the name up, and has rules of its own.
        """
        asked = str(target)
        via = f"the upstream proxy {proxy.host}:{proxy.port}"
        found = await self._look_up(proxy.host, proxy.port, f"{asked}: {via}")
        try:
            outside = await self._connect(asked, found[:_MAX_ADDRESSES], proxy.port)
        except NotConnected as problem:
            raise self._denied(asked, f"{via} can't be reached: {problem}", is_decided=False) from None
        if is_http:
            return outside
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
        raise self._denied(asked, f"{via} doesn't lead there: {refusal}", is_decided=False)

    def _denied(self, where: str, why: str, *, is_decided: bool = True, remedy: str | None = None) -> NotConnected:
        """Record a refusal, and return it."""
        self._decisions.denied(where, why, remedy)
        return NotConnected(why, is_decided=is_decided)

    async def _refusals(self, found: list[str], port: int, *, may_be_private: bool = False) -> dict[str, str]:
        """Return those of some addresses that may not be dialled, each with the reason."""
        judged = [address for address in found if not self.allowed.names_address(address, port)]
        asked = tuple(dict.fromkeys(chain.from_iterable(map(addresses.leads_to, judged))))
        try:
            # In a thread, because the kernel lets a question about routes wait while routes are changed.
            local = (
                await trio.to_thread.run_sync(routes.local_ones, asked, limiter=self._route_queries)
                if asked
                else frozenset()
            )
        except OSError as problem:
            log.error("the kernel doesn't say which addresses are this machine's", reason=str(problem))  # noqa: TRY400
            return dict.fromkeys(judged, "which may be this machine's: the kernel doesn't say")
        refused = {}
        for address in judged:
            is_listed = may_be_private or self.allowed.allows_address(address, port)
            if (why := addresses.refusal(address, local, may_be_private=is_listed)) is not None:
                refused[address] = why
        return refused

    async def _connect(self, where: str, usable: list[str], port: int) -> trio.socket.SocketType:
        """Connect to the first address that takes it; these addresses were judged, so the name isn't looked up again."""
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
                # Its own text names the address again.
                problem = os.strerror(failed.errno) if failed.errno is not None else "no connection"
            except BaseException:
                outside.close()
                raise
            outside.close()
        log.info("no answer to a sandbox's connection", to=where, reason=problem)
        raise NotConnected(f"no address answered: {problem}", is_decided=False)


def target_of(host: str, port: int) -> Target:
    """Return the target of a host and port: an address, or a name in its canonical form.

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


async def _read_answer(outside: trio.socket.SocketType) -> str | None:
    """Read an upstream proxy's answer and no byte behind it; return its refusal, or None when there is a connection."""
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
    """Return the allow-list entry that would let a name lead to a private address, if only that is missing."""
    if addresses.is_made_up(address):
        return addresses.MADE_UP
    is_private = addresses.refusal(address) is not None and addresses.refusal(address, may_be_private=True) is None
    return f"{remedy(target.host, target.port, preset=False)}=private" if is_private else None
