"""The copy of the database: made once a day, whole or not at all, and put back where a person says so."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

from substrat.daemon.state import backup
from substrat.daemon.state.layout import copy_of
from substrat.daemon.state.store import Store


@pytest.fixture
def agents(store, new_agent):
    """The state of one agent."""
    with store.transaction():
        store.save_agent(new_agent("anna"))
    return store


def names(path):
    opened = Store(path)
    found = [agent.name for agent in opened.agents()]
    opened.close()
    return found


class LookedTwice(Exception):
    """The copy's age is looked at once more."""


async def test_a_copy_is_made_when_the_one_before_is_a_day_old_and_there_is_room(agents, new_agent, autojump_clock):
    backup.make(agents.path)
    copy = copy_of(agents.path)
    made = os.path.getmtime(copy)
    with agents.transaction():
        agents.save_agent(new_agent("bert"))
    for hours, has_room, wanted in ((23, True, ["anna"]), (25, False, ["anna"]), (25, True, ["anna", "bert"])):
        times = iter([made + hours * 3600])

        def now(times=times):
            if (time := next(times, None)) is None:
                raise LookedTwice
            return time

        with pytest.raises(LookedTwice):
            await backup.keep(agents, now, [lambda: 0, lambda: 1 << 30][has_room])
        assert names(copy) == wanted, (hours, has_room)
        os.utime(copy, (made, made))
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600


def test_a_damaged_database_does_not_take_the_place_of_its_copy(agents):
    backup.make(agents.path)
    agents.close()
    with open(agents.path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (os.path.getsize(agents.path) - 4096))
    with pytest.raises(sqlite3.DatabaseError):
        backup.make(agents.path)
    assert names(copy_of(agents.path)) == ["anna"]


def test_a_copy_that_is_none_is_never_gone_back_to(agents):
    backup.make(agents.path)
    copy = copy_of(agents.path)
    with open(copy, "wb") as file:
        file.write(b"this is no database" * 500)
    assert not backup.prepare(agents.path)
    assert (os.path.exists(copy), os.path.exists(f"{copy}.damaged")) == (False, True)


def test_a_copy_that_another_program_holds_stays(agents):
    backup.make(agents.path)
    with closing(sqlite3.connect(copy_of(agents.path))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            backup.prepare(agents.path)
    assert names(copy_of(agents.path)) == ["anna"]


def test_numbers_go_on_beyond_those_that_were_given_since_the_copy(agents):
    backup.make(agents.path)
    assert backup.prepare(agents.path)
    with closing(sqlite3.connect(copy_of(agents.path))) as db:
        numbers = dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
    assert {"events", "items", "findings"} <= numbers.keys()
    assert min(numbers.values()) >= 1_000_000


def test_a_copy_that_fails_leaves_nothing(agents, monkeypatch):
    def fail(_):
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no room"):
        backup.make(agents.path)
    assert os.listdir(os.path.dirname(copy_of(agents.path))) == []


def test_a_copy_is_given_up_when_the_daemon_stops(agents):
    with agents.transaction():
        agents._db.executemany("INSERT INTO totals VALUES ('x', ?, 1)", [(str(number),) for number in range(20_000)])

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.make(agents.path, stop)
    assert os.listdir(os.path.dirname(copy_of(agents.path))) == []
