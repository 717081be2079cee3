"""Puts agents' clones back to how a turn left them, in a sandbox: git on the host never reads a clone.

The present work is kept first, as `refs/substrat/NAME/before-restore/N`. Then the intent is committed, and from then on no
turn of the agent begins until its files are those of the turn: when the daemon is killed meanwhile, the next one finishes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog

from sandbox.spec import Bind
from substrat.core.agents.lifecycle import Phase
from substrat.core.programs.table import CURSOR
from substrat.core.workspaces import clone_pruning as decisions
from substrat.core.workspaces.clone_life import CloneEvent, step
from substrat.core.workspaces.clones import Stage
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.clones.git_sandbox import clone_program, said
from substrat.daemon.clones.renaming import check_at_rest
from substrat.daemon.clones.repository import NOTHING
from substrat.daemon.sandboxes import clone_mounts
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import Refused, SandboxFailed, SubstratError
from substrat.inside.clone.git import OUT, TREE

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.state import State
    from substrat.daemon.clones.diffing import Diffing
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.making import Making
    from substrat.daemon.clones.repository import Repositories

log = structlog.get_logger("substrat.restoring")

_SECONDS = 300.0
"""git writes a work tree of some gigabytes in that time."""


class Restored(NamedTuple):
    """A clone that was put back: the turn's commits, and the ref of the work before; None: there was no work."""

    head: str | None
    wip: str
    kept_as: str | None


@attrs.define(kw_only=True, eq=False)
class Restoring:
    """Puts the clones of one daemon's agents back."""

    _state: State
    _repositories: Repositories
    _keeping: Keeping
    _making: Making
    _diffing: Diffing
    _check_unused: Callable[[Agent], None]
    _wanted: Wakeup = attrs.field(init=False, factory=Wakeup)
    _failures: dict[str, SubstratError] = attrs.field(init=False, factory=dict)

    async def restore(self, agent: Agent, turn: int) -> Restored:
        """Put an agent's clone back to the end of a turn.

        Raises:
            Refused: a turn or a command of a person runs, the agent has ended, or its clone isn't ready.
            NotFound: no work of that turn is kept.
            SandboxFailed: the present work can't be kept, or the files can't be changed; the sentence says how they are.
        """
        _check(agent)
        assert agent.clone is not None
        with self._state.registry.holds.holding(agent.id, f"{agent.name} is being put back to turn {turn}"):
            self._check_unused(agent)
            if (obstacle := self._state.registry.closures.obstacle(agent)) is not None:
                raise Refused(f"{agent.name} can't be put back now: {obstacle}; try again when that is over")
            wip = await self._diffing.commit_of_turn(agent.clone, turn)
            await self._making.renew(agent.clone)
            clone = await self._kept(agent)
            before = await self._set_aside(clone)
            self._failures.pop(agent.id, None)
            await until_stored(partial(self._intend, agent.id, turn))
        self._wanted.set()
        while (found := self._state.registry.find(agent.id).clone) is not None and found.stage is Stage.RESTORING:
            await self._state.registry.next_change(agent.id)
        if (failure := self._failures.pop(agent.id, None)) is not None:
            raise failure
        return Restored(await self._head_of(clone, wip), wip, before)

    async def _set_aside(self, clone: Clone) -> str | None:
        """Give the work that is there a ref of its own, and return its name; None: there is none."""
        if clone.kept.wip is None:
            return None
        number = await self._diffing.last_number(clone, "before-restore") + 1
        ref = clone.ref(f"before-restore/{number}")
        self._state.registry.points.before("earlier work noted")
        await self._repositories.update_refs(clone.git_dir, {ref: (clone.kept.wip, NOTHING)})
        self._state.registry.points.after("earlier work noted")
        return ref

    # The part that survives the daemon

    async def run(self) -> None:
        """Put clones back that are to be, until cancelled."""
        while True:
            self._wanted.clear()
            for agent in list(self._state.registry.agents):
                if agent.clone is not None and agent.clone.stage is Stage.RESTORING:
                    await self._finish(agent, agent.clone)
            await self._wanted.wait()

    async def _finish(self, agent: Agent, clone: Clone) -> None:
        """Put one clone back; an oddity fails this restore alone."""
        assert clone.restoring is not None
        try:
            wip = await self._diffing.commit_of_turn(clone, clone.restoring)
            await self._making.renew(clone)
            # A daemon that was killed may have left half of the turn's files.
            now = await self._kept(agent)
            await self._put_back(now, await self._head_of(clone, wip), wip)
            await self._keeping.keep_last(agent.id)
        except SubstratError as problem:
            failure = problem
        except Exception as problem:
            log.exception("a clone can't be put back", agent=agent.name)
            failure = SandboxFailed(f"an internal error ({type(problem).__name__}), see substratd's log")
        else:
            await until_stored(partial(self._done, agent.id, clone.restoring, wip))
            return
        self._failures[agent.id] = failure
        await until_stored(partial(self._failed, agent.id, clone.restoring, failure.message))

    async def _kept(self, agent: Agent) -> Clone:
        """Keep the work in an agent's clone; raises `SandboxFailed` if that fails."""
        now = await self._keeping.keep_last(agent.id)
        if now is None or now.unkept is not None:
            why = now.unkept if now is not None else "the agent is gone"
            raise SandboxFailed(f"the work that is in {agent.name}'s clone now can't be kept, so it stays: {why}")
        return now

    async def _head_of(self, clone: Clone, wip: str) -> str | None:
        return await self._repositories.commit(clone.git_dir, f"{wip}^1")

    async def _put_back(self, clone: Clone, head: str | None, wip: str) -> None:
        files, borrowing = self._state.files, self._repositories.borrowing
        empty = os.path.join(self._state.layout.trees, "empty")
        lent = await files.run(clone.repository, clone_mounts.find_lent, clone, borrowing, empty)
        cursor = os.path.relpath(os.path.join(clone.workspace, CURSOR.places.workspace), clone.repository)
        line, shown = clone_program({
            "task": "restore", "before": clone.kept.wip, "head": head, "wip": wip, "branch": clone.branch, "cursor": cursor,
        })  # fmt: skip
        mounts = (
            *shown,
            Bind(clone.tree, TREE, writable=True, held=True),
            Bind(f"{clone.tree}.out", OUT, held=True),
            *lent.mounts,
        )
        self._state.registry.points.before("tree restored")
        done = await self._repositories.sandbox.run(line, mounts, seconds=_SECONDS)
        self._state.registry.points.after("tree restored")
        if done.status:
            raise SandboxFailed(f"{clone.name}'s clone can't be put back: {said(done)}")

    # Commits

    def _intend(self, agent_id: str, turn: int) -> None:
        agent = self._state.registry.find(agent_id)
        assert agent.clone is not None
        _check(agent)
        with self._state.registry.change("restore intended") as change:
            change.step_clone(replace(agent.clone, restoring=turn), CloneEvent.RESTORE)

    def _done(self, agent_id: str, turn: int, wip: str) -> None:
        agent = self._state.registry.get(agent_id)
        if agent is None or agent.clone is None:
            return
        with self._state.registry.change("clone restored") as change:
            notice = decisions.restored_notice(turn)
            change.step_clone(replace(agent.clone, notice=notice, notice_turn=None), CloneEvent.RESTORED)
            text, data = f"its clone is as it was at the end of turn {turn}", {"turn": turn, "commit": wip}
            change.record(DaemonEvent(agent.id, None, "clone:restored", text, data))

    def _failed(self, agent_id: str, turn: int, message: str) -> None:
        agent = self._state.registry.get(agent_id)
        if agent is None or agent.clone is None:
            return
        with self._state.registry.change("restore failed") as change:
            change.step_clone(agent.clone, CloneEvent.RESTORED)
            text = f"its clone couldn't be put back to turn {turn}: {message}"
            change.record(DaemonEvent(agent.id, None, "clone:not-restored", text))


def _check(agent: Agent) -> None:
    """Raise `Refused` if an agent's clone can't be put back now."""
    check_at_rest(agent)
    if agent.phase == Phase.ENDED:
        raise Refused(f"{agent.name} has ended: `substratctl checkout {agent.name} DIR` shows its work")
    if agent.clone is not None:
        step(agent.clone, CloneEvent.RESTORE)  # it may refuse
