"""Lets clients wait for agents: for a state, for the end of a turn, or until they can't go on before a person acts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import trio

from substrat.core.agents.lifecycle import LIVE_PHASES, STATE_OF, STOPPING_PHASES, Phase
from substrat.core.agents.records import open_turn_id
from substrat.core.agents.turn_check import is_pending
from substrat.core.families.scheduling import ObstacleKind
from substrat.daemon.agents.wakeup import first_of
from substrat.errors import CloneFailed, NotFound, OutOfBudget, Refused, WaitTimedOut

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from substrat.core.agents.records import Agent, Turn
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.budgets import Budgets
    from substrat.daemon.families.overview import Overview
    from substrat.daemon.families.waits import Waits

T = TypeVar("T")
AT_WORK = frozenset({"queued", "running"})
"""The states of agents that go on by themselves."""


class Waiting:
    """Waits for agents, in a client's stead."""

    def __init__(self, registry: Registry, waits: Waits, overview: Overview, budgets: Budgets) -> None:
        self._registry = registry
        self._waits = waits
        self._overview = overview
        self._budgets = budgets
        self._store = registry.store

    async def states(self, names: Iterable[str], states: Collection[str] | None) -> list[Agent]:
        """Wait until each agent is in one of the states.

        None means: until it is neither queued nor running, waits for no other and has asked the operator nothing; or until
        it can't go on before a person acts (`_is_stalled`, `spent`).

        Raises:
            NotFound: an agent isn't there, or was removed meanwhile.
        """
        found = []
        for agent_id in [self._registry.find(name).id for name in names]:
            while not (self._state(agent_id) in states if states else self._is_at_rest(agent_id)):
                await self._next_change(agent_id)
            found.append(self._registry.find(agent_id))
        return found

    def _state(self, agent_id: str) -> str:
        return STATE_OF[self._registry.find(agent_id).phase]

    def _is_at_rest(self, agent_id: str) -> bool:
        if self.spent(agent_id) is not None:
            return True
        if self._state(agent_id) in AT_WORK:
            return False
        waits = bool(self._waits.live_of(agent_id)) or bool(self._store.askers([agent_id]))
        return not waits or self._is_stalled(agent_id)

    def _is_stalled(self, agent_id: str) -> bool:
        """Say whether neither an agent nor any that it waits for works, and one of them needs a person now."""
        found = [agent for one in self._waits.awaited(agent_id) if (agent := self._registry.get(one)) is not None]
        at_work = any(STATE_OF[agent.phase] in AT_WORK for agent in found)
        return not at_work and self._overview.is_urgent(found)

    def spent(self, agent_id: str) -> str | None:
        """Say which budget is used up that keeps an agent and all that it waits for from going on; None: they go on."""
        found = [agent for one in self._waits.awaited(agent_id) if (agent := self._registry.get(one)) is not None]
        obstacles = [
            self._budgets.obstacle(agent) if agent.phase is Phase.QUEUED else None
            for agent in found
            if STATE_OF[agent.phase] in AT_WORK
        ]
        spent = [one.text for one in obstacles if one is not None and one.kind is ObstacleKind.BUDGET]
        return spent[0] if spent and len(spent) == len(obstacles) else None

    async def _next_change(self, agent_id: str) -> None:
        """Wait until an agent changes, one that it waits for, or an ancestor of these, whose budget may hold them up."""
        found = [agent for one in self._waits.awaited(agent_id) if (agent := self._registry.get(one)) is not None]
        watched = dict.fromkeys(one for agent in found for one in self._registry.lineage(agent))
        await first_of(*map(self._registry.change_of, watched))

    async def settled(self, name: str) -> Agent:
        """Wait until no turn of an agent is being stopped."""
        agent_id = self._registry.find(name).id
        while (agent := self._registry.find(agent_id)).phase in STOPPING_PHASES:
            await self._registry.next_change(agent_id)
        return agent

    async def item(self, name: str, number: int | None) -> Agent:
        """Wait until the turn that delivered an inbox item has ended, or the one in which its work came to its end.

        Those differ where the agent waited for others: the turn that its last wait started counts. The wait ends with the
        last turn there is when neither the agent nor those it waits for can go on before a person acts.

        Returns:
            The agent, with that turn as its turn.

        Raises:
            NotFound: no such item.
            Refused: the item will never get a turn, because the agent has ended.
            CloneFailed: the agent has nowhere to work.
            OutOfBudget: it, or all that it waits for, wait for a budget that is used up.
        """
        agent_id = self._registry.find(name).id
        number = number if number is not None else self._store.newest_prompt(agent_id)
        while True:
            where = self._store.item_turn(number) if number is not None else None
            if where is None or where[0] != agent_id:
                raise NotFound(f"{name} was given no such prompt")
            agent = self._registry.find(agent_id)
            turn = self._store.turn(where[1]) if where[1] is not None else None
            if turn is not None and (last := self._last_of(agent, turn)) is not None:
                return replace(agent, turn=last)
            if (spent := self.spent(agent_id)) is not None:
                raise OutOfBudget(f"{agent.name} waits: {spent}")
            if turn is not None and self._is_stalled(agent_id) and open_turn_id(agent) is None and agent.turn is not None:
                return replace(agent, turn=self._store.turn(agent.turn.id))
            if turn is None and agent.phase == Phase.FAILED and agent.clone is not None and agent.clone.error is not None:
                raise CloneFailed(f"{agent.clone.error}; `substratctl resume {agent.name}` tries again")
            if turn is None and agent.phase == Phase.FAILED and agent.unmet is not None:
                how = f"`substratctl resume {agent.name}` lets it run all the same"
                raise Refused(f"{agent.name} failed: {agent.unmet}; {how}")
            if turn is None and agent.phase == Phase.ENDED:
                raise Refused(f"{agent.name} has ended before it came to this prompt")
            await self._next_change(agent_id)

    def _last_of(self, agent: Agent, turn: Turn) -> Turn | None:
        """Return the turn in which the work of a turn came to its end, None when that is still to come."""
        while turn.outcome is not None and turn.unsettled:
            following = self._store.turns_after(agent.id, turn.number, 1)
            if following:
                turn = following[0]
            elif agent.phase in {Phase.FAILED, Phase.ENDED}:
                return turn
            else:
                goes_on = (
                    agent.waiting
                    or agent.phase in LIVE_PHASES
                    or self._waits.live_of(agent.id)
                    or is_pending(agent.checked)
                )
                return None if goes_on else turn
        return turn if turn.outcome is not None else None


async def bounded(seconds: float | None, what: str, wait: Callable[[], Awaitable[T]]) -> T:
    """Await something for at most some seconds; raises `WaitTimedOut` if it didn't happen in time."""
    with trio.move_on_after(seconds if seconds is not None else float("inf")):
        return await wait()
    raise WaitTimedOut(f"timed out after {seconds:g} s waiting for {what}; it goes on")
