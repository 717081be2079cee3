"""Reading events: pages of what was, and a subscription for what comes, across restarts of the daemon."""

from __future__ import annotations

import sys

from substrat import errors
from substrat.cli.connection import Connection, as_object
from substrat.cli.outage import Outage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Event = dict[str, object]


class Feed:
    """Events after a cursor, each exactly once and in order.

    Iterating gives the events; whenever the next one isn't at hand yet, standard output is flushed.

    Args:
        connection: the conversation with the daemon; it is opened again while following, and closed by `close`.
        agent: only this agent's: its id, because a name may pass to another agent.
        since: the cursor to start after; negative counts from the end.
        lines: whether to ask for the agent's own bytes.
        before_notice: called before a notice is written to standard error, to end a line that is under way.
    """

    def __init__(
        self,
        connection: Connection,
        agent: str | None,
        since: int,
        *,
        lines: bool = False,
        before_notice: Callable[[], object] = lambda: None,
    ) -> None:
        self._connection = connection
        self._agent = agent
        self._cursor = since
        self._lines = lines or None
        self._outage = Outage(connection, before_notice)

    def close(self) -> None:
        """Close the connection in use."""
        self._connection.__exit__()

    def names(self) -> dict[str, str]:
        """Ask for the agents' names by their ids; none if the connection is lost, which the next event will tell."""
        try:
            agents = self._connection.call_list("agent.list")
        except errors.ConnectionLost:
            return {}
        return {str(agent["id"]): str(agent["name"]) for agent in agents}

    def past(self) -> Iterator[Event]:
        """Give all events there are."""
        while True:
            page = self._connection.call_object("events.read", agent=self._agent, since=self._cursor, lines=self._lines)
            found = page.get("events")
            if not isinstance(found, list) or not found:
                return
            yield from found
            self._cursor = _cursor(page)

    def follow(self) -> Iterator[Event]:
        """Give all events there are and will be.

        It ends when the one agent that is followed is ended and everything was given, or when the agent is removed.
        A daemon that goes away is waited for.

        Raises:
            DaemonNotRunning: no daemon came back.
        """
        first = True
        while True:
            try:
                yield from self._session()
            except errors.ConnectionLost:
                self._outage.reconnect()
            except errors.NotFound:
                if first:
                    raise
                return
            else:
                return
            first = False

    def _session(self) -> Iterator[Event]:
        """Follow over one connection; returns when there is nothing more to come."""
        connection = self._connection
        order: dict[str, object] = {"agent": self._agent, "since": self._cursor, "lines": self._lines}
        start = connection.submit("events.subscribe", order)
        end = None
        if self._agent is not None:
            end = connection.submit("agent.wait", {"agents": [self._agent], "until": ["ended"]})
        # What `since` counted from the end is a place now, so that a second session starts there.
        self._cursor = _cursor(as_object("events.subscribe", connection.answer(start)))
        self._outage.over()
        while True:
            params, blocks = connection.next_event(until=end)
            if params is not None:
                event = as_object("event", params.get("event"))
                self._cursor = _cursor(event)
                yield event
            elif end is not None and connection.has_answer(end):
                yield from self._rest(end)
                return
            if blocks:
                sys.stdout.flush()

    def _rest(self, end: int) -> Iterator[Event]:
        """Give what the subscription hasn't brought yet of an agent that is ended; nothing if it was removed."""
        try:
            self._connection.take_answer(end)
            yield from self.past()
        except errors.NotFound:
            return


def _cursor(holder: dict[str, object]) -> int:
    cursor = holder.get("cursor")
    if not isinstance(cursor, int):
        raise errors.SubstratError("the daemon sent an event without a cursor; are both of one version?")
    return cursor
