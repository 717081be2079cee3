"""The state as rows: each question to the database and each change of it; what rows mean is the supervisor's business."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.spec import Network
from substrat.core.lifecycle import Phase
from substrat.core.records import Agent, Item, ItemKind, Outcome, Policy, Process, Reminder, Restore, Session, Shown, Turn
from substrat.daemon.database import Database, unusable

if TYPE_CHECKING:
    from collections.abc import Iterable

READ_IN_TOOL = "read"
"""What stands in an item's `turn` when `check_inbox` handed it out."""
SETTLED = "settled"
"""What stands in an item's `turn` when the operator has answered or dismissed it."""


class EventRow(NamedTuple):
    """An event as it is stored: where the agent's line is, or the daemon's own text."""

    cursor: int
    agent: str
    turn: str | None
    time: float
    kind: str
    text: str | None
    offset: int | None
    length: int | None
    checksum: int | None


class KeptRow(NamedTuple):
    """A turn as the sweeper sees it: `dropped` its files, `cleared` its events too, `unread` its report waits."""

    turn: str
    number: int
    ended_at: float | None
    dropped: bool
    cleared: bool
    unread: bool


class Store(Database):
    """The agents, turns, items, events and notes of one state directory."""

    # Agents and turns

    def save_agent(self, agent: Agent) -> None:
        """Insert or replace an agent's row; its turn has a row of its own."""
        session = agent.session
        self._db.execute(
            "INSERT INTO agents VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET "
            "name=excluded.name, phase=excluded.phase, workspace=excluded.workspace, model=excluded.model, "
            "network=excluded.network, parent=excluded.parent, created_at=excluded.created_at, "
            "session_id=excluded.session_id, "
            "session_stored=excluded.session_stored, status=excluded.status, attempts=excluded.attempts, "
            "retry_at=excluded.retry_at, restore=excluded.restore, restored_at=excluded.restored_at, "
            "allow=excluded.allow, binds=excluded.binds",
            (
                agent.id, agent.name, agent.phase, agent.workspace, agent.model, agent.policy.network.value, agent.parent,
                agent.created_at, session.id if session else None, int(session.stored) if session else 0, agent.status,
                agent.attempts, agent.retry_at, agent.restore, json.dumps(agent.restored_at),
                json.dumps(agent.policy.allow), json.dumps(agent.policy.binds),
            ),
        )  # fmt: skip

    def save_turn(self, turn: Turn) -> None:
        """Insert or replace a turn's row."""
        process = turn.process
        usage = json.dumps(dict(turn.usage)) if turn.usage is not None else None
        self._db.execute(
            "INSERT OR REPLACE INTO turns VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                turn.id, turn.agent, turn.number, turn.started_at, process.pid if process else None,
                process.start_time if process else None, process.boot_id if process else None, turn.offset, turn.stop,
                int(turn.reported), turn.outcome, turn.ended_at, turn.exit_code, turn.result, usage, turn.error,
                int(turn.contacted), turn.paused, turn.frozen_at, turn.thawed_at,
            ),
        )  # fmt: skip

    def agents(self) -> list[Agent]:
        """Load every agent with its newest turn and the number of items that wait, oldest first.

        Raises:
            StateUnusable: the database is damaged.
        """
        try:
            return self._agents()
        except (sqlite3.Error, ValueError) as problem:
            raise unusable(self._path, problem) from None

    def _agents(self) -> list[Agent]:
        turns = {
            row[1]: _turn(row)
            for row in self._db.execute(
                "SELECT turns.* FROM turns JOIN (SELECT agent, max(number) AS newest FROM turns GROUP BY agent) AS last "
                "ON turns.agent = last.agent AND turns.number = last.newest"
            )
        }
        waiting = dict(
            self._db.execute("SELECT agent, count(*) FROM items WHERE turn IS NULL AND agent NOT NULL GROUP BY agent")
        )
        rows = self._db.execute("SELECT * FROM agents ORDER BY created_at, rowid")
        return [_agent(row, turns.get(row[0]), waiting.get(row[0], 0)) for row in rows]

    def turn(self, turn_id: str) -> Turn | None:
        """Load one turn."""
        row = self._db.execute("SELECT * FROM turns WHERE id = ?", (turn_id,)).fetchone()
        return _turn(row) if row else None

    def turns_after(self, agent_id: str, number: int, limit: int) -> list[Turn]:
        """Load an agent's turns after a number, the oldest first."""
        rows = self._db.execute(
            "SELECT * FROM turns WHERE agent = ? AND number > ? ORDER BY number LIMIT ?", (agent_id, number, limit)
        )
        return [_turn(row) for row in rows]

    def usages(self, agent_id: str) -> list[dict[str, int]]:
        """Load what an agent's turns used, those that said so."""
        rows = self._db.execute("SELECT usage FROM turns WHERE agent = ? AND usage NOT NULL ORDER BY number", (agent_id,))
        return [json.loads(row[0]) for row in rows]

    def forget_agent(self, agent_id: str) -> None:
        """Delete everything about an agent; its children become nobody's."""
        for table in ("turns", "items", "events", "calls", "reminders", "dropped_turns"):
            self._db.execute(f"DELETE FROM {table} WHERE agent = ?", (agent_id,))  # noqa: S608 - the names stand above
        self._db.execute("UPDATE agents SET parent = NULL WHERE parent = ?", (agent_id,))
        self._db.execute("DELETE FROM agents WHERE id = ?", (agent_id,))
        self._db.execute("INSERT OR IGNORE INTO removed_agents VALUES (?)", (agent_id,))

    # Inbox items

    def add_item(self, item: Item) -> int:
        """Store an inbox item and return its number; the number it comes with is ignored."""
        done = self._db.execute(
            "INSERT INTO items (agent, kind, sender, sender_name, text, time) VALUES (?,?,?,?,?,?)",
            (item.agent, item.kind, item.sender, item.sender_name, item.text, item.time),
        )
        return int(done.lastrowid or 0)

    def waiting_items(self, agent_id: str | None, limit: int = 1000) -> list[Item]:
        """Load what waits for an agent (None: the operator), in the order of delivery."""
        rows = self._db.execute(
            "SELECT id, agent, kind, sender, sender_name, text, time FROM items WHERE turn IS NULL AND agent IS ? "
            "ORDER BY kind != 'continuation', id LIMIT ?",
            (agent_id, limit),
        )
        return [_item(row) for row in rows]

    def waiting_from(self, sender: str | None, agent_id: str | None) -> int:
        """Count what waits for an agent (None: the operator) from one sender (None: from all)."""
        row = self._db.execute(
            "SELECT count(*) FROM items WHERE turn IS NULL AND agent IS ?1 AND (?2 IS NULL OR sender = ?2)",
            (agent_id, sender),
        ).fetchone()
        return int(row[0])

    def woken_by_mail(self, agent_id: str, count: int, operator: str) -> float | None:
        """Return when the first of an agent's newest turns started if messages alone started them all.

        Args:
            agent_id: the agent.
            count: how many turns.
            operator: whose messages don't count as such.

        Returns:
            Seconds since the epoch; None when there are fewer turns, or one was started otherwise.
        """
        row = self._db.execute(
            "SELECT count(*), min(started_at), sum(EXISTS (SELECT 1 FROM items WHERE items.turn = newest.id AND "
            "(kind != 'message' OR sender = ?3))) FROM "
            "(SELECT id, started_at FROM turns WHERE agent = ?1 ORDER BY number DESC LIMIT ?2) AS newest",
            (agent_id, count, operator),
        ).fetchone()
        return row[1] if row[0] == count and not row[2] else None

    def waits_from_a_person(self, agent_id: str, operator: str) -> bool:
        """Say whether a person's doing waits for an agent: anything but messages of agents and of the daemon."""
        row = self._db.execute(
            "SELECT 1 FROM items WHERE turn IS NULL AND agent = ?1 AND (kind != 'message' OR sender = ?2) LIMIT 1",
            (agent_id, operator),
        ).fetchone()
        return row is not None

    def operator_items(self, limit: int = 1000) -> list[Item]:
        """Load the oldest messages and questions that wait for the operator."""
        return self.waiting_items(None, limit)

    def item(self, item_id: int) -> Item | None:
        """Load one inbox item."""
        row = self._db.execute(
            "SELECT id, agent, kind, sender, sender_name, text, time FROM items WHERE id = ?", (item_id,)
        ).fetchone()
        return _item(row) if row else None

    def first_waiting(self) -> dict[str, int]:
        """Return the number of the oldest item that waits for each agent."""
        rows = self._db.execute("SELECT agent, min(id) FROM items WHERE turn IS NULL AND agent NOT NULL GROUP BY agent")
        return dict(rows)

    def items_of_turn(self, turn_id: str) -> list[Item]:
        """Load what a turn delivered."""
        rows = self._db.execute(
            "SELECT id, agent, kind, sender, sender_name, text, time FROM items WHERE turn = ? ORDER BY id", (turn_id,)
        )
        return [_item(row) for row in rows]

    def deliver(self, items: Iterable[Item], to: str) -> None:
        """Note where items went: a turn's id, or `READ_IN_TOOL`."""
        self._db.executemany("UPDATE items SET turn = ? WHERE id = ?", [(to, item.id) for item in items])

    def take_back(self, turn_id: str) -> int:
        """Let what a turn was to deliver wait again, and return how many items that are."""
        return self._db.execute("UPDATE items SET turn = NULL WHERE turn = ?", (turn_id,)).rowcount

    def item_turn(self, item_id: int) -> tuple[str | None, str | None] | None:
        """Return an item's agent and where it was delivered, or None when there is no such item."""
        row = self._db.execute("SELECT agent, turn FROM items WHERE id = ?", (item_id,)).fetchone()
        return (row[0], row[1]) if row else None

    def newest_prompt(self, agent_id: str) -> int | None:
        """Return the number of the newest item that gets a turn of its own."""
        row = self._db.execute(
            "SELECT max(id) FROM items WHERE agent = ? AND kind IN ('prompt', 'continuation')", (agent_id,)
        ).fetchone()
        return row[0] if row else None

    # Reminders

    def add_reminder(self, agent_id: str, due: float, text: str) -> int:
        """Store a reminder and return its number."""
        done = self._db.execute("INSERT INTO reminders (agent, due, text) VALUES (?,?,?)", (agent_id, due, text))
        return int(done.lastrowid or 0)

    def reminders(self, agent_id: str | None = None, due: float | None = None) -> list[Reminder]:
        """Load an agent's reminders (None: everybody's), those that are due by then if a time is given, soonest first."""
        rows = self._db.execute(
            "SELECT id, agent, due, text FROM reminders WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR due <= ?2) "
            "ORDER BY due, id",
            (agent_id, due),
        )
        return [Reminder(*row) for row in rows]

    def forget_reminder(self, reminder: int) -> None:
        """Delete a reminder."""
        self._db.execute("DELETE FROM reminders WHERE id = ?", (reminder,))

    # Events

    def add_events(self, rows: Iterable[EventRow]) -> list[EventRow]:
        """Store events and return them with their cursors."""
        stored = []
        for row in rows:
            done = self._db.execute(
                "INSERT INTO events (agent, turn, time, kind, text, offset, length, checksum) VALUES (?,?,?,?,?,?,?,?)",
                row[1:],
            )
            stored.append(row._replace(cursor=int(done.lastrowid or 0)))
        return stored

    def events_after(self, cursor: int, agent_id: str | None, limit: int) -> list[EventRow]:
        """Load events after a cursor, oldest first."""
        where, values = ("AND agent = ?", (cursor, agent_id, limit)) if agent_id else ("", (cursor, limit))
        rows = self._db.execute(
            f"SELECT * FROM events WHERE cursor > ? {where} ORDER BY cursor LIMIT ?",  # noqa: S608 - constants
            values,
        )
        return [EventRow(*row) for row in rows]

    def result_event(self, turn_id: str) -> EventRow | None:
        """Load the newest result a turn has reported, if it has."""
        row = self._db.execute(
            "SELECT * FROM events INDEXED BY results WHERE turn = ? AND kind IN ('result:success', 'result:error') "
            "ORDER BY cursor DESC LIMIT 1",
            (turn_id,),
        ).fetchone()
        return EventRow(*row) if row is not None else None

    def events_of_turn(self, agent_id: str, turn_id: str, kind: str, limit: int) -> list[EventRow]:
        """Load the first events of a kind that a turn's agent program made."""
        # What came before the turn is of no interest: it may be millions.
        rows = self._db.execute(
            "SELECT * FROM events INDEXED BY events_of_agent WHERE agent = ? AND turn = ? AND kind = ? AND cursor > "
            "coalesce((SELECT cursor FROM events WHERE turn = ? AND kind = 'turn:started'), 0) ORDER BY cursor LIMIT ?",
            (agent_id, turn_id, kind, turn_id, limit),
        )
        return [EventRow(*row) for row in rows]

    def turn_has_event(self, agent_id: str, turn_id: str, kind: str) -> bool:
        """Say whether a turn's agent program has made an event of a kind."""
        return bool(self.events_of_turn(agent_id, turn_id, kind, 1))

    def network_events(self, agent_id: str, limit: int) -> list[EventRow]:
        """Load the newest decisions of an agent's networks, oldest first."""
        rows = self._db.execute(
            "SELECT * FROM events WHERE agent = ? AND kind IN ('network:allowed', 'network:denied') "
            "ORDER BY cursor DESC LIMIT ?",
            (agent_id, limit),
        )
        return [EventRow(*row) for row in rows][::-1]

    def cursor_before_last(self, count: int, agent_id: str | None) -> int:
        """Return the cursor after which `count` events follow, or 0 when there are fewer."""
        where, values = ("WHERE agent = ?", (agent_id, count)) if agent_id else ("", (count,))
        row = self._db.execute(
            f"SELECT cursor FROM events {where} ORDER BY cursor DESC LIMIT 1 OFFSET ?",  # noqa: S608 - constants
            values,
        ).fetchone()
        return row[0] if row else 0

    def last_cursor(self) -> int:
        """Return the newest event's cursor, 0 when there was none yet."""
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return row[0] if row else 0

    # What is kept of old turns

    def note_report(self, item_id: int, turn_id: str) -> None:
        """Note that an inbox item reports the end of a turn: until it is delivered the turn counts as unread."""
        self._db.execute("UPDATE items SET about = ? WHERE id = ?", (turn_id, item_id))

    def turns_kept(self, agent_id: str) -> list[KeptRow]:
        """Load what decides about keeping an agent's turns, the oldest first."""
        rows = self._db.execute(
            "SELECT id, number, ended_at, (SELECT cleared FROM dropped_turns WHERE turn = turns.id), "
            "EXISTS (SELECT 1 FROM items WHERE about = turns.id AND items.turn IS NULL AND about NOT NULL) "
            "FROM turns WHERE agent = ? ORDER BY number",
            (agent_id,),
        )
        return [KeptRow(row[0], row[1], row[2], row[3] is not None, bool(row[3]), bool(row[4])) for row in rows]

    def drop_turn(self, agent_id: str, turn_id: str) -> None:
        """Note that a turn's files go, and forget its tool calls; its row stays. Its events go with `delete_events`."""
        self._db.execute("INSERT OR IGNORE INTO dropped_turns VALUES (?,?,0)", (turn_id, agent_id))
        self._db.execute("DELETE FROM calls WHERE agent = ? AND turn = ?", (agent_id, turn_id))

    def turn_cleared(self, turn_id: str) -> None:
        """Note that nothing is left of a dropped turn but its row."""
        self._db.execute("UPDATE dropped_turns SET cleared = 1 WHERE turn = ?", (turn_id,))

    def delete_events(self, cursors: Iterable[int]) -> None:
        """Delete events; their cursors are never used again."""
        self._db.executemany("DELETE FROM events WHERE cursor = ?", [(cursor,) for cursor in cursors])

    def removed_agents(self) -> list[str]:
        """Return the agents whose rows are gone and whose files may still be there."""
        return [row[0] for row in self._db.execute("SELECT id FROM removed_agents")]

    def forget_removed(self, agent_id: str) -> None:
        """Note that a removed agent's files are gone too."""
        self._db.execute("DELETE FROM removed_agents WHERE id = ?", (agent_id,))

    def is_empty(self) -> bool:
        """Say whether there are no agents, and none was set aside."""
        return self._db.execute("SELECT 1 FROM agents UNION ALL SELECT 1 FROM damaged LIMIT 1").fetchone() is None

    def damaged_agents(self) -> int:
        """Return how many agents have rows that couldn't be read and were set aside."""
        return int(self._db.execute("SELECT count(DISTINCT agent) FROM damaged").fetchone()[0])

    # Tool calls and mount points

    def add_call(self, agent_id: str, turn_id: str, call: str, answer: str) -> None:
        """Store a tool call's answer, so that a repeated call gets it again."""
        self._db.execute("INSERT INTO calls VALUES (?,?,?,?)", (agent_id, turn_id, call, answer))

    def answered_call(self, agent_id: str, turn_id: str, call: str) -> str | None:
        """Return the answer a call got before, if it came before."""
        row = self._db.execute(
            "SELECT answer FROM calls WHERE agent = ? AND turn = ? AND call = ?", (agent_id, turn_id, call)
        ).fetchone()
        return row[0] if row else None

    def add_mount_point(self, path: str) -> None:
        """Note a directory that is about to be made in a workspace only to be mounted over."""
        self._db.execute("INSERT OR IGNORE INTO mount_points VALUES (?)", (path,))

    def mount_points(self) -> list[str]:
        """Return the directories noted with `add_mount_point`."""
        return [row[0] for row in self._db.execute("SELECT path FROM mount_points")]

    def forget_mount_point(self, path: str) -> None:
        """Take back `add_mount_point`."""
        self._db.execute("DELETE FROM mount_points WHERE path = ?", (path,))


def _agent(row: Any, turn: Turn | None, waiting: int) -> Agent:
    (agent_id, name, phase, workspace, model, network, parent, created_at, session_id, stored, status,
     attempts, retry_at, restore, restored_at, allow, binds) = row  # fmt: skip
    session = Session(session_id, bool(stored)) if session_id is not None else None
    shown = tuple(Shown(path, bool(writable)) for path, writable in json.loads(binds))
    policy = Policy(Network(network), tuple(json.loads(allow)), shown)
    return Agent(
        agent_id, name, Phase(phase), workspace, model, policy, created_at, parent, session, waiting, turn, status,
        attempts, retry_at, Restore(restore), tuple(json.loads(restored_at)),
    )  # fmt: skip


def _turn(row: Any) -> Turn:
    (turn_id, agent, number, started_at, pid, start_time, boot_id, offset, stop, reported,
     outcome, ended_at, exit_code, result, usage, error, contacted, paused, frozen_at, thawed_at) = row  # fmt: skip
    return Turn(
        turn_id, agent, number, started_at, Process(pid, start_time, boot_id) if pid is not None else None, offset, stop,
        bool(reported), bool(contacted), paused, frozen_at, thawed_at,
        Outcome(outcome) if outcome is not None else None, ended_at, exit_code, result,
        json.loads(usage) if usage is not None else None, error,
    )  # fmt: skip


def _item(row: tuple[int, str | None, str, str, str, str, float]) -> Item:
    item_id, agent, kind, sender, sender_name, text, time = row
    return Item(item_id, agent, ItemKind(kind), sender, sender_name, text, time)
