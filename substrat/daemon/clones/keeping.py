"""Keeps the work in clones: at each turn's end the commits and the uncommitted files go into the user's repository.

`substrat.inside.clone` packs them in a sandbox, and git checks the pack and takes it in, in another one. Of a clone the
daemon reads that pack and the report, nothing else. For example, after turn 3 of `fix` `refs/substrat/fix/head` is its last
commit, and `refs/substrat/fix/turns/3` has its uncommitted files on top.
"""

from __future__ import annotations

import math
import os
import shutil
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import attrs
import msgspec
import structlog
import trio
from msgspec import Meta

from sandbox.spec import Bind
from substrat.core.workspaces import holders, work
from substrat.core.workspaces.clone_life import WITH_TREE
from substrat.core.workspaces.clones import Kept, OnlyHere
from substrat.daemon.clones import lfs_objects
from substrat.daemon.clones.git_sandbox import GitFailed, clone_program, said
from substrat.daemon.clones.repository import Room, TooMuch
from substrat.daemon.sandboxes import build_spec, clone_mounts
from substrat.daemon.sandboxes.oneshot import TookTooLong
from substrat.daemon.state.columns import MAX_NUMBER
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import SandboxFailed, SubstratError
from substrat.inside.clone.git import OUT, TREE
from substrat.inside.clone.keep import NOTES, PACK, QUICK
from substrat.inside.clone.main import TOO_LARGE
from substrat.inside.clone.status import STATUS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.repository import Imported, Repositories
    from substrat.daemon.state.layout import Layout

log = structlog.get_logger("substrat.keeping")

_SECONDS = 120.0
"""`git add` reads some gigabytes in that time; the end of the turn waits for it."""
_CONFIG = "/run/substrat/gitconfig"

_Commits = tuple[str | None, str | None, str | None]
"""HEAD's, that of the uncommitted files and that of the other branches and stashes (`Report`)."""
Commit = Annotated[str, Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")]
Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Size = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Name = Annotated[str, Meta(max_length=300)]


class Report(msgspec.Struct, frozen=True):
    """The answer of the task `keep`; a hostile clone may have had git falsify it, so only counts and names are believed."""

    head: Commit | None
    wip: Commit | None
    asides: Commit | None
    files: Count
    hidden: Count
    branches: Annotated[tuple[tuple[Name, Count], ...], Meta(max_length=100)]
    stashes: Count
    ignored: Count
    nested: Count
    submodules: Count
    lfs: Count
    unreadable: Count
    packed: bool
    size: Size | None = None  # a note of an earlier daemon has none


@attrs.define(eq=False)
class Keeping:
    """Keeps the work of one daemon's clones."""

    _registry: Registry
    _repositories: Repositories
    _layout: Layout
    _home: str
    _locks: dict[str, trio.Lock] = attrs.field(init=False, factory=dict)
    _refused: dict[str, dict[_Commits, tuple[int, str]]] = attrs.field(init=False, factory=dict)

    async def clear_quarantines(self) -> None:
        """Remove what imports have left in the users' repositories that ended with a killed daemon."""
        for clone in self._registry.store.clones():
            async with self.held(clone.agent):
                try:
                    await self._repositories.clear_quarantine(clone)
                except SubstratError as problem:
                    log.warning("a quarantine stays", agent=clone.name, reason=problem.message)

    async def keep(self, agent_id: str, turn: tuple[str, int] | None = None) -> Kept | None:
        """Keep an agent's work, and record it; a failure is an event, and the next keep tries again.

        Args:
            agent_id: the agent.
            turn: the turn that ends, its id and number; None: between turns, or in the middle of one, whose changes the
                next keep still counts among that turn's.

        Returns:
            The work that was kept, None if that failed or the agent has no clone.
        """
        async with self.held(agent_id):
            agent = self._registry.get(agent_id)
            if agent is None or agent.clone is None or agent.clone.stage not in WITH_TREE:
                return None
            before = agent.clone.kept
            after = await self._keep_and_record(agent.clone, turn)
            return after.kept if after.unkept is None or after.kept.time > before.time else None

    async def keep_last(self, agent_id: str) -> Clone | None:
        """Keep the work of an agent, removed or not, in whose clone nothing runs, and count what else is only there.

        A failure is recorded in the clone (`Clone.unkept`). The refs of a removed agent may be another's by now that has
        its name; its work was kept when it was removed, and isn't once more.

        Returns:
            The clone as it is recorded then; None: there is none.
        """
        async with self.held(agent_id):
            clone = self._registry.clone_of(agent_id)
            if clone is None or clone.stage not in WITH_TREE or not os.path.lexists(clone.tree):
                return clone
            if self._registry.get(agent_id) is None and self._has_heir(clone):
                return clone
            return await self._keep_and_record(clone, None, is_last=True)

    def _has_heir(self, clone: Clone) -> bool:
        """Say whether the refs of a removed agent's clone are also another clone's."""
        return any(
            other.agent != clone.agent and (other.name, other.git_dir) == (clone.name, clone.git_dir)
            for other in self._registry.store.clones()
        )

    @asynccontextmanager
    async def held(self, agent_id: str) -> AsyncIterator[None]:
        """Keep an agent's work from being kept meanwhile, as soon as a keep that is under way has ended."""
        lock = self._locks.setdefault(agent_id, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else another task has it by now
                self._locks.pop(agent_id, None)

    async def _keep_and_record(self, clone: Clone, turn: tuple[str, int] | None, *, is_last: bool = False) -> Clone:
        """Keep a clone's work, or note why that failed; returns the clone as it is recorded then."""
        number = turn[1] if turn is not None else None
        unkept = None
        try:
            try:
                kept = await self._keep(clone, number, is_last=is_last)
            except TookTooLong:
                raise
            except SubstratError as problem:  # other branches and stashes don't hold up the work of this one
                unkept = f"its other branches and stashes: {problem.message}"
                kept = await self._keep(clone, number, is_last=is_last, takes_asides=False)
        except SubstratError as problem:
            until = "" if is_last else " until the next turn's end"
            text = f"its work couldn't be kept: {problem.message}; it stays in its clone{until}"
            return await until_stored(partial(self._note_failure, clone, turn, problem.message, text))
        after = await until_stored(partial(self._record, clone, turn, kept, unkept))
        if after.kept.head == clone.kept.head:
            return after  # an ancestor whose head moves on asks itself
        try:
            await self._note_holders(after)
        except SubstratError as problem:
            log.warning("which ancestor has an agent's commits isn't known", agent=clone.name, problem=problem.message)
        return after

    async def _note_holders(self, clone: Clone) -> None:
        """Note who has the commits of a clone that was kept, and of which descendants its agent has the commits."""
        agent = self._registry.get(clone.agent)
        if agent is None:
            return
        above, below = self._registry.lineage(agent)[1:], (one.id for one in self._registry.family(agent)[1:])
        sides = ([found for one in ids if (found := self._registry.clone_of(one)) is not None] for ids in (above, below))
        if asked := holders.pairs(clone, *sides):
            heads = [(str(lower.kept.head), str(upper.kept.head)) for lower, upper in asked]
            answers = await self._repositories.contained(clone.git_dir, heads)
            await until_stored(partial(self._record_holders, asked, answers))

    async def _keep(self, clone: Clone, turn: int | None, *, is_last: bool = False, takes_asides: bool = True) -> Kept:
        """Keep a clone's work and return it; raises `SubstratError`."""
        out = f"{clone.tree}.out"
        await trio.to_thread.run_sync(_make_ready, out)
        number, loose = (turn, False) if turn is not None else (clone.kept.turn, True)
        try:
            report = await self._bundle(clone, out, is_last=is_last, takes_asides=takes_asides)
            commits = (report.head, report.wip, report.asides)
            if not report.packed and (reason := self._refusals(clone).get(commits)) is not None:  # as last time
                raise SandboxFailed(reason)
            lfs = await self._copy_lfs(clone) if report.lfs else 0
            only_here = OnlyHere(report.nested, report.submodules, lfs, report.ignored, report.unreadable)
            seen = replace(
                clone.kept, turn=number, time=self._registry.now(), files=report.files, hidden=report.hidden,
                only_here=only_here, size=report.size if report.size is not None else clone.kept.size,
            )  # fmt: skip
            if takes_asides:
                seen = replace(seen, asides=report.asides, branches=report.branches, stashes=report.stashes)
            if not report.packed:
                if turn is not None and clone.kept.loose and clone.kept.wip is not None:
                    await self._repositories.update_refs(clone.git_dir, {clone.turn_ref(turn): (clone.kept.wip, None)})
                return replace(seen, loose=loose and clone.kept.loose)
            state, turns = await self._import(clone, turn, report, f"{out}/{PACK}")
            last_old = number - self._registry.config.clone.turns
            gone = [ref for ref in turns if _turn_of(ref) <= last_old]
            if seen.asides is None and clone.kept.asides is not None:
                gone.append(clone.ref("asides"))
            if not await self._has_deleted(clone, gone) and seen.asides is None:
                seen = replace(seen, asides=clone.kept.asides)  # so that the next keep tries again
        finally:
            with suppress(FileNotFoundError):
                os.unlink(f"{out}/{PACK}")
        return replace(
            seen, head=state.head, wip=state.wip, ahead=state.ahead, behind=state.behind, landed=state.is_landed,
            loose=loose,
        )  # fmt: skip

    async def _copy_lfs(self, clone: Clone) -> int:
        """Copy the clone's LFS objects to the user's, and return how many are only in the clone."""
        most = self._registry.config.clone.bundle_bytes
        copy = partial(lfs_objects.copy_all, clone.git_dir, f"{clone.tree}/.git", most)
        return await self._repositories.sandbox.files.run(clone.repository, copy)

    async def _bundle(self, clone: Clone, out: str, *, is_last: bool, takes_asides: bool) -> Report:
        # A last keep comes also before a clone is put back in which the agent has replaced directories.
        find = clone_mounts.find_lent if is_last else clone_mounts.prepare
        empty = os.path.join(self._layout.trees, "empty")
        files, borrowing = self._repositories.sandbox.files, self._repositories.borrowing
        lent = await files.run(clone.repository, find, clone, borrowing, empty)
        kept = clone.kept
        # A base of the user's uncommitted changes comes into his repository with the first keep, its parent is there.
        known = [f"{clone.base}^" if clone.with_wip else clone.base] if clone.base is not None else []
        program, shown = clone_program({
            "task": "keep", "last_head": kept.head, "last_wip": kept.wip, "last_asides": kept.asides, "known": known,
            "asides": takes_asides, "refused": list(self._refusals(clone)),
        })  # fmt: skip
        place, given = self._layout.agent(clone.agent), self._registry.config.agent
        mounts = (
            *shown,
            Bind(clone.tree, TREE, writable=True, held=True),
            Bind(out, OUT, writable=True, held=True),
            *lent.mounts,
            # The agent's git had them too: without the same `core.autocrlf` each file would differ.
            Bind(place.gitconfig, _CONFIG, optional=True),
            Bind(place.git, f"{self._home}/.config/git", optional=True),
            *(Bind(path, path, optional=True) for path in dict.fromkeys((*given.bind_ro, *given.path))),
        )
        variables = {"GIT_CONFIG_GLOBAL": _CONFIG, "PATH": ":".join((*given.path, build_spec.PATH))}
        quick = ("/bin/sh", "-c", QUICK, "sh", f"{kept.head} {kept.wip} {kept.asides}", " ".join(STATUS), *program)
        line = quick if takes_asides and not is_last else program
        most = self._registry.config.clone.bundle_bytes
        self._registry.points.before("bundle made")
        try:
            done = await self._repositories.sandbox.run(
                line, mounts, seconds=_SECONDS, file_bytes=most, variables=variables
            )
        except TookTooLong as late:
            raise TookTooLong(
                f"git didn't come to an end within {_SECONDS:g} s: a filter of its `.gitattributes` that hangs, or a very "
                f"large tree; `substratctl exec {clone.name} git status` shows how git fares there", late.output,
            ) from None  # fmt: skip
        self._registry.points.after("bundle made")
        if done.status == TOO_LARGE:
            raise SandboxFailed(
                f"it is more than `clone.bundle_bytes` lets through, {most >> 20} MiB: raise that, or have large files "
                f"ignored or removed"
            )
        if done.status:
            raise SandboxFailed(f"{said(done)}; `substratctl exec {clone.name} git status` shows how git fares there")
        try:
            return msgspec.json.decode(done.output, type=Report)
        except msgspec.MsgspecError:
            raise SandboxFailed("git in its clone gave no sensible answer") from None

    async def _import(self, clone: Clone, turn: int | None, report: Report, pack: str) -> Imported:
        """Take a pack into the user's repository, and set the agent's refs there; a turn's only at its end."""
        turns_ref = clone.turn_ref(turn) if turn is not None else None
        wanted = {
            clone.ref("wip"): report.wip, turns_ref: report.wip, clone.ref("head"): report.head,
            clone.ref("asides"): report.asides,
        }  # fmt: skip
        refs = {ref: commit for ref, commit in wanted.items() if ref is not None and commit is not None}
        room = Room(self._registry.config.clone.bundle_bytes, self._registry.config.disk.free)
        self._registry.points.before("bundle imported")
        try:
            imported = await self._repositories.import_pack(clone, pack, refs, room)
        except TooMuch as problem:
            reason = _too_much(clone, room.most, is_slow=problem.is_slow)
            if not problem.is_slow:  # its remedy changes no commit
                # A keep without the other branches and stashes comes after one with them.
                last = dict(list(self._refused.get(clone.agent, {}).items())[-1:])
                self._refused[clone.agent] = {**last, (report.head, report.wip, report.asides): (room.most, reason)}
            raise SandboxFailed(reason) from None
        except GitFailed as problem:
            raise SandboxFailed(
                f"git refuses to take it into {clone.repository}: {problem.message}; `substratctl exec {clone.name} git "
                f"fsck` tells more"
            ) from None
        self._registry.points.after("bundle imported")
        return imported

    def _refusals(self, clone: Clone) -> dict[_Commits, str]:
        """Return the commits that were refused under the limit of now, because they unfold to too much, and why."""
        most = self._registry.config.clone.bundle_bytes
        known = self._refused.get(clone.agent, {})
        return {commits: reason for commits, (limit, reason) in known.items() if limit == most}

    async def _has_deleted(self, clone: Clone, gone: list[str]) -> bool:
        """Delete refs that no longer hold anything of a clone's; say whether that went well: what was kept is kept."""
        try:
            await self._repositories.update_refs(clone.git_dir, dict.fromkeys(gone, (None, None)))
        except SandboxFailed as problem:
            log.warning("old refs of a clone stay", agent=clone.name, reason=problem.message)
            return False
        return True

    # Commits

    def _record(self, clone: Clone, turn: tuple[str, int] | None, kept: Kept, unkept: str | None) -> Clone:
        now = self._registry.clone_of(clone.agent)
        if now is None:
            return clone
        after = replace(now, kept=kept, unkept=unkept)
        during = turn[0] if turn else None
        with self._registry.change("clone kept") as change:
            change.put_any_clone(after)
            if kept.last != now.kept.last:
                unreadable = kept.only_here.unreadable
                text = f"{work.describe(after) or 'no work of its own'}; in {after.ref('asides' if kept.asides else 'wip')}"
                text += f"; {unreadable} can't be read and aren't kept" if unreadable else ""
                change.record(DaemonEvent(clone.agent, during, "clone:kept", text))
            if unkept is not None:
                text = f"its work couldn't be kept: {unkept}; they stay in its clone"
                change.record(DaemonEvent(clone.agent, during, "clone:not-kept", text))
        return after

    def _record_holders(self, asked: Sequence[tuple[Clone, Clone]], answers: Sequence[bool]) -> None:
        """Record the holders that have changed; of a head that has moved on meanwhile it counts for nothing."""
        now = [(self._registry.clone_of(one.agent), one) for one in holders.settled(asked, answers)]
        after = [(old, replace(old, held_by=one.held_by, held_head=one.held_head)) for old, one in now if old is not None]
        if changed := [new for old, new in after if new.holder != old.holder]:
            with self._registry.change("clone kept") as change:
                for clone in changed:
                    change.put_any_clone(clone)

    def _note_failure(self, clone: Clone, turn: tuple[str, int] | None, reason: str, text: str) -> Clone:
        now = self._registry.clone_of(clone.agent)
        if now is None:
            return replace(clone, unkept=reason)
        with self._registry.change("note taken") as change:
            change.put_any_clone(replace(now, unkept=reason))
            change.record(DaemonEvent(clone.agent, turn[0] if turn else None, "clone:not-kept", text))
        return replace(now, unkept=reason)


def _too_much(clone: Clone, most: int, *, is_slow: bool) -> str:
    if is_slow:
        repack = f"`substratctl exec {clone.name} git repack -a -d -l -F` makes its deltas anew"
        return f"git takes too long to unfold its objects: {repack}"
    return (
        f"its objects unfold to more than `clone.bundle_bytes` lets through, {most >> 20} MiB: raise that, or have large "
        f"files ignored or removed"
    )


def _turn_of(ref: str) -> float:
    """Return the number of the turn whose ref it is; a ref that no turn's end has set is never an old one."""
    number = ref.rpartition("/")[2]
    return int(number) if number.isdecimal() else math.inf


def _make_ready(directory: str) -> None:
    """Make the directory for a pack; of an earlier keep only its notes stay."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name not in NOTES:
            os.unlink(entry.path)
