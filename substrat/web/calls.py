"""Pairs tool calls: a completed one is given the event that started it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio
import msgspec

from substrat import errors
from substrat.core.programs.transcript import call_id
from substrat.web.daemon import connected

if TYPE_CHECKING:
    from substrat.client import Client
    from substrat.protocol.objects import EventObject

_MOST_OPEN = 100
"""Calls of one agent, whose starts are held in memory: a turn was seen to have some ten open at once."""
_MOST_BYTES = 8 * 1024 * 1024
"""Bytes of all starts that are held, as many as the window has: a single line may have as many."""
_LOOK_BACK = (1_000, 50_000)
"""How many events are searched for a call's start that isn't among those that were paired."""
_MOST_SEARCHES = 20
"""How often that is done for one agent: it may end calls that it never began, and each search takes a second. Events that
begin amid a turn lack the starts of the calls that are open then, which are few."""
_SEARCH_S = 1.0
"""How long searches of all agents may take together within ten times as long: the events after the call wait for them."""

Object = dict[str, object]


class _Start(NamedTuple):
    """The start of a call: its cursor, and the raw object as JSON."""

    cursor: int
    raw: bytes


class Calls:
    """The calls that are open in a sequence of events.

    Args:
        socket: the operator socket.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._open: dict[str, dict[str, _Start]] = {}
        """By agent and by call."""
        self._bytes = 0
        self._searches: Counter[str] = Counter()
        self._paid_until = float("-inf")
        """A time: each second of searching moves it on by ten, and no search begins before it."""

    async def paired(self, event: EventObject) -> Object:
        """Return an event; a completed call gets the member `call`. Events must be given in order.

        The member is the cursor and the raw object of the event that started it, or null.
        """
        whole: Object = {**event}
        agent, kind, call = event["agent"], event["kind"], call_id(whole)
        if kind == "tool-call-started" and call:
            self._hold(agent, call, _Start(event["cursor"], msgspec.json.encode(event["raw"])))
        elif kind == "tool-call-completed":
            start = self._take(agent, call)
            found: Object | None = {"cursor": start.cursor, "raw": msgspec.Raw(start.raw)} if start is not None else None
            whole["call"] = found or await self._look_back(event, call)
        elif kind == "turn:ended":
            for one in [*self._open.get(agent, ())]:
                self._take(agent, one)
            self._open.pop(agent, None)
        return whole

    def _hold(self, agent: str, call: str, start: _Start) -> None:
        """Hold a start; the agent's oldest one goes where it has too many, and the longest of all where they are too long.

        So an agent whose calls are long takes no other agent's short ones away.
        """
        self._take(agent, call)
        calls = self._open.setdefault(agent, {})
        calls[call] = start
        self._bytes += len(start.raw)
        if len(calls) > _MOST_OPEN:
            self._take(agent, next(iter(calls)))
        if self._bytes > _MOST_BYTES:
            held = ((len(start.raw), agent, call) for agent, calls in self._open.items() for call, start in calls.items())
            self._take(*max(held)[1:])

    def _take(self, agent: str, call: str) -> _Start | None:
        """Take a start out, if it is held."""
        start = self._open.get(agent, {}).pop(call, None)
        self._bytes -= len(start.raw) if start is not None else 0
        return start

    async def _look_back(self, event: EventObject, sought: str) -> Object | None:
        """Find the start of a call before the events that were given, in its agent's newest ones."""
        if not sought or self._searches[event["agent"]] >= _MOST_SEARCHES:
            return None
        began = anyio.current_time()
        self._paid_until = max(self._paid_until, began - 10 * _SEARCH_S)
        if self._paid_until >= began:
            return None
        self._searches[event["agent"]] += 1
        found = None
        # A SubstratError: the daemon is being restarted, or the agent was removed.
        with suppress(errors.SubstratError), anyio.move_on_after((began - self._paid_until) / 10):
            async with connected(self._socket) as client:
                found = await _start_of(client, event, sought)
        self._paid_until += 10 * (anyio.current_time() - began)
        return found


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
