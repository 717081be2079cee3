"""The files of the state: their owner's alone, refused if they hold no state of this version, and left as they are."""

import os
import sqlite3
import stat

import pytest

from substrat.daemon.state.database import StateDamaged
from substrat.daemon.state.schema import SCHEMA_VERSION
from substrat.daemon.state.store import Store
from substrat.errors import StateUnusable


def test_the_files_are_the_owners_alone(store, new_agent, tmp_path):
    with store.transaction():
        store.save_agent(new_agent())
    files = list(tmp_path.glob("substrat.db*"))
    assert len(files) >= 2
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(("mode", "leave"), [("DELETE", ()), ("WAL", ()), ("WAL", ("-wal",)), ("WAL", ("-wal", "-shm"))])
def test_a_newer_schema_is_refused_stays_as_it_is_and_nothing_is_left_beside_it(tmp_path, mode, leave):
    path = tmp_path / "there" / "substrat.db"
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE agents (future TEXT)")
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.commit()
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", *leave):  # as after a daemon that died, when the newest version is only in the log
        (copy / f"substrat.db{suffix}").write_bytes((tmp_path / "there" / f"substrat.db{suffix}").read_bytes())
    db.close()
    if not leave:
        (copy / "substrat.db").write_bytes(path.read_bytes())
    before = {name: (copy / name).read_bytes() for name in os.listdir(copy) if not name.endswith("-shm")}
    names = sorted(os.listdir(copy))
    with pytest.raises(StateUnusable, match="newer"):
        Store(str(copy / "substrat.db"))
    assert sorted(os.listdir(copy)) == names
    assert {name: (copy / name).read_bytes() for name in before} == before


GARBAGE = [b"this is no database, it is a text of some length" * 100, b"SQLite format 3\0" + b"\xff" * 5000, b"\xaa" * 4096]


@pytest.mark.parametrize("content", GARBAGE, ids=range(len(GARBAGE)))
def test_a_file_that_is_no_database_is_refused_and_stays(tmp_path, content):
    path = tmp_path / "substrat.db"
    path.write_bytes(content)
    with pytest.raises(StateDamaged) as refusal:
        Store(str(path)).agents()
    assert str(path) in refusal.value.message
    assert f"`substratd --set-aside-damaged-state --state-dir {tmp_path}`" in refusal.value.message
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["substrat.db"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_database_damaged_in_the_middle_or_cut_is_told(store, new_agent, tmp_path, is_cut):
    with store.transaction():
        for _ in range(500):
            store.save_agent(new_agent(status="x" * 1000))
    store.close()
    path = tmp_path / "substrat.db"
    data = bytearray(path.read_bytes())
    if is_cut:
        del data[len(data) // 2 // 4096 * 4096 :]
    else:
        data[8192:-4096] = b"\xaa" * (len(data) - 12288)
    path.write_bytes(data)
    with pytest.raises(StateDamaged):
        Store(str(path))


@pytest.mark.parametrize("log", [b"", b"\0" * 5000])
def test_a_log_cut_by_a_power_failure_is_no_damage(store, new_agent, tmp_path, log):
    with store.transaction():
        store.save_agent(new_agent("bob"))
    store.close()
    (tmp_path / "substrat.db-wal").write_bytes(log)
    opened = Store(str(tmp_path / "substrat.db"))
    assert [agent.name for agent in opened.agents()] == ["bob"]
    opened.close()


def test_a_database_of_somebody_else_is_refused(tmp_path):
    path = tmp_path / "substrat.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE agents (id TEXT)")
    db.commit()
    db.close()
    with pytest.raises(StateUnusable):
        Store(str(path)).agents()


@pytest.mark.parametrize("value", ["working", "", "IDLE"])
def test_an_unknown_phase_is_told(store, new_agent, value):
    with store.transaction():
        store.save_agent(new_agent())
        store._db.execute("UPDATE agents SET phase = ?", (value,))
    with pytest.raises(StateUnusable):
        store.agents()


@pytest.mark.parametrize("what", ["directory", "no directory", "a file in the way"])
def test_a_place_that_cannot_hold_a_database(tmp_path, what):
    path = tmp_path / "substrat.db"
    if what == "directory":
        path.mkdir()
    elif what == "no directory":
        path = tmp_path / "missing" / "substrat.db"
    else:
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "substrat.db"
    with pytest.raises(StateUnusable):
        Store(str(path))


@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "a%20b", "ü", "a'b"])
def test_a_path_with_odd_characters(tmp_path, new_agent, name):
    (tmp_path / name).mkdir()
    path = str(tmp_path / name / "substrat.db")
    for _ in range(2):
        opened = Store(path)
        opened.agents()
        opened.close()
    assert os.path.exists(path)


def test_an_empty_file_is_a_beginning(tmp_path):
    (tmp_path / "substrat.db").touch()
    opened = Store(str(tmp_path / "substrat.db"))
    assert opened.agents() == []
    opened.close()
