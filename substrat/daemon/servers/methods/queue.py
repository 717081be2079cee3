"""The methods that show the queue and the logins that are held, and let one turn of those try."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import Encoded, OperatorRequest
from substrat.daemon.servers.objects import gate_object, place_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.core.agents.records import Agent
    from substrat.core.families.account_gate import Gate
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class QueueList(OperatorRequest, frozen=True):
    """Lists the agents that wait for their turns, those first that begin next, each with its reason."""

    method: ClassVar[str] = "queue.list"

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        registry, gates = services.registry, services.families.gates
        shut = gates.shut()

        def blamed(agent: Agent) -> str | None:
            gate = shut.get(gates.login_of(agent)) if shut else None
            return registry.name_of(gate.blamed) if gate is not None and gate.holds(agent.model) else None

        found = [(place, registry.get(place.agent)) for place in services.families.queue.places()]
        rows = (
            (place_object(place, agent, blamed(agent)) for place, agent in some if agent is not None)
            for some in slices.sliced(found)
        )
        return Encoded(await slices.encode_list(rows))


class QueueGates(OperatorRequest, frozen=True):
    """Lists the gates of logins whose account has used up what it may.

    A gate holds the turns of its login with one model, and with all models once a turn of a second one has met the limit.
    """

    method: ClassVar[str] = "queue.gates"

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return _objects(services, services.families.gates.shut().values())


class QueueTry(OperatorRequest, frozen=True):
    """Lets one turn of each login that is held try now whether its account may go on; if it succeeds, the others follow."""

    method: ClassVar[str] = "queue.try"

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        return _objects(services, services.families.gates.try_now(connection.by))


def _objects(services: Services, gates: Iterable[Gate]) -> list[dict[str, object]]:
    found = []
    for gate in gates:
        is_trying = services.families.gates.is_trying(gate)
        agent = services.registry.agent_of_turn(gate.trial) if gate.trial is not None and is_trying else None
        blamed = services.registry.name_of(gate.blamed)
        found.append(gate_object(gate, agent.name if agent is not None else None, blamed))
    return found
