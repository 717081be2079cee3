"""Keeps protected paths read-only while agents run: notices that one was replaced, mounts it anew, and tells a person.

A person's ordinary work on the host takes such mounts away in every sandbox at once: `git config` renames a new file over
`.git/config`, `git checkout` replaces the placeholder of `.envrc` (a mount goes with the directory entry under it).

inotify tells when a protected name changes. Each sandbox that has lost a mount is stopped in memory first. Then the path is
mounted anew, whatever is there, and only then compared with that of the turn's start: a mount that still stands after the
look shows what was looked at. Where all is as it was, the sandbox goes on. Else its turn is frozen in the records too,
until a person resumes it. The agent has the time from the change to the stop, some milliseconds; docs/security.md says so.
A command of `exec`, which no record could wake, is ended.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from sandbox import launch
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.stop_reason import INTERRUPTED, StopKind, StopReason
from substrat.core.workspaces.protection import Treatment, decide
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.kernel.ratelimit import TokenBucket
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.daemon.workspaces.lost_mounts import (
    Look,
    ProtectedSandbox,
    is_set_up,
    look,
    lost,
    mount_again,
    mountable,
    replaced,
    shown,
    unmounted,
)
from substrat.daemon.workspaces.protected_names import ProtectedNames
from substrat.daemon.workspaces.protected_paths import printable, were
from substrat.errors import SandboxFailed, StorageFailed, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.workspaces.placeholders import Placeholders

log = structlog.get_logger("substrat.protection")

_PART, _BURST = 0.1, 0.5
"""How much of a processor the changes take that concern no protected path, and its seconds at once: an agent that makes a
million files in a watched directory costs the daemon no more. After a time of quiet a change is looked at immediately, in
such a flood and just after it within some tenths of a second."""
_STOP_SECONDS = 2.0
"""How long all of a sandbox may take to be stopped in memory; one that makes processes faster is killed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
"""Between two looks at a sandbox that isn't finished, each pause twice the one before: the person's program gets the
processor, and the kernel doesn't report when bubblewrap has mounted everything (some 10 ms)."""
_LISTED = 100
"""Paths in an event's data: it is one line."""
_RECORDED = 16 * 1024
"""Characters of paths in a turn's row or an event, in JSON: each commit that stops the turn writes its row again, from the
room that is kept for a full disk (`reserve.SIZE`)."""


class _Loss(NamedTuple):
    """Paths that a sandbox has lost, and hasn't been let go on since.

    Args:
        since: when the first was found, in Trio's time.
        paths: the paths (a dict as an ordered set).
        was_stopped: whether the turn was frozen already, to its last process, when the first was found.
    """

    since: float
    paths: dict[str, None]
    was_stopped: bool


class Protection:
    """Keeps the protected paths of one daemon's sandboxes."""

    def __init__(self, registry: Registry, files: Files, placeholders: Placeholders) -> None:
        self._registry = registry
        self._files = files
        self._placeholders = placeholders
        self._command = launch.remounter()
        self._names = ProtectedNames(files)
        self._sandboxes: dict[str, ProtectedSandbox] = {}
        self._losses: dict[str, _Loss] = {}
        self._held: set[str] = set()
        self._ended: set[str] = set()
        self._adopted: set[str] = set()
        self._dirty: set[str] = set()
        self._unfinished: set[str] = set()
        self._asked = trio.Event()
        self._share = TokenBucket(_PART, _BURST)

    def close(self) -> None:
        """Give the kernel's queue back."""
        self._names.close()

    @asynccontextmanager
    async def protecting(self, sandbox: ProtectedSandbox, *, adopted: bool = False) -> AsyncIterator[None]:
        """Watch a sandbox's protected paths for as long as this lasts.

        Args:
            sandbox: the sandbox, which is about to be started.
            adopted: whether it runs already, so that something may have happened while no daemon looked. Nothing is
                awaited then before the context begins: its output must be followed, though its workspace doesn't answer.

        Raises:
            SandboxFailed: they can't be watched.
            NoAnswer: its workspace doesn't answer.
        """
        self._sandboxes[sandbox.name] = sandbox
        try:
            if adopted:
                # Whether it was stopped before shows only now: a turn that is frozen in the records is about to be.
                self._losses[sandbox.name] = self._loss(sandbox, ())
                self._adopted.add(sandbox.name)
                self._dirty.add(sandbox.name)
                self._asked.set()
            else:
                await self._names.watch(sandbox)
            yield
        finally:
            del self._sandboxes[sandbox.name]
            self._losses.pop(sandbox.name, None)
            for names in (self._held, self._ended, self._adopted, self._dirty, self._unfinished):
                names.discard(sandbox.name)
            self._names.forget(sandbox.name)

    async def run(self) -> None:
        """Keep the paths protected until cancelled."""
        pause = _FIRST_PAUSE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice)
            while True:
                with trio.move_on_after(pause if self._unfinished else math.inf):
                    await self._asked.wait()
                self._asked = trio.Event()
                names, self._dirty, self._unfinished = self._dirty | self._unfinished, set(), set()
                await self._check([one for name, one in self._sandboxes.items() if name in names - self._ended])
                pause = min(2 * pause, _LONGEST_PAUSE) if self._unfinished else _FIRST_PAUSE

    async def _notice(self) -> None:
        while True:
            await self._share.wait(0)
            await self._names.wait()
            began = time.thread_time()
            changed = self._names.changed()
            self._dirty.update(self._sandboxes if changed is None else changed)
            if self._dirty:
                self._asked.set()
            self._share.spend(time.thread_time() - began)

    # One check

    async def _check(self, sandboxes: list[ProtectedSandbox]) -> None:
        """Stop those sandboxes that have lost a mount, all together, and treat each."""
        async with trio.open_nursery() as nursery:
            for sandbox in sandboxes:
                nursery.start_soon(self._contained, sandbox, self._hold)
        for sandbox in sandboxes:
            if sandbox.name in self._held - self._ended:
                await self._contained(sandbox, self._treat)

    async def _contained(self, sandbox: ProtectedSandbox, act: Callable[[ProtectedSandbox], Awaitable[None]]) -> None:
        """Do something to a sandbox; one whose workspace is too odd for it is ended, and no other one."""
        try:
            await act(sandbox)
        except Exception:
            log.exception("protection broke", agent=sandbox.agent)
            if sandbox.name in self._sandboxes:
                paths = [*self._losses[sandbox.name].paths] if sandbox.name in self._losses else []
                await self._end(sandbox, "its protection broke: substratd's log says how", paths)

    def _loss(self, sandbox: ProtectedSandbox, paths: Iterable[str]) -> _Loss:
        agent = self._registry.get(sandbox.agent)
        was_stopped = agent is not None and agent.phase == Phase.FROZEN and sandbox.control.is_stopped()
        return _Loss(trio.current_time(), dict.fromkeys(paths), was_stopped)

    async def _hold(self, sandbox: ProtectedSandbox) -> None:
        """Stop a sandbox in memory if it has lost a mount; one that isn't set up yet is looked at later."""
        began = time.thread_time()
        first = sandbox.control.first_process()
        if first is None or not is_set_up(first):
            # Held, it would never be ready; a person may have frozen it meanwhile.
            sandbox.control.release()
            self._unfinished.add(sandbox.name)
            return
        if sandbox.name in self._adopted and not await self._take_up(sandbox):
            return
        paths = await self._lost(sandbox, first)
        if sandbox.name not in self._sandboxes:
            return
        if not paths and sandbox.name not in self._losses:
            self._share.spend(time.thread_time() - began)
            return
        loss = self._losses.setdefault(sandbox.name, self._loss(sandbox, ()))
        loss.paths.update(dict.fromkeys(paths))
        if sandbox.name in self._held:
            return
        if not paths:
            seen = await self._look(sandbox, loss, first)
            if not seen.changed and not seen.is_reached:
                self._losses.pop(sandbox.name, None)  # nothing happened while no daemon looked
                sandbox.control.release()
                return
        self._registry.points.before("sandbox held")
        with trio.move_on_after(_STOP_SECONDS):
            if await sandbox.control.hold():
                self._held.add(sandbox.name)
                self._registry.points.after("sandbox held")
                return
        if sandbox.name in self._sandboxes and sandbox.control.first_process() is not None:
            reason = f"{were(paths)} replaced on the host" if paths else "its processes can't be stopped for a look"
            await self._end(sandbox, reason, paths)

    async def _take_up(self, sandbox: ProtectedSandbox) -> bool:
        """Look for paths that were replaced while no daemon ran, and say whether the check of a sandbox can go on."""
        try:
            await self._names.watch(sandbox)
            paths = await self._files.run(sandbox.place, replaced, sandbox.protected)
        except NoAnswer:  # the agent reaches nothing there either
            if sandbox.name in self._sandboxes:
                self._unfinished.add(sandbox.name)
            return False
        except SandboxFailed as problem:
            await self._end(sandbox, problem.message, [])
            return False
        if sandbox.name not in self._sandboxes:
            return False
        self._adopted.discard(sandbox.name)
        loss = self._losses[sandbox.name]
        self._losses[sandbox.name] = loss._replace(since=trio.current_time(), paths=dict.fromkeys(paths))
        return True

    async def _treat(self, sandbox: ProtectedSandbox) -> None:
        """Mount anew the files that are there now, look at them, and let a held sandbox go on, freeze it or end it."""
        loss, first = self._losses.get(sandbox.name), sandbox.control.first_process()
        if loss is None or first is None:
            return
        problem = await self._mount(sandbox, loss, first)
        seen = await self._look(sandbox, loss, first)
        treatment = decide(
            seconds=trio.current_time() - loss.since,
            # After the look: what is mounted then is what was looked at.
            is_mounted=not await self._lost(sandbox, first),
            is_as_before=not seen.changed,
            is_reached=seen.is_reached,
            # Stopped only since then, it may have written before that; one that is resumed since is held all the same.
            was_stopped=loss.was_stopped,
        )
        if sandbox.control.first_process() is None:
            return  # it has ended, so there was nothing to look at
        if treatment is Treatment.WAIT:
            self._unfinished.add(sandbox.name)
        elif treatment is Treatment.END:
            why = (
                "may be open in the sandbox or has another name"
                if seen.is_reached
                else f"can't be protected again: {problem or 'it is replaced again and again'}"
            )
            paths = [*loss.paths]
            await self._end(sandbox, f"{were(paths)} replaced on the host, and {why}", paths)
        else:
            if treatment is Treatment.FREEZE:
                await until_stored(partial(self._freeze, sandbox, seen.changed))
            await trio.to_thread.run_sync(sandbox.save, seen.inodes, seen.contents)
            self._losses.pop(sandbox.name, None)
            self._held.discard(sandbox.name)
            sandbox.control.release()

    async def _lost(self, sandbox: ProtectedSandbox, first: int) -> list[str]:
        """Return the paths that a sandbox has lost; where all are mounted, no file is looked at."""
        if not unmounted(sandbox.protected, first):
            return []
        return await self._files.run(sandbox.place, lost, sandbox.protected, first)

    async def _look(self, sandbox: ProtectedSandbox, loss: _Loss, first: int) -> Look:
        look_there = partial(look, sandbox.protected, sandbox.roots, [*loss.paths], first)
        return await self._files.run(sandbox.place, look_there)

    async def _mount(self, sandbox: ProtectedSandbox, loss: _Loss, first: int) -> str | None:
        """Mount the paths that are lost, over placeholders where there is no file; return why that failed, or None."""
        files, protected = self._files, sandbox.protected
        paths = await self._lost(sandbox, first)
        loss.paths.update(dict.fromkeys(paths))  # more may be gone than when it was stopped
        if not paths:
            return None
        there, keepers = await files.run(sandbox.place, mountable, protected, paths, first)
        self._registry.points.before("protected again")
        try:
            await self._placeholders.make(sandbox.place, (*there, *keepers))
        except (StorageFailed, WorkspaceUnusable) as problem:
            return problem.message
        wanted = await files.run(sandbox.place, shown, paths, first)
        failure = await mount_again(self._command, first, protected, wanted)
        # The directories may be new ones; a change before they are watched shows in the look at the mounts.
        await self._names.watch(sandbox, strict=False)
        self._registry.points.after("protected again")
        return failure

    # Consequences

    def _freeze(self, sandbox: ProtectedSandbox, paths: list[str]) -> None:
        """Freeze a sandbox's turn in the records, and tell why; one that is being stopped is killed.

        Where a person has frozen it meanwhile, that is told too.
        """
        agent = self._registry.get(sandbox.agent)
        if agent is None or agent.turn is None or agent.turn.id != sandbox.turn:
            return
        goes_on = agent.phase in {Phase.RUNNING, Phase.FROZEN} and agent.turn.stop is None
        paths = _named(sandbox, paths)
        with self._registry.change("protected path replaced") as change:
            after = change.put_turn(agent, replace(agent.turn, replaced=_recorded(agent, paths)))
            text = f"frozen, because {were(paths)} replaced here: resume {agent.name}"
            if goes_on:
                if agent.phase == Phase.RUNNING:
                    change.step(after, Event.FREEZE)
                change.record(DaemonEvent(agent.id, sandbox.turn, "agent:frozen", text, _data(paths)))
        if not goes_on:
            sandbox.control.end(agent.turn.stop or INTERRUPTED)

    async def _end(self, sandbox: ProtectedSandbox, reason: str, paths: list[str]) -> None:
        """Note why a sandbox ends and which paths were replaced, then end it."""
        why = StopReason(StopKind.PROTECTION, reason)
        self._ended.add(sandbox.name)
        await until_stored(partial(self._note_end, sandbox, why, paths))
        sandbox.control.end(why)

    def _note_end(self, sandbox: ProtectedSandbox, why: StopReason, paths: list[str]) -> None:
        agent = self._registry.get(sandbox.agent)
        if agent is None:
            return
        with self._registry.change("protected path replaced") as change:
            turn = agent.turn
            if turn is not None and turn.id == sandbox.turn and turn.outcome is None:
                every = dict.fromkeys((*(turn.replaced or ()), *_named(sandbox, paths)))
                change.put_turn(agent, replace(turn, stop=turn.stop or why, replaced=_recorded(agent, [*every]) or None))
            change.record(DaemonEvent(agent.id, sandbox.turn, "workspace:touched", why.detail, _data(paths)))


def _named(sandbox: ProtectedSandbox, paths: list[str]) -> list[str]:
    """Return the paths that a person has to look at: of a directory that the agent may write only where nothing else is."""
    writable = sandbox.protected.writable
    return [path for path in paths if path not in writable] or paths


def _recorded(agent: Agent, paths: list[str]) -> tuple[str, ...]:
    """Return paths for a turn's row; where there are too many, the workspace as a whole stands for the last ones."""
    some = _first(paths)
    return (*some, *([agent.workspace] if len(some) < len(paths) else []))


def _first(paths: list[str]) -> list[str]:
    sizes = accumulate(len(json.dumps(printable(path))) for path in paths)
    return [printable(path) for path, size in zip(paths, sizes, strict=True) if size <= _RECORDED]


def _data(paths: list[str]) -> dict[str, object]:
    return {"paths": _first(paths)[:_LISTED]}
