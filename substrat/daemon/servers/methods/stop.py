"""The methods that stop an agent's turn, for a while or for good; their answers come when the turn is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.agents.lifecycle import Phase
from substrat.daemon.servers.methods.request import AgentName, OperatorRequest, about

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class AgentSuspend(OperatorRequest, frozen=True):
    """Stops the agent's turn, if there is one, and keeps its session."""

    method: ClassVar[str] = "agent.suspend"
    waits: ClassVar[bool] = True

    agent: AgentName
    freeze: Annotated[
        bool, about("stop the turn's processes in memory instead of ending them; `agent.resume` lets them go on")
    ] = False
    together: Annotated[bool, about("whether all agents are being suspended, see `together` of `agent.list`")] = False

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        if self.freeze:
            agent = await services.turns.questions.freeze(self.agent, connection.by, together=self.together)
        else:
            agent = services.requests.suspend(self.agent, connection.by, together=self.together)
        return await _settled(services, agent)


class AgentInterrupt(OperatorRequest, frozen=True):
    """Stops the agent's turn, or its check. The agent goes on with its waiting items."""

    method: ClassVar[str] = "agent.interrupt"
    waits: ClassVar[bool] = True

    agent: AgentName

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        return await _settled(services, services.requests.interrupt(self.agent, connection.by))


class AgentEnd(OperatorRequest, frozen=True):
    """Finishes the agent for good. A turn is stopped first, and the work in a private clone is kept once more."""

    method: ClassVar[str] = "agent.end"
    waits: ClassVar[bool] = True

    agent: AgentName
    family: Annotated[bool, about("whether all that descend from it are finished too, the deepest first")] = False

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        requests = services.requests
        agent = requests.find(self.agent)
        ending = requests.end_family(agent.id, connection.by) if self.family else [requests.end(agent.id, connection.by)]
        for one in ending:
            await wait_for_end(services, one.id)
        return services.objects.one(requests.find(agent.id))


async def wait_for_end(services: Services, agent_id: str) -> None:
    """Wait until the turn of an agent that is being ended is over and its work is kept."""
    ended = await services.families.waiting.settled(agent_id)
    if ended.clone is not None and ended.phase == Phase.ENDED:
        await services.clones.pruning.ended(agent_id)


async def _settled(services: Services, agent: Agent) -> dict[str, object]:
    return services.objects.one(await services.families.waiting.settled(agent.id))
