"""Cgroups of sandboxes below the daemon's own service: making, limiting, freezing and removing them.

    <service>/daemon          the daemon, put there by systemd
    <service>/agents          all sandboxes, with their limits together
    <service>/agents/<turn>   one sandbox: both processes of bubblewrap and everything in it

A sandbox's cgroup is named after its turn, so the next daemon finds it. Without delegated cgroups (no cgroup v2, a daemon
started by hand, a systemd without `DelegateSubgroup=`) only the limits of single processes hold.
`core.agents.cgroup_limits` makes the text that is written to the kernel's files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.agents import cgroup_limits
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from substrat.core.agents.cgroup_limits import CgroupLimits, CgroupUse, RanOut

log = structlog.get_logger("substrat.cgroups")

# A shell takes a tenth of the time that moving a running process takes. 0 is the writing process itself in every
# namespace (cgroups(7)).
_ENTER = 'echo 0 >"$0" && exec "$@"'


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two tries to remove a cgroup, which killed processes leave within milliseconds."""


class Group:
    """The cgroup of one sandbox; it may not be there.

    Args:
        path: its directory.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def is_there(self) -> bool:
        """Whether there is such a cgroup: a sandbox that was started without one has none."""
        return os.path.isdir(self._path)

    @property
    def is_to_be_stopped(self) -> bool:
        """Whether `freeze` was called, perhaps by an earlier daemon, and `thaw` not since."""
        return _read(self._path, "cgroup.freeze").strip() == "1"

    @property
    def is_stopped(self) -> bool:
        """Whether every process in it is stopped."""
        return cgroup_limits.numbers(_read(self._path, "cgroup.events")).get("frozen") == 1

    def make(self, limits: CgroupLimits) -> None:
        """Make it, or set the limits of the one that is there; raises `SandboxFailed` if it can't be made."""
        try:
            os.makedirs(self._path, exist_ok=True)
            controllers = frozenset(_read(self._path, "cgroup.controllers").split())
            _write_all(self._path, cgroup_limits.settings(limits, controllers))
        except OSError as problem:
            raise SandboxFailed(
                f"the sandbox's limits can't be set: {problem.filename}: {problem.strerror}; "
                f"restart the daemon (systemctl --user restart substratd)"
            ) from None

    def entering(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return a command that runs another in this cgroup, as the same process."""
        return ("/bin/sh", "-c", _ENTER, f"{self._path}/cgroup.procs", *command)

    def freeze(self) -> bool:
        """Stop every process in it; returns whether all are stopped by now.

        A process that was stopped by a signal before stays stopped when the cgroup is thawed.
        """
        _write(self._path, "cgroup.freeze", "1")
        return self.is_stopped

    def thaw(self) -> None:
        """Let every process in it go on; one that is gone is fine."""
        with suppress(FileNotFoundError):
            _write(self._path, "cgroup.freeze", "0")

    def ran_out(self) -> RanOut:
        """Return which resources ran out so far, such as memory."""
        return cgroup_limits.ran_out(
            *(_read(self._path, name) for name in ("memory.events", "memory.events.local", "pids.events"))
        )

    def use(self) -> CgroupUse:
        """Return its use of memory, processor time and processes at the moment."""
        return cgroup_limits.use(*(_read(self._path, name) for name in ("memory.current", "cpu.stat", "pids.current")))


class Cgroups:
    """The cgroups that the daemon may make for sandboxes.

    Args:
        service: the directory of its service's cgroup; None: it may divide none.
    """

    def __init__(self, service: str | None) -> None:
        self._service = service
        self._to_be_removed: set[str] = set()
        self._some = trio.Event()
        self.controllers: frozenset[str] = frozenset()
        """The controllers that limit sandboxes, such as "memory"."""

    @property
    def are_there(self) -> bool:
        """Whether sandboxes have cgroups."""
        return self._service is not None

    def prepare(self, together: CgroupLimits) -> None:
        """Make the cgroup around all sandboxes, and set their limits together.

        Where that fails the log says so, and sandboxes run without cgroups.
        """
        if self._service is None:
            return
        agents = f"{self._service}/{cgroup_limits.AGENTS}"
        try:
            os.makedirs(agents, exist_ok=True)
            for path in (self._service, agents):
                _write(path, "cgroup.subtree_control", cgroup_limits.enabling(_read(path, "cgroup.controllers")))
            self.controllers = frozenset(_read(agents, "cgroup.controllers").split())
            _write_all(agents, cgroup_limits.settings(together, self.controllers))
            _write_all(f"{self._service}/{cgroup_limits.DAEMON}", cgroup_limits.daemon_settings(self.controllers))
        except OSError as problem:
            log.warning("no cgroups for sandboxes", path=problem.filename, reason=problem.strerror)
            self._service, self.controllers = None, frozenset()

    def group(self, name: str) -> Group | None:
        """Return the cgroup of a sandbox, made or not; None where sandboxes have none.

        Args:
            name: the id of its turn, or of a command's session.
        """
        return Group(f"{self._service}/{cgroup_limits.AGENTS}/{name}") if self._service is not None else None

    def remove(self, name: str) -> None:
        """Remove a sandbox's cgroup as soon as it is empty; a missing one is fine.

        Processes that were killed with an earlier daemon may still be ending in it.
        """
        if self._service is not None and not self._is_removed(name):
            self._to_be_removed.add(name)
            self._some.set()

    async def remove_late(self) -> None:
        """Remove those that weren't empty, until cancelled."""
        while True:
            await self._some.wait()
            self._some, pause = trio.Event(), _FIRST_PAUSE
            while self._to_be_removed:
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._to_be_removed = {name for name in self._to_be_removed if not self._is_removed(name)}

    def _is_removed(self, name: str) -> bool:
        path = f"{self._service}/{cgroup_limits.AGENTS}/{name}"
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError as problem:
            log.debug("a cgroup stays for now", path=path, reason=problem.strerror)
            return False
        return True

    def sweep(self, needed: Collection[str]) -> None:
        """Remove the cgroups that a killed daemon has left.

        Args:
            needed: the names of those that are still in use.
        """
        for name in self._names():
            if name not in needed:
                self.remove(name)

    def _names(self) -> list[str]:
        if self._service is None:
            return []
        with os.scandir(f"{self._service}/{cgroup_limits.AGENTS}") as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def find_cgroups() -> Cgroups:
    """Find the cgroup around this process's own, if systemd has delegated it to the daemon."""
    mount = cgroup_limits.mount_point(_read("/proc/self", "mountinfo"))
    own = cgroup_limits.own_path(_read("/proc/self", "cgroup"))
    if mount is None or own is None or os.path.basename(own) != cgroup_limits.DAEMON:
        return Cgroups(None)
    directory = cgroup_limits.directory(own, mount)
    if directory is None or not os.access(f"{os.path.dirname(directory)}/cgroup.subtree_control", os.W_OK):
        return Cgroups(None)
    return Cgroups(os.path.dirname(directory))


def group_of(pid: int, name: str) -> Group | None:
    """Return the cgroup of a sandbox that another daemon started, however that one was started.

    Args:
        pid: its outer process.
        name: its turn.
    """
    mount, own = (
        cgroup_limits.mount_point(_read("/proc/self", "mountinfo")),
        cgroup_limits.own_path(_read(f"/proc/{pid}", "cgroup")),
    )
    directory = cgroup_limits.directory(own, mount) if own is not None and mount is not None else None
    return Group(directory) if directory is not None and os.path.basename(directory) == name else None


def _write_all(path: str, settings: Iterable[tuple[str, str]]) -> None:
    for name, text in settings:
        # There is no memory.swap.max in a kernel without swap.
        with suppress(FileNotFoundError):
            _write(path, name, text)


def _write(path: str, name: str, text: str) -> None:
    # Unbuffered: the kernel's refusal comes from this write.
    with open(f"{path}/{name}", "wb", buffering=0, opener=_only_write) as file:
        try:
            file.write(text.encode())
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, f"{path}/{name}") from None


def _only_write(path: str, _flags: int) -> int:
    """Open a file that is there, without the flags for making or emptying it."""
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC)


def _read(path: str, name: str) -> str:
    """Return a file's text, nothing when there is no such file, or no such cgroup any more."""
    try:
        with open(f"{path}/{name}", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
