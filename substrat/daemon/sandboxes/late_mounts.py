"""Mounts in a sandbox that has been made what bubblewrap must not: below directories that agents write.

bubblewrap looks a mount point up by its path, and one before 0.12.0 follows links on the way, out of the sandbox
(CVE-2026-87766). So it mounts these at places of their own, and the sandbox's first program waits (`bwrap.GATE`). A helper
then moves them to their targets, following nothing, and the program begins. Where one can't be moved nothing begins: the
sandbox says why on its standard error, as when bubblewrap itself fails, and ends.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox import remount
from substrat.daemon.kernel import helper, sandbox_process

if TYPE_CHECKING:
    from substrat.daemon.kernel.sandbox_process import StatusFile

log = structlog.get_logger("substrat.sandboxes")

_SECONDS = 30.0
"""bubblewrap and the helper take some hundredths of a second; a machine that is short of memory may take seconds."""
_PROGRAM = (sys.executable, "-I", "-S", os.path.realpath(remount.__file__))


class LateMounts:
    """The late mounts of one sandbox.

    Args:
        moves: where each mount stands, and its target, outer ones first (`launch.Start.late`).
    """

    def __init__(self, moves: tuple[tuple[str, str], ...]) -> None:
        self._words = tuple(path for move in moves for path in move)
        self._ours, self.inside = socket.socketpair()

    async def mount(self, files: StatusFile) -> None:
        """Wait for the sandbox, mount, and let its program begin, or tell it why it can't; one that has ended is left so.

        Args:
            files: where bubblewrap reports the sandbox's first process.
        """
        self.inside.close()  # the sandbox alone has it, so that it ends with it
        try:
            with trio.fail_after(_SECONDS):
                await trio.lowlevel.wait_readable(self._ours)
                if self._ours.recv(1):
                    answer = await self._move(sandbox_process.read_status(files.read_status())[0])
                    self._ours.send(answer.encode() + b"\n")
        except (OSError, trio.TooSlowError) as problem:
            log.warning("a sandbox can't be mounted", reason=getattr(problem, "strerror", None) or "it took too long")
        finally:
            self.close()

    async def _move(self, first: int | None) -> str:
        """Move the mounts to their targets, and return why that isn't possible; empty: it was done."""
        done = await helper.run((*_PROGRAM, str(first), "move", *self._words), {})
        said = done.stderr.decode("utf-8", "replace").removeprefix("substrat: ").strip()
        return (said or "can't mount") if done.returncode else ""

    def close(self) -> None:
        """Close the socket: a sandbox that still waits ends."""
        self._ours.close()
        self.inside.close()
