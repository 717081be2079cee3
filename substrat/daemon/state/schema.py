"""The database's schema, version by version; `database` brings one up to it."""

_FIRST_SCHEMA = """
CREATE TABLE agents (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, phase TEXT NOT NULL, workspace TEXT NOT NULL, model TEXT NOT NULL,
    network TEXT NOT NULL, parent TEXT, created_at REAL NOT NULL, session_id TEXT, session_stored INTEGER NOT NULL,
    status TEXT NOT NULL, attempts INTEGER NOT NULL, retry_at REAL
) STRICT;
CREATE TABLE turns (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, number INTEGER NOT NULL, started_at REAL NOT NULL, pid INTEGER,
    start_time INTEGER, boot_id TEXT, offset INTEGER NOT NULL, stop TEXT, reported INTEGER NOT NULL, outcome TEXT,
    ended_at REAL, exit_code INTEGER, result TEXT, usage TEXT, error TEXT, UNIQUE (agent, number)
) STRICT;
CREATE TABLE items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT, kind TEXT NOT NULL, sender TEXT NOT NULL,
    sender_name TEXT NOT NULL, text TEXT NOT NULL, time REAL NOT NULL, turn TEXT
) STRICT;
CREATE INDEX items_waiting ON items (agent, id) WHERE turn IS NULL;
CREATE INDEX items_of_turn ON items (turn) WHERE turn IS NOT NULL;
CREATE TABLE events (
    cursor INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, turn TEXT, time REAL NOT NULL, kind TEXT NOT NULL,
    text TEXT, offset INTEGER, length INTEGER, checksum INTEGER
) STRICT;
CREATE INDEX events_of_agent ON events (agent, cursor);
CREATE TABLE calls (
    agent TEXT NOT NULL, turn TEXT NOT NULL, call TEXT NOT NULL, answer TEXT NOT NULL, PRIMARY KEY (agent, turn, call)
) STRICT, WITHOUT ROWID;
CREATE TABLE mount_points (path TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""

_KEPT_AND_DAMAGED = """
CREATE TABLE dropped_turns (turn TEXT PRIMARY KEY, agent TEXT NOT NULL, cleared INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE removed_agents (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
ALTER TABLE items ADD COLUMN about TEXT;
CREATE INDEX items_about ON items (about) WHERE turn IS NULL AND about NOT NULL;
CREATE TABLE damaged (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, agent TEXT, origin TEXT NOT NULL, reason TEXT NOT NULL, row TEXT NOT NULL
) STRICT;
"""
"""Turns that retention has dropped, agents whose files must go, the turn that a message reports, unreadable rows."""

FIRST_COMMITS = """
ALTER TABLE agents ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN retry_at REAL;
"""
"""Columns that schema 1 lacked in the first commits; it got them later under the same number."""

MIGRATIONS = (
    _FIRST_SCHEMA,
    "ALTER TABLE turns ADD COLUMN contacted INTEGER NOT NULL DEFAULT 0;",
    """
    ALTER TABLE turns ADD COLUMN paused REAL NOT NULL DEFAULT 0;
    ALTER TABLE turns ADD COLUMN frozen_at REAL;
    ALTER TABLE turns ADD COLUMN thawed_at REAL;
    ALTER TABLE agents ADD COLUMN restore TEXT NOT NULL DEFAULT 'hold';
    ALTER TABLE agents ADD COLUMN restored_at TEXT NOT NULL DEFAULT '[]';
    CREATE TABLE reminders (
        id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, due REAL NOT NULL, text TEXT NOT NULL
    ) STRICT;
    """,
    _KEPT_AND_DAMAGED,
    "ALTER TABLE agents ADD COLUMN allow TEXT NOT NULL DEFAULT '[]';",
    "CREATE INDEX network_events ON events (agent, cursor) WHERE kind IN ('network:allowed', 'network:denied');",
    "ALTER TABLE agents ADD COLUMN binds TEXT NOT NULL DEFAULT '[]';",
    """
    CREATE INDEX starts ON events (turn) WHERE kind = 'turn:started';
    CREATE INDEX results ON events (turn, cursor) WHERE kind IN ('result:success', 'result:error');
    """,
    """
    ALTER TABLE agents ADD COLUMN since REAL NOT NULL DEFAULT 0;
    ALTER TABLE agents ADD COLUMN accepted_turn TEXT;
    CREATE TABLE findings (
        number INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, turn TEXT, time REAL NOT NULL, path TEXT NOT NULL,
        text TEXT NOT NULL, aside TEXT, difference TEXT NOT NULL, accepted_at REAL
    ) STRICT;
    CREATE INDEX findings_of_agent ON findings (agent);
    CREATE INDEX questions ON items (sender, id) WHERE turn IS NULL AND agent IS NULL;
    """,
    """
    ALTER TABLE agents ADD COLUMN environment TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE agents ADD COLUMN ssh_agent TEXT;
    """,
    """
    ALTER TABLE items ADD COLUMN closed TEXT;
    UPDATE items SET closed = turn, turn = NULL WHERE turn IN ('read', 'settled');
    DROP INDEX items_waiting;
    DROP INDEX items_about;
    DROP INDEX questions;
    CREATE INDEX items_waiting ON items (agent, id) WHERE turn IS NULL AND closed IS NULL;
    CREATE INDEX items_about ON items (about) WHERE turn IS NULL AND closed IS NULL AND about NOT NULL;
    CREATE INDEX questions ON items (sender, id) WHERE turn IS NULL AND closed IS NULL AND agent IS NULL;
    CREATE INDEX settled ON items (sender) WHERE closed = 'settled';
    """,
)
"""Makes each version of the schema from the one before. None is ever edited: its databases would lack the change."""
SCHEMA_VERSION = len(MIGRATIONS)
