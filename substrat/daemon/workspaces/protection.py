"""Keeps protected paths read-only while agents run: notices that a mount has gone, and mounts it again or stops the turn.

A person's ordinary work on the host takes such mounts away in every sandbox at once: `git config` renames a new file over
`.git/config`, `git checkout` replaces the placeholder of `.envrc` (a mount goes with the directory entry under it).

inotify tells when a protected name changes. The sandboxes that show it are then stopped in memory, and `core.workspaces`
decides from the kept copy whether the agent may have written there. Either the path is mounted again, over a new file that
no open descriptor reaches, or the file is moved aside, the copy is put back and the turn ends. The agent has the time from
the change to the stop, some milliseconds; docs/security.md says so.

One task checks one change after the other, because agents that share a workspace lose the same mounts.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from sandbox import launch
from substrat.core.workspaces.protection import ABSENT, Copy, Treatment
from substrat.daemon.kernel.ratelimit import Share
from substrat.daemon.workspaces import copies, replacing
from substrat.daemon.workspaces.judgement import (
    Judgement,
    is_outdated,
    judge_all,
)
from substrat.daemon.workspaces.lost_mounts import (
    ProtectedSandbox,
    is_git_at_work,
    mount_again,
    moved,
    outer_first,
    placeholder,
    unprotected,
    unsettled,
)
from substrat.daemon.workspaces.protected_names import ProtectedNames
from substrat.daemon.workspaces.set_up import SetUpWatch
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.workspaces.consequences import Consequences

    Known = Callable[[str, ProtectedSandbox, Mapping[str, Copy]], Awaitable[Collection[str]]]

log = structlog.get_logger("substrat.protection")

_PART, _BURST = 0.1, 0.5
"""How much of a processor the changes take that concern no protected path, and its seconds at once: an agent that makes a
million files in a watched directory costs the daemon no more. After a time of quiet a change is looked at immediately, in
such a flood and just after it within some tenths of a second."""
_STOP_SECONDS = 2.0
"""How long all of a sandbox may take to be stopped in memory; one that makes processes faster is killed."""
_REPLACED_SECONDS = 30.0
"""How long paths may be replaced on the host faster than they are mounted again, say by a script that calls `git config` in
a loop; the sandboxes that show them are stopped in memory meanwhile."""
_GIT_SECONDS = 10.0
"""How long a person's git is waited for before its files are set aside or replaced: a checkout takes some seconds."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
"""Between two tries, each pause twice the one before: the person's program gets the processor."""
_MOST_AGREED = 1000
"""Versions of a file that are known as a person's in one turn: a script may replace a file again and again."""
_UNJUDGED = 0
"""Stands for the inode of something that must be judged again; no file has it."""


class _Check(NamedTuple):
    """The state of one check.

    Args:
        concerned: the sandboxes that show something which has lost its protection, by name.
        held: releases each of them by its `close`; they are stopped in memory.
        mounted: the paths that were mounted again, by the sandbox's name (a dict as an ordered set).
        deadlines: when each of them is ended instead, in Trio's time.
    """

    concerned: dict[str, ProtectedSandbox]
    held: dict[str, ExitStack]
    mounted: dict[str, dict[str, None]]
    deadlines: dict[str, float]


class Protection:
    """Keeps the protected paths of one daemon's sandboxes.

    Args:
        registry: the agents.
        consequences: ends sandboxes, sets changed files aside, and tells a person.
        layout: the daemon's directories.
        known: says which contents stood in a repository before an agent (`tip_proofs.TipProofs.known`).
    """

    def __init__(self, registry: Registry, consequences: Consequences, layout: Layout, known: Known) -> None:
        self._registry = registry
        self.consequences = consequences
        self._layout = layout
        self._known = known
        self._command = launch.remounter()
        self._names = ProtectedNames()
        self._sandboxes: dict[str, ProtectedSandbox] = {}
        self._dirty: set[str] = set()
        self._agreed: dict[tuple[str, str], set[bytes]] = {}
        """The digests of what was at a path at the turn's start, and since then as a person's, by the sandbox's name."""
        self._asked = trio.Event()
        self._set_up = SetUpWatch(self._sandboxes, consequences.ended, self._ask)
        self._share = Share(_PART, _BURST)

    def close(self) -> None:
        """Give the kernel's queue back."""
        self._names.close()

    @contextmanager
    def protecting(self, sandbox: ProtectedSandbox, *, adopted: bool = False) -> Iterator[None]:
        """Watch a sandbox's protected paths for as long as this lasts.

        Args:
            sandbox: the sandbox, which is about to be started.
            adopted: whether it runs already, so that something may have happened while no daemon looked.

        Raises:
            SandboxFailed: they can't be watched.
        """
        self._sandboxes[sandbox.name] = sandbox
        try:
            self._names.watch(self._sandboxes.values())
            if adopted:
                self._ask(sandbox.name)
            yield
        finally:
            del self._sandboxes[sandbox.name]
            self.consequences.ended.discard(sandbox.name)
            self._dirty.discard(sandbox.name)
            self._set_up.forget(sandbox.name)
            self._agreed = {key: digests for key, digests in self._agreed.items() if key[0] != sandbox.name}
            self._names.watch(self._sandboxes.values(), strict=False)

    async def run(self) -> None:
        """Keep the paths protected until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._notice)
            nursery.start_soon(self._set_up.run)
            while True:
                await self._asked.wait()
                self._asked = trio.Event()
                await self._check()

    def _ask(self, name: str) -> None:
        self._dirty.add(name)
        self._asked.set()

    async def _notice(self) -> None:
        while True:
            await self._share.wait()
            await self._names.wait()
            began = time.thread_time()
            self._take()
            self._share.spend(time.thread_time() - began)

    def _take(self) -> None:
        """Note in which sandboxes something changed."""
        changed = self._names.changed()
        self._dirty.update(self._sandboxes if changed is None else changed)
        if self._dirty:
            self._asked.set()

    # One check

    async def _check(self) -> None:
        """Check the sandboxes in which something changed; those that can't be checked are ended."""
        check = _Check({}, {}, {}, {})
        names, self._dirty = self._dirty, set()
        try:
            await self._check_sandboxes(check, names)
        except Exception:
            # One workspace's oddity must not end the protection of the others, nor leave its own agent without.
            log.exception("protection broke")
            left = [self._sandboxes[name] for name in names | check.concerned.keys() if name in self._sandboxes]
            await self.consequences.stop(left, "its protection broke: substratd's log says how", [])
        finally:
            for held in check.held.values():
                held.close()

    async def _check_sandboxes(self, check: _Check, names: set[str]) -> None:
        """Restore the protection of sandboxes in which something changed, or changes meanwhile."""
        pause = _FIRST_PAUSE
        await self._concern(check, names)
        while check.concerned:
            looked_at = set(check.concerned)  # others may join meanwhile: they are looked at next
            unfinished = await self._restore(check)
            overdue = {name for name in unfinished if trio.current_time() > check.deadlines[name]}
            if overdue:
                reason = "protected files can't be protected again, or are replaced on the host again and again"
                await self.consequences.stop([check.concerned[name] for name in overdue], reason, [])
                unfinished -= overdue
            for name in looked_at - unfinished:
                await self._let_go(check, name)
            if unfinished:
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            await self._concern_changed(check)

    async def _concern_changed(self, check: _Check) -> None:
        self._take()
        names, self._dirty = self._dirty, set()
        await self._concern(check, names)

    async def _concern(self, check: _Check, names: set[str]) -> None:
        """Find out which sandboxes show something that has lost its protection, and stop those in memory."""
        gone: set[str] = set()
        changed = [self._sandboxes[name] for name in names if name in self._sandboxes]
        for sandbox in changed:
            gone.update(self._gone_in(sandbox))
        for sandbox in list(self._sandboxes.values()):
            if sandbox.name in check.concerned or gone.isdisjoint(sandbox.protected.mounts):
                continue
            if self._set_up.is_set_up(sandbox):
                check.concerned[sandbox.name] = sandbox
                check.deadlines[sandbox.name] = trio.current_time() + _REPLACED_SECONDS
                check.held[sandbox.name] = ExitStack()
                await self._hold(sandbox, check.held[sandbox.name])
        for sandbox in changed:
            if sandbox.held_mark is not None and sandbox.name not in check.held and os.path.exists(sandbox.held_mark):
                # A daemon that was killed has held it, and it has lost nothing.
                Path(sandbox.held_mark).unlink(missing_ok=True)
                sandbox.control.release()

    async def _let_go(self, check: _Check, name: str) -> None:
        """Let a sandbox go on in which all is protected, and tell which paths were without."""
        sandbox = check.concerned.pop(name)
        check.held.pop(name).close()
        await self.consequences.tell_mounted(sandbox, check.mounted.pop(sandbox.name, {}))

    def _gone_in(self, sandbox: ProtectedSandbox) -> list[str]:
        """Return the protected paths that aren't mounted in a sandbox; one that isn't set up yet is looked at later."""
        began = time.thread_time()
        first = sandbox.control.first_process()
        if first is None or not self._set_up.is_set_up(sandbox):
            return []
        lost = unprotected(sandbox, first)
        if not lost:
            self._share.spend(time.thread_time() - began)
        return lost

    async def _hold(self, sandbox: ProtectedSandbox, held: ExitStack) -> None:
        if sandbox.held_mark is not None:
            with open(sandbox.held_mark, "wb"):
                held.callback(Path(sandbox.held_mark).unlink, missing_ok=True)
        self._registry.points.before("sandbox held")
        held.callback(sandbox.control.release)
        with trio.move_on_after(_STOP_SECONDS):
            if await sandbox.control.hold():
                self._registry.points.after("sandbox held")
                return
        if sandbox.name in self._sandboxes and sandbox.control.first_process() is not None:
            reason = "protected files lost their protection, and its processes couldn't be stopped for a look at them"
            await self.consequences.stop([sandbox], reason, [])

    async def _restore(self, check: _Check) -> set[str]:
        """Judge the paths that aren't mounted and obey the verdicts; return the sandboxes to check again."""
        concerned = check.concerned
        gone = {name: self._gone_in(sandbox) for name, sandbox in concerned.items()}
        for name, sandbox in concerned.items():
            if gone[name] and (directory := moved(sandbox, gone[name])) is not None:
                reason = f"{directory} was moved or replaced on the host, and protected files changed where it is now"
                await self.consequences.stop([sandbox], reason, [])
                gone[name] = []
        paths = outer_first({path for lost in gone.values() for path in lost})
        sandboxes = list(concerned.values())
        before = {one.name: first.created_at if (first := self._first_agent(one)) else 0.0 for one in sandboxes}
        judged = await trio.to_thread.run_sync(judge_all, paths, sandboxes, before, dict(self._agreed))
        reached = [one for one in judged if one.verdict is Treatment.REACHED]
        # A file that git has looked at isn't replaced either before git is done with it: git would take it for changed.
        touched = [one.path for one in reached] or [one.path for one in judged if "/.git/" not in one.path]
        is_early = bool(touched) and await self._must_wait(check, touched)
        if is_early or (reached and await trio.to_thread.run_sync(is_outdated, reached)):
            return {name for name, lost in gone.items() if lost}
        if reached and await self._learn(check, reached, sandboxes):
            return {name for name, lost in gone.items() if lost}
        if reached:
            guilty = [name for name, lost in gone.items() if any(one.path in lost for one in reached)]
            await self.consequences.put_back([concerned[name] for name in guilty], reached)
            return {name for name, lost in gone.items() if lost and name not in guilty}
        self._registry.points.before("protected again")
        try:
            if not await self._replace(judged):
                return {name for name, lost in gone.items() if lost}
        except FileNotFoundError:  # gone again on the host, or its directory is
            return {name for name, lost in gone.items() if lost}
        except OSError as problem:
            where = problem.filename or "the workspace"
            await self.consequences.stop(
                list(concerned.values()), f"{where} can't be protected again: {problem.strerror}", []
            )
            return set()
        # The directories may be new ones; a change before they are watched shows in the check of the mounts below.
        self._names.watch(self._sandboxes.values(), strict=False)
        unfinished = {
            name for name, lost in gone.items() if lost and not await self._mount_again(check, concerned[name], lost)
        }
        self._registry.points.after("protected again")
        return unfinished

    # Judging

    def _first_agent(self, sandbox: ProtectedSandbox) -> Agent | None:
        """Return the agent since whose spawn agents may have put objects into the repository of a sandbox's workspace.

        Work of agents with clones is kept in that repository too.
        """
        there = (
            agent
            for agent in self._registry.agents
            if agent.workspace == sandbox.workspace
            or any(is_within(sandbox.workspace, root) for root in self._registry.claim(agent).writable)
        )
        return min(there, key=lambda agent: agent.created_at, default=None)

    async def _learn(self, check: _Check, reached: list[Judgement], sandboxes: list[ProtectedSandbox]) -> bool:
        """Note which contents stood at a tip before the first agent, and say whether there is one that wasn't known.

        An agent may make git slow, so other sandboxes that lose something meanwhile are stopped in memory at once.
        """
        has_learned, left, is_over = False, {one.path: one.now for one in reached}, trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._concern_others, check, is_over)
            for sandbox in sandboxes:
                its = {path: left.pop(path) for path in [*left] if path in sandbox.protected.mounts}
                first = self._first_agent(sandbox)
                if its and first is not None:
                    for path in await self._known(self._layout.agent(first.id).tips, sandbox, its):
                        has_learned = self._agree(sandbox, path, its[path]) or has_learned
            is_over.set()
        return has_learned

    async def _concern_others(self, check: _Check, is_over: trio.Event) -> None:
        while not is_over.is_set():
            with trio.move_on_after(_LONGEST_PAUSE):
                await is_over.wait()
            await self._concern_changed(check)

    def _agree(self, sandbox: ProtectedSandbox, path: str, now: Copy) -> bool:
        """Note what is at a path as a person's for the rest of the turn; says whether it wasn't noted yet."""
        agreed = self._agreed.setdefault((sandbox.name, path), {copies.digest(sandbox.copies.get(path, ABSENT))})
        if len(agreed) >= _MOST_AGREED or copies.digest(now) in agreed:
            return False
        agreed.add(copies.digest(now))
        return True

    # Protecting again

    async def _replace(self, judged: list[Judgement]) -> bool:
        """Replace the files by new ones: descriptors that an agent has opened reach the old ones.

        Returns:
            Whether all of them were as they were judged; else they are to be judged again.
        """
        absent = tuple(one.path for one in judged if one.verdict is Treatment.PLACEHOLDER)
        if absent:
            with self._registry.change("mount point noted"):
                for path in absent:
                    self._registry.store.add_mount_points([path])
        for one in judged:
            is_gone = one.verdict is Treatment.PLACEHOLDER
            fresh, now = (placeholder(one.path), ABSENT) if is_gone else (one.now, one.now)
            if not await trio.to_thread.run_sync(replacing.replace, one.path, one.now, fresh):
                return False
            inode = os.lstat(one.path).st_ino
            for sandbox in self._sandboxes.values():
                if one.path in sandbox.protected.mounts:
                    sandbox.replaced[one.path] = inode
                    self._agree(sandbox, one.path, now)
                    sandbox.copies[one.path] = now
        return True

    async def _mount_again(self, check: _Check, sandbox: ProtectedSandbox, lost: list[str]) -> bool:
        """Mount a sandbox's paths again; says whether all of them are mounted then."""
        first = sandbox.control.first_process()
        if first is None:
            return True
        wanted = [path for path in outer_first(lost) if os.path.lexists(path)]
        writable = {*sandbox.protected.pinned, *sandbox.protected.own_git_dirs}
        problem = await mount_again(
            self._command, first, "".join("w" if path in writable else "r" for path in wanted), wanted
        )
        check.mounted.setdefault(sandbox.name, {}).update(dict.fromkeys(wanted))
        still_lost = unprotected(sandbox, first)
        if not still_lost:
            # A process that the kernel woke meanwhile, say by a timer, may have written to it or hold it open for that.
            still_lost = await trio.to_thread.run_sync(unsettled, sandbox, wanted)
            sandbox.replaced.update(dict.fromkeys(still_lost, _UNJUDGED))
        if sandbox.save is not None:
            await trio.to_thread.run_sync(sandbox.save, dict(sandbox.copies), dict(sandbox.replaced))
        if still_lost:
            log.info("not protected yet", path=still_lost[0], reason=problem or "replaced again on the host")
            return False
        await self.consequences.tell_mounted(sandbox, check.mounted.pop(sandbox.name, {}))
        return True

    # Where the agent may have been faster

    async def _must_wait(self, check: _Check, paths: list[str]) -> bool:
        """Say whether a person's git is to finish before files are set aside or replaced."""
        if trio.current_time() > min(check.deadlines.values()) - _REPLACED_SECONDS + _GIT_SECONDS:
            return False
        for sandbox in check.concerned.values():
            if await trio.to_thread.run_sync(is_git_at_work, sandbox.protected, paths):
                log.info("waiting for git", path=paths[0])
                return True
        return False
