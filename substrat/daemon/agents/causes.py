"""Answers why an agent's newest turn runs: the chain of events from the turn's start back to the person who began it.

For example `turn:started` of `worker`, `agent:spawned` by `lead`, `turn:started` of `lead`, `agent:spawned` by `ctl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.state.rows import EventRow

MOST = 1000
"""Links of a chain: two agents that write to each other for a day make some hundred."""


class Chain(NamedTuple):
    """The events that led to a turn, newest first.

    Args:
        events: the events.
        is_whole: whether the last one has no cause; otherwise the cause's agent was removed, with its events.
    """

    events: tuple[EventRow, ...]
    is_whole: bool


def chain_of(registry: Registry, agent: Agent) -> Chain:
    """Return the events that led to an agent's newest turn; none for an agent without a turn that has started."""
    cursor = registry.store.start_of_turn(agent.turn.id) if agent.turn is not None else None
    found: list[EventRow] = []
    while cursor is not None and len(found) < MOST:
        row = registry.store.event(cursor)
        if row is None:
            return Chain(tuple(found), is_whole=False)
        found.append(row)
        # A cause is always older; a damaged row must not lead round and round.
        cursor = row.cause if row.cause is not None and row.cause < row.cursor else None
    return Chain(tuple(found), is_whole=True)
