"""A turn's `filtered` network as the daemon gets hold of it: its listeners, from the launcher or by entering it again."""

from __future__ import annotations

import os
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
        self._place = place
        self._watcher = watcher
        self._tell = tell
        self._ours, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def close(self) -> None:
        """Close both ends of the channel."""
        self._ours.close()
        self.channel.close()

    async def serve(self, started: Process | None) -> None:
        """Serve the network until cancelled.

        Args:
            started: the turn's sandbox, if another daemon started it.
        """
        listeners = await receive(self._ours) if started is None else await self._enter(started)
        if listeners:
            # The launch has made the turn's directory by now, which is where the names are kept.
            await Gateway(self._allow, Names(self._place.names), self._tell).serve(listeners)

    async def _enter(self, started: Process) -> list[socket.socket]:
        """Open the listeners again in a running sandbox; it is inside its network once bubblewrap has reported."""
        with self._watcher.watching(self._place.root) as change:
            while process.read_status(self._place.read_status())[0] is None:
                await change.wait()
        if (pidfd := process.open_pidfd(started)) is None:
            return []
        os.close(pidfd)
        command = launch.reentry(str(self.channel.fileno()), self._allow.ports, started.pid)
        with trio.move_on_after(_ENTRY_SECONDS):
            done = await trio.run_process(
                command, env={}, check=False, capture_stderr=True, stdout=subprocess.DEVNULL,
                pass_fds=(self.channel.fileno(),),
            )  # fmt: skip
            self.channel.close()
            found = await receive(self._ours)
            if not found and process.open_pidfd(started) is not None:
                self._tell(Decision(False, "everything: the network can't be entered again; resume the agent"))
                log.error("a network can't be entered", reason=done.stderr.decode("utf-8", "replace").strip())
            return found
        return []


async def receive(end: socket.socket) -> list[socket.socket]:
    """Take the listeners from a channel; none when its other end is closed before they came."""
    await trio.lowlevel.wait_readable(end)
    _, descriptors, _, _ = socket.recv_fds(end, 64, _MOST_LISTENERS, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]
