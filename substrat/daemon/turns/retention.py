"""Keeps the space of old turns within limits, and deletes the files of removed agents; `core.agents.retention` decides.

Refs of agents that are over are looked at after a sweep, a repository at a time.

Looking at files, compressing and deleting are done in a worker thread; changes are committed on the loop, in transactions
of a moment each. A directory that is to be deleted is first renamed into `<state>/trash`, which is immediate at any size.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import attrs
import structlog
import trio

from substrat.core.agents import retention
from substrat.core.agents.lifecycle import Phase
from substrat.daemon.state import archive
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.trash import list_directory
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.wakeup import Wakeup
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.state.trash import Trash

T = TypeVar("T")

log = structlog.get_logger("substrat.retention")

INTERVAL = 600.0
"""Seconds between sweeps when nothing asks for one."""
_REST = 5.0
"""Seconds between two sweeps at least, so that many turns that end cost one; more when a sweep takes long."""
_REST_PER_SWEEP = 20.0
"""How many times as long as the last sweep the next one waits: sweeping costs under a twentieth of the time."""
_EVENTS_AT_ONCE = 1000
"""Events that are read between two checkpoints, so that other tasks run meanwhile."""
_WORTH_COMPRESSING = 8 * 1024
"""Bytes: the files of a smaller turn hardly take fewer blocks when they are compressed."""


class Swept(NamedTuple):
    """How much a sweep did: turns compressed and dropped, directories deleted, bytes on disk freed."""

    compressed: int = 0
    dropped: int = 0
    deleted: int = 0
    freed: int = 0


class _Found(NamedTuple):
    """The contents of a turn's directory: bytes on disk, and whether compressing can't make them fewer."""

    size: int
    packed: bool


@attrs.define(eq=False)
class Retention:
    """Sweeps one state directory.

    Args:
        registry: the agents.
        layout: the daemon's directories.
        trash: deletes directories.
        wanted: asks for a sweep soon.
        forget_refs: looks whether refs of agents that are over are to go.
    """

    _registry: Registry
    _layout: Layout
    _trash: Trash
    _wanted: Wakeup
    _forget_refs: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Sweep now, when asked, and every ten minutes, until cancelled."""
        while True:
            self._wanted.clear()
            began = trio.current_time()
            try:
                swept = await self.sweep()
                if any(swept):
                    log.info("swept", **swept._asdict())
                self._registry.admit()
                await self._forget_refs()
            except (StorageFailed, OSError) as problem:
                log.warning("sweep cut short", reason=str(problem))
            except Exception:
                # Nothing depends on sweeping soon, so a bug here must not cost a daemon that works.
                log.exception("sweep broke")
            await trio.sleep(max(_REST, _REST_PER_SWEEP * (trio.current_time() - began)))
            with trio.move_on_after(INTERVAL):
                await self._wanted.wait()

    async def sweep(self) -> Swept:
        """Do all that there is to do, once.

        Raises:
            StorageFailed: a change can't be committed; nothing more was done.
        """
        self._discard_removed_agents()
        self._discard_shared()
        deleted = await trio.to_thread.run_sync(self._trash.empty, abandon_on_cancel=True)
        await self._forget_removed_agents()
        compressed = dropped = freed = 0
        hopeless: set[str] = set()
        sizes = await _in_thread(_look, self._layout.agents)
        while actions := retention.decide(await self._facts(sizes, hopeless), self._limits(), self._registry.now()):
            for action in actions:
                turn = action.turn
                if isinstance(action, retention.Drop):
                    if await self._drop(turn, action.reason):
                        dropped += 1
                        freed += turn.size
                    sizes.get(turn.agent, {}).pop(turn.number, None)
                    continue
                hopeless.add(turn.turn)
                after = await _in_thread(_compress, self._directory(turn.agent, turn.number))
                if after is not None:
                    sizes[turn.agent][turn.number] = _Found(after, packed=True)
                    compressed += 1
                    freed += turn.size - after
        deleted += await trio.to_thread.run_sync(self._trash.empty, abandon_on_cancel=True)
        return Swept(compressed, dropped, deleted, freed)

    # Facts

    def _limits(self) -> retention.RetentionLimits:
        disk = self._registry.config.disk
        return retention.RetentionLimits(disk.agent, disk.state, disk.compress_after, disk.keep)

    async def _facts(self, sizes: dict[str, dict[int, _Found]], hopeless: set[str]) -> list[retention.OnDisk]:
        """Join the files on disk with the rows of the state; directories without a row are left alone."""
        facts = []
        for agent_id, found in list(sizes.items()):
            agent = self._registry.get(agent_id)
            if agent is None or not found:
                continue
            rows = self._registry.store.turns_kept(agent_id)
            last = rows[-1].number if rows else 0
            for row in rows:
                if row.number not in found:
                    if row.dropped and not row.cleared:
                        await self._clear(agent_id, row.turn)
                    continue
                if row.dropped:
                    self._trash.put(self._directory(agent_id, row.number))
                    continue
                size, packed = found[row.number]
                current = row.number == last and agent.phase != Phase.ENDED
                facts.append(
                    retention.OnDisk(
                        agent_id,
                        row.turn,
                        row.number,
                        row.ended_at,
                        size,
                        packed or row.turn in hopeless,
                        current,
                        row.unread,
                    )
                )
            await trio.lowlevel.checkpoint()
        return facts

    def _directory(self, agent: str, number: int) -> str:
        return self._layout.agent(agent).turn(number).root

    # Actions

    async def _drop(self, turn: retention.OnDisk, reason: str) -> bool:
        """Drop a turn: first it is told, then its files go, then its events; a crash in between is made good later."""
        if self._registry.get(turn.agent) is None:
            return False
        text = f"turn {turn.number} was dropped: {reason}; its output had {turn.size} bytes on disk"
        with self._registry.change("turn dropped") as change:
            self._registry.store.drop_turn(turn.agent, turn.turn)
            change.record(DaemonEvent(turn.agent, turn.turn, "history:dropped", text))
        self._trash.put(self._directory(turn.agent, turn.number))
        await self._clear(turn.agent, turn.turn)
        return True

    async def _clear(self, agent: str, turn: str) -> None:
        """Delete the events that stand for a dropped turn's lines; the daemon's own events about it stay."""
        cursor = 0
        while rows := self._registry.store.events_after(cursor, agent, _EVENTS_AT_ONCE):
            cursor = rows[-1].cursor
            lines = (row for row in rows if row.offset is not None or row.kind == "user")  # some prompts aren't printed
            if mine := [row.cursor for row in lines if row.turn == turn]:
                self._registry.journal.delete(mine)
            if any(row.turn == turn and row.kind == "turn:ended" for row in rows):
                break  # no line comes after it, and an agent may have a great many events
            await trio.lowlevel.checkpoint()
        with self._registry.change("events dropped"):
            self._registry.store.turn_cleared(turn)

    def _discard_shared(self) -> None:
        """Discard the directories of families of which no agent is left, nor any files of its root's."""
        living = {self._registry.shared_of(agent) for agent in self._registry.agents}
        for entry in list_directory(self._layout.shared):
            if entry.name not in living and not os.path.lexists(self._layout.agent(entry.name).root):
                self._trash.put(entry.path)

    def _discard_removed_agents(self) -> None:
        """Discard the files of removed agents that a daemon which was killed has left."""
        for agent in self._registry.store.removed_agents():
            self._trash.put(self._layout.agent(agent).root)

    async def _forget_removed_agents(self) -> None:
        """Delete the events of removed agents, a piece at a time; other tasks run in between."""
        store = self._registry.store
        for agent in store.removed_agents():
            some = _EVENTS_AT_ONCE
            while some == _EVENTS_AT_ONCE:
                some = self._registry.journal.delete_of(agent, _EVENTS_AT_ONCE)
                await trio.lowlevel.checkpoint()
            if not os.path.lexists(self._layout.agent(agent).root):
                with self._registry.change("files forgotten"):
                    store.forget_removed(agent)
            await trio.lowlevel.checkpoint()


# In the worker thread


async def _in_thread(work: Callable[[str], T], path: str) -> T:
    """Do file work in a thread; a daemon that stops doesn't wait for it, because a crash may cut it short as well."""
    return await trio.to_thread.run_sync(work, path, abandon_on_cancel=True)


def _look(agents: str) -> dict[str, dict[int, _Found]]:
    """Measure every turn's directory, and remove the remains of a compression that was cut short."""
    found: dict[str, dict[int, _Found]] = {}
    for agent in list_directory(agents):
        turns = found.setdefault(agent.name, {})
        for turn in list_directory(os.path.join(agent.path, "turns")):
            if turn.name.isdecimal():
                turns[int(turn.name)] = _measure(turn.path)
    return found


def _measure(directory: str) -> _Found:
    size, packed = 0, True
    for entry in list_directory(directory):
        with suppress(OSError):
            if entry.name.endswith(archive.PART_SUFFIX):
                os.unlink(entry.path)
                continue
            stat = entry.stat(follow_symlinks=False)
            size += stat.st_blocks * 512
            # A file with holes takes less as it is, and an agent can make one of terabytes.
            if entry.name == "stdout" and _WORTH_COMPRESSING <= stat.st_size <= 2 * stat.st_blocks * 512:
                packed = False
    return _Found(size, packed)


def _compress(directory: str) -> int | None:
    """Compress a turn's output, and return the bytes on disk that its directory has then; None when it can't be done."""
    try:
        archive.compress(os.path.join(directory, "stdout"))
    except OSError as problem:
        log.debug("not compressed", path=directory, reason=str(problem))
        return None
    return _measure(directory).size
