"""The method that shows and changes what agents may use with their descendants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.families import budget
from substrat.core.families.budget import Budget
from substrat.daemon.agents import pools
from substrat.daemon.families.budgets import Wish
from substrat.daemon.servers.methods.request import AgentName, OperatorRequest, about
from substrat.daemon.servers.objects import budget_object
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class AgentBudget(OperatorRequest, frozen=True):
    """Shows the budget of an agent and its descendants, after changing it if asked to.

    Turns that the budget held back go on as soon as there is more. Fails with `InvalidParams` for a key that a budget
    doesn't have, and with `Refused` for a change of an ended agent's.
    """

    method: ClassVar[str] = "agent.budget"

    agent: AgentName
    limits: Annotated[
        tuple[str, ...],
        about(
            "limits that it gets, `KEY=NUMBER`: `usd`, `turns`, `minutes`, `input_tokens`, `output_tokens`, `tool_calls`, "
            "and `running`, the turns that may run at once"
        ),
    ] = ()
    more: Annotated[tuple[str, ...], about("what is added to its limits, `KEY=NUMBER`")] = ()
    clear: Annotated[bool, about("whether it has no budget any more; stands alone")] = False

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        wish = Wish(budget.read(self.limits), budget.read(self.more), self.clear)
        if self.clear and (self.limits or self.more):
            raise InvalidParams("'clear' stands alone: set the new limits by a call of their own")
        registry = services.registry
        asked = any(wish)
        agent = services.families.budgets.change(self.agent, wish, connection.by) if asked else registry.find(self.agent)

        def told(one: Agent) -> dict[str, object]:
            return {"agent": one.name, **budget_object(pools.now(registry, one, one.budget or Budget()))}

        return {**told(agent), "members": [told(one) for one in registry.family(agent)[1:]]}
