"""The room that is kept for urgent commits on a full disk: there when it is needed, and never taken for commits."""

import ctypes
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from substrat.daemon.state import reserve
from substrat.daemon.state.rows import EventRow
from substrat.daemon.state.store import Store
from substrat.errors import StorageFailed

SIZE = 24 * 1024 * 1024


class SmallDisk:
    """A small file system that a test of its own process can fill."""

    def __init__(self, directory):
        self.directory = directory
        self.path = str(directory / "substrat.db")

    def store(self):
        return Store(self.path, reserve.SIZE)

    @property
    def free(self):
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def fill(self):
        with (self.directory / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
        assert self.free == 0

    def make_room(self):
        (self.directory / "ballast").unlink()


@pytest.fixture
def disk():
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    directory = Path(tempfile.mkdtemp(prefix="substrat-reserve-"))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, f"size={SIZE},mode=0700".encode()) != 0:
        directory.rmdir()
        pytest.skip("no file system can be mounted here")
    yield SmallDisk(directory)
    assert libc.umount2(os.fsencode(directory), 2) == 0
    directory.rmdir()


@pytest.fixture
def here(tmp_path):
    return SmallDisk(tmp_path)


def note(store, text, *, urgent=False):
    with store.transaction(urgent=urgent):
        store.add_events([EventRow(0, "a", "t", 1.0, "k", text, None, None, None)])


def notes(store):
    return [row.text for row in store.events_after(0, "a", 10_000)]


def refuses(store):
    try:
        note(store, "refused")
    except StorageFailed as problem:
        return "the disk is full" in problem.message
    return False


def fill_up(disk, store):
    """Fill the disk until ordinary commits are refused."""
    disk.fill()
    done = 0
    while done < 1000:
        try:
            note(store, "ordinary")
        except StorageFailed:
            return
        done += 1
    pytest.fail("no commit was refused")


def test_urgent_commits_need_no_room(disk):
    store = disk.store()
    note(store, "before")
    fill_up(disk, store)
    assert store.reserve.held > reserve.SIZE - 256 * 1024
    for number in range(200):
        note(store, f"urgent {number}" * 30, urgent=True)
        assert disk.free == 0
        assert refuses(store)
    assert len([text for text in notes(store) if text.startswith("urgent")]) == 200
    assert "refused" not in notes(store)
    store.close()


def test_the_room_can_be_used_up_and_that_shows(disk):
    store = disk.store()
    fill_up(disk, store)
    with pytest.raises(StorageFailed):  # noqa: PT012 - one of many fails
        for _ in range(100_000):
            note(store, "x" * 5000, urgent=True)
    assert store.reserve.held < 256 * 1024
    before = notes(store)
    disk.make_room()
    note(store, "after")
    assert notes(store) == [*before, "after"]
    assert store.reserve.held == reserve.SIZE
    store.close()


def test_it_is_made_again_when_there_is_room(disk):
    store = disk.store()
    fill_up(disk, store)
    for _ in range(50):
        note(store, "urgent", urgent=True)
    assert store.reserve.held < reserve.SIZE
    assert not store.reserve.keep()
    disk.make_room()
    assert store.reserve.keep()
    assert store.reserve.held == reserve.SIZE
    store.close()


def test_the_room_outlives_an_orderly_stop(disk):
    store = disk.store()
    note(store, "before")
    store.close()
    assert sorted(os.listdir(disk.directory)) == ["reserve", "substrat.db"]
    with open(disk.directory / "for the index", "wb") as file:
        file.write(bytes(256 * 1024))
    disk.fill()
    (disk.directory / "for the index").unlink()
    store = disk.store()
    disk.fill()
    note(store, "urgent", urgent=True)
    assert notes(store) == ["before", "urgent"]
    store.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_store_opens_without_any_room(disk, stopped):
    """As it is when others take every block that gets free."""
    store = disk.store()
    note(store, "before")
    if stopped:
        store.close()
    else:  # a copy of a killed daemon's files
        saved = {name: (disk.directory / name).read_bytes() for name in ("substrat.db", "substrat.db-wal")}
        store.close()
        (disk.directory / "reserve").rename(disk.path + "-wal")
        for name, data in saved.items():
            with open(disk.directory / name, "r+b") as file:
                file.write(data)
    disk.fill()
    store = Store(disk.path, reserve.SIZE, without_index=True)
    assert disk.free == 0
    for _ in range(20):
        note(store, "urgent", urgent=True)
        assert refuses(store)
    assert notes(store) == ["before", *["urgent"] * 20]
    store.close()
    disk.make_room()
    store = disk.store()
    assert notes(store) == ["before", *["urgent"] * 20]
    store.close()


def test_the_next_daemon_reads_none_of_the_old_logs_frames(here):
    """The reserve is the old log's file: its commits are in the database, and are not made again."""
    store = here.store()
    note(store, "old")
    store.close()
    older = Store(here.path)
    with older.transaction():
        older.delete_events([1])
    older.close()
    store = here.store()
    assert notes(store) == []
    note(store, "new")
    store.close()
    store = Store(here.path)
    assert notes(store) == ["new"]
    store.close()


KILLED_AT = ["nothing done", "header overwritten", "both names", "opened", "linked"]


@pytest.mark.parametrize("killed_at", KILLED_AT)
def test_a_start_that_was_cut_short_loses_no_commit(here, killed_at, tmp_path):
    """A start is cut short after each of its steps, on copies of the files with their two names."""
    store = here.store()
    note(store, "kept")
    store.close()
    if killed_at != "nothing done":
        with open(here.directory / "reserve", "r+b") as file:
            file.write(bytes(32))
    if killed_at in {"both names", "opened", "linked"}:
        os.link(here.directory / "reserve", here.path + "-wal")
    if killed_at in {"opened", "linked"}:
        opened = Store(here.path)
        note(opened, "more")
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("substrat.db", "substrat.db-wal"):
            shutil.copy(here.directory / name, copy / name)
        opened.close()
        here = SmallDisk(copy)
        if killed_at == "linked":
            os.link(here.path + "-wal", copy / "reserve")
    for _ in range(2):
        store = here.store()
        assert notes(store) == (["kept", "more"] if killed_at in {"opened", "linked"} else ["kept"])
        assert store.reserve.held == reserve.SIZE
        store.close()


def test_a_log_that_was_set_aside_is_left_alone(here, tmp_path):
    store = here.store()
    note(store, "evidence")
    aside = tmp_path / "aside"
    aside.mkdir()
    for name in ("substrat.db", "substrat.db-wal"):
        shutil.copy(here.directory / name, tmp_path / f"copy-{name}")
    os.rename(here.path + "-wal", aside / "substrat.db-wal")
    before = (aside / "substrat.db-wal").read_bytes()
    reserve.take_over(here.path)
    assert (aside / "substrat.db-wal").read_bytes() == before
    assert not os.path.lexists(here.directory / "reserve")
    store.close()


@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "empty"])
def test_something_else_under_its_name_does_no_harm(here, kind, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    name = here.directory / "reserve"
    {"directory": name.mkdir, "link": lambda: name.symlink_to(precious), "fifo": lambda: os.mkfifo(name),
     "empty": name.touch}[kind]()  # fmt: skip
    store = here.store()
    note(store, "fine")
    assert store.reserve.held == reserve.SIZE
    store.close()
    assert precious.read_text() == "keep me"


def test_a_file_system_without_it_is_no_obstacle(here, monkeypatch):
    def refuse(*_arguments, **_keywords):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(reserve, "_allocate", refuse)
    store = here.store()
    note(store, "fine")
    assert not store.reserve.is_possible
    store.close()
