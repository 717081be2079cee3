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
    """
    CREATE TABLE clones (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, tree TEXT NOT NULL, repository TEXT NOT NULL, git_dir TEXT NOT NULL,
        workspace TEXT NOT NULL, branch TEXT NOT NULL, target TEXT, base TEXT, stage TEXT NOT NULL, error TEXT,
        with_wip INTEGER NOT NULL, source TEXT, accepted TEXT, bounced TEXT, landed_head TEXT,
        landed_commit TEXT, removed_at REAL,
        turn INTEGER NOT NULL, time REAL NOT NULL,
        head TEXT, wip TEXT, ahead INTEGER NOT NULL, behind INTEGER NOT NULL, files INTEGER NOT NULL,
        landed INTEGER NOT NULL, nested INTEGER NOT NULL, submodules INTEGER NOT NULL, lfs INTEGER NOT NULL,
        ignored INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE landings (
        id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, target TEXT NOT NULL, mode TEXT NOT NULL, message TEXT,
        check_command TEXT, accepted TEXT NOT NULL, unattended INTEGER NOT NULL, time REAL NOT NULL,
        request TEXT NOT NULL, intended TEXT, outcome TEXT, item INTEGER
    ) STRICT;
    """,
    """
    ALTER TABLE events ADD COLUMN data TEXT;
    ALTER TABLE events ADD COLUMN cause INTEGER;
    ALTER TABLE items ADD COLUMN cause INTEGER;
    """,
    """
    CREATE TABLE waits (
        id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, members TEXT NOT NULL, names TEXT NOT NULL,
        mode TEXT NOT NULL, created_at REAL NOT NULL, deadline REAL, note TEXT, reports TEXT NOT NULL, wake INTEGER
    ) STRICT;
    ALTER TABLE turns ADD COLUMN unsettled INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE turns ADD COLUMN report TEXT;
    ALTER TABLE turns ADD COLUMN completion TEXT;
    ALTER TABLE agents ADD COLUMN result_schema TEXT;
    ALTER TABLE items ADD COLUMN intent TEXT;
    ALTER TABLE items ADD COLUMN reply_to INTEGER;
    ALTER TABLE items ADD COLUMN options TEXT;
    ALTER TABLE items ADD COLUMN default_answer TEXT;
    ALTER TABLE items ADD COLUMN deadline REAL;
    ALTER TABLE items ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX items_awaited ON items (agent, id) WHERE awaited;
    CREATE INDEX items_sent ON items (sender, id);
    CREATE INDEX items_replies ON items (reply_to) WHERE reply_to NOT NULL;
    CREATE INDEX items_deadlines ON items (deadline) WHERE deadline NOT NULL AND turn IS NULL AND closed IS NULL;
    ALTER TABLE reminders ADD COLUMN every REAL;
    ALTER TABLE reminders ADD COLUMN times INTEGER;
    ALTER TABLE reminders ADD COLUMN until REAL;
    """,
    """
    ALTER TABLE agents ADD COLUMN instructions TEXT NOT NULL DEFAULT '';
    ALTER TABLE agents ADD COLUMN address INTEGER;
    ALTER TABLE clones ADD COLUMN former_name TEXT;
    """,
    """
    ALTER TABLE clones ADD COLUMN unreadable INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE clones ADD COLUMN elsewhere INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE clones ADD COLUMN loose INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE clones ADD COLUMN unkept TEXT;
    ALTER TABLE clones ADD COLUMN restoring INTEGER;
    ALTER TABLE clones ADD COLUMN notice TEXT;
    ALTER TABLE clones ADD COLUMN notice_turn INTEGER;
    """,
    """
    ALTER TABLE agents ADD COLUMN priority TEXT NOT NULL DEFAULT 'normal';
    ALTER TABLE agents ADD COLUMN needs TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE agents ADD COLUMN unmet TEXT;
    ALTER TABLE turns ADD COLUMN login TEXT;
    CREATE TABLE gates (
        login TEXT PRIMARY KEY, blamed TEXT NOT NULL, reason TEXT NOT NULL, shut_at REAL NOT NULL, until REAL NOT NULL,
        failures INTEGER NOT NULL, trial TEXT
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE turns ADD COLUMN refused TEXT;
    ALTER TABLE agents ADD COLUMN told TEXT;
    ALTER TABLE agents ADD COLUMN last TEXT;
    ALTER TABLE agents ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE agents ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
    UPDATE agents SET
        last = (SELECT substr(result, 1, 200) FROM turns WHERE agent = agents.id AND result NOT NULL
            ORDER BY number DESC LIMIT 1),
        input_tokens = (SELECT CAST(total(max(0, json_extract(usage, '$.inputTokens'))) AS INTEGER) FROM turns
            WHERE agent = agents.id AND json_valid(usage)),
        output_tokens = (SELECT CAST(total(max(0, json_extract(usage, '$.outputTokens'))) AS INTEGER) FROM turns
            WHERE agent = agents.id AND json_valid(usage));
    """,
    "ALTER TABLE agents ADD COLUMN directory TEXT;",
    """
    ALTER TABLE findings ADD COLUMN files TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE findings ADD COLUMN digest TEXT;
    """,
    """
    ALTER TABLE agents ADD COLUMN time_limit REAL;
    ALTER TABLE agents ADD COLUMN silence_limit REAL;
    """,
    """
    ALTER TABLE turns RENAME COLUMN thawed_at TO heard_at;
    ALTER TABLE turns ADD COLUMN begun_at REAL;
    UPDATE turns SET heard_at = NULL, frozen_at = 0 * frozen_at;
    """,
    "ALTER TABLE agents ADD COLUMN together INTEGER NOT NULL DEFAULT 0;",
    """
    ALTER TABLE turns ADD COLUMN model TEXT;
    CREATE TABLE totals (
        name TEXT NOT NULL, label TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (name, label)
    ) STRICT, WITHOUT ROWID;
    """,
    "ALTER TABLE agents ADD COLUMN shared TEXT;",
    "ALTER TABLE clones ADD COLUMN shown TEXT;",
    """
    ALTER TABLE landings ADD COLUMN intended_head TEXT;
    ALTER TABLE landings ADD COLUMN intended_in TEXT;
    """,
    "CREATE TABLE worked_in (root TEXT PRIMARY KEY, borrowed TEXT NOT NULL) STRICT, WITHOUT ROWID;",
    "UPDATE events SET kind = 'clone:' || substr(kind, 10) WHERE kind GLOB 'worktree:*';",
    """
    ALTER TABLE landings ADD COLUMN at TEXT;
    ALTER TABLE clones DROP COLUMN shown;
    """,
    "ALTER TABLE landings ADD COLUMN intended_from TEXT;",
    """
    ALTER TABLE clones ADD COLUMN failed_head TEXT;
    ALTER TABLE clones ADD COLUMN failed_line TEXT;
    """,
    """
    ALTER TABLE clones DROP COLUMN elsewhere;
    ALTER TABLE clones ADD COLUMN asides TEXT;
    ALTER TABLE clones ADD COLUMN branches TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE clones ADD COLUMN stashes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE clones ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE clones ADD COLUMN is_strange INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE clones ADD COLUMN held_by TEXT;
    ALTER TABLE clones ADD COLUMN held_head TEXT;
    """,
    """
    CREATE TABLE left_refs (
        git_dir TEXT NOT NULL, name TEXT NOT NULL, repository TEXT NOT NULL, target TEXT, head TEXT, tip TEXT, since REAL,
        PRIMARY KEY (git_dir, name)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE clones ADD COLUMN landings TEXT NOT NULL DEFAULT '{}';
    UPDATE clones SET landings = json_object(
        'accepted', accepted, 'bounced', bounced, 'landed_head', landed_head, 'landed_commit', landed_commit,
        'failed_head', failed_head, 'failed_line', failed_line
    );
    ALTER TABLE clones DROP COLUMN accepted;
    ALTER TABLE clones DROP COLUMN bounced;
    ALTER TABLE clones DROP COLUMN landed_head;
    ALTER TABLE clones DROP COLUMN landed_commit;
    ALTER TABLE clones DROP COLUMN failed_head;
    ALTER TABLE clones DROP COLUMN failed_line;
    ALTER TABLE clones DROP COLUMN removed_at;
    """,
    """
    ALTER TABLE agents ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
    UPDATE agents SET settings = CASE WHEN 'blob' IN (
        typeof(restore), typeof(environment), typeof(ssh_agent), typeof(instructions), typeof(result_schema),
        typeof(priority), typeof(time_limit), typeof(silence_limit)
    ) THEN 'damaged' ELSE json_object(
        'restore', restore, 'ssh_agent', ssh_agent, 'instructions', instructions, 'result_schema', result_schema,
        'priority', priority, 'time_limit', time_limit, 'silence_limit', silence_limit,
        'environment', CASE WHEN json_valid(environment) THEN
            (SELECT json_group_array(json_array(key, value)) FROM json_each(environment)) ELSE environment END
    ) END;
    ALTER TABLE agents DROP COLUMN restore;
    ALTER TABLE agents DROP COLUMN environment;
    ALTER TABLE agents DROP COLUMN ssh_agent;
    ALTER TABLE agents DROP COLUMN instructions;
    ALTER TABLE agents DROP COLUMN result_schema;
    ALTER TABLE agents DROP COLUMN priority;
    ALTER TABLE agents DROP COLUMN time_limit;
    ALTER TABLE agents DROP COLUMN silence_limit;
    """,
    "ALTER TABLE turns ADD COLUMN replaced TEXT;",
    """
    ALTER TABLE findings ADD COLUMN was TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE findings ADD COLUMN closed_at REAL;
    """,
    "ALTER TABLE removed_agents ADD COLUMN last INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE journal (id TEXT NOT NULL) STRICT;",
    """
    ALTER TABLE turns ADD COLUMN session TEXT;
    UPDATE turns SET session = (SELECT session_id FROM agents WHERE id = turns.agent AND typeof(session_id) = 'text');
    """,
    """
    ALTER TABLE items ADD COLUMN starts_turn INTEGER NOT NULL DEFAULT 1;
    UPDATE items SET starts_turn = 0 WHERE intent = 'inform';
    """,
    "ALTER TABLE agents ADD COLUMN checked TEXT;",
    "ALTER TABLE gates ADD COLUMN model TEXT;",
    "ALTER TABLE clones ADD COLUMN size INTEGER;",
    "ALTER TABLE agents ADD COLUMN budget TEXT;",
    """
    CREATE TABLE runs (
        name TEXT PRIMARY KEY, file TEXT NOT NULL, workspace TEXT NOT NULL, plan TEXT NOT NULL, "by" TEXT NOT NULL,
        started_at REAL NOT NULL, agents TEXT NOT NULL, ended_at REAL, outcome TEXT, why TEXT,
        result TEXT NOT NULL, standings TEXT NOT NULL) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE runs ADD COLUMN returned TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE runs ADD COLUMN root TEXT;
    """,
    """
    CREATE TABLE tasks (
        number INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL,
        description TEXT NOT NULL, needs TEXT NOT NULL, label TEXT, max_attempts INTEGER NOT NULL, created_by TEXT NOT NULL,
        created_at REAL NOT NULL, state TEXT NOT NULL, claimed_by TEXT, attempts INTEGER NOT NULL, status TEXT,
        result TEXT NOT NULL, finished_at REAL, UNIQUE (agent, id)
    ) STRICT;
    CREATE TABLE task_needs (
        agent TEXT NOT NULL, needed TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (agent, needed, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX tasks_in_state ON tasks (agent, state, number);
    CREATE INDEX tasks_claimed ON tasks (claimed_by) WHERE state = 'claimed';
    ALTER TABLE waits ADD COLUMN label TEXT;
    """,
    "ALTER TABLE turns ADD COLUMN told_model TEXT;",
)
"""Makes each version of the schema from the one before. None is ever edited: its databases would lack the change."""
SCHEMA_VERSION = len(MIGRATIONS)
