"""Shows the ports of an agent's sandboxes on this machine: accepts connections, and copies bytes between the two ends.

The listening ends are this process's own. The other ends are sockets of the sandbox's network namespace, which can connect
to what listens there and to nothing else; the sandbox gets no descriptor and no way out.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from functools import partial

from substrat import errors
from substrat.cli import output
from substrat.cli.sandbox_sockets import SandboxNetwork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.cli.connection import Connection

    Watched = tuple[int, int, Callable[[], object]]

_CHUNK = 1 << 16
_MOST = 256
"""Connections at once: a browser opens some six to a host, and each takes two descriptors of 1,024 (getrlimit(2))."""
_TRY_AGAIN_S = 0.2
"""Seconds between attempts to reach a daemon that restarts."""
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing resets the connection, so that a client knows that nothing listens (socket(7))."""


class _Flow:
    """Bytes on their way from one socket to another."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self._waiting = b""
        self._ended = False
        self.is_over = False

    @property
    def wants_input(self) -> bool:
        return not self._ended and not self._waiting

    @property
    def wants_room(self) -> bool:
        return bool(self._waiting)

    def go_on(self) -> None:
        """Move the bytes that can be moved; raises `OSError` when one end is gone."""
        with suppress(BlockingIOError):
            if self.wants_input:
                self._waiting = self.source.recv(_CHUNK)
                self._ended = not self._waiting
            if self._waiting:
                self._waiting = self._waiting[self.sink.send(self._waiting) :]
        if self._ended and not self._waiting and not self.is_over:
            self.is_over = True
            self.sink.shutdown(socket.SHUT_WR)


class _Relayed:
    """One accepted connection, and the search for its other end.

    Args:
        client: the person's end.
        ends: sockets in sandboxes to be tried in turn, each with the address to connect to.
    """

    def __init__(self, client: socket.socket, ends: Iterator[tuple[socket.socket, tuple[str, int]]]) -> None:
        client.setblocking(False)
        self._client = client
        self._ends = ends
        self._inside: socket.socket | None = None
        self._flows: tuple[_Flow, ...] = ()
        self.is_over = False
        self._try_next()

    def _try_next(self) -> None:
        for inside, address in self._ends:
            self._inside = inside
            try:
                inside.connect(address)
            except BlockingIOError:
                return
            except OSError:
                inside.close()
                continue
            self._begin(inside)
            return
        self._inside = None
        self.close(reset=True)

    def _begin(self, inside: socket.socket) -> None:
        self._flows = (_Flow(self._client, inside), _Flow(inside, self._client))

    def watched(self) -> Iterator[Watched]:
        """Give what is waited for; an end that nothing is wanted of isn't watched, as it would always report its end."""
        if not self._flows:
            if self._inside is not None:
                yield self._inside.fileno(), select.POLLOUT, self._connected
            return
        to_inside, to_client = self._flows
        for end, reads, writes in ((self._client, to_inside, to_client), (to_inside.sink, to_client, to_inside)):
            events = (select.POLLIN if reads.wants_input else 0) | (select.POLLOUT if writes.wants_room else 0)
            if events:
                yield end.fileno(), events, self._go_on

    def _connected(self) -> None:
        inside = self._inside
        if inside is None or self.is_over:
            return
        if inside.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            inside.close()
            self._try_next()
        else:
            self._begin(inside)

    def _go_on(self) -> None:
        try:
            for flow in self._flows:
                flow.go_on()
        except OSError:
            self.close(reset=True)
            return
        if all(flow.is_over for flow in self._flows):
            self.close()

    def close(self, *, reset: bool = False) -> None:
        """Close both ends."""
        self.is_over = True
        for end in (self._client, self._inside):
            if end is not None and end.fileno() >= 0:
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()


class Forwarder:
    """Forwards the ports of one agent until it has ended or the process is told to stop.

    Args:
        connection: to the daemon.
        agent: the agent's id, by which it is found whatever it is called.
        ports: the port here, and the one in the sandbox.
    """

    def __init__(self, connection: Connection, agent: str, ports: list[tuple[int, int]]) -> None:
        self._connection = connection
        self._agent = agent
        self._ports = ports
        self._networks: list[SandboxNetwork] = []
        self._listeners: dict[int, tuple[socket.socket, int]] = {}
        self._relayed: list[_Relayed] = []
        self._asked: int | None = None
        self._is_lost = False
        self._is_told = False

    def listen(self, address: str) -> None:
        """Open the listeners; raises `SubstratError` where one can't be opened."""
        for local, port in self._ports:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, local))
                listener.listen()
            except PermissionError:
                raise errors.SubstratError(
                    f"{address}:{local} can't be opened: ports below 1024 are root's; name another, such as 8080:{port}"
                ) from None
            except OSError as problem:
                reason = (problem.strerror or str(problem)).lower()
                raise errors.SubstratError(
                    f"{address}:{local} can't be opened: {reason}; name another port, such as {local + 1}:{port}"
                ) from None
            listener.setblocking(False)
            self._listeners[listener.fileno()] = listener, port

    def show(self, found: dict[str, object]) -> None:
        """Take over an answer of `agent.forward`."""
        given = found.get("sandboxes")
        sandboxes = {one["pid"]: one for one in given} if isinstance(given, list) else {}
        kept = [network for network in self._networks if network.pid in sandboxes]
        for network in self._networks:
            if network not in kept:
                network.close()
        known = {network.pid: network for network in kept}
        self._networks = [known.get(pid) or SandboxNetwork(one) for pid, one in sandboxes.items()]
        if bool(self._networks) != self._is_told:
            self._is_told = bool(self._networks)
            state = "its ports can be reached" if self._is_told else "no sandbox of it runs; waiting for its next turn"
            output.note(f"{output.text_of(found['agent'])}: {state}")

    def serve(self) -> None:
        """Forward until the agent has no ports any more, which raises the daemon's error."""
        while True:
            self._ask()
            poll = select.poll()
            handlers = {}
            for descriptor, events, handle in self._watched():
                poll.register(descriptor, events)
                handlers[descriptor] = handle
            patience = None if self._asked is not None else _TRY_AGAIN_S * 1000
            for descriptor, _ in poll.poll(patience):
                handlers[descriptor]()
            self._relayed = [one for one in self._relayed if not one.is_over]

    def _watched(self) -> Iterator[Watched]:
        if self._asked is not None:
            yield self._connection.fileno(), select.POLLIN, self._hear
        if len(self._relayed) < _MOST:
            for descriptor, (listener, port) in self._listeners.items():
                yield descriptor, select.POLLIN, partial(self._accept, listener, port)
        for one in self._relayed:
            yield from one.watched()

    def _ask(self) -> None:
        """Ask the daemon for the next change, also one that has come back after an outage."""
        if self._is_lost:
            try:
                self._connection.reopen()
            except errors.DaemonNotRunning:
                return
            self._is_lost = False
        if self._asked is not None:
            return
        known = [network.pid for network in self._networks]
        self._asked = self._connection.submit("agent.forward", {"agent": self._agent, "known": known})
        self._connection.send_queued()

    def _hear(self) -> None:
        try:
            self._connection.take_in()
        except errors.ConnectionLost:
            output.note("the daemon closed the connection; forwarding goes on, and waits for it to come back")
            self._asked, self._is_lost = None, True
            return
        if self._asked is not None and self._connection.has_answer(self._asked):
            found = self._connection.take_answer(self._asked)
            self._asked = None
            if isinstance(found, dict):
                self.show(found)

    def _accept(self, listener: socket.socket, port: int) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        self._relayed.append(_Relayed(client, self._ends(port)))

    def _ends(self, port: int) -> Iterator[tuple[socket.socket, tuple[str, int]]]:
        """Give sockets to be connected, one sandbox after the other, its IPv4 before its IPv6."""
        for network in list(self._networks):
            for family, address in _LOOPBACK:
                if (inside := network.take(family)) is not None:
                    yield inside, (address, port)

    def close(self) -> None:
        """Close everything."""
        for one in self._relayed:
            one.close()
        for listener, _ in self._listeners.values():
            listener.close()
        for network in self._networks:
            network.close()
