"""Measures the space that running turns take of the disk, and stops those that `core.agents.disk_use` names."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from substrat.core.agents import disk_use
from substrat.core.agents.disk_use import DiskLimits, DiskNearlyFull, DiskUse, HomeTooBig
from substrat.core.agents.lifecycle import RUNNING_PHASES, Phase
from substrat.core.programs.table import program_of
from substrat.daemon.agents.disk_gate import free_bytes
from substrat.daemon.kernel import disk_io, procfs
from substrat.daemon.kernel.files import NoAnswer
from substrat.errors import DescriptorsUsedUp, StorageFailed
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from substrat.core.agents.records import Agent, Process, Turn
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.wakeup import Wakeup
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.kernel.procfs import Mount
    from substrat.daemon.state.layout import Layout

log = structlog.get_logger("substrat.disk_watch")

INTERVAL = 5.0
"""Seconds between two looks. A disk takes some 2 GiB in that time at the most that ordinary ones do, half of
`disk.agent_home`; looking at a few thousand files takes some 10 ms of a thread's time."""
_REST_PER_LOOK = 20.0
"""How many times as long as the last look took the next one waits at least: measuring costs under a twentieth of a
processor."""
_MOST_DESCRIPTORS = 20_000
"""How many descriptors of one turn's processes are looked at for files without a name: some 0.1 s of a thread's time. A
build has some thousands."""
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})
"""File systems for which the kernel doesn't count `write_bytes` (proc(5), /proc/PID/io)."""


class Home(NamedTuple):
    """The contents of directories: bytes on disk, how many files and directories, whether a part can't be looked into."""

    size: int
    files: int
    unmeasured: bool


class _Subject(NamedTuple):
    """A turn that is to be measured.

    Args:
        turn: its id.
        home: its agent's own directories.
        output: the turn's directory.
        given: its workspace and the other paths it may write to; files there aren't its own.
        elsewhere: where else its processes can write.
        started: its sandbox.
        stopping: whether it is being stopped.
        tree: its agent's private clone, if it has one.
    """

    turn: str
    home: tuple[str, ...]
    output: str
    given: tuple[str, ...]
    elsewhere: tuple[str, ...]
    started: Process | None
    stopping: bool
    tree: str | None = None


class _Measured(NamedTuple):
    """The measurements of a turn.

    Args:
        home: its agent's own directories, with deleted files of them that its processes still hold open.
        own: bytes on disk of these, of its output, and of deleted files elsewhere that it holds open.
        written: bytes its processes have written.
        elsewhere: whether they can write to the same disk elsewhere.
    """

    home: Home
    own: int
    written: int
    elsewhere: bool


@attrs.define(eq=False)
class DiskWatch:
    """Watches the disk that the state is on, and those with the clones of agents that work there.

    Args:
        registry: the agents.
        accounting: stops turns.
        layout: the daemon's directories.
        user_chats: the user's own directory of chats, which sandboxes write to.
        turn_runs: set when a turn begins to run or goes on.
        files: looks at the other disks.
        free: how many bytes are free where a directory is.
        interval: seconds between two looks.
    """

    _registry: Registry
    _accounting: Accounting
    _layout: Layout
    _user_chats: str
    _turn_runs: Wakeup
    _files: Files
    _free: Callable[[str], int] = free_bytes
    _interval: float = INTERVAL
    _before: dict[str, _Measured] = attrs.field(init=False, factory=dict)

    async def run(self) -> None:
        """Look every few seconds while any turn runs, until cancelled."""
        while True:
            await self._turn_runs.wait()
            began = trio.current_time()
            try:
                await self.look()
            except (OSError, StorageFailed, DescriptorsUsedUp) as problem:
                log.warning("the disk wasn't looked at", reason=str(problem))
            if not self._registry.index.in_phases((Phase.RUNNING,)):
                # One that starts from here on wakes it again: there is no await in between.
                self._turn_runs.clear()
                self._before.clear()
            await trio.sleep(max(self._interval, _REST_PER_LOOK * (trio.current_time() - began)))

    async def look(self) -> None:
        """Measure once, and stop the turns that have to be stopped.

        Raises:
            OSError: the disk can't be looked at.
            StorageFailed: a stop can't be committed.
        """
        if (reserve := self._registry.store.reserve) is not None:
            reserve.keep()
        disk = self._registry.config.disk
        limits = DiskLimits(disk.agent_home, disk.free)
        if not limits.home and not limits.free:
            return
        subjects = [
            self._subject(agent, agent.turn)
            for agent in self._registry.index.in_phases(RUNNING_PHASES)
            if agent.turn is not None and agent.turn.outcome is None
        ]
        most = disk_use.most_files(limits.home) if limits.home else disk_use.most_files(disk.state)
        found = await trio.to_thread.run_sync(_measure, subjects, most, self._layout.state, abandon_on_cancel=True)
        uses = [
            DiskUse(
                subject.turn, *found[subject.turn].home, wrote=self._wrote(subject.turn, found[subject.turn]),
                stopping=subject.stopping,
            )
            for subject in subjects
        ]  # fmt: skip
        before, self._before = self._before, found
        self._stop(disk_use.decide(uses, self._free(self._layout.state), limits))
        for tree, those in self._elsewhere(subjects).items():
            written = {one.turn: max(found[one.turn].written - _written_before(before, one.turn), 0) for one in those}
            there = [
                DiskUse(one.turn, 0, 0, unmeasured=False, wrote=written[one.turn], stopping=one.stopping) for one in those
            ]
            with suppress(NoAnswer):
                free = await self._files.run(tree, self._free, tree)
                self._stop(disk_use.decide(there, free, DiskLimits(0, disk.free)))

    def _elsewhere(self, subjects: list[_Subject]) -> dict[str, list[_Subject]]:
        """Return the turns that work in clones on other disks than the state's, for each disk under a directory on it."""
        found: dict[str, list[_Subject]] = {}
        mounts = [*procfs.mounts(os.getpid())]
        own = _mount_of(self._layout.state, mounts).device
        for subject in subjects:
            if subject.tree is not None and (device := _mount_of(subject.tree, mounts).device) != own:
                found.setdefault(device, []).append(subject)
        return {str(those[0].tree): those for those in found.values()}

    def _stop(self, stops: list[HomeTooBig | DiskNearlyFull]) -> None:
        for stop in stops:
            log.warning("a turn is stopped for what it takes of the disk", turn=stop.turn, why=repr(stop))
            if isinstance(stop, HomeTooBig):
                self._accounting.turn_home_too_big(stop.turn, stop.limit)
            else:
                self._accounting.turn_fills_disk(stop.turn, stop.wrote, stop.free)

    def _subject(self, agent: Agent, turn: Turn) -> _Subject:
        place = self._layout.agent(agent.id)
        given = (agent.host_directory, *(bind.path for bind in agent.policy.binds if bind.writable))
        elsewhere = (*given, self._user_chats, self._layout.shared)
        home = (place.cache, place.home(program_of(agent).places.home), place.chats)
        output = place.turn(turn.number).root
        return _Subject(
            turn.id, home, output, given, elsewhere, turn.process, turn.stop is not None,
            tree=agent.clone.tree if agent.clone is not None else None,
        )  # fmt: skip

    def _wrote(self, turn: str, now: _Measured) -> int:
        """Return how many bytes a turn wrote since the last look, at its first look since it began, to the state's disk.

        Its processes' writes land in its own directories too: the two are never added up.
        """
        before = self._before.get(turn)
        if before is None:
            # How much was in its directories before isn't known: it wrote no more there than it wrote at all.
            return now.written if now.elsewhere else min(now.own, now.written)
        grown = max(now.own - before.own, 0)
        return max(grown, now.written - before.written) if now.elsewhere else grown


def _written_before(before: dict[str, _Measured], turn: str) -> int:
    return before[turn].written if turn in before else 0


def measure(directories: Iterable[str], most: int) -> Home:
    """Measure directories by the space they take on disk, without following links.

    Args:
        directories: where to begin; one that isn't there is empty.
        most: how many files and directories are looked at; when there are more, the rest is left out.
    """
    size = files = 0
    unmeasured = False
    pending = list(directories)
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files > most:
                        return Home(size, files, unmeasured)
                    with suppress(FileNotFoundError):  # it was removed meanwhile
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            # Its owner has taken the right to read it away, or it is deeper than any path can be.
            unmeasured = True
    return Home(size, files, unmeasured)


def _measure(subjects: list[_Subject], most: int, state: str) -> dict[str, _Measured]:
    """Measure turns, in a worker thread."""
    mounts = [*procfs.mounts(os.getpid())]
    own_mount = _mount_of(state, mounts)
    counted = own_mount.kind not in _MEMORY_FILE_SYSTEMS
    device = os.stat(state).st_dev
    found = {}
    for subject in subjects:
        home = measure(subject.home, most)
        own = home.size + measure((subject.output,), most).size
        written = 0
        if subject.started is not None:
            written = disk_io.written(subject.started, to_disk=counted)
            held = disk_io.unlinked(subject.started, device, _MOST_DESCRIPTORS)
            # A file that was removed in the workspace is no more the agent's own than the others there.
            of_home = [size for path, size in held if not any(is_within(path, given) for given in subject.given)]
            home = Home(home.size + sum(of_home), home.files + len(of_home), home.unmeasured)
            own += sum(size for _, size in held)
        elsewhere = any(_mount_of(path, mounts).device == own_mount.device for path in subject.elsewhere)
        found[subject.turn] = _Measured(home, own, written, elsewhere)
    return found


def _mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """Return the mount that a physical path is on, without touching the path: its file system may not answer."""
    return max((mount for mount in reversed(mounts) if is_within(path, mount.point)), key=lambda mount: len(mount.point))
