"""The queries and changes of the events' rows; `events` joins them with the agents' lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import EVENTS, EventRow, readable_event, readable_events

if TYPE_CHECKING:
    from collections.abc import Iterable

_ADD_EVENT = EVENTS.insert(without=("cursor",))
# Only events since the turn was started are read: millions may come before.
_OF_TURN = (
    "INDEXED BY events_of_agent WHERE agent = ? AND turn = ? AND kind = ? AND cursor > "
    "max(?, coalesce((SELECT cursor FROM events WHERE turn = ? AND kind = 'turn:started'), 0))"
)
_SHOWN = "NOT EXISTS (SELECT 1 FROM removed_agents WHERE id = events.agent AND last >= cursor)"
_EVENTS_OF_TURN = f"{EVENTS.select} {_OF_TURN} ORDER BY cursor LIMIT ?"
_LAST_EVENT_OF_TURN = f"{EVENTS.select} {_OF_TURN} ORDER BY cursor DESC LIMIT 1"
_COUNT_EVENTS_OF_TURN = f"SELECT count(*) FROM events {_OF_TURN}"  # noqa: S608


class EventQueries(Database):
    """The events of one state directory; a part of `Store`."""

    def add_events(self, events: Iterable[EventRow]) -> list[EventRow]:
        """Store events and return them with their cursors."""
        stored = []
        for row in events:
            done = self._db.execute(_ADD_EVENT, EVENTS.write(row)[1:])
            stored.append(row._replace(cursor=int(done.lastrowid or 0)))
        return stored

    def events_after(self, cursor: int, agent_id: str | None, limit: int) -> list[EventRow]:
        """Load events after a cursor, oldest first."""
        whose, values = ("AND agent = ?", (cursor, agent_id, limit)) if agent_id else ("", (cursor, limit))
        found = self._db.execute(f"{EVENTS.select} WHERE cursor > ? {whose} AND {_SHOWN} ORDER BY cursor LIMIT ?", values)
        return readable_events(found.fetchall())

    def result_event(self, turn_id: str) -> EventRow | None:
        """Load the newest result a turn has reported, if it has."""
        return self._event(
            f"{EVENTS.select} INDEXED BY results WHERE turn = ? AND kind IN ('result:success', 'result:error') "
            "ORDER BY cursor DESC LIMIT 1",
            turn_id,
        )

    def events_of_turn(self, agent_id: str, turn_id: str, kind: str, limit: int, after: int = 0) -> list[EventRow]:
        """Load the first events of a kind, after a cursor, that a turn's agent program made."""
        found = self._db.execute(_EVENTS_OF_TURN, (agent_id, turn_id, kind, after, turn_id, limit))
        return readable_events(found.fetchall())

    def last_event_of_turn(self, agent_id: str, turn_id: str, kind: str) -> EventRow | None:
        """Load the last event of a kind that a turn's agent program made, if it made any."""
        whose = (agent_id, turn_id, kind, 0, turn_id)
        return self._event(_LAST_EVENT_OF_TURN, *whose)

    def count_events_of_turn(self, agent_id: str, turn_id: str, kind: str) -> int:
        """Count the events of a kind that a turn's agent program has made."""
        whose = (agent_id, turn_id, kind, 0, turn_id)
        return self._value(_COUNT_EVENTS_OF_TURN, *whose) or 0

    def event(self, cursor: int) -> EventRow | None:
        """Load one event, None when it isn't there any more."""
        return self._event(f"{EVENTS.select} WHERE cursor = ? AND {_SHOWN}", cursor)

    def _event(self, query: str, *values: object) -> EventRow | None:
        row = self._db.execute(query, values).fetchone()
        return readable_event(row) if row is not None else None

    def start_of_turn(self, turn_id: str | None) -> int | None:
        """Return the cursor of the event with which a turn started, None before that."""
        return self._value("SELECT cursor FROM events INDEXED BY starts WHERE turn = ? AND kind = 'turn:started'", turn_id)

    def turn_has_event(self, agent_id: str, turn_id: str, kind: str) -> bool:
        """Say whether a turn's agent program has made an event of a kind."""
        return bool(self.events_of_turn(agent_id, turn_id, kind, 1))

    def network_events(self, agent_id: str, limit: int) -> list[EventRow]:
        """Load the newest decisions of an agent's networks, oldest first."""
        found = self._db.execute(
            f"{EVENTS.select} WHERE agent = ? AND kind IN ('network:allowed', 'network:denied') "
            "ORDER BY cursor DESC LIMIT ?",
            (agent_id, limit),
        )
        return [readable_event(row) for row in found][::-1]

    def cursor_back(self, cursor: int, count: int, agent_id: str | None) -> int:
        """Return the cursor of the last but `count` event before a cursor, or 0 when there are fewer; it reads them all."""
        whose, values = ("agent = ? AND", (agent_id, cursor, count)) if agent_id else ("", (cursor, count))
        back = f"SELECT cursor FROM events WHERE {whose} cursor < ? AND {_SHOWN} ORDER BY cursor DESC LIMIT 1 OFFSET ? - 1"  # noqa: S608
        return self._value(back, *values) or 0

    def last_line_at(self, agent_id: str) -> float | None:
        """Return when an agent's last line came for which `program.gets_further` holds, in seconds since the epoch."""
        return self._value(
            "SELECT time FROM events WHERE agent = ? AND offset NOT NULL AND kind NOT LIKE 'connection:%' "
            "AND kind NOT LIKE 'retry:%' ORDER BY cursor DESC LIMIT 1",
            agent_id,
        )

    def last_act(self, agent_id: str) -> EventRow | None:
        """Load an agent's last tool call or status, if it is among its last thousand events."""
        return self._event(
            f"SELECT {EVENTS.columns} FROM ({EVENTS.select} WHERE agent = ? ORDER BY cursor DESC LIMIT 1000) "  # noqa: S608
            "WHERE kind IN ('tool-call-started', 'tool-call-completed', 'agent:status') ORDER BY cursor DESC LIMIT 1",
            agent_id,
        )

    def journal_id(self) -> str:
        """Return the id of the journal whose cursors these are."""
        return self._value("SELECT id FROM journal") or ""

    def name_journal(self) -> None:
        """Give the journal a new id."""
        self._db.execute("INSERT INTO journal VALUES (lower(hex(randomblob(16))))")

    def last_cursor(self) -> int:
        """Return the newest event's cursor, 0 when there was none yet."""
        newest = (
            "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0), "
            "coalesce((SELECT max(cursor) FROM events), 0))"
        )
        return self._value(newest) or 0

    def delete_events(self, cursors: Iterable[int]) -> None:
        """Delete events; their cursors are never used again."""
        self._db.executemany("DELETE FROM events WHERE cursor = ?", [(cursor,) for cursor in cursors])

    def delete_events_of(self, agent_id: str, most: int) -> int:
        """Delete some of the events up to an agent's removal; returns how many: fewer than `most` were the last."""
        some = "SELECT cursor FROM events JOIN removed_agents ON id = agent AND last >= cursor WHERE agent = ? LIMIT ?"
        return self._db.execute(f"DELETE FROM events WHERE cursor IN ({some})", (agent_id, most)).rowcount  # noqa: S608
