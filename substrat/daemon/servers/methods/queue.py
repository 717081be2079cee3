"""The methods that show the queue and the logins that are held, and let one turn of those try."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import After, Encoded, Limit, OperatorRequest
from substrat.daemon.servers.objects import gate_object, place_object
from substrat.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.core.agents.records import Agent
    from substrat.core.families.account_gate import Gate
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class QueueList(OperatorRequest, frozen=True):
    """Lists the agents that wait for their turns, those first that begin next, each with its reason.

    A page that has `limit` agents is followed by that after its last one. Where that one waits no longer it fails with
    `NotFound`, and the list is read from its beginning.
    """

    method: ClassVar[str] = "queue.list"

    after: After = None
    limit: Limit = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        registry, gates = services.registry, services.families.gates
        shut = gates.shut()

        def blamed(agent: Agent) -> str | None:
            gate = shut.get(gates.login_of(agent)) if shut else None
            return registry.name_of(gate.blamed) if gate is not None and gate.holds(agent.model) else None

        places = services.families.queue.places()
        if self.after is not None:
            last = registry.find(self.after).id
            numbers = [number for number, place in enumerate(places, 1) if place.agent == last]
            if not numbers:
                raise NotFound(f"{self.after!r} waits for no turn: read the queue from its beginning")
            places = places[numbers[0] :]
        if self.limit is not None:
            places = places[: max(1, self.limit)]
        found = [(place, registry.get(place.agent)) for place in places]
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
