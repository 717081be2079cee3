"""Reads events, past ones page by page and new ones by subscription, across restarts of the daemon."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli.connection import Connection, as_object
from substrat.cli.outage import Outage

QUIET_S = 0.3
"""After so long without an event the held-back text is shown: fragments of one passage come milliseconds apart."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Event = dict[str, object]


class Feed:
    """The events of some agents, or of all; each agent's exactly once and in order, and all in order where they are past.

    `past` gives the events there are, `follow` also those that come; `follow` flushes standard output whenever the next
    one isn't at hand yet.

    Args:
        connection: the conversation with the daemon; it is opened again while following, and closed by `close`.
        agents: their ids, because a name may pass to another agent; None: all there are.
        since: the cursor to start after; negative counts from each agent's end.
        lines: whether to ask for the agents' own bytes.
        before_notice: called before a notice is written to standard error, to end a line that is under way.
        on_quiet: called while following, once after each event that no other follows within `QUIET_S`.
    """

    def __init__(
        self,
        connection: Connection,
        agents: Sequence[str] | None,
        since: int,
        *,
        lines: bool = False,
        before_notice: Callable[[], object] = lambda: None,
        on_quiet: Callable[[], object] = lambda: None,
    ) -> None:
        self._connection = connection
        self._cursors: dict[str | None, int] = dict.fromkeys((None,) if agents is None else agents, since)
        self._journal: object = None
        self._lines = lines or None
        self._on_quiet = on_quiet
        self._outage = Outage(connection, before_notice)

    def close(self) -> None:
        """Close the connection in use."""
        self._connection.__exit__()

    def names(self) -> dict[str, str]:
        """Ask for the agents' names by their ids; none if the connection is lost, which the next event reports."""
        try:
            agents = self._connection.call_list("agent.list", fields=["id", "name"])
        except errors.ConnectionLost:
            return {}
        return {str(agent["id"]): str(agent["name"]) for agent in agents}

    def past(self) -> Iterator[Event]:
        """Give all events there are, in the order in which they happened."""
        if len(self._cursors) == 1:
            yield from self._noted(self._pages(*self._cursors.items()))
            return
        import heapq

        yield from self._noted(heapq.merge(*map(self._pages, self._cursors.items()), key=_cursor))

    def follow(self) -> Iterator[Event]:
        """Give all events there are and will be, until every agent is ended or removed and everything was given.

        A daemon that goes away is waited for.

        Raises:
            DaemonNotRunning: no daemon came back.
        """
        while self._cursors:
            try:
                yield from self.past()
                sys.stdout.flush()
                yield from self._noted(self._live())
                yield from self.past()
            except errors.ConnectionLost:
                self._outage.reconnect()
            except errors.NotFound:
                self._drop_removed()
            else:
                return

    def _pages(self, whose: tuple[str | None, int]) -> Iterator[Event]:
        """Give the events there are of one agent, after a cursor."""
        agent, since = whose
        while True:
            page = self._connection.call_object(
                "events.read", agent=agent, since=since, journal=self._journal, lines=self._lines
            )
            self._journal = page.get("journal")
            found = page.get("events")
            if not isinstance(found, list) or not found:
                return
            yield from found
            since = _cursor(page)

    def _live(self) -> Iterator[Event]:
        """Give the events that come over one connection, until every agent is ended."""
        connection = self._connection
        for agent, cursor in self._cursors.items():
            # What `since` counted from the end is a place now: everything before it was given.
            order = {"agent": agent, "since": max(0, cursor), "journal": self._journal, "lines": self._lines}
            connection.answer(connection.submit("events.subscribe", order))
        end = None
        if None not in self._cursors:
            end = connection.submit("agent.wait", {"agents": list(self._cursors), "until": ["ended"]})
        self._outage.over()
        yield from _arrivals(connection, end, self._on_quiet)
        if end is not None:
            connection.take_answer(end)

    def _noted(self, events: Iterator[Event]) -> Iterator[Event]:
        """Give events, and note each once it was consumed, so that a new connection goes on behind it."""
        for event in events:
            yield event
            self._cursors[None if None in self._cursors else str(event.get("agent"))] = _cursor(event)

    def _drop_removed(self) -> None:
        """Go on without the agents that were removed; over a new connection, because this one has subscriptions."""
        self._connection.reopen()
        agents = self._connection.call_list("agent.list", fields=["id"], names=list(self._cursors))
        there_are = {str(agent["id"]) for agent in agents}
        self._cursors = {agent: cursor for agent, cursor in self._cursors.items() if agent in there_are}


def _arrivals(connection: Connection, end: int | None, on_quiet: Callable[[], object]) -> Iterator[Event]:
    """Give the events of a connection's subscriptions, until the answer to the request `end` has come."""
    # Events that were given before may have left text held back.
    patience: float | None = QUIET_S
    while True:
        params, blocks = connection.next_event(until=end, patience=patience)
        patience = QUIET_S if params is not None else None
        if params is not None:
            event = as_object("event", params.get("event"))
            event.pop("journal", None)  # of a connection's first one; the answer had it
            yield event
        elif end is not None and connection.has_answer(end):
            return
        else:
            on_quiet()
        if blocks:
            sys.stdout.flush()


def _cursor(holder: dict[str, object]) -> int:
    cursor = holder.get("cursor")
    if not isinstance(cursor, int):
        raise errors.SubstratError("the daemon sent an event without a cursor; are both of one version?")
    return cursor
