"""Looks after the clones of agents whose turns are over: keeps them a last time, lists them, and removes them.

A removal is committed before anything is deleted, so a daemon that was killed in the middle has its successor finish it. A
tree first disappears into a directory `.trash` beside it, on the same disk, and is deleted there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.workspaces import clone_pruning as decisions
from substrat.core.workspaces.clone_life import CloneEvent, step
from substrat.core.workspaces.clones import Stage
from substrat.core.workspaces.left_refs import LeftRefs
from substrat.daemon.kernel import helper
from substrat.daemon.sandboxes import build_spec
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.daemon.state.trash import Trash
from substrat.errors import NotFound, Refused, SandboxFailed, StorageFailed, SubstratError
from substrat.inside.clone.files import DISK_USE, DISK_USE_SECONDS, size_said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.making import Making
    from substrat.daemon.clones.repository import Repositories

log = structlog.get_logger("substrat.clones")

REMOVED = "removed"
"""The state of a clone whose agent is removed; others have their agents' states."""
GONE, WOULD_GO, STAYS = "pruned", "would-go", "stays"
_SIZES_SECONDS = 20.0
"""How long the sizes of all clones may take together; those that are left aren't known."""


class StoredClone(NamedTuple):
    """A clone that is on disk.

    Args:
        clone: the clone.
        state: its agent's state, or `REMOVED`.
    """

    clone: Clone
    state: str


class Pruned(NamedTuple):
    """What has become of one clone, or would.

    Args:
        clone: the clone.
        outcome: `pruned`, `would-go` or `stays`.
        text: one sentence.
        has_refs: whether refs of its agent are left that no other agent has.
    """

    clone: Clone
    outcome: str
    text: str
    has_refs: bool = False


class Removed(NamedTuple):
    """What has become of the clone of a removed agent: `removed`, `stays` or None if it had none, and why as a sentence."""

    tree: str | None = None
    text: str | None = None


@attrs.define(eq=False)
class Pruning:
    """Looks after the clones of one daemon."""

    _registry: Registry
    _repositories: Repositories
    _keeping: Keeping
    _making: Making
    _check_unused: Callable[[Agent], None]

    # Agents that end or are removed

    async def ended(self, agent_id: str) -> None:
        """Keep the work of an agent that has ended a last time; its clone stays for `prune`."""
        await self._making.stop(agent_id)
        await self._keeping.keep_last(agent_id)

    async def remove(self, agent: Agent, forget: Callable[[tuple[Clone, CloneEvent] | None], None]) -> Removed:
        """Remove an agent, after its work was kept a last time; its clone goes if nothing is only there.

        Args:
            agent: the agent, in whose sandbox nothing runs.
            forget: removes the agent, and commits with that the event that this is to its clone; None: it has no clone.

        Raises:
            Refused: the agent is held, or has begun a turn.
        """
        if agent.clone is None:
            forget(None)
            return Removed()
        try:
            with self._registry.holds.holding(agent.id, f"{agent.name} is being removed"):
                self._check_unused(agent)
                step(agent.clone, CloneEvent.LEAVE)  # it may refuse
                await self._making.stop(agent.id)
                clone = await self._keeping.keep_last(agent.id) or agent.clone
                is_there = os.path.lexists(clone.tree)
                goes = not decisions.contents(clone).only_here or not is_there
                forget((clone, CloneEvent.PRUNE if goes and is_there else CloneEvent.LEAVE))
                if goes:
                    await self._finish(self._registry.clone_of(agent.id) or clone)
        finally:
            self._registry.effects.prepare_clones()
            self._registry.admit()
        return Removed(REMOVED if goes else STAYS, decisions.removal_text(clone, goes=goes)) if is_there else Removed()

    # Looking

    async def all(self, *, sizes: bool) -> list[StoredClone]:
        """Return every clone that is on disk, the oldest agents' first.

        Args:
            sizes: whether all sizes are looked at anew, and not only those that aren't known.
        """
        order = {agent.id: number for number, agent in enumerate(self._registry.agents)}
        clones = sorted(self._registry.store.clones(), key=lambda clone: order.get(clone.agent, -1))
        there = [clone for clone in clones if clone.stage is not Stage.PRUNING and os.path.lexists(clone.tree)]
        found: dict[str, int | None] = {}
        with trio.move_on_after(_SIZES_SECONDS):
            for clone in there:
                if sizes or clone.kept.size is None:
                    found[clone.agent] = await _size(clone)
        known = {agent: size for agent, size in found.items() if size is not None}
        if known:
            with suppress(StorageFailed):  # on a full disk they are wanted most, and are looked at once more later
                self._note_sizes(known)
        now = ((clone, known.get(clone.agent, clone.kept.size)) for clone in there)
        return [StoredClone(replace(one, kept=replace(one.kept, size=size)), self._state(one)) for one, size in now]

    def _state(self, clone: Clone) -> str:
        agent = self._registry.get(clone.agent)
        return STATE_OF[agent.phase] if agent is not None else REMOVED

    # Pruning

    async def prune(self, names: Sequence[str], *, unlanded: bool, dry_run: bool) -> list[Pruned]:
        """Remove the clones of agents that are over, or say which would go.

        Args:
            names: names or ids of agents; none: all that have ended or are removed.
            unlanded: whether those go too that hold work which is in no branch, or nowhere else.
            dry_run: whether nothing is removed.

        Raises:
            NotFound: there is no clone of that name.
            Refused: an agent of that name hasn't ended.
        """
        return [await self._prune(clone, unlanded=unlanded, dry_run=dry_run) for clone in self._chosen(names)]

    def _chosen(self, names: Sequence[str]) -> list[Clone]:
        there = [clone for clone in self._registry.store.clones() if os.path.lexists(clone.tree)]
        if not names:
            return [clone for clone in there if is_over(self._registry, clone)]
        chosen: dict[str, Clone] = {}
        for name in names:
            found = [clone for clone in there if name in {clone.agent, clone.name}]
            if not found:
                raise NotFound(f"there is no clone of {name!r}: `substratctl clones` lists those there are")
            over = [clone for clone in found if is_over(self._registry, clone)]
            if not over:
                worker = found[0].name
                raise Refused(f"{worker} hasn't ended and works in its clone: `substratctl end {worker}` first")
            chosen |= {clone.agent: clone for clone in over}
        return list(chosen.values())

    async def _prune(self, clone: Clone, *, unlanded: bool, dry_run: bool) -> Pruned:
        try:
            with self._registry.holds.holding(clone.agent, f"the clone of {clone.name} is being looked at"):
                if (agent := self._registry.get(clone.agent)) is not None:
                    self._check_unused(agent)
                step(clone, CloneEvent.PRUNE)  # it may refuse
                clone = await self._look_again(clone)
                if decisions.contents(clone).work and not unlanded:
                    return Pruned(clone, STAYS, decisions.refusal_text(clone))
                if dry_run:
                    return Pruned(clone, WOULD_GO, decisions.prospect_text(clone))
                await self._finish(await until_stored(partial(self._condemn, clone)))
        except SubstratError as problem:
            return Pruned(clone, STAYS, problem.message)
        return Pruned(clone, GONE, decisions.pruned_text(clone), has_refs=self._has_refs(clone))

    async def _look_again(self, clone: Clone) -> Clone:
        """Keep a clone once more, and find out whether its commits have landed by now."""
        clone = await self._keeping.keep_last(clone.agent) or clone
        if clone.kept.wip is None:
            return clone
        with suppress(SubstratError):  # the repository may be gone; then it counts as it was
            state = await self._repositories.state(clone)
            clone = replace(clone, kept=replace(clone.kept, behind=state.behind, landed=state.is_landed))
        return clone

    def _has_refs(self, clone: Clone) -> bool:
        others = (other for other in self._registry.store.clones() if other.agent != clone.agent)
        return clone.kept.wip is not None and all(
            (other.name, other.git_dir) != (clone.name, clone.git_dir) for other in others
        )

    # Removing

    async def finish_removals(self) -> None:
        """Finish what a daemon that was killed has begun to remove, and forget clones that are gone."""
        directories = set()
        for clone in self._registry.store.clones():
            directories.add(os.path.dirname(clone.tree))
            is_removed = self._registry.get(clone.agent) is None
            if clone.stage is Stage.PRUNING or (is_removed and not os.path.lexists(clone.tree)):
                try:
                    await self._finish(clone)
                except SubstratError as problem:
                    log.warning("a clone isn't removed", tree=clone.tree, reason=problem.message)
        for directory in directories:
            await trio.to_thread.run_sync(_trash_of(directory).empty, abandon_on_cancel=True)

    async def _finish(self, clone: Clone) -> None:
        """Remove a clone whose removal is committed; raises `SandboxFailed` if it can't be moved."""
        self._registry.points.before("tree removed")
        await trio.to_thread.run_sync(_discard, clone.tree)
        self._registry.points.after("tree removed")
        await until_stored(partial(self._forget, clone))
        trash = _trash_of(os.path.dirname(clone.tree))
        await trio.to_thread.run_sync(trash.empty, abandon_on_cancel=True)

    # Commits

    def _note_sizes(self, sizes: Mapping[str, int]) -> None:
        with self._registry.change("note taken") as change:
            for agent, size in sizes.items():
                if (now := self._registry.clone_of(agent)) is not None:
                    change.put_any_clone(replace(now, kept=replace(now.kept, size=size)))

    def _condemn(self, clone: Clone) -> Clone:
        now = self._registry.clone_of(clone.agent) or clone
        with self._registry.change("prune intended") as change:
            return change.step_clone(replace(now, kept=clone.kept), CloneEvent.PRUNE)

    def _forget(self, clone: Clone) -> None:
        agent = self._registry.get(clone.agent)
        with self._registry.change("tree pruned") as change:
            if agent is not None and agent.clone is not None:
                change.step_clone(agent.clone, CloneEvent.GONE)
            else:
                self._registry.store.forget_clone(clone.agent)
                self._registry.store.note_left_refs(LeftRefs.of(clone))
            if clone.stage is Stage.PRUNING:
                data = {"name": clone.name, "path": clone.tree}
                text = decisions.pruned_text(clone)
                change.record(DaemonEvent(clone.agent, None, "clone:pruned", text, data))


def is_over(registry: Registry, clone: Clone) -> bool:
    """Say whether a clone's agent has ended or is removed."""
    agent = registry.get(clone.agent)
    return agent is None or agent.phase == Phase.ENDED


def _trash_of(directory: str) -> Trash:
    """Return the trash of a directory of trees: on its own disk, so that a tree can be renamed into it."""
    return Trash(os.path.join(directory, ".trash"), lambda: None)


def _discard(tree: str) -> None:
    """Let a tree disappear, and what keeping has left beside it."""
    trash = _trash_of(os.path.dirname(tree))
    for path in (f"{tree}.new", f"{tree}.out", tree):
        trash.put(path)
    if os.path.lexists(tree):
        raise SandboxFailed(f"{tree} can't be moved away, substratd's log says why: the daemon's next start tries again")


async def _size(clone: Clone) -> int | None:
    """Return the bytes on disk that a clone takes; None: it takes too long to tell."""
    with suppress(SubstratError, OSError, helper.TookTooLong):
        done = await helper.run((*DISK_USE, clone.tree), {"PATH": build_spec.PATH}, seconds=DISK_USE_SECONDS, gently=False)
        return size_said(done.stdout)
    return None
