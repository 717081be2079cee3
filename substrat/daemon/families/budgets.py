"""Counts agents' use against their budgets and those of their ancestors; `core.families.budget` decides.

Each use is added in the commit that causes it: a turn with its start, its minutes and tokens with its end, a tool
call with the line that tells it. A budget that is used up is an obstacle in the queue of all below it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import structlog

from substrat.core.agents import prices
from substrat.core.agents.lifecycle import RUNNING_PHASES, Phase
from substrat.core.agents.stop_reason import out_of_budget
from substrat.core.agents.usage import NO_TOKENS
from substrat.core.families import budget
from substrat.core.families.budget import (
    INPUT_TOKENS,
    MINUTES,
    OUTPUT_TOKENS,
    RUNNING,
    TOOL_CALLS,
    TURNS,
    USD,
    Budget,
    Standing,
)
from substrat.core.families.scheduling import Obstacle, ObstacleKind
from substrat.daemon.agents import pools
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import Refused, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.core.agents.records import Agent, Turn
    from substrat.core.agents.verdict import Verdict
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry

log = structlog.get_logger("substrat.budgets")

_TOLD = {Standing.OK: "budget:changed", Standing.WARNED: "budget:warned", Standing.OUT: "budget:out"}
_AGAIN_S = 5.0
"""Seconds until turns are stopped once more, where the disk had no room to note it."""


class Wish(NamedTuple):
    """A change of a budget.

    Args:
        limits: limits that it gets.
        more: how much is added to its limits.
        clear: whether it is taken away instead.
    """

    limits: Mapping[str, float] = MappingProxyType({})
    more: Mapping[str, float] = MappingProxyType({})
    clear: bool = False


class Budgets:
    """The budgets of one daemon's agents."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def spent_by(self, agent: Agent) -> tuple[str, float] | None:
        """Say why the budget of an agent keeps it or one below it from going on, and since when; None: it doesn't."""
        if (own := agent.budget) is None or not own.limits:
            return None
        spent = pools.now(self._registry, agent, own)
        if spent.standing is not Standing.OUT:
            return None
        if not any(one.phase is Phase.QUEUED for one in self._registry.family(agent)):
            return None
        return budget.sentence(agent.name, spent), own.since

    def obstacle(self, agent: Agent) -> Obstacle | None:
        """Return why an agent's turn can't begin by its budgets; None if they let it."""
        return self.obstacles()(agent)

    def obstacles(self) -> Callable[[Agent], Obstacle | None]:
        """Return `obstacle` for this moment: it looks at each budget once, for however many agents."""
        known: dict[str, Obstacle | None] = {}

        def of(agent: Agent) -> Obstacle | None:
            for owner in pools.owners(self._registry, agent):
                if owner.id not in known:
                    known[owner.id] = self._obstacle_of(owner)
                if (found := known[owner.id]) is not None:
                    return found
            return None

        return of

    def _obstacle_of(self, owner: Agent) -> Obstacle | None:
        spent = pools.now(self._registry, owner, owner.budget or Budget())
        if spent.standing is Standing.OUT:
            return Obstacle(ObstacleKind.BUDGET, budget.spent_up(owner.name, spent))
        most = spent.limits.get(RUNNING)
        if most is not None and (running := len(self._running(owner))) >= most:
            text = f"{running} turns of {owner.name} and its descendants run, as many as its budget lets at once"
            return Obstacle(ObstacleKind.AT_ONCE, text)
        return None

    def _running(self, owner: Agent) -> list[Agent]:
        """Return the agents below a budget whose turns run; those are few, where a family may be large."""
        found = self._registry.index.in_phases(RUNNING_PHASES)
        return [one for one in found if owner.id in self._registry.lineage(one)]

    # Counting

    def turn_begun(self, change: Change, agent: Agent) -> None:
        """Count a turn that begins, as a part of the change under way; the agent's record is put before."""
        self._spend(change, agent, {TURNS: 1})

    def tool_called(self, change: Change, turn: Turn, calls: int) -> None:
        """Count tool calls of a turn that runs."""
        self._spend(change, self._registry.find(turn.agent), {TOOL_CALLS: calls})

    def turn_over(self, change: Change, agent: Agent, turn: Turn, _verdict: Verdict, _ended: int) -> None:
        """Count the minutes and the tokens of a turn that has ended."""
        took = max(0.0, (turn.ended_at or turn.started_at) - turn.started_at - turn.paused)
        # By the wall clock alone where the steady one has gone on without the turn, or begun anew with the machine.
        seconds = took if turn.id in self._registry.ended_before else min(pools.seconds(self._registry, turn), took)
        tokens, model = NO_TOKENS.after(turn.usage), turn.told_model or turn.model
        usd = prices.cost(self._registry.prices, model, turn.usage) if turn.usage else 0.0
        spent = {MINUTES: seconds / 60, INPUT_TOKENS: tokens.input, OUTPUT_TOKENS: tokens.output, USD: usd or 0.0}
        self._spend(change, self._registry.find(agent.id), spent, (model or "its model") if usd is None else None)

    def _spend(self, change: Change, agent: Agent, spent: Mapping[str, float], unpriced: str | None = None) -> None:
        """Add to the use of an agent and its ancestors, up to the highest that has a budget.

        Args:
            change: the change that this is a part of.
            agent: the agent.
            spent: the use, by the keys of sums.
            unpriced: the model that has used that, where its price isn't known.
        """
        owners = pools.owners(self._registry, agent)
        if not owners:
            return
        for one in map(self._registry.find, self._registry.lineage(agent)):
            before = one.budget or Budget()
            known = replace(before, unpriced=unpriced) if unpriced is not None and USD in before.limits else before
            after = known.with_spent(spent).noted(self._registry.now())
            change.put(replace(one, budget=after))
            if after.told is not before.told:
                _tell(change, one, after)
                change.admits = True  # `look` stops the turns that run
            if one.id == owners[-1].id:
                return

    # Turns that run

    def look(self) -> None:
        """Stop running turns whose minutes or tool calls are used up, and ask to be called when the next minutes will be.

        It is called whenever turns may have begun.
        """
        runs = self._registry.index.in_phases(RUNNING_PHASES)
        owners = {owner.id: owner for agent in runs for owner in pools.owners(self._registry, agent)}
        for owner in owners.values():
            spent = pools.now(self._registry, owner, owner.budget or Budget())
            if spent.stops_turns:
                self._stop(owner, spent)
            elif (seconds := spent.seconds_left(len(self._running(owner)))) is not None:
                self._registry.wake_at(self._registry.now() + seconds)

    def _stop(self, owner: Agent, spent: Budget) -> None:
        """Stop the turns that run below a budget that is used up; `turn_ends` lets them go on once there is more."""
        runs = [one for one in self._running(owner) if one.phase is Phase.RUNNING and self._can_stop(one.turn)]
        own, now = owner.budget or Budget(), self._registry.now()
        if not runs and own.told is Standing.OUT:
            return
        reason = out_of_budget(f"{budget.of_all(spent)} of {owner.name}")
        try:
            with self._registry.change("limit reached") as change:
                if own.told is not Standing.OUT:
                    change.put(replace(owner, budget=own.noted(now, Standing.OUT)))
                    _tell(change, owner, spent.noted(now))
                for one in map(self._registry.find, [one.id for one in runs]):
                    if one.turn is not None:
                        change.put_turn(one, replace(one.turn, stop=reason))
                        change.after(partial(self._registry.effects.stop, one.turn.id, reason))
        except StorageFailed as problem:
            log.error("turns go on beyond their budget", agent=owner.name, reason=problem.message)  # noqa: TRY400 - it says it all
            self._registry.wake_at(now + _AGAIN_S)

    def _can_stop(self, turn: Turn | None) -> bool:
        return turn is not None and turn.stop is None and turn.id not in self._registry.ended_before

    # Requests

    def change(self, name: str, wanted: Wish, by: str) -> Agent:
        """Give an agent a budget, or change or take away the one that it has; turns that it held back go on.

        Args:
            name: its name or id.
            wanted: the change.
            by: who asks (`records.BY_OPERATOR`).

        Raises:
            InvalidParams: a budget can't be so, or has `usd` where a model of the family has no list price.
            Refused: the agent has ended.
        """
        registry = self._registry
        agent, now = registry.find(name), registry.now()
        if all(one.phase is Phase.ENDED for one in registry.family(agent)):
            raise Refused(f"{agent.name} has ended and uses nothing any more: give another agent the budget")
        before = agent.budget
        others = [owner for owner in pools.owners(registry, agent) if owner.id != agent.id]
        if not wanted.clear:
            after: Budget | None = budget.with_more(budget.with_limits(before, wanted.limits), wanted.more)
        else:
            after = replace(before, limits={}, told=Standing.OK) if before is not None and others else None
        if USD in wanted.limits or USD in wanted.more:
            for one in registry.family(agent):
                if one.phase is not Phase.ENDED:
                    pools.check_price(registry, one.model)
        is_new = wanted.clear or before is None or not before.limits
        with registry.change("budget changed") as change:
            for one in registry.family(agent)[1:] if is_new else ():
                if one.budget is not None and all(owner.id == agent.id for owner in pools.owners(registry, one)):
                    change.put(replace(one, budget=None))  # it was counted for a budget that is gone
            text = "no budget any more"
            if after is not None and after.limits:
                spent = pools.now(registry, agent, after)
                after, text = after.told_as(spent.standing, now), budget.of_all(spent)
            agent = change.put(replace(registry.find(agent.id), budget=after))
            data = {"by": by, "limits": after.limits if after is not None else {}}
            change.record(DaemonEvent(agent.id, None, "budget:changed", text, data))
            change.admits = True
        return registry.find(agent.id)


def _tell(change: Change, owner: Agent, spent: Budget) -> None:
    used = f"{budget.of_all(spent)} of its budget are used"
    text = used if spent.unpriced is None else budget.sentence(owner.name, spent)
    data = {"limits": spent.limits, "used": spent.used}
    change.record(DaemonEvent(owner.id, None, _TOLD[spent.told], text, data))
