"""Brings the daemon's events to many readers: one subscription, of which each event is decoded and encoded once.

A reader is a cursor into the newest events (`window.py`). One that is further behind reads pages of the daemon until it has
come to them. So nothing piles up for a client that is slow: what it hasn't taken is in the daemon's journal.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec

from substrat import errors
from substrat.client.events import follow
from substrat.web.calls import Calls
from substrat.web.daemon import CLIENT, connected
from substrat.web.window import EncodedEvent, Window, is_wanted, next_events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup

    from substrat.client.events import Events
    from substrat.web.window import Wanted

    Object = dict[str, object]

_LOG = logging.getLogger(__name__)
_REST_S = 0.0002
"""How long the server gathers events before it wakes its readers again, for each reader. To wake one and send to it takes
some 0.15 ms, so however many readers there are, half of a processor stays free."""
_QUIET_S = 15.0
"""How long a reader waits for events: proxies end connections that say nothing for a minute."""
_PAUSE_S = 0.2
"""Between attempts to reach a daemon that is away."""
_PAGE_EVENTS = 256
"""A reader that is behind holds a page of them, which is one send."""
_NONE = Window(None, 0)
"""The window while there is no subscription: it has no event, and no reader is behind it."""


class Fanout:
    """One subscription for all readers, which lasts while there are any.

    Args:
        socket: the operator socket.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.window = _NONE
        self.news = anyio.Event()
        """Set, and replaced by another one, when there is more in the window, or another window."""
        self.generation = 0
        """How often the daemon came back with another state, or with an older copy of it."""
        self._told: set[str] = set()
        """Why no events come, in sentences that were logged since the last event."""
        self._added = anyio.Event()
        self._readers: set[anyio.CancelScope] = set()
        self._following: anyio.CancelScope
        self._tasks: TaskGroup

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Readers can be opened while the context lasts; it ends those that are left."""
        async with anyio.create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()
        for scope in self._readers:
            scope.cancel()

    @asynccontextmanager
    async def opened(self, wanted: Wanted) -> AsyncIterator[Reader]:
        """Open a reader, for as long as the context lasts.

        Raises:
            CursorUnknown: the daemon's journal has no such cursor.
            DaemonNotRunning: no daemon listens.
            NotFound: there is no such agent.
        """
        reader = Reader(self, wanted)
        with anyio.CancelScope() as scope:
            await reader.start()
            if self._tasks.cancel_scope.cancel_called:
                raise errors.DaemonNotRunning("this server is being stopped")
            if not self._readers:
                self._following = anyio.CancelScope()
                self._tasks.start_soon(self._follow, self._following)
            self._readers.add(scope)
            try:
                yield reader
            finally:
                self._readers.discard(scope)
                if not self._readers:
                    self._following.cancel()
                    self._show(_NONE)

    async def _follow(self, scope: anyio.CancelScope) -> None:
        """Subscribe again and again, each time where the last subscription has ended."""
        with scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wake)
                events: Events | None = None
                while True:
                    since, journal = (events.cursor, events.journal) if events is not None else (None, None)
                    try:
                        async with follow(self.socket, client=CLIENT, since=since, journal=journal) as events:
                            await self._fill(events, scope)
                    except errors.CursorUnknown:
                        events = None
                        self.generation += 1
                        self._ring()
                    except errors.ConnectionLost:
                        pass  # the daemon is being restarted, or it is away, which the next attempt tells
                    except Exception as problem:  # else the whole server would end with this task
                        self._tell(problem)
                    await anyio.sleep(_PAUSE_S)

    def _show(self, window: Window) -> None:
        """Replace the window, and wake the readers."""
        self.window = window
        self._ring()

    def _ring(self) -> None:
        self.news, news = anyio.Event(), self.news
        news.set()

    def _tell(self, problem: Exception) -> None:
        """Log why there are no events: once until there are some, though it is met again five times a second."""
        sentence = f"no events come: {type(problem).__name__}: {problem}"
        if sentence not in self._told:
            self._told.add(sentence)
            _LOG.warning(sentence, exc_info=not isinstance(problem, errors.SubstratError))

    async def _fill(self, events: Events, scope: anyio.CancelScope) -> None:
        """Put a subscription's events into a window of its own, which is the readers' unless the scope is cancelled.

        So a reader that is behind sees no event that the daemon, after a restart, doesn't have any more.
        """
        window, calls = Window(events.journal, events.cursor), Calls(self.socket)
        if not scope.cancel_called:
            self._show(window)
        try:
            while True:
                window.add(_encoded(await calls.paired(await events.receive())))
                self._told.clear()
                self._added.set()
        finally:
            if self.window is window:
                self._show(_NONE)

    async def _wake(self) -> None:
        """Wake the readers when there is more for them."""
        while True:
            await self._added.wait()
            self._added = anyio.Event()
            self._ring()
            await anyio.sleep(len(self._readers) * _REST_S)


class Reader:
    """The events that one client asks for, also across restarts of the daemon; made by `opened`."""

    def __init__(self, fanout: Fanout, wanted: Wanted) -> None:
        self._fanout = fanout
        self._wanted = wanted
        self._cursor = 0
        self._generation = 0
        self._calls = Calls(fanout.socket)
        """Pairs the calls of one run of pages; made anew whenever the window was read."""
        self._has_begun = False

    async def start(self) -> None:
        """Find the agent's id, the cursor to start after, and the journal."""
        agent, since, journal, _ = self._wanted
        fanout, self._generation = self._fanout, self._fanout.generation
        async with connected(fanout.socket) as client:
            agent = (await client.show(agent))["id"] if agent is not None else None
            asked = {"agent": agent, "since": -1 if since is None else since, "limit": 1, "journal": journal}
            page = cast("dict[str, Any]", await client.call("events.read", **asked))
        # The page's event is the first one, except for a client that wants only later ones.
        self._cursor = page["cursor"] - (1 if page["events"] and since is not None else 0)
        journal = page.get("journal")
        self._wanted = self._wanted._replace(agent=agent, journal=journal)
        # Has the daemon just come back with another state? Then the fan-out is about to see it.
        while fanout.window.journal not in {None, journal} and self._generation == fanout.generation:
            await fanout.news.wait()
        self._generation = fanout.generation

    async def next(self) -> list[EncodedEvent]:
        """Wait for the next events, as many as go in one send; none after a while without any.

        Raises:
            CursorUnknown: the daemon came back with another state, or with an older copy of it.
            NotFound: a page of the journal must be read, and the agent was removed.
        """
        found: list[EncodedEvent] = []
        quiet_at = anyio.current_time() + _QUIET_S
        while not found and anyio.current_time() < quiet_at:
            news, window = self._fanout.news, self._fanout.window
            if self._generation != self._fanout.generation or window.journal not in {None, self._wanted.journal}:
                raise errors.CursorUnknown("the daemon has another state")
            if self._cursor < window.floor:
                found = await self._read_page(window.floor)
                continue
            self._calls = Calls(self._fanout.socket)
            found, self._cursor = next_events(window.events, self._cursor, self._wanted)
            if not found:
                with anyio.CancelScope(deadline=quiet_at):
                    await news.wait()
        if found and not self._has_begun:
            self._has_begun = True
            first = {**msgspec.json.decode(found[0].json), "journal": self._wanted.journal}
            found[0] = found[0]._replace(json=msgspec.json.encode(first))
        return found

    async def _read_page(self, floor: int) -> list[EncodedEvent]:
        """Read the next page of the daemon; when none is left, the cursor has come to the window's floor."""
        agent, _, journal, _ = self._wanted
        page = None
        with suppress(errors.DaemonNotRunning, errors.ConnectionLost), anyio.move_on_after(_QUIET_S):
            async with connected(self._fanout.socket) as client:
                page = await client.read_events(agent, self._cursor, _PAGE_EVENTS, journal)
        if page is None:
            await anyio.sleep(_PAUSE_S)
            return []
        events, cursor = page
        found = [_encoded(await self._calls.paired(event)) for event in events]
        self._cursor = cursor if events else floor
        return [event for event in found if is_wanted(event, self._wanted)]


def _encoded(event: Object) -> EncodedEvent:
    event.pop("journal", None)  # a subscription's first event has it
    cursor, agent, kind = (event[name] for name in ("cursor", "agent", "kind"))
    assert isinstance(cursor, int)
    return EncodedEvent(cursor, str(agent), str(kind).startswith("thinking:"), msgspec.json.encode(event))
