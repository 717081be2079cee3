"""The disk watch measures the space that running turns take, and carries out the decisions about it."""

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import pytest
import trio

from substrat.core.agents.disk_use import LEAST
from substrat.core.agents.records import Process
from substrat.core.agents.stop_reason import SUSPENDED
from substrat.core.workspaces.clones import Clone, Stage
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.kernel import disk_io, procfs
from substrat.daemon.state.layout import Layout
from substrat.daemon.turns.disk_watch import DiskWatch, measure
from tests.support.files_here import FilesHere
from tests.support.optional import present

MIB = 1024 * 1024
PATIENCE = 30


class Yard:
    """Agents whose turns have directories, and a disk that says what a test wants."""

    def __init__(self, tmp_path, new_agents, **disk):
        self.agents = new_agents(disk=disk)
        self.places = Layout(str(tmp_path / "state"), str(tmp_path / "runtime"))
        os.makedirs(self.places.state)
        self.free = 1 << 40
        self.turn_runs = Wakeup()
        self.watch = DiskWatch(
            self.agents.registry,
            self.agents.book,
            self.places,
            "/nowhere",
            self.turn_runs,
            FilesHere(),
            free=lambda _path: self.free,
        )

    def spawn(self, name, **wish):
        self.agents.spawn(name, "the task", **wish)
        place = self.places.agent(self.agents.agent(name).id)
        for directory in (place.cache, place.home(".cursor"), place.chats, place.turn(1).root):
            os.makedirs(directory)
        return place

    async def look(self):
        with trio.fail_after(PATIENCE):
            await self.watch.look()

    @property
    def stopped(self):
        by_turn = {self.agents.turn(agent.name).id: agent.name for agent in self.agents.registry.agents}
        return [by_turn[turn] for turn, _ in self.agents.runner.stopped]


def write(directory, size, name="file"):
    with open(os.path.join(directory, name), "wb") as file:
        file.write(b"x" * size)


async def test_directories_that_are_too_big_stop_the_turn(tmp_path, new_agents):
    yard = Yard(tmp_path, new_agents, agent_home=MIB, free=0)
    for name, where in (("anna", "cache"), ("bert", "dot-cursor"), ("carl", "chats")):
        write(f"{yard.spawn(name).root}/{where}", 2 * MIB)
    write(yard.spawn("dora").cache, MIB // 2)
    await yard.look()
    assert sorted(yard.stopped) == ["anna", "bert", "carl"]
    assert len(yard.agents.told("anna", "turn:home-too-big")) == 1
    await yard.look()
    assert len(yard.agents.told("anna", "turn:home-too-big")) == 1
    yard.agents.fall("anna")
    assert "disk.agent_home" in yard.agents.turn("anna").error
    assert yard.agents.state("anna") == "failed"


async def test_the_one_that_grows_fastest_is_stopped_when_the_disk_is_nearly_full(tmp_path, new_agents):
    yard = Yard(tmp_path, new_agents, free=100 * MIB)
    quick, slow, quiet = (yard.spawn(name) for name in ("quick", "slow", "quiet"))
    write(quiet.cache, 8 * MIB, "old")
    await yard.look()
    write(quick.turn(1).root, 4 * MIB, "stdout")
    write(slow.cache, 2 * MIB)
    await yard.look()
    assert yard.stopped == []
    yard.free = 49 * MIB
    write(quick.cache, 4 * MIB)
    write(slow.cache, 2 * MIB, "more")
    write(quiet.cache, LEAST // 2, "more")
    await yard.look()
    assert yard.stopped == ["quick"]
    write(slow.cache, 2 * MIB, "yet more")
    await yard.look()
    assert yard.stopped == ["quick"]  # it isn't gone yet
    yard.agents.fall("quick")
    write(slow.cache, 2 * MIB, "and more")
    await yard.look()
    assert yard.stopped == ["quick", "slow"]
    yard.agents.fall("slow")
    await yard.look()
    assert yard.agents.state("quiet") == "running"
    assert "filling the disk" in yard.agents.turn("quick").error


async def test_a_turn_that_is_frozen_or_stopped_by_a_person_is_left_alone(tmp_path, new_agents):
    yard = Yard(tmp_path, new_agents, agent_home=MIB, free=0)
    for name in ("anna", "bert"):
        write(yard.spawn(name).cache, 2 * MIB)
    yard.agents.supervisor.freeze("anna")
    yard.agents.supervisor.suspend("bert")
    await yard.look()
    assert not yard.agents.told("anna", "turn:home-too-big")
    assert yard.agents.turn("bert").stop == SUSPENDED


async def test_it_looks_only_while_a_turn_runs(tmp_path, new_agents, monkeypatch, autojump_clock):
    del autojump_clock
    yard = Yard(tmp_path, new_agents, agent_home=MIB)
    looks = []

    async def count(_watch):
        looks.append(trio.current_time())

    monkeypatch.setattr(DiskWatch, "look", count)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(yard.watch.run)
        await trio.sleep(60)
        assert looks == []
        yard.agents.spawn("anna", "the task")
        yard.turn_runs.set()
        await trio.sleep(60)
        seen = len(looks)
        assert seen > 2
        yard.agents.finish("anna")
        await trio.sleep(60)
        assert len(looks) <= seen + 2
        settled = len(looks)
        await trio.sleep(600)
        assert len(looks) == settled
        nursery.cancel_scope.cancel()


HOLD = """
import os, sys, threading
def hold():
    if sys.argv[3] == "thread":
        # CLONE_FILES: the other threads have none of these descriptors.
        import ctypes
        assert ctypes.CDLL(None).unshare(0x400) == 0
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.posix_fallocate(file, 0, int(sys.argv[2]))
    if sys.argv[3] != "named":
        os.unlink(sys.argv[1])
    print("held", flush=True)
    sys.stdin.read()
thread = threading.Thread(target=hold)
thread.start()
thread.join()
"""


@contextmanager
def holding(path, size, how="process"):
    """A process that has filled a file without writing to it, and has removed it unless it is to be `named`."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, path, str(size), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout.readline() == b"held\n"
    try:
        yield Process(child.pid, present(procfs.start_time(child.pid)), procfs.boot_id())
    finally:
        child.communicate()


@pytest.mark.parametrize("how", ["process", "thread"])
def test_a_file_that_was_removed_is_found_as_long_as_it_is_open(tmp_path, how):
    device = tmp_path.stat().st_dev
    path = str(tmp_path / "file")
    with holding(path, MIB, how) as started:
        ((found, size),) = disk_io.unlinked(started, device, 1000)
        assert found == path
        assert MIB <= size < 2 * MIB
        assert disk_io.unlinked(started, device + 1, 1000) == []
        assert disk_io.unlinked(started, device, 0) == []
    assert disk_io.unlinked(started, device, 1000) == []
    with holding(path, MIB, "named") as started:
        assert disk_io.unlinked(started, device, 1000) == []


async def test_what_a_turn_holds_without_a_name_counts_but_not_what_it_holds_of_its_workspace(tmp_path, new_agents):
    yard = Yard(tmp_path, new_agents, agent_home=MIB, free=0)
    work = str(tmp_path / "work")
    os.mkdir(work)
    places = {name: yard.spawn(name, workspace=work) for name in ("anna", "bert")}
    with (
        holding(os.path.join(places["anna"].cache, "file"), 2 * MIB) as anna,
        holding(os.path.join(work, "file"), 2 * MIB) as bert,
    ):
        yard.agents.book.turn_spawned(yard.agents.turn("anna").id, anna)
        yard.agents.book.turn_spawned(yard.agents.turn("bert").id, bert)
        await yard.look()
        assert yard.stopped == ["anna"]


async def test_what_grows_without_a_name_fills_the_disk(tmp_path, new_agents):
    yard = Yard(tmp_path, new_agents, free=100 * MIB, agent_home=0)
    anna, bert = yard.spawn("anna"), yard.spawn("bert")
    await yard.look()
    yard.free = MIB
    write(bert.cache, LEAST * 2)
    with holding(os.path.join(anna.cache, "file"), 2 * MIB) as started:
        yard.agents.book.turn_spawned(yard.agents.turn("anna").id, started)
        await yard.look()
        assert yard.stopped == ["anna"]


async def test_clones_on_another_disk_have_their_own_room(tmp_path, new_agents, monkeypatch):
    yard = Yard(tmp_path, new_agents, free=100 * MIB, agent_home=0)
    written = {"anna": 0, "bert": 0}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if os.stat(other).st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is no second file system")
        for name in written:
            yard.spawn(name)
            agent = yard.agents.agent(name)
            clone = Clone(agent.id, name, other, agent.workspace, "", agent.workspace, "x", stage=Stage.READY)
            with yard.agents.registry.change("clone made") as change:
                change.put_clone(agent, clone)
            yard.agents.book.turn_spawned(yard.agents.turn(name).id, Process(len(name) + ord(name[0]), 1, "no boot"))
        pids = {yard.agents.turn(name).process.pid: name for name in written}
        monkeypatch.setattr(disk_io, "written", lambda process, **_: written[pids[process.pid]])
        yard.watch._free = lambda path: yard.free if path == other else 1 << 40
        await yard.look()
        yard.free = 49 * MIB
        written.update(anna=2 * LEAST, bert=3 * LEAST)
        await yard.look()
        assert yard.stopped == ["bert"]


def test_what_is_measured(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    write(tmp_path / "a" / "b", 100_000)
    (tmp_path / "a" / "link").symlink_to("/")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "a" / "fifo")
    with open(tmp_path / "a" / "hole", "wb") as file:
        file.truncate(1 << 40)
    found = measure([str(tmp_path / "a"), str(tmp_path / "missing")], 1000)
    assert 100_000 <= found.size < 300_000
    assert (found.files, found.unmeasured) == (6, False)


def test_more_files_than_may_be_are_not_counted_to_the_end(tmp_path):
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert measure([str(tmp_path)], 20).files == 21


def test_what_is_deeper_than_any_path_shows(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert measure([str(tmp_path)], 1000).unmeasured


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_shows(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    assert measure([str(tmp_path)], 1000).unmeasured
