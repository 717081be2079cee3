"""The method that lists agents' open waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import Encoded, Integer, Limit, OperatorRequest, about
from substrat.daemon.servers.objects import wait_object

if TYPE_CHECKING:
    from substrat.core.families.waits import Wait
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class WaitList(OperatorRequest, frozen=True):
    """Lists the open waits of agents for others, oldest first."""

    method: ClassVar[str] = "wait.list"

    agents: Annotated[tuple[str, ...], about("the names or ids of those whose waits are listed; default: all")] = ()
    after: Annotated[Integer, about("the id of the wait to read on after; default: 0, the beginning")] = 0
    limit: Limit = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        waits = services.families.waits
        if self.agents:
            found = [wait for name in dict.fromkeys(self.agents) for wait in waits.open_of(services.requests.find(name).id)]
        else:
            found = waits.listed()
        rest = sorted((wait for wait in found if wait.id > self.after), key=lambda wait: wait.id)
        page = rest[: max(1, self.limit)] if self.limit is not None else rest
        return Encoded(await slices.encode_list([_object(services, wait)] for wait in page))


def _object(services: Services, wait: Wait) -> dict[str, object]:
    finished = services.families.waits.finished(wait.members)
    done = [name for member, name in zip(wait.members, wait.names, strict=True) if member in finished]
    return wait_object(wait, services.registry.name_of(wait.agent), done)
