"""The copy of the database: made once a day, whole or not at all, and put back where a person says so."""

import os
import sqlite3
import stat

import pytest

from substrat.daemon.state import backup
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
    copy = backup.copy_of(agents.path)
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
    assert names(backup.copy_of(agents.path)) == ["anna"]


def test_a_copy_that_is_none_is_left_where_it_is(agents):
    backup.make(agents.path)
    with open(backup.copy_of(agents.path), "wb") as file:
        file.write(b"this is no database" * 500)
    assert not backup.go_back(agents.path)
    assert names(agents.path) == ["anna"]
