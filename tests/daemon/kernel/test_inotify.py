"""inotify: every change is told to those who watch the directory, and to no others."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
import trio

from substrat.daemon.kernel.inotify import DROPPED, ChangeFlag, EntryChange, EntryWatcher, Watcher, watch_names

PATIENCE = 20


@contextlib.asynccontextmanager
async def watching():
    watcher = Watcher()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watcher.deliver)
            yield watcher
            nursery.cancel_scope.cancel()
    finally:
        watcher.close()


async def comes(change):
    with trio.fail_after(PATIENCE):
        await change.wait()


def append(path):
    with path.open("ab") as file:
        file.write(b"x")


def is_raised(change):
    return change._raised.is_set()


async def test_a_file_cut_short(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    async with watching() as watcher:
        with watcher.watching(str(tmp_path)) as change:
            with (tmp_path / "file").open("ab") as file:
                file.truncate(10)
            await comes(change)


async def test_two_watchers_of_one_directory_are_both_told_and_that_of_another_is_not(tmp_path):
    (tmp_path / "other").mkdir()
    async with watching() as watcher, trio.open_nursery():
        with watcher.watching(str(tmp_path)) as first, watcher.watching(str(tmp_path / "other")) as other:
            with watcher.watching(str(tmp_path)) as second:
                append(tmp_path / "file")
                await comes(first)
                await comes(second)
            append(tmp_path / "file")
            await comes(first)
            assert not is_raised(second)
            assert not is_raised(other)


async def test_after_watching_nothing_is_left(tmp_path):
    async with watching() as watcher:
        for _ in range(3):
            with watcher.watching(str(tmp_path)):
                append(tmp_path / "file")
        assert watcher._changes == {}
        with watcher.watching(str(tmp_path)) as change:
            append(tmp_path / "file")
            await comes(change)


async def test_a_directory_that_is_removed_meanwhile(tmp_path):
    async with watching() as watcher:
        for _ in range(2):
            (tmp_path / "d").mkdir()
            with watcher.watching(str(tmp_path / "d")) as change:
                append(tmp_path / "d" / "file")
                await comes(change)
                (tmp_path / "d" / "file").unlink()
                (tmp_path / "d").rmdir()
        assert watcher._changes == {}


async def test_a_flood_is_told_at_least_once_afterwards(tmp_path):
    async with watching() as watcher:
        with watcher.watching(str(tmp_path)) as change:
            seen, total = 0, 20_000
            for number in range(total):
                if number % 500 == 0:
                    await trio.lowlevel.checkpoint()
                append(tmp_path / f"{number % 7}")
            while seen < total:
                seen = sum((tmp_path / f"{number}").stat().st_size for number in range(7))
                if seen < total:
                    await comes(change)


async def test_a_directory_that_cannot_be_watched(tmp_path):
    async with watching() as watcher:
        with pytest.raises(FileNotFoundError), watcher.watching(str(tmp_path / "missing")):
            pass
        assert watcher._changes == {}


async def test_a_change_that_came_before_the_wait_is_not_lost():
    change = ChangeFlag()
    change.set()
    change.set()
    await comes(change)
    assert not is_raised(change)


@pytest.mark.parametrize("name", ["a b", "ü", "x" * 200])
async def test_odd_names(tmp_path, name):
    (tmp_path / name).mkdir()
    async with watching() as watcher:
        with watcher.watching(str(tmp_path / name)) as change:
            append(tmp_path / name / ("y" * 255))
            await comes(change)


# Names


@pytest.fixture
def entries():
    watcher = EntryWatcher()
    yield watcher
    watcher.close()


def watched(entries, directory):
    (number,) = watch_names((str(directory),), entries._fd).values()
    return number


def test_a_name_that_is_made_removed_and_renamed_is_told_once(tmp_path, entries):
    number = watched(entries, tmp_path)
    for make in (
        (tmp_path / "a").touch,
        (tmp_path / "a").unlink,
        (tmp_path / "a").mkdir,
        lambda: (tmp_path / "a").rename(tmp_path / "other"),
        lambda: (tmp_path / "other").rename(tmp_path / "a"),
    ):
        make()
        (tmp_path / "b").touch()
        assert entries.changes({b"a"}) == {EntryChange(number, b"a")}
        (tmp_path / "b").unlink()
        assert entries.changes({b"a"}) == set()


def test_only_changes_of_names_are_told(tmp_path, entries):
    (tmp_path / "a").touch()
    watched(entries, tmp_path)
    os.chmod(tmp_path / "a", 0o700)
    os.utime(tmp_path / "a")
    append(tmp_path / "a")
    assert entries.changes({b"a"}) == set()


def test_more_changes_than_the_kernel_keeps_are_told_as_such(entries):
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if most > 100_000:
        pytest.skip("it keeps too many here for a test")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        number = watched(entries, directory)
        for _ in range(most // 2 + 1):
            os.mkdir(f"{directory}/a")
            os.rmdir(f"{directory}/a")
        assert entries.changes({b"a"}) == {EntryChange(number, b"a"), DROPPED}
        os.mkdir(f"{directory}/a")
        assert entries.changes({b"a"}) == {EntryChange(number, b"a")}
