"""The check of a big database's events goes on beside the daemon, and is forgotten by no end of it."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from substrat.daemon.state import database, quickcheck, soundness
from substrat.daemon.state.database import StateDamaged, bytes_to_check
from substrat.daemon.state.store import Store


@pytest.fixture
def died(store, new_agent, tmp_path, monkeypatch):
    """Make the state of a daemon that has died, which counts as big, with damage in a table."""
    monkeypatch.setattr(database, "_QUICKLY_CHECKED", 0)

    def make(table=None):
        with store.transaction():
            for number in range(200):
                store.save_agent(new_agent(f"a{number}", status="x" * 1000))
            store._db.executemany(
                "INSERT INTO events (agent, time, kind, text) VALUES ('a', 0, 'assistant', ?)", [("x" * 1000,)] * 200
            )
        store.close()
        left = tmp_path / "left"
        left.mkdir()
        path = shutil.copyfile(store.path, left / "substrat.db")
        if table is not None:
            with closing(sqlite3.connect(path)) as db:
                (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
                (size,) = db.execute("PRAGMA page_size").fetchone()
            with open(path, "r+b") as file:
                file.seek((root - 1) * size + 8)  # past the number of the page's kind, which opening looks at
                file.write(b"\xff" * 8)
        (left / "substrat.db-wal").touch()
        return str(path)

    return make


def opened(path):
    return closing(Store(path, puts_off=True))


async def test_events_that_are_damaged_are_found_beside_the_daemon_and_the_next_start_is_refused(died):
    path = died("events")
    with opened(path) as store:
        assert store.is_unchecked
        assert len(store.agents()) == 200
        found = await soundness.check(store)
        assert found is not None
        assert "--set-aside-damaged-state" in found.message
    with pytest.raises(StateDamaged):
        Store(path, puts_off=True)


def test_agents_that_are_damaged_are_found_before_anything_goes_by_them(died):
    with pytest.raises(StateDamaged):
        Store(died("agents"), puts_off=True)


async def test_a_check_that_a_stop_cuts_short_is_due_at_the_next_start(died):
    path = died()
    for _ in range(2):
        assert bytes_to_check(path) > 0
        with opened(path) as store:
            assert store.is_unchecked
    with opened(path) as store:
        assert await soundness.check(store) is None
        assert not store.is_unchecked
    assert bytes_to_check(path) == 0


async def test_a_check_that_is_killed_says_nothing_and_stays_due(died, tmp_path, monkeypatch):
    killed = tmp_path / "killed.py"
    killed.write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setattr(quickcheck, "__file__", str(killed))
    with opened(died()) as store:
        assert await soundness.check(store) is None
        assert store.is_unchecked
