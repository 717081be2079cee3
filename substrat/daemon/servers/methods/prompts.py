"""The methods that hand an agent a prompt and wait for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.agents.lifecycle import Phase
from substrat.daemon.families.waiting import bounded
from substrat.daemon.servers.methods.request import AgentName, Integer, OperatorRequest, State, Timeout, about

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class AgentSend(OperatorRequest, frozen=True):
    """Queues a prompt."""

    method: ClassVar[str] = "agent.send"

    agent: AgentName
    prompt: Annotated[str, about("the prompt")]
    now: Annotated[
        bool, about("whether it is for the turn that runs, after its next tool call, if the program takes words meanwhile")
    ] = False

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        agent, message, is_now = services.requests.send(self.agent, self.prompt, connection.by, now=self.now)
        return {"agent": services.objects.one(agent), "message": message, "into": "running" if is_now else "next"}


class AgentWait(OperatorRequest, frozen=True):
    """Waits until each agent has been in one of the states."""

    method: ClassVar[str] = "agent.wait"
    waits: ClassVar[bool] = True

    agents: Annotated[tuple[str, ...], about("the agents' names or ids")]
    until: Annotated[
        tuple[State, ...],
        about(
            "the states. Default, also for an empty array: until it is neither `queued` nor `running`, waits for no other "
            "agent and has asked the operator nothing, or until neither it nor any that it waits for works and one of them "
            "has an urgent attention"
        ),
    ] = ()
    timeout: Timeout = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        waiting = services.families.waiting
        found = await bounded(self.timeout, ", ".join(self.agents), lambda: waiting.states(self.agents, self.until))
        return await services.objects.encode(found)


class AgentWaitMessage(OperatorRequest, frozen=True):
    """Waits until the turn that carries a prompt has ended."""

    method: ClassVar[str] = "agent.wait_message"
    waits: ClassVar[bool] = True

    agent: AgentName
    message: Annotated[Integer | None, about("the prompt's number; default: the newest prompt")] = None
    timeout: Timeout = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        waiting = services.families.waiting
        agent = await bounded(self.timeout, f"the turn of {self.agent}", lambda: waiting.item(self.agent, self.message))
        return services.objects.whole(agent)


class AgentResume(OperatorRequest, frozen=True):
    """Lets the agent go on where it stopped.

    A suspended or failed agent gets a prompt that tells it to continue, if its last
    turn was left unfinished, and then its waiting items. An agent in another state just
    goes on.
    """

    method: ClassVar[str] = "agent.resume"

    agent: AgentName
    prompt: Annotated[str | None, about("a prompt to send instead")] = None

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        if agent.phase in {Phase.SUSPENDED, Phase.FAILED}:
            await services.chats.sessions.check_resumable(agent)
        agent, message = services.requests.resume(self.agent, self.prompt, connection.by)
        return {"agent": services.objects.one(agent), "message": message}
