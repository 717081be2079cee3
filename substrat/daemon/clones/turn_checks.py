"""Runs the checks of agents whose turns have ended, for `families/checks.py`, which decides by their outcomes.

The command of an agent runs as soon as the agent is to be checked: after a turn's end, a `resume`, or the death of an
earlier daemon. It is killed when the agent is suspended, interrupted, ended or removed.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from substrat.core.agents.lifecycle import Phase
from substrat.core.workspaces import checks
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.clones.check_room import CutShort
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.state.storing import until_stored
from substrat.errors import DescriptorsUsedUp, SubstratError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.core.agents.records import Agent
    from substrat.core.agents.turn_check import TurnCheck
    from substrat.core.workspaces.checks import Check
    from substrat.daemon.agents.closures import User
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.check_room import CheckRoom
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.families.checks import Checks
    from substrat.daemon.families.queue import Queue

_PAUSE = 5.0
"""Seconds until a check that can't begin or go on is tried again: no event tells when it can."""

log = structlog.get_logger("substrat.turn_checks")


@attrs.define(eq=False)
class TurnChecks:
    """Runs the checks of one daemon's agents.

    Args:
        registry: the agents.
        checks: decides by the outcomes.
        room: runs commands.
        queue: counts a check as a running turn.
        keeping: keeps the work in clones.
    """

    _registry: Registry
    _checks: Checks
    _room: CheckRoom
    _queue: Queue
    _keeping: Keeping
    _wanted: Wakeup = attrs.field(init=False, factory=Wakeup)
    _scopes: dict[str, trio.CancelScope] = attrs.field(init=False, factory=dict)

    async def run(self) -> None:
        """Run the checks that are to come, until cancelled."""
        self._registry.observe(self._look)
        async with trio.open_nursery() as nursery:
            while True:
                self._wanted.clear()
                for agent in self._registry.agents:
                    if agent.phase is Phase.CHECKING and agent.checked is not None and agent.id not in self._scopes:
                        self._scopes[agent.id] = trio.CancelScope()
                        nursery.start_soon(self._run, agent, agent.checked)
                await self._wanted.wait()

    def _look(self, changed: Iterable[str]) -> None:
        """Begin a check, or end it, when its agent has come to be checked, or is checked no more."""
        for agent_id in changed:
            agent = self._registry.get(agent_id)
            is_checking = agent is not None and agent.phase is Phase.CHECKING
            if is_checking and agent_id not in self._scopes:
                self._wanted.set()
            elif not is_checking and agent_id in self._scopes:
                self._scopes[agent_id].cancel()

    async def _run(self, agent: Agent, check: TurnCheck) -> None:
        try:
            with self._scopes[agent.id]:
                verdict = await self._verdict(agent, check)
                try:
                    await until_stored(partial(self._checks.judge, agent.id, check.turn, verdict))
                except Exception:
                    log.exception("a verdict can't be recorded", agent=agent.name)
                    await trio.sleep(_PAUSE)
        except Exception:  # of a clean-up, beside its cancellation
            log.exception("a check that was stopped broke", agent=agent.name)
        finally:
            del self._scopes[agent.id]
            self._checks.over(agent.id)
            self._wanted.set()  # it may have been suspended, and resumed before its sandbox was gone

    async def _verdict(self, agent: Agent, check: TurnCheck) -> Check:
        """Run a check, and return its outcome; what passes by itself is waited for, and is no fault of the work."""
        while True:
            try:
                return await self._outcome(self._registry.find(agent.id), check)
            except (CutShort, NoAnswer, DescriptorsUsedUp) as problem:
                self._checks.tell(agent.id, f"its check waits: {problem.message}")
                await trio.sleep(_PAUSE)
            except SubstratError as problem:
                return checks.not_run(check.command, problem.message)
            except Exception as problem:
                log.exception("a check broke", agent=agent.name)
                return checks.not_run(check.command, f"an internal error ({type(problem).__name__}), see substratd's log")

    async def _outcome(self, agent: Agent, check: TurnCheck) -> Check:
        with ExitStack() as closed:
            if agent.clone is not None:  # the room shows its files, which nothing may change meanwhile
                places, closures = (agent.clone.tree,), self._registry.closures
                closed.enter_context(closures.closing(places, f"a check of {agent.name}'s work runs"))
                await closures.unused(places, partial(self._tell_users, agent.id))
            async with self._queue.checking(partial(self._checks.tell, agent.id)):
                is_kept = agent.clone is not None and await self._keep(agent.id)
                await until_stored(partial(self._checks.begins, agent.id, is_kept=is_kept))
                return await self._room.judge(agent, check.command)

    async def _keep(self, agent_id: str) -> bool:
        """Keep the work in an agent's clone, where a person may have changed files; say whether that is all there is."""
        await self._keeping.keep(agent_id)
        agent = self._registry.get(agent_id)
        if agent is None or agent.clone is None or agent.clone.unkept is not None or agent.clone.kept.head is None:
            return False
        return agent.clone.kept.files > 0 or await self._room.is_head(agent.clone)

    def _tell_users(self, agent_id: str, users: list[User]) -> None:
        names = ", ".join(user.name for user in users)
        self._checks.tell(agent_id, f"its check waits until nothing runs in the sandbox of {names}")
