"""Opens and serves one turn's `filtered` network, transparent or proxy; `connections` applies the allow-list.

In the transparent form the launcher hands its listeners over, or the daemon enters the network again to open them. The
proxy form has one listener, a Unix socket of the daemon's own.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox import launch
from sandbox.spec import NetworkMode
from substrat.core.netfilter.names import AllowList
from substrat.daemon.kernel import descriptors, helper, process, sandbox_process, sockets
from substrat.daemon.network.connections import ConnectionRelay
from substrat.daemon.network.decisions import Decision
from substrat.daemon.network.proxy import Proxy
from substrat.daemon.network.transparent import Names, TransparentNetwork
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.core.agents.records import Process
    from substrat.core.netfilter.upstream import Upstream
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.state.layout import TurnDir

log = structlog.get_logger("substrat.filtered")

_MOST_LISTENERS = 253
"""Descriptors that one message carries (unix(7), SCM_MAX_FD)."""
_ENTRY_SECONDS = 20.0
"""The entering program needs 50 ms; a machine that swaps needs longer."""


class TurnNetwork:
    """The network of one turn, from its launch or adoption to its end; its maker closes it.

    Args:
        allow: the allow-list in canonical form.
        turn_dir: the turn's directory.
        socket_path: the proxy form's socket.
        watcher: inotify.
        record: records a decision.
        upstream: the proxy that connections to names go through, if they do.
    """

    def __init__(
        self,
        allow: tuple[str, ...],
        turn_dir: TurnDir,
        socket_path: str,
        watcher: Watcher,
        record: Callable[[Decision], None],
        upstream: Upstream | None = None,
    ) -> None:
        self._upstream = upstream
        self._allow = AllowList.of(allow)
        self._changed = trio.Event()
        self._turn_dir = turn_dir
        self.socket_path = socket_path
        self._watcher = watcher
        self._record = record
        self._ours: socket.socket | None = None
        self._listener: trio.SocketListener | None = None
        self._opened = trio.Event()

    def open(self, mode: NetworkMode) -> socket.socket | None:
        """Prepare it for a sandbox that is about to be started.

        Args:
            mode: the form of the network.

        Returns:
            The channel on which the launcher hands the listeners over, which the caller closes; None in the proxy form.
        """
        theirs = None
        if mode is NetworkMode.PROXY:
            self._listener = sockets.listen(self.socket_path, 0o600)
        else:
            self._ours, theirs = _channel()
        self._opened.set()
        return theirs

    def close(self) -> None:
        """Close the channel and the listener."""
        if self._ours is not None:
            self._ours.close()
        if self._listener is not None:
            self._listener.socket.close()
            with suppress(FileNotFoundError):
                os.unlink(self.socket_path)

    def allow(self, allow: tuple[str, ...]) -> None:
        """Apply a changed allow-list."""
        wanted = AllowList.of(allow)
        if wanted != self._allow:
            self._allow = wanted
            self._changed.set()

    async def serve(self, started: Process | None, find_process: Callable[[], Process | None]) -> None:
        """Serve the network until cancelled.

        Args:
            started: the turn's sandbox, if another daemon started it.
            find_process: gives the turn's sandbox once it is started.
        """
        if started is None:
            await self._opened.wait()
        elif self._turn_dir.read_network_mode() is NetworkMode.PROXY:
            self._open_again()
        if self._listener is not None:
            await self._serve_proxy(self._listener)
        elif self._turn_dir.read_network_mode() is not NetworkMode.PROXY:
            await self._serve_transparent(started, find_process)

    def _open_again(self) -> None:
        try:
            self.open(NetworkMode.PROXY)
        except OSError as problem:
            self._record(
                Decision(False, f"everything: the network can't be served again ({problem.strerror}); resume the agent")
            )
            log.error("a network can't be served again", reason=str(problem))  # noqa: TRY400

    async def _serve_proxy(self, listener: trio.SocketListener) -> None:
        relay = ConnectionRelay(self._allow, self._record, upstream=self._upstream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Proxy(relay).serve, listener)
            while True:
                await self._changed.wait()
                self._changed = trio.Event()
                relay.allow(self._allow)

    async def _serve_transparent(self, started: Process | None, find_process: Callable[[], Process | None]) -> None:
        allow = self._allow
        if started is not None:
            listeners = await self._reenter(started, allow.ports)
        else:
            assert self._ours is not None
            listeners = await self._receive(self._ours)
        if not listeners:
            return
        # The launch has made the turn's directory by now, which is where the names are kept.
        relay = ConnectionRelay(allow, self._record, upstream=self._upstream)
        network = TransparentNetwork(relay, Names(self._turn_dir.names))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(network.serve, listeners)
            ports = set(allow.ports)
            while True:
                await self._changed.wait()
                self._changed, allow = trio.Event(), self._allow
                relay.allow(allow)
                more = tuple(port for port in allow.ports if port not in ports)
                sandbox = find_process()
                if more and sandbox is not None:
                    ports.update(more)
                    nursery.start_soon(network.serve, await self._enter(launch.more_ports, more, sandbox))

    async def _receive(self, channel: socket.socket) -> list[socket.socket]:
        """Take the listeners; return none, and record it, when there are no descriptors left for them."""
        try:
            return await receive(channel)
        except OSError as problem:
            reason = descriptors.sentence(problem) if descriptors.is_short(problem) else problem.strerror
            self._record(Decision(False, f"everything: the network's listeners can't be received: {reason}"))
            log.error("listeners can't be received", reason=reason)  # noqa: TRY400 - the sentence says it all
            return []

    async def _reenter(self, started: Process, ports: tuple[int, ...]) -> list[socket.socket]:
        """Open the listeners again in a running sandbox; it is inside its network once bubblewrap has reported."""
        await sandbox_process.reported(self._turn_dir, self._watcher)
        if not process.is_running(started):
            return []
        return await self._enter(launch.reentry, ports, started)

    async def _enter(
        self, command_for: Callable[[str, tuple[int, ...], int], tuple[str, ...]], ports: tuple[int, ...], sandbox: Process
    ) -> list[socket.socket]:
        """Open listeners in a running sandbox; return none when it has ended or refuses them, which is recorded."""
        ours, theirs = _channel()
        descriptors.keep_private()
        with ours, theirs, trio.move_on_after(_ENTRY_SECONDS):
            number = theirs.fileno()
            done = await helper.run(command_for(str(number), ports, sandbox.pid), {}, (number,))
            theirs.close()
            found = await self._receive(ours)
            if not found and process.is_running(sandbox):
                named = ", ".join(map(str, ports))
                self._record(Decision(False, f"ports {named}: the network can't be entered again; resume the agent"))
                log.error("a network can't be entered", reason=done.stderr.decode("utf-8", "replace").strip())
            return found
        return []


class Networks:
    """The networks being served, by agent, so that a changed allow-list reaches all of an agent's."""

    def __init__(self) -> None:
        self._served: dict[str, list[TurnNetwork]] = {}

    @contextmanager
    def serving(self, agent_id: str, network: TurnNetwork | None) -> Iterator[None]:
        """Count a network among an agent's, and close it at the end; None is no network."""
        if network is None:
            yield
            return
        self._served.setdefault(agent_id, []).append(network)
        try:
            yield
        finally:
            self._served[agent_id].remove(network)
            if not self._served[agent_id]:
                del self._served[agent_id]
            network.close()

    def allow(self, agent_id: str, allow: tuple[str, ...]) -> None:
        """Apply a changed allow-list to an agent's networks."""
        for network in self._served.get(agent_id, ()):
            network.allow(allow)


def event_recorder(agent: str, note: Callable[[str, str, str | None], None]) -> Callable[[Decision], None]:
    """Return a function that records decisions as events, each refusal with the command that would let it through.

    Args:
        agent: the agent's name.
        note: takes an event's kind and text, and the host that was refused, where an entry of the allow-list lets it
            through; raises `StorageFailed` when it can't be written.
    """

    def record(decision: Decision) -> None:
        remedy = f"; substratctl allow {agent} {decision.remedy}" if decision.remedy is not None else ""
        try:
            note("network:allowed" if decision.allowed else "network:denied", decision.text + remedy, _refused(decision))
        except StorageFailed as problem:
            # The decision stands; a full disk must not take the network away.
            log.error("a decision isn't recorded", reason=problem.message, decision=decision.text)  # noqa: TRY400

    return record


def _refused(decision: Decision) -> str | None:
    """Return the host that a decision refused as `substratctl allow` takes it; None where no entry would help."""
    if decision.allowed or decision.remedy is None:
        return None
    return decision.text.partition(":")[0] if decision.remedy.startswith("@") else decision.remedy


def _channel() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def receive(end: socket.socket) -> list[socket.socket]:
    """Take the listeners from a channel; none when its other end is closed before they came.

    Raises:
        OSError: there are no descriptors left for them.
    """
    found = await sockets.receive_descriptors(trio.socket.from_stdlib_socket(end), _MOST_LISTENERS)
    return [socket.socket(fileno=descriptor) for descriptor in found]
