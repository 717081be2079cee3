"""A damaged log: commits that SQLite leaves out without a word are noticed, and an interrupted write is no damage."""

import os
import random
import shutil
import sqlite3

import pytest

from substrat.daemon.state.store import Store
from substrat.errors import StateUnusable

FRAME = 4096 + 24


@pytest.fixture
def crashed(tmp_path, new_agent):
    """The files that a killed daemon leaves: one agent in the database, twenty in the log."""
    store = Store(str(tmp_path / "substrat.db"))
    with store.transaction():
        store.save_agent(new_agent("early"))
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(20):
        with store.transaction():
            store.save_agent(new_agent(f"late-{number}"))
    left = tmp_path / "left"
    left.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(store.path + suffix, left)
    store.close()
    return left


def opened(left, tmp_path, harm, *, index=True):
    """Damage a copy of the files and open them; returns how many agents there are and the reported losses."""
    case = tmp_path / f"case-{len(os.listdir(tmp_path))}"
    shutil.copytree(left, case)
    harm(case / "substrat.db-wal")
    if not index:
        (case / "substrat.db-shm").unlink()
    said: list[object] = []
    store = Store(str(case / "substrat.db"), lost=said.append)
    found = len(store.agents())
    store.close()
    return found, said


def size(left):
    return (left / "substrat.db-wal").stat().st_size


def flip(at):
    def harm(path):
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    return harm


def test_nothing_is_said_of_a_whole_log(crashed, tmp_path):
    for index in (True, False):
        assert opened(crashed, tmp_path, lambda _path: None, index=index) == (21, [])


@pytest.mark.parametrize("index", [True, False])
def test_a_flipped_byte_anywhere(crashed, tmp_path, index):
    last_commit = size(crashed) - FRAME  # without the index this looks like a write that was cut short
    chosen = random.Random(1)
    for at in [*(chosen.randrange(32, size(crashed)) for _ in range(60)), size(crashed) - 1, 32, 40, 32 + FRAME + 9]:
        found, said = opened(crashed, tmp_path, flip(at), index=index)
        if found < 21 and (index or at < last_commit - 2 * FRAME) and not (not index and at % FRAME in _salts()):
            assert said, at
        if found == 21:
            assert not said, at


def _salts():
    """Where in a frame its generation stands: a wrong one looks like the end of the log, but for the index."""
    return range(32 + 8, 32 + 16)


def test_a_flipped_byte_in_the_head_is_refused(crashed, tmp_path):
    for at in (0, 5, 9, 17, 22, 25, 31):
        with pytest.raises(StateUnusable, match=r"substrat\.db-wal"):
            opened(crashed, tmp_path, flip(at))


def test_a_log_that_was_cut_or_is_gone(crashed, tmp_path):
    for length in range(0, size(crashed), FRAME * 3 + 7):
        if 0 < length < 32:
            continue
        found, said = opened(crashed, tmp_path, lambda path, length=length: os.truncate(path, length))
        assert (found < 21) == bool(said), length
    found, (said,) = opened(crashed, tmp_path, os.unlink)
    assert (found, "is gone" in said) == (1, True)


def test_a_log_that_is_in_the_database_already_may_go(crashed, tmp_path):
    case = tmp_path / "checkpointed"
    shutil.copytree(crashed, case)
    db = sqlite3.connect(case / "substrat.db")
    db.execute("SELECT 1 FROM agents").fetchone()
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    again = tmp_path / "again"
    shutil.copytree(case, again)
    db.close()
    assert opened(again, tmp_path, os.unlink) == (21, [])


def test_a_write_that_was_cut_short_is_no_damage(tmp_path, new_agent):
    """The unfinished writes of a killed daemon: whole pages without their commit, or a page's head without its page."""
    store = Store(str(tmp_path / "more.db"))
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with store.transaction():
        store.save_agent(new_agent("anna"))
    log = tmp_path / "more.db-wal"
    before = log.read_bytes()
    left = tmp_path / "before"
    left.mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(store.path + suffix, left / f"substrat.db{suffix}")
    with store.transaction():
        store.connection.execute("CREATE TABLE big (data)")
        store.connection.executemany("INSERT INTO big VALUES (?)", [("x" * 3000,)] * 5)
    after = log.read_bytes()
    store.close()
    assert len(after) > len(before) + 2 * FRAME
    for length in (len(before) + 10, len(before) + 24, len(before) + FRAME, len(before) + FRAME + 300, len(after) - 4096):

        def harm(path, length=length):
            path.write_bytes(after[:length])

        assert opened(left, tmp_path, harm) == (1, []), length
        assert opened(left, tmp_path, harm, index=False) == (1, []), length
