"""The newest events as bytes, in order, and the next of them for a reader. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_EVENTS = 4096
"""As many as the daemon keeps in memory: a reader that is further behind costs the daemon reads of its disk either way."""
MOST_BYTES = 8 * 1024 * 1024
"""The most memory that they take, however long the lines are."""
_SEND_BYTES = 64 * 1024
"""Bytes after which a send ends: as many as the server holds for a client that doesn't read."""


class Wanted(NamedTuple):
    """The events that a client asks for.

    Args:
        agent: only those of this agent, named by name or id; None: of all.
        since: the cursor to start after; negative counts from the end; None: only later ones.
        journal: the id of the cursor's journal; None: it isn't looked at.
        without_thinking: whether `thinking:*` is left out.
    """

    agent: str | None
    since: int | None
    journal: str | None
    without_thinking: bool


class EncodedEvent(NamedTuple):
    """An event.

    Args:
        cursor: its cursor.
        agent: its agent's id.
        is_thinking: whether its kind is one of `thinking:*`.
        json: the event object.
    """

    cursor: int
    agent: str
    is_thinking: bool
    json: bytes


class Window:
    """The newest events of a journal.

    Args:
        journal: the journal's id.
        floor: the cursor after which it has every event.
    """

    def __init__(self, journal: str | None, floor: int) -> None:
        self.journal = journal
        self.floor = floor
        self.events: deque[EncodedEvent] = deque()
        self._bytes = 0

    def add(self, event: EncodedEvent) -> None:
        """Add the next event; the oldest ones go."""
        self.events.append(event)
        self._bytes += len(event.json)
        while len(self.events) > MOST_EVENTS or self._bytes > MOST_BYTES:
            oldest = self.events.popleft()
            self._bytes -= len(oldest.json)
            self.floor = oldest.cursor


def is_wanted(event: EncodedEvent, wanted: Wanted) -> bool:
    """Say whether an event is one of those that are asked for; their agent is an id."""
    return wanted.agent in {None, event.agent} and not (wanted.without_thinking and event.is_thinking)


def next_events(events: Sequence[EncodedEvent], cursor: int, wanted: Wanted) -> tuple[list[EncodedEvent], int]:
    """Return the next events for one send, and the cursor to go on from.

    Args:
        events: events in order; those after the cursor have no gap.
        cursor: the cursor to start after.
        wanted: which of them.
    """
    found: list[EncodedEvent] = []
    size = 0
    for index in range(bisect_right(events, cursor, key=lambda event: event.cursor), len(events)):
        event = events[index]
        cursor = event.cursor
        if is_wanted(event, wanted):
            found.append(event)
            size += len(event.json)
            if size > _SEND_BYTES:
                break
    return found, cursor
