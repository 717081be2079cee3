"""A turn's `filtered` network as the daemon gets hold of it: its listeners, from the launcher or by entering it again."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox import launch
from substrat.core.names import AllowList
from substrat.daemon import process
from substrat.daemon.gateway import Decision, Gateway, Names

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.records import Process
    from substrat.daemon.places import TurnPlace
    from substrat.daemon.watch import Watcher

log = structlog.get_logger("substrat.netns")

_MOST_LISTENERS = 253  # what one message carries (unix(7), SCM_MAX_FD)
_ENTRY_SECONDS = 20.0


class TurnNetwork:
    """The network of one turn, from its launch or adoption to its end; whoever made it closes it.

    Args:
        allow: what may be reached, in canonical form.
        place: the turn's directory.
        watcher: inotify.
        tell: writes a decision down.
    """

    def __init__(
        self, allow: tuple[str, ...], place: TurnPlace, watcher: Watcher, tell: Callable[[Decision], None]
    ) -> None:
        self._allow = AllowList.of(allow)
        self._changed = trio.Event()
        self._place = place
        self._watcher = watcher
        self._tell = tell
        self._ours, self.channel = _channel()

    def close(self) -> None:
        """Close both ends of the channel."""
        self._ours.close()
        self.channel.close()

    def allow(self, allow: tuple[str, ...]) -> None:
        """Let it reach this from now on, and nothing else."""
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
        allow = self._allow
        listeners = await receive(self._ours) if started is None else await self._reenter(started, allow.ports)
        if not listeners:
            return
        # The launch has made the turn's directory by now, which is where the names are kept.
        gateway = Gateway(allow, Names(self._place.names), self._tell)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gateway.serve, listeners)
            ports = set(allow.ports)
            while True:
                await self._changed.wait()
                self._changed, allow = trio.Event(), self._allow
                gateway.allow(allow)
                more = tuple(port for port in allow.ports if port not in ports)
                sandbox = find_process()
                if more and sandbox is not None:
                    ports.update(more)
                    nursery.start_soon(gateway.serve, await self._enter(launch.more_ports, more, sandbox))

    async def _reenter(self, started: Process, ports: tuple[int, ...]) -> list[socket.socket]:
        """Open the listeners again in a running sandbox; it is inside its network once bubblewrap has reported."""
        with self._watcher.watching(self._place.root) as change:
            while process.read_status(self._place.read_status())[0] is None:
                await change.wait()
        if not process.is_running(started):
            return []
        return await self._enter(launch.reentry, ports, started)

    async def _enter(
        self, command_for: Callable[[str, tuple[int, ...], int], tuple[str, ...]], ports: tuple[int, ...], sandbox: Process
    ) -> list[socket.socket]:
        """Open listeners in a running sandbox; none when it has ended or they can't be opened, which is told."""
        ours, theirs = _channel()
        with ours, theirs, trio.move_on_after(_ENTRY_SECONDS):
            done = await trio.run_process(
                command_for(str(theirs.fileno()), ports, sandbox.pid), env={}, check=False, capture_stderr=True,
                stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),),
            )  # fmt: skip
            theirs.close()
            found = await receive(ours)
            if not found and process.is_running(sandbox):
                what = ", ".join(map(str, ports))
                self._tell(Decision(False, f"ports {what}: the network can't be entered again; resume the agent"))
                log.error("a network can't be entered", reason=done.stderr.decode("utf-8", "replace").strip())
            return found
        return []


def _channel() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


async def receive(end: socket.socket) -> list[socket.socket]:
    """Take the listeners from a channel; none when its other end is closed before they came."""
    await trio.lowlevel.wait_readable(end)
    _, descriptors, _, _ = socket.recv_fds(end, 64, _MOST_LISTENERS, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]
