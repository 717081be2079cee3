"""The methods that list agents' messages, and take back those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.agents.prompts import timestamp
from substrat.core.agents.records import OPERATOR
from substrat.daemon.families.messages import Messages
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import Encoded, Integer, OperatorRequest, about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.records import Agent
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.item_queries import MessageRow


class MessageList(OperatorRequest, frozen=True):
    """Lists what was sent to an agent and by it, oldest first: prompts, messages, questions and answers, with their states.

    The states are `accepted` (it waits), `delivered`, `answered`, `refused` and `dropped`.
    """

    method: ClassVar[str] = "message.list"

    agent: Annotated[str, about("its name or id")]
    after: Annotated[Integer, about("the number of the message to read after; 0 is the beginning")] = 0

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent, store = services.requests.find(self.agent), services.registry.store
        last = max(0, self.after)

        def page() -> Iterator[list[dict[str, object]]]:
            nonlocal last
            size = 0
            while size < slices.PAGE_BYTES and (rows := store.messages_of(agent.id, last, slices.OBJECTS)):
                last = rows[-1].item.id
                size += sum(len(row.item.text) for row in rows)
                yield [_object(services, row) for row in rows]

        pieces = await slices.encode_list(page())
        more = slices.encoded(bool(store.messages_of(agent.id, last, 1)))
        return Encoded([b'{"messages":', *pieces, b',"after":%d,"more":%s}' % (last, more)])


class MessageDrop(OperatorRequest, frozen=True):
    """Takes back something that waits for an agent, or that it has sent and that still waits.

    An agent that awaits an answer to it is told.
    """

    method: ClassVar[str] = "message.drop"

    agent: Annotated[str, about("its name or id")]
    id: Annotated[Integer, about("the message's number")]

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        agent: Agent = services.requests.find(self.agent)
        Messages(services.requests).drop(agent, self.id, connection.by)
        return None


def _object(services: Services, row: MessageRow) -> dict[str, object]:
    item = row.item
    to = OPERATOR if item.agent is None else services.registry.name_of(item.agent) or item.agent
    sender = services.registry.name_of(item.sender) or item.sender_name
    return {
        "id": item.id, "from": sender, "to": to, "intent": item.intent.value if item.intent is not None else None,
        "state": row.state, "time": timestamp(item.time), "reply_to": item.reply_to, "turn": row.turn, "text": item.text,
    }  # fmt: skip
