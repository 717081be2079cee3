"""Sets aside the rows of agents that can't be read, so that one agent's damage never stops the others.

An agent whose own row, or any of whose turns or inbox items, has a value that nobody could have written is taken out
whole: its rows go into the table `damaged` as JSON, its events and its files stay where they are. The structure of the
file is the store's business.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, NamedTuple

from sandbox.spec import Network
from substrat.core.lifecycle import LIVE_PHASES, Phase
from substrat.core.records import ItemKind, Outcome, Process, Restore
from substrat.daemon.process import MAX_PID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from enum import Enum

    from substrat.daemon.store import Store

_MOMENT = "BETWEEN 0 AND 253402300799"
"""From 1970 to the end of 9999: the times that can be written as a date."""


def _one_of(column: str, values: Iterable[Enum]) -> str:
    words = ", ".join(f"'{value.value}'" for value in values)
    return f"{column} IN ({words})"


# For SQLite a column that is declared NOT NULL never is, whatever the file holds, so the type is asked for.
_HAS_ITS_TURN = f"""
    NOT {_one_of("phase", sorted(LIVE_PHASES))}
    OR (SELECT outcome IS NULL FROM turns WHERE agent = agents.id ORDER BY number DESC LIMIT 1)
"""  # noqa: S608 - constants
_USAGE = """
    usage IS NULL OR CASE WHEN json_valid(usage) THEN json_type(usage) = 'object'
    AND NOT EXISTS (SELECT 1 FROM json_each(usage) WHERE json_each.type != 'integer') ELSE 0 END
"""

_SOUND = {
    "agents": (
        ("phase", _one_of("phase", Phase)),
        ("network", _one_of("network", Network)),
        ("name", "length(name) > 0"),
        ("workspace", "workspace LIKE '/%'"),
        ("model, status", "typeof(model) = 'text' AND typeof(status) = 'text'"),
        ("created_at", f"created_at {_MOMENT}"),
        ("attempts", "attempts >= 0"),
        ("retry_at", f"retry_at IS NULL OR retry_at {_MOMENT}"),
        ("session_stored", "session_stored IN (0, 1)"),
        ("restore", _one_of("restore", Restore)),
        ("restored_at", "json_valid(restored_at) AND json_type(restored_at) = 'array'"),
        ("binds", "json_valid(binds) AND json_type(binds) = 'array'"),
        ("phase without a turn", _HAS_ITS_TURN),
    ),
    "turns": (
        ("number", "number >= 1"),
        ("offset", "offset >= 0"),
        ("started_at", f"started_at {_MOMENT}"),
        ("ended_at", f"ended_at IS NULL OR ended_at {_MOMENT}"),
        ("paused", "paused >= 0"),
        ("frozen_at", f"frozen_at IS NULL OR frozen_at {_MOMENT}"),
        ("thawed_at", f"thawed_at IS NULL OR thawed_at {_MOMENT}"),
        ("reported, contacted", "reported IN (0, 1) AND contacted IN (0, 1)"),
        ("pid", f"pid IS NULL OR (pid BETWEEN 1 AND {MAX_PID} AND start_time >= 0 AND boot_id NOT NULL)"),
        ("outcome", f"outcome IS NULL OR {_one_of('outcome', Outcome)}"),
        ("usage", _USAGE),
    ),
    "items": (
        ("kind", _one_of("kind", ItemKind)),
        ("sender, text", "typeof(sender) = 'text' AND typeof(sender_name) = 'text' AND typeof(text) = 'text'"),
        ("time", f"time {_MOMENT}"),
    ),
}
"""What must be true of each table's rows, under the name that a report gives it."""


class SetAside(NamedTuple):
    """An agent that was set aside.

    Args:
        agent: its id; None for messages to the operator.
        name: its name as far as it can be read.
        reason: which value of which table can't be read.
        processes: the sandboxes that may still be running for it.
    """

    agent: str | None
    name: str
    reason: str
    processes: tuple[Process, ...]


def set_aside(store: Store, now: float) -> list[SetAside]:
    """Set aside every agent whose rows can't be read.

    Args:
        store: the state.
        now: seconds since the epoch.

    Raises:
        StorageFailed: it can't be written down; nothing was changed.
    """
    db = store.connection
    reasons: dict[str | None, str] = {}
    for agent, reason in (*_unsound(db), *_undecodable(db)):
        reasons.setdefault(agent, reason)
    found = []
    for agent, reason in reasons.items():
        with store.transaction():
            found.append(_move(db, agent, reason, now))
    return found


def _unsound(db: sqlite3.Connection) -> Iterator[tuple[str | None, str]]:
    for table, rules in _SOUND.items():
        column = "id" if table == "agents" else "agent"
        all_true = " AND ".join(f"({rule})" for _, rule in rules)
        rows = db.execute(f"SELECT rowid, CAST({column} AS BLOB) FROM {table} WHERE ({all_true}) IS NOT TRUE")  # noqa: S608
        for rowid, agent in rows.fetchall():
            broken = [
                name
                for name, rule in rules
                if db.execute(f"SELECT ({rule}) IS NOT TRUE FROM {table} WHERE rowid = ?", (rowid,)).fetchone()[0]  # noqa: S608
            ]
            yield _text(agent), f"{', '.join(broken)} of {table} has a value nobody knows"


def _undecodable(db: sqlite3.Connection) -> Iterator[tuple[str | None, str]]:
    """Look for agents whose own rows aren't UTF-8: those are read at every start."""
    for rowid, agent in db.execute("SELECT rowid, CAST(id AS BLOB) FROM agents").fetchall():
        try:
            db.execute("SELECT * FROM agents WHERE rowid = ?", (rowid,)).fetchone()
            db.execute(
                "SELECT * FROM turns WHERE agent = (SELECT id FROM agents WHERE rowid = ?) ORDER BY number DESC LIMIT 1",
                (rowid,),
            ).fetchone()
        except sqlite3.Error as problem:
            yield _text(agent), str(problem)


def _move(db: sqlite3.Connection, agent: str | None, reason: str, now: float) -> SetAside:
    """Move an agent's rows, or the operator's items that can't be read, into the table of damaged ones."""
    name, processes = agent or "the operator", []
    tables = {"items": "agent"} if agent is None else {"agents": "id", "turns": "agent", "items": "agent"}
    for table, column in tables.items():
        where = f"CAST({column} AS BLOB) IS ?"
        if agent is None:
            where += f" AND ({' AND '.join(f'({rule})' for _, rule in _SOUND[table])}) IS NOT TRUE"
        values = (agent.encode("utf-8", "surrogateescape") if agent is not None else None,)
        for row in _raw_rows(db, f"SELECT * FROM {table} WHERE {where}", values):  # noqa: S608
            db.execute("INSERT INTO damaged (time, agent, origin, reason, row) VALUES (?,?,?,?,?)",
                       (now, _printable(agent), table, reason, json.dumps(row)))  # fmt: skip
            if table == "agents":
                name = str(row.get("name"))
            if table == "turns" and row.get("outcome") is None and (process := _process(row)) is not None:
                processes.append(process)
        db.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608
    if agent is not None:
        db.execute(
            "UPDATE agents SET parent = NULL WHERE CAST(parent AS BLOB) = ?", (agent.encode("utf-8", "surrogateescape"),)
        )
    return SetAside(agent, name, reason, tuple(processes))


def _raw_rows(db: sqlite3.Connection, query: str, values: tuple[object, ...]) -> list[dict[str, object]]:
    """Read rows whatever their text is."""
    before, db.text_factory = db.text_factory, lambda data: data.decode("utf-8", "backslashreplace")
    try:
        found = db.execute(query, values)
        names = [column[0] for column in found.description]
        return [
            {name: value.hex() if isinstance(value, bytes) else value for name, value in zip(names, row, strict=True)}
            for row in found.fetchall()
        ]
    finally:
        db.text_factory = before


def _process(row: dict[str, object]) -> Process | None:
    match row:
        case {"pid": int(pid), "start_time": int(start_time), "boot_id": str(boot_id)} if 0 < pid <= MAX_PID:
            return Process(pid, start_time, boot_id)
    return None


def _text(value: bytes | None) -> str | None:
    return value.decode("utf-8", "surrogateescape") if value is not None else None


def _printable(value: str | None) -> str | None:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if value is not None else None
