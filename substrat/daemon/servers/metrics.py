"""Puts the daemon's metrics together: totals as they are stored, and everything that is counted when it is asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio

from substrat import __version__
from substrat.core.agents import totals
from substrat.core.agents.attention import AttentionKind, level_of
from substrat.core.agents.lifecycle import STATE_OF
from substrat.daemon.servers import slices
from substrat.protocol import vocabulary

if TYPE_CHECKING:
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.families import Families


async def gather(registry: Registry, families: Families) -> dict[str, object]:
    """Return the protocol's metrics object."""
    store, overview = registry.store, families.overview
    agents, places = tuple(registry.agents), overview.places()
    states, kinds = Counter(STATE_OF[agent.phase] for agent in agents), Counter[AttentionKind]()
    for some in slices.sliced(agents):
        kinds.update(one.kind for one in overview.attentions(some, places))
        await trio.lowlevel.checkpoint()
    return {
        "version": __version__,
        "agents": {state: states[state] for state in vocabulary.AGENT_STATES},
        "attention": [{"kind": kind.value, "level": level_of(kind).value, "count": kinds[kind]} for kind in AttentionKind],
        "queued": len(places()),
        "questions": store.count_questions(),
        "waits": len(families.waits.listed()),
        **totals.put_together(store.totals()),
        "cursor": registry.journal.last_cursor,
        "state_bytes": store.size,
    }
