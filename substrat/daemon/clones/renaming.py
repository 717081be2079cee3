"""Renames agents, and moves the refs of their clones in the user's repository along.

The new refs are made before the commit that renames, and the old ones are deleted after it, each with compare-and-set. A
daemon that is killed in between leaves refs too many, never too few: `Clone.former_name` remembers the ones to be deleted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog

from substrat.core.agents.lifecycle import LIVE_PHASES, Phase
from substrat.core.workspaces.clone_life import PREPARING
from substrat.core.workspaces.clones import PREFIX, Clone, ref_problem
from substrat.daemon.agents import spawning
from substrat.daemon.clones.repository import NOTHING
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import InvalidParams, Refused, SubstratError

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.families.waits import Waits

log = structlog.get_logger("substrat.renaming")


@attrs.define(eq=False)
class Renaming:
    """Renames the agents of one daemon."""

    _registry: Registry
    _waits: Waits
    _repositories: Repositories
    _keeping: Keeping
    _check_unused: Callable[[Agent], None]
    being_given: set[str] = attrs.field(init=False, factory=set)
    """The names that agents are just given: their refs are there before the agents have them."""

    async def rename(self, name: str, new: str, by: str) -> Agent:
        """Give an agent another name.

        Raises:
            NameTaken: another agent has the name.
            InvalidParams: the name can't be one.
            Refused: it can't be done now, or refs of an earlier agent have the name.
        """
        agent = self._registry.find(name)
        if agent.name == new:
            return agent
        self._check(agent, new)
        if agent.clone is None:
            self._commit(agent, new, by)
            return self._registry.find(agent.id)
        async with self._keeping.held(agent.id):
            self._check(agent, new)
            self.being_given.add(new)
            try:
                await self._move(agent, agent.clone, new, by)
            finally:
                self.being_given.discard(new)
            await self._finish_one(self._registry.clone_of(agent.id) or agent.clone)
        return self._registry.find(agent.id)

    async def _move(self, agent: Agent, clone: Clone, new: str, by: str) -> None:
        """Make the refs of the new name, and commit it; where that is refused they go again."""
        made = await self._copy_refs(clone, new)
        refused = None
        try:
            self._check(agent, new)
            self._commit(agent, new, by)
        except SubstratError as problem:
            refused = problem
        if refused is not None:
            await self._delete(clone.git_dir, made)
            raise refused

    def _check(self, agent: Agent, new: str) -> None:
        now = self._registry.find(agent.id)
        check_between_turns(self._registry, now, "in which it has its name", self._check_unused)
        spawning.check_name(self._registry, new, self._registry.get(now.parent), renamed=now)
        clone = now.clone
        if clone is None:
            return
        if (problem := ref_problem(new)) is not None:
            raise InvalidParams(f"no clone's refs can be named after {new!r}: {problem}; choose another name")
        if clone.former_name is not None:
            raise Refused(f"the refs of {clone.former_name} are just being deleted: try again in a moment")

    def _commit(self, agent: Agent, new: str, by: str) -> None:
        now = self._registry.find(agent.id)
        with self._registry.change("agent renamed") as change:
            renamed = change.put(replace(now, name=new))
            if now.clone is not None:
                change.put_clone(renamed, replace(now.clone, name=new, former_name=now.name))
            for wait in self._waits.about(agent.id):
                named = [new if one == agent.id else known for one, known in zip(wait.members, wait.names, strict=True)]
                change.put_wait(wait.id, replace(wait, names=tuple(named)))
            data = {"by": by, "from": now.name, "to": new}
            change.record(DaemonEvent(agent.id, None, "agent:renamed", f"{now.name} is called {new} now", data))

    # Refs

    async def _copy_refs(self, clone: Clone, new: str) -> dict[str, str]:
        """Make a clone's refs under a new name, and return those that were made, with their values."""
        old = await self._refs(clone.git_dir, clone.name)
        there = await self._refs(clone.git_dir, new)
        wanted = {replace(clone, name=new).ref(ref.removeprefix(clone.ref(""))): commit for ref, commit in old.items()}
        # Those of an attempt that was cut short are the same ones.
        if not there.items() <= wanted.items():
            raise Refused(
                f"{PREFIX}{new} in {clone.repository} holds the work of an earlier agent: choose another name, or delete "
                f"those refs with git"
            )
        missing = {ref: commit for ref, commit in wanted.items() if ref not in there}
        self._registry.points.before("refs copied")
        await self._repositories.update_refs(clone.git_dir, {ref: (commit, NOTHING) for ref, commit in missing.items()})
        self._registry.points.after("refs copied")
        return wanted

    async def _refs(self, git_dir: str, name: str) -> dict[str, str]:
        return await self._repositories.refs(git_dir, f"{PREFIX}{name}/")

    async def _delete(self, git_dir: str, refs: dict[str, str]) -> None:
        await self._repositories.update_refs(git_dir, {ref: (None, commit) for ref, commit in refs.items()})

    # The old ones

    async def finish(self) -> None:
        """Delete the refs that a daemon which was killed in the middle of a renaming has left."""
        for clone in self._registry.store.clones():
            if clone.former_name is not None:
                await self._finish_one(clone)

    async def _finish_one(self, clone: Clone) -> None:
        """Delete the refs of a clone's former name; what fails is tried again when the next daemon starts."""
        former = clone.former_name
        if former is None:
            return
        try:
            if not self._registry.has_name(former):
                old = await self._refs(clone.git_dir, former)
                self._registry.points.before("old refs deleted")
                await self._delete(clone.git_dir, old)
                self._registry.points.after("old refs deleted")
        except SubstratError as problem:
            log.warning("refs of a former name stay", name=former, reason=problem.message)
            return
        await until_stored(partial(self._forget, clone))

    def _forget(self, clone: Clone) -> None:
        with self._registry.change("renaming finished") as change:
            change.put_any_clone(replace(self._registry.clone_of(clone.agent) or clone, former_name=None))


def check_between_turns(registry: Registry, agent: Agent, why: str, check_unused: Callable[[Agent], None]) -> None:
    """Raise `Refused` while an agent runs a turn, or something is done to its clone; `why` a turn is in the way."""
    check_at_rest(agent, why)
    name = agent.name
    check_unused(agent)
    if agent.clone is not None and agent.clone.stage in PREPARING and agent.phase != Phase.ENDED:
        raise Refused(f"the clone of {name} is just being made: try again in a moment")
    if any(landing.agent == agent.id for landing in registry.store.open_landings()):
        raise Refused(f"work of {name} is just being landed: try again in a moment")


def check_at_rest(agent: Agent, why: str = "") -> None:
    """Raise `Refused` while an agent runs a turn or is checked; `why` a turn is in the way."""
    name = agent.name
    if agent.phase in LIVE_PHASES:
        how = "is frozen in" if agent.phase is Phase.FROZEN else "runs"
        raise Refused(f"{name} {how} a turn{why and f', {why}'}: `substratctl suspend {name}` first")
    if agent.phase is Phase.CHECKING:
        raise Refused(f"the check of {name} is still to come: wait for its verdict, or `substratctl suspend {name}` first")
