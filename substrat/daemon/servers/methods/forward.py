"""`agent.forward`: tells a client which network namespaces an agent's ports are in, and at which address to show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.daemon.agents import addresses
from substrat.daemon.agents.wakeup import first_of
from substrat.daemon.servers.methods.request import AgentName, Integer, OperatorRequest, about
from substrat.errors import Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class AgentForward(OperatorRequest, frozen=True):
    """Names the running sandboxes of an agent, so that a client of the same user can join their networks.

    With `known` the answer comes when the first processes of the running sandboxes are others. Each agent has an address of
    its own, 127.0.77.N, while it lives. Fails with `Refused` for an agent that has this machine's network, and when it has
    ended.
    """

    method: ClassVar[str] = "agent.forward"
    waits: ClassVar[bool] = True

    agent: AgentName
    known: Annotated[tuple[Integer, ...] | None, about("the pids of the last answer; default: answer at once")] = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent_id = services.requests.find(self.agent).id
        while True:
            agent = services.requests.find(agent_id)
            _check(agent)
            running = services.sandboxes.running.of(agent_id)
            if self.known is None or {one.pid for one in running} != set(self.known):
                break
            # Taken before anything else runs, so that no change comes in between.
            await first_of(services.sandboxes.running.change_of(agent_id), services.registry.change_of(agent_id))
        address = addresses.address_of(services.registry, agent)
        return {"agent": agent.name, "address": address, "sandboxes": [one._asdict() for one in running]}


def _check(agent: Agent) -> None:
    if agent.phase == Phase.ENDED:
        raise Refused(f"{agent.name} has ended, so it has no ports")
    if agent.policy.network is Network.HOST:
        raise Refused(f"{agent.name} has this machine's network: reach its ports directly, for example at 127.0.0.1")
