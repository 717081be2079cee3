"""The methods of the operator's inbox: agents' questions and messages, and the answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import Encoded, Integer, OperatorRequest, about
from substrat.daemon.servers.objects import item_object, listed_item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.store import Store

_MAX_ITEMS = 1000
"""Items in an answer: with shortened texts they are some megabytes at most."""


class InboxList(OperatorRequest, frozen=True):
    """Lists agents' questions and messages to the operator. Reading doesn't remove them."""

    method: ClassVar[str] = "inbox.list"

    after: Annotated[
        Integer | None, about("answer with a page: the number of the item to read after; 0 is the beginning")
    ] = None
    limit: Annotated[
        Integer,
        about(f"how many at most, from 1 to {_MAX_ITEMS}; default: {_MAX_ITEMS}; a number outside counts as the nearest"),
    ] = _MAX_ITEMS

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        store, limit = services.registry.store, max(1, min(_MAX_ITEMS, self.limit))
        if self.after is None:
            return Encoded(await slices.encode_list(objects for _, objects in _read(store, 0, limit, None)))
        last = max(0, self.after)

        def page() -> Iterator[list[dict[str, object]]]:
            nonlocal last
            for number, objects in _read(store, last, limit, slices.PAGE_BYTES):
                last = number
                yield objects

        pieces = await slices.encode_list(page())
        more = slices.encoded(bool(store.operator_items(last, 1)))
        return Encoded([b'{"items":', *pieces, b',"after":%d,"more":%s}' % (last, more)])


class InboxShow(OperatorRequest, frozen=True):
    """Shows one item of the inbox with its whole text."""

    method: ClassVar[str] = "inbox.show"

    id: Annotated[Integer, about("the item's number")]

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return item_object(services.agents.inbox.item(self.id))


class InboxAnswer(OperatorRequest, frozen=True):
    """Answers a question or a message.

    The answer goes into the agent's inbox and makes it work, like a prompt.
    """

    method: ClassVar[str] = "inbox.answer"

    id: Annotated[Integer, about("the item's number")]
    text: Annotated[str, about("the answer")]

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        agent, message = services.agents.inbox.answer(self.id, self.text, connection.by)
        return {"agent": services.objects.one(agent), "message": message}


class InboxDismiss(OperatorRequest, frozen=True):
    """Takes a question or a message off the inbox."""

    method: ClassVar[str] = "inbox.dismiss"

    id: Annotated[Integer, about("the item's number")]

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        services.agents.inbox.dismiss(self.id)
        return None


def _read(store: Store, after: int, limit: int, most: int | None) -> Iterator[tuple[int, list[dict[str, object]]]]:
    """Read items after a number slice by slice, each with its last item's number, until they have `most` bytes of text."""
    size = count = 0
    while count < limit and (most is None or size < most):
        if not (items := store.operator_items(after, min(slices.OBJECTS, limit - count))):
            return
        objects = [listed_item(item) for item in items]
        after, count = items[-1].id, count + len(items)
        yield after, objects
        size += sum(len(slices.encoded(one["text"])) for one in objects)
