"""Lists the paths of the operating system that not every user may read (`sandbox.unreadable`); sandboxes hide them.

A program beside the daemon makes the list and notes it. It is made anew, and sandboxes wait for it, when packages have
come or gone or the daemon was started, unless another daemon of the user's has made it within the last seconds; when a
sandbox is started and the list is older than `FRESH_SECONDS`, it is made anew for the next one. Where it can't be made
no sandbox starts.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox import host, unreadable
from substrat.daemon.kernel import helper
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sandbox.spec import Mount

log = structlog.get_logger("substrat.unreadable")

FRESH_SECONDS = 30.0
"""For how long a list is believed without another look, in seconds: a look takes a tenth of a second of processor time."""
MOST = 256
"""How many paths are covered: each costs a sandbox's start some 0.1 ms, and a usual system has fewer than 20."""
BELIEVED_SECONDS = 86_400.0
"""For how long sandboxes believe the noted answers about unchanged directories, in seconds: their files are skipped."""
RESCAN_SECONDS = 600.0
"""For how long that is believed where nothing waits, in seconds: then each file is looked at again."""
_SHARED_SECONDS = 5.0
"""For how long a new daemon takes over the list of another of the user's daemons, in seconds."""
_PATIENCE = 2 * unreadable.MOST_SECONDS
"""The program ends itself after half of that; a busy machine may start it late."""


class UnreadablePaths:
    """The unreadable paths of the operating system, for one daemon's sandboxes.

    Args:
        note: the file in which the program notes the list.
    """

    def __init__(self, note: str) -> None:
        self._note = note
        self._paths: tuple[str, ...] | None = None
        self._signature: tuple[tuple[str, int, int], ...] = ()
        self._looked_at = 0.0
        self._looking = trio.Lock()
        self.proc_mounts: tuple[Mount, ...] = ()
        """The mounts that hide the machine's own facts in `/proc`, as of the last walk."""
        self._wanted = trio.Event()
        self._mounts: tuple[Mount, ...] = ()
        self._mounts_signature: host.Times = ()

    def uncovered_mounts(self) -> tuple[Mount, ...]:
        """Return the operating system's mounts, kept until one of its directories changes: a turn asks several times."""
        if (signature := host.mounts_signature()) != self._mounts_signature:
            self._mounts, self._mounts_signature = host.system_mounts(), signature
        return self._mounts

    async def system_mounts(self) -> tuple[Mount, ...]:
        """Return the mounts of the operating system without the paths; waits while these aren't known.

        Raises:
            SandboxFailed: they can't be listed, or are too many.
        """
        return (*self.uncovered_mounts(), *host.covers(await self.paths()))

    async def paths(self) -> tuple[str, ...]:
        """Return the paths; waits while they aren't known.

        Raises:
            SandboxFailed: they can't be listed, or are too many.
        """
        signature = host.system_signature()
        if self._paths is None or signature != self._signature:
            async with self._looking:
                if self._paths is None or signature != self._signature:
                    await self._find(BELIEVED_SECONDS)
        elif trio.current_time() - self._looked_at > FRESH_SECONDS:
            self._wanted.set()
        assert self._paths is not None
        return self._paths

    async def keep(self) -> None:
        """List the paths, now and whenever that is asked for, until cancelled."""
        find: Callable[[], Awaitable[object]] = self.paths
        while True:
            try:
                await find()
            except SandboxFailed as problem:
                self._paths = None  # the next sandbox tries again, and is refused
                log.warning("unreadable paths aren't known", reason=problem.message)
            await self._wanted.wait()
            self._wanted = trio.Event()
            find = partial(self._find, RESCAN_SECONDS)

    async def _find(self, believed: float) -> None:
        signature = host.system_signature()
        system, self.proc_mounts = await trio.to_thread.run_sync(lambda: (host.system_mounts(), host.proc_covers()))
        roots = host.roots(system)
        key = hashlib.sha256(repr(signature).encode()).hexdigest()[:32]
        found: Sequence[str] | None = None
        if self._paths is None:
            found = await trio.to_thread.run_sync(unreadable.young_answer, self._note, key, roots, _SHARED_SECONDS)
        if found is None:
            found = await self._walk(believed, key, roots)
        if len(found) > MOST:
            raise SandboxFailed(
                f"others can't read {len(found)} files and directories of the system ({', '.join(found[:3])}, …), and a "
                f"sandbox covers {MOST} at most: `chmod -R o+rX` what is no secret, or move it out of /usr"
            )
        self._paths, self._signature, self._looked_at = tuple(found), signature, trio.current_time()

    async def _walk(self, believed: float, key: str, roots: Sequence[str]) -> list[str]:
        """Have the program look."""
        program = os.path.realpath(unreadable.__file__)
        command = (sys.executable, "-I", "-S", program, self._note, str(believed), key, *roots)
        where = f"below {', '.join(roots[:2])}"
        try:
            done = await helper.run(command, {}, seconds=_PATIENCE)
        except (OSError, trio.TooSlowError) as problem:
            said = f"the paths {where} that others can't read can't be listed: {problem!r}"
            passes = isinstance(problem, trio.TooSlowError) or problem.errno in host.PASSING
            raise SandboxFailed(said) from host.LookCutShort(said) if passes else problem
        if done.returncode == unreadable.TOO_MUCH:
            raise SandboxFailed(
                f"there is too much {where} to look for files that others can't read: move what isn't the system's out"
            )
        if done.returncode:
            errors = done.stderr.decode("utf-8", "replace").strip()
            how = host.cut_short(program, done.returncode, errors)
            why = how or errors.rpartition("\n")[2]
            said = f"the paths {where} that others can't read can't be listed: {why}; run it again"
            raise SandboxFailed(said) from host.LookCutShort(said) if how is not None else None
        return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]
