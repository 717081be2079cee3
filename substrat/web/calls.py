"""Pairs tool calls: a completed one is given the event that started it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from substrat import errors
from substrat.client import Client
from substrat.core.programs.transcript import call_id

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from substrat.protocol.objects import EventObject

CLIENT = "web"
_PATIENCE_S = 5.0
"""How long the daemon may take to answer `hello`."""
_MAX_OPEN = 1000
_LOOK_BACK = (1_000, 50_000)
"""How many events are searched for a call's start that isn't among those that were paired."""
_MOST_SEARCHES = 20
"""How often that is done for one agent: it may end calls that it never began, and each search takes a second. Events that
begin amid a turn lack the starts of the calls that are open then, which are few."""

Object = dict[str, object]


def connected(socket: str) -> AbstractAsyncContextManager[Client]:
    """Open a conversation with the daemon."""
    return Client.connect(socket, patience=_PATIENCE_S, client=CLIENT)


class Calls:
    """The calls that are open in a sequence of events.

    Args:
        socket: the operator socket.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._open: dict[tuple[str, str], Object] = {}
        self._searches: Counter[str] = Counter()

    async def paired(self, event: EventObject) -> Object:
        """Return an event, to be given in their order; a completed call with the member `call`.

        That is the cursor and the raw object of the event that started it, or null.
        """
        whole: Object = {**event}
        key = (event["agent"], call_id(whole))
        if event["kind"] == "tool-call-started" and key[1]:
            self._open[key] = {"cursor": event["cursor"], "raw": event["raw"]}
            if len(self._open) > _MAX_OPEN:
                del self._open[next(iter(self._open))]
        elif event["kind"] == "tool-call-completed":
            whole["call"] = self._open.pop(key, None) or await self._look_back(event, key[1])
        return whole

    async def _look_back(self, event: EventObject, sought: str) -> Object | None:
        """Find the start of a call before the events that were given, in its agent's newest ones."""
        if not sought or self._searches[event["agent"]] >= _MOST_SEARCHES:
            return None
        self._searches[event["agent"]] += 1
        with suppress(errors.SubstratError):  # the daemon is being restarted, or the agent was removed
            async with connected(self._socket) as client:
                return await _start_of(client, event, sought)
        return None


async def _start_of(client: Client, event: EventObject, sought: str) -> Object | None:
    """Find the start of a call in the events before its end."""
    for distance in _LOOK_BACK:
        cursor, page = max(0, event["cursor"] - distance), [event]
        while page and cursor < event["cursor"]:
            page, cursor = await client.read_events(event["agent"], cursor)
            for one in page:
                if one["kind"] == "tool-call-started" and call_id({**one}) == sought:
                    return {"cursor": one["cursor"], "raw": one["raw"]}
    return None
