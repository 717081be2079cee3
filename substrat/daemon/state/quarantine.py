"""Sets aside rows that can't be read, so that one agent's damage stops neither the daemon nor the others.

Every row of every table but the events is decoded here, at each start, with the functions that `store` reads it with later
(`rows`). An agent goes into the table `damaged` with all its rows when its own row, or one of its turns or inbox items,
can't be read or contradicts the others; its events and its files stay where they are. Other rows, such as a reminder, go
there alone. Events are too many for this: one that can't be read is shown as one that says so (`rows.readable_event`).
The structure of the file is the business of `database`.
"""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import LIVE_PHASES, Phase
from substrat.core.agents.records import Closed, Process
from substrat.daemon.kernel.procfs import MAX_PID
from substrat.daemon.state.columns import MAX_NUMBER
from substrat.daemon.state.database import unusable
from substrat.daemon.state.rows import (
    AGENTS,
    DAMAGED,
    EVENTS,
    ITEMS,
    TABLES,
    TURNS,
    ItemRow,
)
from substrat.daemon.state.tables import RowDamaged, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from substrat.core.agents.records import Agent, Turn
    from substrat.daemon.state.store import Store

_ROWS_AT_ONCE = 1000
"""Rows decoded together: enough for equal values to be found, and little memory."""

_TRIED = tuple(table for table in TABLES if table not in {EVENTS, DAMAGED})


class SetAside(NamedTuple):
    """An agent that was set aside, or a row of none.

    Args:
        agent: the agent's id; None for a row that belongs to no agent, or to one that isn't there.
        name: its name as far as it can be read, or the table of the row.
        reason: which value of which table can't be read.
        processes: the sandboxes that may still be running for it.
    """

    agent: str | None
    name: str
    reason: str
    processes: tuple[Process, ...]


class _Row(NamedTuple):
    """One row to be set aside: its table, the condition that finds it, and why."""

    table: Table[Any]
    where: str
    values: tuple[object, ...]
    reason: str


def set_aside(store: Store, now: float) -> list[SetAside]:
    """Set aside every agent whose rows can't be read, and every other row that can't be read.

    Raises:
        StateUnusable: the file's structure is damaged.
        StorageFailed: it can't be written down; nothing was changed.
    """
    db = store.connection
    try:
        scan = _Scan(db)
        found = []
        for agent, reason in scan.agents.items():
            with store.transaction(urgent=True):  # no daemon starts without it
                found.append(_move_agent(db, agent, reason, now))
        for row in scan.rows:
            with store.transaction(urgent=True):
                found.append(_move_row(db, row, now))
    except sqlite3.Error as problem:
        raise unusable(store.path, problem) from None
    return found


class _Scan:
    """Tries to read everything, and collects which agents and which rows are to be set aside, with the reasons.

    Args:
        db: the state.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.agents: dict[str, str] = {}
        self.rows: list[_Row] = []
        self._known: dict[str, Agent] = {}
        self._newest: dict[str, Turn] = {}
        self._turns: dict[str, str] = {}
        looks: dict[Table[Any], Callable[[Any, Callable[[str], _Row]], None]] = {
            AGENTS: self._look_at_agent, TURNS: self._look_at_turn, ITEMS: self._look_at_item
        }  # fmt: skip
        ids = db.execute("SELECT CAST(id AS BLOB) FROM agents")
        self._ids = {found for row in ids if (found := _text(row[0])) is not None}
        for table in _TRIED:
            self._try(table, looks.get(table))
        self._compare()
        events = db.execute("SELECT cursor FROM events WHERE cursor < 1 OR cursor > ?", (MAX_NUMBER,))
        self.rows += [
            _Row(EVENTS, "cursor = ?", row, f"events.cursor is no whole number from 1 to {MAX_NUMBER}") for row in events
        ]

    def _try(self, table: Table[Any], look: Callable[[Any, Callable[[str], _Row]], None] | None) -> None:
        """Decode every row of a table."""
        rowid = "NULL" if _has_no_rowid(self._db, table) else "rowid"
        found = self._db.execute(f"SELECT {table.checked_columns}, {rowid} FROM {table.name}")  # noqa: S608 - constants
        while some := found.fetchmany(_ROWS_AT_ONCE):
            for row, raw in zip(self._decoded(table, some), some, strict=True):
                if row is not None and look is not None:
                    look(row, partial(_row, table, raw))

    def _decoded(self, table: Table[Any], some: list[Any]) -> list[Any]:
        """Return rows decoded; None for those that can't be, which are noted."""
        with suppress(RowDamaged):
            return table.read_all([raw[:-1] for raw in some])
        decoded = []
        for raw in some:
            try:
                decoded.append(table.read(raw[:-1]))
            except RowDamaged as problem:
                decoded.append(None)
                self._blame(table, raw, _row(table, raw, problem.message))
        return decoded

    def _blame(self, table: Table[Any], values: Sequence[Any], row: _Row) -> None:
        """Note an agent for a row that can't be read, or the row alone where it belongs to no agent there is."""
        owner = dict(zip(table.names, values, strict=False))[table.owner or ""] if table.with_agent else None
        if owner in self._ids:
            self.agents.setdefault(str(owner), row.reason)
        else:
            self.rows.append(row)

    def _look_at_agent(self, row: Agent, _found: Callable[[str], _Row]) -> None:
        self._known[row.id] = row

    def _look_at_turn(self, row: Turn, found: Callable[[str], _Row]) -> None:
        if row.agent not in self._ids:
            self._blame(TURNS, (row.id, row.agent), found("turns.agent is no agent there is"))
            return
        self._turns[row.id] = row.agent
        newest = self._newest.get(row.agent)
        if newest is None or row.number > newest.number:
            self._newest[row.agent] = row

    def _look_at_item(self, row: ItemRow, found: Callable[[str], _Row]) -> None:
        if row.agent is not None and row.agent not in self._ids:
            self.rows.append(found("items.agent is no agent there is"))
        elif row.agent is not None and row.turn is not None:
            if self._turns.get(row.turn) != row.agent:
                self.agents.setdefault(row.agent, "items.turn is no turn of the agent's")
        elif row.agent is None and (row.turn is not None or row.closed is Closed.READ):
            self.rows.append(found("items.turn or items.closed is nothing that becomes of the operator's messages"))

    def _compare(self) -> None:
        """Find agents that contradict their turns or items, or that have another's name or session."""
        waiting = {row[0] for row in self._db.execute("SELECT agent FROM items WHERE turn IS NULL AND closed IS NULL")}
        names: set[str] = set()
        sessions: set[str] = set()
        for row in sorted(self._known.values(), key=lambda row: row.created_at):
            newest = self._newest.get(row.id)
            is_open = newest is not None and newest.outcome is None
            if (row.phase in LIVE_PHASES) != is_open:
                self.agents.setdefault(row.id, f"agents.phase is {row.phase.value!r}, which its newest turn contradicts")
            if row.phase is Phase.QUEUED and row.id not in waiting:
                self.agents.setdefault(row.id, "agents.phase is 'queued', and nothing waits for it")
            pending = row.checked if turn_check.is_pending(row.checked) else None
            if row.phase is Phase.CHECKING and pending is None:
                self.agents.setdefault(row.id, "agents.phase is 'checking', and no check is to come")
            if pending is not None and (newest is None or is_open or newest.number != pending.turn):
                self.agents.setdefault(row.id, "agents.checked waits, and isn't of the newest turn, or that one runs")
            if row.name in names:
                self.agents.setdefault(row.id, "agents.name is another agent's")
            session = {row.session.id} if row.session is not None else set()
            if session & sessions:
                self.agents.setdefault(row.id, "agents.session_id is another agent's")
            if row.id not in self.agents:
                names.add(row.name)
                sessions |= session


def _has_no_rowid(db: sqlite3.Connection, table: Table[Any]) -> bool:
    found = db.execute("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table.name,)).fetchone()
    return bool(found and found[0])


def _row(table: Table[Any], raw: Sequence[Any], reason: str) -> _Row:
    """Return how a row is found again: by its number, or by all its values where rows have none."""
    *values, number = raw
    if number is not None:
        return _Row(table, "rowid = ?", (number,), reason)
    conditions, given = [], []
    for name, value in zip(table.names, values, strict=True):
        # A column's declared type must not change the value that it is compared with.
        if isinstance(value, str):
            if f"typeof({name})" in table.checked_columns:
                continue  # prose, of which a sample was read
            conditions.append(f"(typeof({name}) = 'text' AND CAST({name} AS BLOB) IS ?)")
            given.append(value.encode("utf-8", "surrogateescape"))
        else:
            conditions.append(f"+{name} IS ?")
            given.append(value)
    return _Row(table, " AND ".join(conditions), tuple(given), reason)


def _move_agent(db: sqlite3.Connection, agent: str, reason: str, now: float) -> SetAside:
    """Move all rows of an agent but its events into the table of damaged ones."""
    key = agent.encode("utf-8", "surrogateescape")
    name, processes = agent, []
    # The agent and its work first: that is the order in which a person looks for it.
    for table in sorted((table for table in _TRIED if table.owner), key=lambda table: not table.with_agent):
        moved = _move(db, _Row(table, f"CAST({table.owner} AS BLOB) IS ?", (key,), reason), agent, now)
        for row in moved:
            name = str(row.get("name")) if table is AGENTS else name
            if table is TURNS and (process := _process(row)) is not None:
                processes.append(process)
    db.execute("UPDATE agents SET parent = NULL WHERE CAST(parent AS BLOB) = ?", (key,))
    return SetAside(agent, name, reason, tuple(processes))


def _move_row(db: sqlite3.Connection, row: _Row, now: float) -> SetAside:
    """Move a single row into the table of damaged ones; of an agent's own row there may be no id to call it by."""
    agent = f"row {row.values[0]}" if row.table is AGENTS else None
    moved = _move(db, row, agent, now)
    processes = [_process(found) for found in moved] if row.table is TURNS else []
    name = str(moved[0].get("name")) if row.table is AGENTS and moved else f"a row of {row.table.name}"
    return SetAside(agent, name, row.reason, tuple(process for process in processes if process is not None))


def _move(db: sqlite3.Connection, row: _Row, agent: str | None, now: float) -> list[dict[str, object]]:
    found = list(_raw_rows(db, row))
    for values in found:
        db.execute(
            DAMAGED.insert(without=("id",)),
            (now, _printable(agent) if agent is not None else None, row.table.name, row.reason, json.dumps(values)),
        )
    db.execute(f"DELETE FROM {row.table.name} WHERE {row.where}", row.values)  # noqa: S608 - constants
    return found


def _raw_rows(db: sqlite3.Connection, row: _Row) -> Iterator[dict[str, object]]:
    """Read rows as JSON can hold them."""
    found = db.execute(f"SELECT * FROM {row.table.name} WHERE {row.where}", row.values)  # noqa: S608 - constants
    names = [column[0] for column in found.description]
    for values in found.fetchall():
        yield {name: _as_json(value) for name, value in zip(names, values, strict=True)}


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _printable(value) if isinstance(value, str) else value


def _process(row: dict[str, object]) -> Process | None:
    """Return the sandbox of a turn that hasn't ended, as far as its row tells."""
    match row:
        case {"outcome": None, "pid": int(pid), "start_time": int(start_time), "boot_id": str(boot_id)} if (
            0 < pid <= MAX_PID
        ):
            return Process(pid, start_time, boot_id)
    return None


def _text(value: bytes | None) -> str | None:
    return value.decode("utf-8", "surrogateescape") if value is not None else None


def _printable(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
