"""Gives agents the addresses 127.0.77.N at which a person reaches their ports; each keeps its own while it lives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from substrat.core.agents.lifecycle import Phase
from substrat.errors import LimitReached

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry

_FIRST, _LAST = 1, 254


def address_of(registry: Registry, agent: Agent) -> str:
    """Return an agent's address, a new one if it has none yet; raises `LimitReached` if all of them are taken."""
    if agent.address is None:
        taken = {other.address for other in registry.agents if other.phase != Phase.ENDED}
        free = next((number for number in range(_FIRST, _LAST + 1) if number not in taken), None)
        if free is None:
            raise LimitReached(f"{_LAST} agents have addresses for their ports: `substratctl end` one that needs none")
        with registry.change("address given") as change:
            agent = change.put(replace(agent, address=free))
    return f"127.0.77.{agent.address}"
