"""The budgets that an agent uses from, its own and its ancestors', as they stand this moment.

A record has the use of ended turns. These functions add the minutes of turns that run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents import prices
from substrat.core.agents.lifecycle import LIVE_PHASES
from substrat.core.agents.turn_limits import time_used
from substrat.core.families.budget import MINUTES
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Turn
    from substrat.core.families.budget import Budget
    from substrat.daemon.agents.registry import Registry


def of(registry: Registry, agent: Agent) -> list[tuple[Agent, Budget]]:
    """Return an agent and its ancestors that have budgets, each with it as it stands now, the nearest first."""
    return [(one, now(registry, one, one.budget)) for one in owners(registry, agent) if one.budget is not None]


def owners(registry: Registry, agent: Agent) -> list[Agent]:
    """Return an agent and its ancestors that have budgets, the nearest first."""
    above = map(registry.find, registry.lineage(agent))
    return [one for one in above if one.budget is not None and one.budget.limits]


def check_price(registry: Registry, model: str) -> None:
    """Raise `InvalidParams` if a model has no list price, so that no budget in dollars can count it."""
    if prices.price_of(registry.prices, model) is None:
        raise InvalidParams(
            f"the model {model!r} has no list price, so a budget can't count its usd: give it another model, or limit "
            "input_tokens and output_tokens"
        )


def now(registry: Registry, owner: Agent, own: Budget) -> Budget:
    """Return a budget with the minutes of the turns that run below its owner, also those that are frozen."""
    if MINUTES not in own.limits:
        return own
    live = registry.index.in_phases(LIVE_PHASES)
    turns = [one.turn for one in live if one.turn is not None and owner.id in registry.lineage(one)]
    return own.with_spent({MINUTES: sum(seconds(registry, turn) for turn in turns) / 60})


def seconds(registry: Registry, turn: Turn) -> float:
    """Return for how long a turn runs, without the time for which it was frozen.

    One that ended while no daemon ran counts for nothing until it is accounted for: only its files tell when that was.
    """
    return 0.0 if turn.id in registry.ended_before else time_used(turn, registry.steady())
