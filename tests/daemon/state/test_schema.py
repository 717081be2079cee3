"""Every schema that was ever released is opened for ever, and a migration is done wholly or not at all."""

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import AgentSettings, ItemKind, Outcome, Priority, Process, Restore
from substrat.daemon.state.database import StateDamaged
from substrat.daemon.state.quarantine import set_aside
from substrat.daemon.state.rows import TABLES
from substrat.daemon.state.schema import FIRST_COMMITS, MIGRATIONS, SCHEMA_VERSION
from substrat.daemon.state.store import Store
from substrat.errors import StateUnusable
from tests.support.optional import present

AGENT, TURN, SESSION = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "abc")
ROWS = f"""
INSERT INTO agents (id, name, phase, workspace, model, network, created_at, session_id, session_stored, status, attempts)
    VALUES ('{AGENT}', 'bob', 'suspended', '/w', 'auto', 'host', 1.0, '{SESSION}', 1, 'busy ü', 0);
INSERT INTO turns (id, agent, number, started_at, pid, start_time, boot_id, offset, reported, outcome, ended_at, exit_code,
    result, usage) VALUES ('{TURN}', '{AGENT}', 1, 1.0, 4242, 99, 'boot', 7, 1, 'success', 5.5, 0, 'done', '{{"in": 3}}');
INSERT INTO items (agent, kind, sender, sender_name, text, time, turn)
    VALUES ('{AGENT}', 'prompt', 'operator', 'operator', 'do it', 1.0, '{TURN}');
INSERT INTO items (agent, kind, sender, sender_name, text, time)
    VALUES ('{AGENT}', 'prompt', 'operator', 'operator', 'and then', 2.0);
INSERT INTO items (agent, kind, sender, sender_name, text, time, turn)
    VALUES ('{AGENT}', 'message', 'substrat', 'substrat', 'as read', 3.0, 'read'),
    (NULL, 'question', '{AGENT}', 'bob', 'as answered', 4.0, 'settled');
INSERT INTO events (agent, turn, time, kind, text) VALUES ('{AGENT}', '{TURN}', 1.0, 'turn:started', 'turn 1 started');
INSERT INTO calls VALUES ('{AGENT}', '{TURN}', 'c', '["sent", false]');
INSERT INTO mount_points VALUES ('/w/.cursor');
"""
"""A row of each table of the first schema, in columns that every version has; up to 10 `turn` said how items ended."""


def without_retries(script):
    """The first schema as it was in the first commits, under the same number."""
    cut = script.replace("status TEXT NOT NULL, attempts INTEGER NOT NULL, retry_at REAL", "status TEXT NOT NULL")
    assert cut != script
    return cut


def make(path, version, first=MIGRATIONS[0]):
    """Make a database as a daemon of a version left it."""
    rows = ROWS
    if first != MIGRATIONS[0]:
        rows = rows.replace(", attempts)", ")").replace("'busy ü', 0)", "'busy ü')")
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript("".join([first, rows, *MIGRATIONS[1:version]]) + f"PRAGMA user_version={version};")
    db.close()


def dump(path):
    """Everything in a database: its version, its schema, its rows."""
    db = sqlite3.connect(path)
    try:
        return db.execute("PRAGMA user_version").fetchone(), list(db.iterdump())
    finally:
        db.close()


def check(path):
    """Open a database that `make` has filled, and find all of it."""
    store = Store(path)
    try:
        assert set_aside(store, 1.0) == []
        (agent,) = store.agents()
        assert (agent.id, agent.name, agent.phase, agent.workspace) == (AGENT, "bob", Phase.SUSPENDED, "/w")
        assert (agent.session.id, agent.session.stored, agent.status, agent.waiting) == (SESSION, True, "busy ü", 1)
        assert (agent.attempts, agent.retry_at, agent.settings.restore, agent.restored_at) == (0, None, Restore.HOLD, ())
        turn = present(store.turn(agent.turn.id))
        assert (turn.id, turn.process, turn.outcome) == (TURN, Process(4242, 99, "boot"), Outcome.SUCCESS)
        assert (turn.offset, turn.result, turn.usage, turn.reported) == (7, "done", {"in": 3}, True)
        assert [item.text for item in store.items_of_turn(TURN)] == ["do it"]
        assert [(item.kind, item.text) for item in store.waiting_items(AGENT)] == [(ItemKind.PROMPT, "and then")]
        assert store.operator_items() == []
        assert [store.item_turn(number) for number in (3, 4)] == [(AGENT, None), (None, None)]
        assert [event.text for event in store.events_after(0, None, 10)] == ["turn 1 started"]
        assert store.answered_call(AGENT, TURN, "c") == '["sent", false]'
        assert store.mount_points() == ["/w/.cursor"]
        with store.transaction():
            store.save_turn(turn)
            store.save_agent(agent)
        assert store.agents() == [agent]
    finally:
        store.close()
    assert dump(path)[0] == (SCHEMA_VERSION,)


def test_the_newest_schema_is_what_rows_are_made_of(store):
    there = dict(
        store.connection.execute(
            "SELECT t.name, group_concat(c.name, ', ') FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' GROUP BY t.name"
        )
    )
    assert there.keys() == {table.name for table in TABLES}
    for table in TABLES:
        assert sorted(there[table.name].split(", ")) == sorted(table.names), table.name


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_every_schema_is_opened_with_what_it_holds(tmp_path, version):
    path = str(tmp_path / "substrat.db")
    make(path, version)
    check(path)
    check(path)


def settings_after_upgrade(path, environment):
    """Return the settings of an agent whose row had a column for each, after what was set aside."""
    make(path, next(number for number, script in enumerate(MIGRATIONS) if "ADD COLUMN settings" in script))
    db = sqlite3.connect(path)
    db.executescript(  # a byte that is damaged on the disk may make any value one of another type
        "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'agents';"
        "PRAGMA writable_schema=RESET;"
    )
    db.execute(
        "UPDATE agents SET restore = 'auto', environment = ?, ssh_agent = '/run/agent', instructions = 'never ü', "
        "result_schema = '{}', priority = 'low', time_limit = 0, silence_limit = 2.5",
        (environment,),
    )
    db.commit()
    db.close()
    store = Store(path)
    aside = set_aside(store, 1.0)
    found = [agent.settings for agent in store.agents()]
    store.close()
    return aside, found


def test_settings_that_had_columns_of_their_own_keep_their_values(tmp_path):
    assert settings_after_upgrade(str(tmp_path / "substrat.db"), '{"A": "1=2", "B": "\\u00fc"}')[1] == [
        AgentSettings(
            Restore.AUTO, (("A", "1=2"), ("B", "ü")), "/run/agent", "never ü", "{}", Priority.LOW, 0.0, 2.5
        )
    ]  # fmt: skip


@pytest.mark.parametrize("environment", ["", "{", '"A"', '{"A": 1}', '{"no name": "x"}', b"{}"])
def test_an_agent_whose_variables_were_damaged_before_an_upgrade_is_set_aside(tmp_path, environment):
    (aside,), _ = settings_after_upgrade(str(tmp_path / "substrat.db"), environment)
    assert "agents.settings" in str(aside)


@pytest.mark.parametrize("version", [1, 2, SCHEMA_VERSION // 2, SCHEMA_VERSION])
def test_the_first_commits_schema_is_opened_too(tmp_path, version):
    """Under any number: earlier versions left a newer one behind when they couldn't read it."""
    path = str(tmp_path / "substrat.db")
    make(path, version, without_retries(MIGRATIONS[0]))
    check(path)


def test_events_about_clones_are_named_so_since_version_30(tmp_path):
    path = str(tmp_path / "substrat.db")
    make(path, 29)
    db = sqlite3.connect(path)
    db.executemany(
        "INSERT INTO events (agent, time, kind, text) VALUES (?, 1.0, ?, '')",
        [(AGENT, kind) for kind in ("worktree:not-kept", "worktree:kept", "message:sent")],
    )
    db.commit()
    db.close()
    store = Store(path)
    try:
        kinds = [event.kind for event in store.events_after(0, None, 10)]
        assert kinds == ["turn:started", "clone:not-kept", "clone:kept", "message:sent"]
    finally:
        store.close()


def statements():
    """How many statements bring the first commits' schema up to date."""
    return sum(script.count(";") for script in (FIRST_COMMITS, *MIGRATIONS[1:])) + 2


class Failing(sqlite3.Connection):
    """A connection whose n-th statement inside a transaction fails, or kills the process."""

    countdown = 0
    kill = False

    def execute(self, sql, *values):
        if self.in_transaction and sql != "ROLLBACK":
            type(self).countdown -= 1
            if type(self).countdown == 0:
                if type(self).kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *values)


def connect_failing(monkeypatch, kind):
    """Let the database be opened with connections of another kind, once it is known to be no newer one."""
    connect = sqlite3.connect

    def wrapped(path, **how):
        return connect(path, **how) if how.get("uri") else connect(path, factory=kind, **how)

    monkeypatch.setattr(sqlite3, "connect", wrapped)


@pytest.mark.parametrize("version", [1, 3, SCHEMA_VERSION - 1])
def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch, version):
    path = str(tmp_path / "substrat.db")
    first = without_retries(MIGRATIONS[0])
    make(path, version, first)
    before = dump(path)
    failed = 0
    for number in range(1, statements() + 20):

        class Kind(Failing):
            countdown = number

        with monkeypatch.context() as patch:
            connect_failing(patch, Kind)
            try:
                Store(path).close()
            except StateUnusable:
                failed += 1
            else:
                break
        assert dump(path) == before
    assert failed > 1
    check(path)


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION - 1])
def test_a_migration_on_a_full_disk_changes_nothing(tmp_path, monkeypatch, version):
    path = str(tmp_path / "substrat.db")
    make(path, version, without_retries(MIGRATIONS[0]))
    before = dump(path)

    class Full(sqlite3.Connection):
        def execute(self, sql, *values):
            if sql.startswith("BEGIN"):
                pages = super().execute("PRAGMA page_count").fetchone()[0]
                super().execute(f"PRAGMA max_page_count={pages}")
            return super().execute(sql, *values)

    with monkeypatch.context() as patch:
        connect_failing(patch, Full)
        if version == 1:
            with pytest.raises(StateUnusable, match="disk is full"):
                Store(path)
            assert dump(path) == before
    check(path)


KILLED = """
import sys
from tests.daemon.state import test_schema
class Kind(test_schema.Failing):
    countdown = int(sys.argv[2])
    kill = True
import pytest
test_schema.connect_failing(pytest.MonkeyPatch(), Kind)
test_schema.Store(sys.argv[1]).close()
"""


@pytest.mark.parametrize("number", [1, 12, statements()])
def test_a_migration_that_is_killed_changes_nothing(tmp_path, number):
    path = str(tmp_path / "substrat.db")
    make(path, 1, without_retries(MIGRATIONS[0]))
    before = dump(path)
    done = subprocess.run([sys.executable, "-c", KILLED, path, str(number)], check=False, cwd=os.getcwd())
    assert done.returncode == -signal.SIGKILL
    assert dump(path) == before
    check(path)


@pytest.mark.parametrize("command", ["DROP TABLE reminders", "ALTER TABLE turns DROP COLUMN paused", "DROP TABLE agents"])
@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION])
def test_a_schema_that_lacks_something_is_damaged_and_stays_as_it_is(tmp_path, command, version):
    path = str(tmp_path / "substrat.db")
    make(path, version)
    db = sqlite3.connect(path)
    db.executescript(command)
    db.close()
    before = dump(path)
    with pytest.raises(StateDamaged, match="set-aside-damaged-state"):
        Store(path)
    assert dump(path) == before
