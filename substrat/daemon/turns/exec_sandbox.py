"""Signals and kills the processes in the sandbox of one `agent.exec` command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.daemon.kernel import process, sandbox_process
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from substrat.core.agents.records import Process
    from substrat.core.agents.stop_reason import StopReason
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.state.layout import TurnDir


class ExecSandbox(NamedTuple):
    """A command's sandbox: its outer process, a pidfd of it, and its files."""

    outer: Process
    pidfd: int
    place: TurnDir

    def _open_inner(self) -> tuple[int, int] | None:
        """Return the sandbox's first process and a pidfd of it, None while there is none or when it has ended."""
        inner = sandbox_process.read_status(self.place.read_status())[0]
        pidfd = sandbox_process.open_inner(self.outer, inner) if inner is not None else None
        return (inner, pidfd) if inner is not None and pidfd is not None else None

    def first_process(self) -> int | None:
        """Return the pid of the sandbox's first process, None while there is none or when it has ended."""
        if (found := self._open_inner()) is None:
            return None
        os.close(found[1])
        return found[0]

    def kill(self) -> None:
        """Kill the sandbox's first process, and with it all others."""
        if (found := self._open_inner()) is not None:
            process.kill(found[1])
            os.close(found[1])

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the command; says whether there was one."""
        if (found := self._open_inner()) is None:
            return False
        try:
            return sandbox_process.signal_program(found[0], number)
        finally:
            os.close(found[1])

    async def release(self, watcher: Watcher, showing: Callable[[int], AbstractContextManager[None]]) -> None:
        """Let bubblewrap's outer process end once its inner one has, though somebody outside may have stopped it.

        Args:
            watcher: inotify.
            showing: lets others see the sandbox's first process, given its pid, for as long as the returned context lasts.
        """
        first = await sandbox_process.reported(self.place, watcher)
        inner = sandbox_process.open_inner(self.outer, first)
        if inner is not None:
            try:
                with showing(first):
                    await trio.lowlevel.wait_readable(inner)
            finally:
                os.close(inner)
        await sandbox_process.release(self.pidfd)

    async def end(self) -> None:
        """Kill the processes that are still there, and return when none is."""
        try:
            if process.is_running(self.outer):
                await sandbox_process.kill_sandbox_of(self.outer.pid, self.pidfd)
            await process.wait_exit(self.outer, self.pidfd)
        finally:
            os.close(self.pidfd)
        # The command may have ended before the processes it started: the kernel kills those only now (--die-with-parent).
        if (found := self._open_inner()) is not None:
            try:
                process.kill(found[1])
                await trio.lowlevel.wait_readable(found[1])
            finally:
                os.close(found[1])


class WatchedExec:
    """A command's sandbox as the watch over protected files controls it (`lost_mounts.SandboxControl`): it only ends it."""

    def __init__(self) -> None:
        self.sandbox: ExecSandbox | None = None
        self._reason: StopReason | None = None

    def first_process(self) -> int | None:
        """Return the pid of its first process, None while there is none or when it has ended."""
        return self.sandbox.first_process() if self.sandbox is not None else None

    def is_stopped(self) -> bool:
        """Say that it runs: it is never stopped in memory."""
        return False

    async def hold(self) -> bool:
        """Say that it isn't held: no record would tell the next daemon to let it go on."""
        return False

    def release(self) -> None:
        """Do nothing, for it is never held."""

    def end(self, reason: StopReason) -> None:
        """Kill it for a reason, which its caller is told."""
        self._reason = reason
        if self.sandbox is not None:
            self.sandbox.kill()

    def passed_on(self, code: int) -> int:
        """Return the command's exit status; raises `SandboxFailed` if it was killed here."""
        if self._reason is not None:
            raise SandboxFailed(f"the command was ended, because {self._reason.detail}: run it again")
        return code
