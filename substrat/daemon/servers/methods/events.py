"""The methods that read events page by page, and send them as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.agents.prompts import timestamp
from substrat.daemon.agents import causes
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import AgentName, Encoded, Integer, OperatorRequest, about
from substrat.errors import NotFound

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.events import Journal

_JOURNAL = "the id of the journal that has the cursor `since`, which fails in another one; default: not looked at"
MAX_PAGE = 1000
"""Events in a page: a client that reads on page by page spends its time on events, not on requests."""
_FEED_BYTES = 64 * 1024
"""A subscription's page: a client that doesn't read costs this, its socket and the bytes on their way there."""
_FEED_EVENTS = 256
"""The same for short events."""


class EventsRead(OperatorRequest, frozen=True):
    """Reads a page of events, see [events](#events)."""

    method: ClassVar[str] = "events.read"

    agent: Annotated[str | None, about("only this agent's events; default: all agents'")] = None
    since: Annotated[Integer, about("the cursor to read after; default: 0, the beginning")] = 0
    limit: Annotated[
        Integer,
        about(f"how many at most, from 1 to {MAX_PAGE}; default: {MAX_PAGE}; a number outside counts as the nearest"),
    ] = MAX_PAGE
    lines: Annotated[bool, about("add `line` and `line_size` to events")] = False
    journal: Annotated[str | None, about(_JOURNAL)] = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        journal, agent = services.registry.journal, _agent_id(services, self.agent)
        cursor = await journal.start_of(self.since, agent, self.journal)
        limit = max(1, min(MAX_PAGE, self.limit))
        events = await journal.read(cursor, agent, limit, slices.PAGE_BYTES, lines=self.lines)
        cursor = events[-1].cursor if events else cursor
        page = b",".join(event.json for event in events)
        return Encoded([b'{"events":[', page, b'],"cursor":%d,"journal":"%b"}' % (cursor, journal.id.encode())])


class AgentWhy(OperatorRequest, frozen=True):
    """Answers why the agent's newest turn runs: the events that led to it, back to the person who began it."""

    method: ClassVar[str] = "agent.why"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        registry = services.registry
        events, is_whole = causes.chain_of(registry, services.requests.find(self.agent))
        rows = [
            {"cursor": row.cursor, "time": timestamp(row.time), "agent": registry.name_of(row.agent) or row.agent,
             "kind": row.kind, "text": row.text or ""}
            for row in events
        ]  # fmt: skip
        return {"events": rows, "whole": is_whole}


class EventsSubscribe(OperatorRequest, frozen=True):
    """Starts to send events, see [subscriptions](#subscriptions)."""

    method: ClassVar[str] = "events.subscribe"

    agent: Annotated[str | None, about("only this agent's events; default: all agents'")] = None
    since: Annotated[Integer | None, about("the cursor to start after; default: the newest event's")] = None
    lines: Annotated[bool, about("add `line` and `line_size` to events")] = False
    journal: Annotated[str | None, about(_JOURNAL)] = None

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        journal, agent = services.registry.journal, _agent_id(services, self.agent)
        start = await journal.start_of(self.since, agent, self.journal)
        number = connection.subscribe(lambda number: _follow(connection, number, journal, start, agent, lines=self.lines))
        return {"subscription": number, "cursor": start, "journal": journal.id}


class EventsUnsubscribe(OperatorRequest, frozen=True):
    """Ends a subscription of this connection."""

    method: ClassVar[str] = "events.unsubscribe"

    subscription: Annotated[Integer, about("its number")]

    async def perform(self, _: Services, connection: ClientConnection, /) -> object:
        if not connection.unsubscribe(self.subscription):
            raise NotFound(f"this connection has no subscription {self.subscription}")
        return None


def _agent_id(services: Services, name: str | None) -> str | None:
    return services.requests.find(name).id if name is not None else None


async def _follow(
    connection: ClientConnection, number: int, journal: Journal, cursor: int, agent: str | None, *, lines: bool
) -> None:
    """Send every event after a cursor, the first one with the journal's id, at the speed of the client."""
    first = b',"journal":"%b"}' % journal.id.encode()
    head = b'{"jsonrpc":"2.0","method":"event","params":{"subscription":%d,"event":' % number
    with journal.followers.following(agent) as next_event:
        while True:
            more = next_event()
            # Most events come one by one, and then there is no further page to look for.
            while cursor < journal.last_cursor:
                # A page is made when there is room for it, so a client that doesn't read costs no further page.
                async with connection.room_for_page():
                    events = await journal.read(cursor, agent, _FEED_EVENTS, _FEED_BYTES, lines=lines)
                    if events:
                        parts = [event.json for event in events]
                        parts[0] = parts[0][:-1] + first
                        first = b"}"
                        await connection.send(b"".join(head + part + b"}}\n" for part in parts))
                if not events:
                    break
                cursor = events[-1].cursor
            await more.wait()
