"""The state as rows: each question to the database and each change of it; what rows mean is the supervisor's business."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from substrat.core.agents.records import Agent, Finding, Item, Policy, Process, Reminder, Session, Turn
from substrat.daemon.state import rows
from substrat.daemon.state.database import Database, unusable
from substrat.daemon.state.rows import (
    AGENTS,
    CALLS,
    EVENTS,
    FINDINGS,
    ITEMS,
    REMINDERS,
    TURNS,
    EventRow,
    readable_event,
    readable_events,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["READ_IN_TOOL", "SETTLED", "EventRow", "KeptRow", "Store"]

READ_IN_TOOL = "read"
"""What stands in an item's `turn` when `check_inbox` handed it out."""
SETTLED = "settled"
"""What stands in an item's `turn` when the operator has answered or dismissed it."""


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

    agents_without_records = 0
    """How many agents have files and no rows, as was found when the daemon started."""

    # Agents and turns

    def save_agent(self, agent: Agent) -> None:
        """Insert or replace an agent's row; its turn has a row of its own."""
        session = agent.session
        row = rows.AgentRow(
            agent.id, agent.name, agent.phase, agent.workspace, agent.model, agent.policy.network, agent.parent,
            agent.created_at, session.id if session else None, session.stored if session else False, agent.status,
            agent.attempts, agent.retry_at, agent.restore, agent.restored_at, agent.policy.allow, agent.policy.binds,
            agent.since, agent.accepted_turn, agent.environment, agent.ssh_agent,
        )  # fmt: skip
        self._db.execute(_SAVE_AGENT, AGENTS.write(row))

    def save_turn(self, turn: Turn) -> None:
        """Insert or replace a turn's row.

        A turn that has ended keeps the result and the usage that are stored: in memory it may be without (`abridged`).
        """
        process = turn.process
        row = rows.TurnRow(
            turn.id, turn.agent, turn.number, turn.started_at, process.pid if process else None,
            process.start_time if process else None, process.boot_id if process else None, turn.offset, turn.stop,
            turn.reported, turn.outcome, turn.ended_at, turn.exit_code, turn.result,
            dict(turn.usage) if turn.usage is not None else None, turn.error, turn.contacted, turn.paused,
            turn.frozen_at, turn.thawed_at,
        )  # fmt: skip
        self._db.execute(_SAVE_TURN, TURNS.write(row))

    def agents(self) -> list[Agent]:
        """Load every agent with its newest turn, abridged, and the number of items that wait, oldest first.

        Raises:
            StateUnusable: the database is damaged.
        """
        try:
            return self._agents()
        except sqlite3.Error as problem:
            raise unusable(self._path, problem) from None

    def _agents(self) -> list[Agent]:
        newest = self._db.execute(_NEWEST_TURNS).fetchall()
        turns = {row.agent: _turn(row) for row in TURNS.read_all(newest)}
        findings: dict[str, list[Finding]] = {}
        for finding in self.open_findings():
            findings.setdefault(finding.agent, []).append(finding)
        waiting = dict(
            self._db.execute("SELECT agent, count(*) FROM items WHERE turn IS NULL AND agent NOT NULL GROUP BY agent")
        )
        found = AGENTS.read_all(self._db.execute(f"{AGENTS.select} ORDER BY created_at, rowid").fetchall())
        return [_agent(row, turns.get(row.id), waiting.get(row.id, 0), tuple(findings.get(row.id, ()))) for row in found]

    def turn(self, turn_id: str) -> Turn | None:
        """Load one turn."""
        row = self._db.execute(f"{TURNS.select} WHERE id = ?", (turn_id,)).fetchone()
        return _turn(TURNS.read(row)) if row else None

    def turn_number(self, turn_id: str) -> int | None:
        """Load a turn's number alone: its row may hold a result of a megabyte."""
        row = self._db.execute("SELECT number FROM turns WHERE id = ?", (turn_id,)).fetchone()
        return row[0] if row else None

    def turns_after(self, agent_id: str, number: int, limit: int, most: int | None = None) -> list[Turn]:
        """Load an agent's turns after a number, the oldest first.

        Args:
            agent_id: the agent.
            number: the turn before the first one.
            limit: how many turns at most.
            most: the characters of results and errors after which no further turn is loaded; None is no bound.
        """
        found = self._db.execute(
            f"{TURNS.select} WHERE agent = ? AND number > ? ORDER BY number LIMIT ?", (agent_id, number, limit)
        )
        turns, size = [], 0
        for values in found:
            turns.append(_turn(TURNS.read(values)))
            size += len(turns[-1].result or "") + len(turns[-1].error or "")
            if most is not None and size > most:
                break
        found.close()
        return turns

    def usages(self, agent_id: str, after: int, limit: int) -> list[tuple[int, dict[str, int]]]:
        """Load the numbers of an agent's turns after one, and what they used, those that said so."""
        found = self._db.execute(
            "SELECT number, usage FROM turns WHERE agent = ? AND number > ? AND usage NOT NULL ORDER BY number LIMIT ?",
            (agent_id, after, limit),
        )
        return [(row[0], rows.USAGE.read(row[1])) for row in found]

    def forget_agent(self, agent_id: str) -> None:
        """Delete everything about an agent, its open questions too; its children become nobody's."""
        for table in ("turns", "items", "events", "calls", "reminders", "dropped_turns", "findings"):
            self._db.execute(f"DELETE FROM {table} WHERE agent = ?", (agent_id,))  # noqa: S608 - the names stand above
        self._db.execute("UPDATE agents SET parent = NULL WHERE parent = ?", (agent_id,))
        self._db.execute("DELETE FROM agents WHERE id = ?", (agent_id,))
        # Nobody is left who could take the answer. What it wrote without asking stays to be read.
        self._db.execute(
            "DELETE FROM items WHERE agent IS NULL AND turn IS NULL AND kind = 'question' AND sender = ?", (agent_id,)
        )
        self._db.execute("INSERT OR IGNORE INTO removed_agents (id) VALUES (?)", (agent_id,))
        self.forget_settled()

    def forget_settled(self) -> None:
        """Delete what removed agents wrote and the operator has settled; messages that are open stay."""
        self._db.execute("DELETE FROM items WHERE turn = ? AND sender NOT IN (SELECT id FROM agents)", (SETTLED,))

    # What a person has to look at

    def add_finding(self, finding: Finding) -> Finding:
        """Store a finding and return it with its number; the number it comes with is ignored."""
        row = rows.FindingRow(
            0, finding.agent, finding.turn, finding.time, finding.path, finding.text, finding.aside,
            finding.difference, None,
        )  # fmt: skip
        done = self._db.execute(_ADD_FINDING, FINDINGS.write(row)[1:])
        return replace(finding, number=int(done.lastrowid or 0))

    def open_findings(self) -> list[Finding]:
        """Load the findings of all agents that no person has accepted, oldest first."""
        found = self._db.execute(f"{FINDINGS.select} WHERE accepted_at IS NULL ORDER BY number")
        return [_finding(row) for row in FINDINGS.read_all(found.fetchall())]

    def accepted_findings(self, agent_id: str) -> set[tuple[str, str]]:
        """Return the path and the text of each finding of an agent that a person has accepted."""
        found = self._db.execute("SELECT path, text FROM findings WHERE agent = ? AND accepted_at NOT NULL", (agent_id,))
        return {(row[0], row[1]) for row in found}

    def accept_findings(self, numbers: Iterable[int], now: float) -> None:
        """Note that a person has accepted findings."""
        self._db.executemany("UPDATE findings SET accepted_at = ? WHERE number = ?", [(now, number) for number in numbers])

    def open_questions(self, agents: Sequence[str]) -> dict[str, Item]:
        """Return the oldest question of each of some agents that the operator hasn't answered, by the agent's id."""
        found = self._db.execute(
            f"{ITEMS.select} WHERE id IN (SELECT min(id) FROM items WHERE turn IS NULL AND agent IS NULL AND "  # noqa: S608
            f"kind = 'question' AND sender IN ({','.join('?' * len(agents))}) GROUP BY sender)",
            agents,
        )
        return {item.sender: item for item in map(_item, found)}

    def waiting_since(self, agent_id: str) -> float | None:
        """Return when the oldest item that waits for an agent was accepted, in seconds since the epoch."""
        row = self._db.execute(
            "SELECT time FROM items WHERE turn IS NULL AND agent = ? ORDER BY id LIMIT 1", (agent_id,)
        ).fetchone()
        return row[0] if row else None

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
            f"{ITEMS.select} WHERE turn IS NULL AND agent IS ? ORDER BY kind != 'continuation', id LIMIT ?",
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

    def operator_items(self, after: int = 0, limit: int = 1000) -> list[Item]:
        """Load the oldest messages and questions that wait for the operator, those with greater numbers than `after`."""
        found = self._db.execute(
            f"{ITEMS.select} WHERE turn IS NULL AND agent IS NULL AND id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        return [_item(row) for row in found]

    def item(self, item_id: int) -> Item | None:
        """Load one inbox item."""
        row = self._db.execute(f"{ITEMS.select} WHERE id = ?", (item_id,)).fetchone()
        return _item(row) if row else None

    def first_waiting(self) -> dict[str, int]:
        """Return the number of the oldest item that waits for each agent."""
        rows = self._db.execute("SELECT agent, min(id) FROM items WHERE turn IS NULL AND agent NOT NULL GROUP BY agent")
        return dict(rows)

    def items_of_turn(self, turn_id: str) -> list[Item]:
        """Load what a turn delivered."""
        rows = self._db.execute(f"{ITEMS.select} WHERE turn = ? ORDER BY id", (turn_id,))
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
        found = self._db.execute(
            f"{REMINDERS.select} WHERE (?1 IS NULL OR agent = ?1) AND (?2 IS NULL OR due <= ?2) ORDER BY due, id",
            (agent_id, due),
        )
        return [Reminder(*REMINDERS.read(row)) for row in found]

    def forget_reminder(self, reminder: int) -> None:
        """Delete a reminder."""
        self._db.execute("DELETE FROM reminders WHERE id = ?", (reminder,))

    # Events

    def add_events(self, events: Iterable[EventRow]) -> list[EventRow]:
        """Store events and return them with their cursors."""
        stored = []
        for row in events:
            done = self._db.execute(_ADD_EVENT, EVENTS.write(row)[1:])
            stored.append(row._replace(cursor=int(done.lastrowid or 0)))
        return stored

    def events_after(self, cursor: int, agent_id: str | None, limit: int) -> list[EventRow]:
        """Load events after a cursor, oldest first."""
        where, values = ("AND agent = ?", (cursor, agent_id, limit)) if agent_id else ("", (cursor, limit))
        found = self._db.execute(
            f"{EVENTS.select} WHERE cursor > ? {where} ORDER BY cursor LIMIT ?",
            values,
        )
        return readable_events(found.fetchall())

    def result_event(self, turn_id: str) -> EventRow | None:
        """Load the newest result a turn has reported, if it has."""
        row = self._db.execute(
            f"{EVENTS.select} INDEXED BY results WHERE turn = ? AND kind IN ('result:success', 'result:error') "
            "ORDER BY cursor DESC LIMIT 1",
            (turn_id,),
        ).fetchone()
        return readable_event(row) if row is not None else None

    def events_of_turn(self, agent_id: str, turn_id: str, kind: str, limit: int) -> list[EventRow]:
        """Load the first events of a kind that a turn's agent program made."""
        found = self._db.execute(
            _EVENTS_OF_TURN,
            (agent_id, turn_id, kind, turn_id, limit),
        )
        return readable_events(found.fetchall())

    def last_event_of_turn(self, agent_id: str, turn_id: str, kind: str) -> EventRow | None:
        """Load the last event of a kind that a turn's agent program made, if it made any."""
        row = self._db.execute(_LAST_EVENT_OF_TURN, (agent_id, turn_id, kind, turn_id)).fetchone()
        return readable_event(row) if row is not None else None

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

    def cursor_before_last(self, count: int, agent_id: str | None) -> int:
        """Return the cursor after which `count` events follow, or 0 when there are fewer."""
        where, values = ("WHERE agent = ?", (agent_id, count)) if agent_id else ("", (count,))
        row = self._db.execute(
            f"SELECT cursor FROM events {where} ORDER BY cursor DESC LIMIT 1 OFFSET ?",  # noqa: S608 - constants
            values,
        ).fetchone()
        return row[0] if row else 0

    def last_line_at(self, agent_id: str) -> float | None:
        """Return when an agent's program last wrote a line, in seconds since the epoch; None when it never did."""
        row = self._db.execute(
            "SELECT time FROM events WHERE agent = ? AND offset NOT NULL ORDER BY cursor DESC LIMIT 1", (agent_id,)
        ).fetchone()
        return row[0] if row else None

    def last_act(self, agent_id: str) -> EventRow | None:
        """Load an agent's last tool call or status, if it is among its last thousand events."""
        row = self._db.execute(
            f"SELECT {EVENTS.columns} FROM ({EVENTS.select} WHERE agent = ? ORDER BY cursor DESC LIMIT 1000) "  # noqa: S608
            "WHERE kind IN ('tool-call-started', 'tool-call-completed', 'agent:status') ORDER BY cursor DESC LIMIT 1",
            (agent_id,),
        ).fetchone()
        return readable_event(row) if row is not None else None

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
        self._db.execute("INSERT OR IGNORE INTO dropped_turns (turn, agent, cleared) VALUES (?,?,0)", (turn_id, agent_id))
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

    def known_agents(self) -> set[str]:
        """Return the ids of the agents that there are, that were set aside, and that are removed but not yet deleted."""
        known = "SELECT id FROM agents UNION SELECT agent FROM damaged UNION SELECT id FROM removed_agents"
        return {row[0] for row in self._db.execute(known)}

    def damaged_agents(self) -> int:
        """Return how many agents were set aside because their rows can't be read, or have no rows."""
        aside = self._db.execute("SELECT count(DISTINCT agent) FROM damaged").fetchone()
        return int(aside[0]) + self.agents_without_records

    # Tool calls and mount points

    def add_call(self, agent_id: str, turn_id: str, call: str, answer: str) -> None:
        """Store a tool call's answer, so that a repeated call gets it again."""
        self._db.execute(_ADD_CALL, (agent_id, turn_id, call, answer))

    def answered_call(self, agent_id: str, turn_id: str, call: str) -> str | None:
        """Return the answer a call got before, if it came before."""
        row = self._db.execute(
            "SELECT answer FROM calls WHERE agent = ? AND turn = ? AND call = ?", (agent_id, turn_id, call)
        ).fetchone()
        if row is None:
            return None
        try:
            return json.dumps(rows.ANSWER.read(row[0]))
        except ValueError:
            return json.dumps(["this call was carried out, but the record of its answer is damaged", True])

    def turn_has_call(self, agent_id: str, turn_id: str) -> bool:
        """Say whether a turn has called a tool of the daemon's."""
        row = self._db.execute("SELECT 1 FROM calls WHERE agent = ? AND turn = ? LIMIT 1", (agent_id, turn_id)).fetchone()
        return row is not None

    def add_mount_points(self, paths: Iterable[str]) -> None:
        """Note files and directories that are about to be made in a workspace only to be mounted over."""
        self._db.executemany("INSERT OR IGNORE INTO mount_points (path) VALUES (?)", [(path,) for path in paths])

    def mount_points(self) -> list[str]:
        """Return the paths noted with `add_mount_points`."""
        return [row[0] for row in self._db.execute("SELECT path FROM mount_points")]

    def forget_mount_points(self, paths: Iterable[str]) -> None:
        """Take back `add_mount_points`."""
        self._db.executemany("DELETE FROM mount_points WHERE path = ?", [(path,) for path in paths])


_SAVE_AGENT = AGENTS.upsert("id")
_SAVE_TURN = TURNS.upsert("id", kept=("result", "usage"), where="excluded.outcome NOT NULL")
_ADD_EVENT = EVENTS.insert(without=("cursor",))
_ADD_CALL = CALLS.insert()
_ADD_FINDING = FINDINGS.insert(without=("number",))
# Without results and usages, which may have a megabyte each.
_ABRIDGED = ", ".join("NULL" if name in {"result", "usage"} else name for name in TURNS.names)
_NEWEST_TURNS = (
    f"SELECT {_ABRIDGED} FROM turns JOIN (SELECT agent AS owner, max(number) AS newest FROM turns GROUP BY agent) "  # noqa: S608 - constants
    "ON agent = owner AND number = newest"
)


# What came before the turn is of no interest: it may be millions.
_OF_TURN = (
    f"{EVENTS.select} INDEXED BY events_of_agent WHERE agent = ? AND turn = ? AND kind = ? AND cursor > "  # noqa: S608
    "coalesce((SELECT cursor FROM events WHERE turn = ? AND kind = 'turn:started'), 0) ORDER BY cursor"
)
_EVENTS_OF_TURN = f"{_OF_TURN} LIMIT ?"
_LAST_EVENT_OF_TURN = f"{_OF_TURN} DESC LIMIT 1"


def _agent(row: rows.AgentRow, turn: Turn | None, waiting: int, findings: tuple[Finding, ...]) -> Agent:
    session = Session(row.session_id, row.session_stored) if row.session_id is not None else None
    policy = Policy(row.network, row.allow, row.binds)
    return Agent(
        row.id, row.name, row.phase, row.workspace, row.model, policy, row.created_at, row.parent, session, waiting, turn,
        row.status, row.attempts, row.retry_at, row.restore, row.restored_at, row.since, row.accepted_turn, findings,
        row.environment, row.ssh_agent,
    )  # fmt: skip


def _turn(row: rows.TurnRow) -> Turn:
    process = None
    if row.pid is not None and row.start_time is not None and row.boot_id is not None:
        process = Process(row.pid, row.start_time, row.boot_id)
    return Turn(
        row.id, row.agent, row.number, row.started_at, process, row.offset, row.stop, row.reported, row.contacted,
        row.paused, row.frozen_at, row.thawed_at, row.outcome, row.ended_at, row.exit_code, row.result, row.usage,
        row.error,
    )  # fmt: skip


def _finding(row: rows.FindingRow) -> Finding:
    return Finding(row.number, row.agent, row.turn, row.time, row.path, row.text, row.aside, row.difference)


def _item(values: Any) -> Item:
    row = ITEMS.read(values)
    return Item(row.id, row.agent, row.kind, row.sender, row.sender_name, row.text, row.time)
