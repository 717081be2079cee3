"""`agent.network`: shows and changes the hosts that an agent's network lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.agents.prompts import timestamp
from substrat.daemon.servers.methods.request import AgentName, OperatorRequest, about

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


_MOST_DECISIONS = 200
"""A person reads the last few screens; the older ones are in the events."""


class AgentNetwork(OperatorRequest, frozen=True):
    """Returns an agent's allow-list and its network's decisions, and changes the list.

    A running turn is held to a new list at once: connections to hosts that aren't allowed
    any more end. Entries that a parent loses its descendants lose too; an agent never gets
    more than its parent has (`PolicyDenied`).
    """

    method: ClassVar[str] = "agent.network"

    agent: AgentName
    allow: Annotated[tuple[str, ...], about("put these on the list")] = ()
    remove: Annotated[tuple[str, ...], about("take these off it; each must be on it")] = ()

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        if self.allow or self.remove:
            agent = services.agents.allow_lists.change(self.agent, self.allow, self.remove)
        else:
            agent = services.requests.find(self.agent)
        turn = agent.turn
        mode = services.state.layout.agent(agent.id).turn(turn.number).read_network_mode() if turn is not None else None
        return {
            "network": agent.policy.network.value,
            "form": mode.value if mode is not None else None,
            "process": services.turns.questions.first_process(agent),
            "allow": list(agent.policy.allow),
            "decisions": [
                {"time": timestamp(row.time), "allowed": row.kind == "network:allowed", "text": row.text}
                for row in services.registry.store.network_events(agent.id, _MOST_DECISIONS)
            ],
        }
