"""A sweep of files and rows: output is compressed or dropped, events stay readable."""

import json
import os
import random

import pytest
import trio
import trio.testing

from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.state import archive
from substrat.daemon.state.events import DaemonEvent, Journal
from substrat.daemon.state.layout import Layout
from substrat.daemon.state.trash import Trash
from substrat.daemon.turns.retention import INTERVAL, Retention
from substrat.errors import StorageFailed

PATIENCE = 20
BIG = 40_000


class Yard:
    """Agents whose turns have directories, and the sweeper."""

    def __init__(self, directory, new_agents, **disk):
        self.agents = new_agents(disk={"compress_after": 0, **disk})
        self.places = Layout(str(directory / "state"), str(directory / "run"))
        self.open()

    def open(self):
        self.wanted = Wakeup()
        self.trash = Trash(self.places.trash, self.wanted.set)
        self.sweeper = Retention(self.agents.registry, self.places, self.trash, self.wanted, trio.lowlevel.checkpoint)

    def restart(self):
        self.agents.restart()
        self.open()

    def directory(self, name, number):
        return self.places.agent(self.agents.agent(name).id).turn(number).root

    def files(self, name, number):
        try:
            return sorted(os.listdir(self.directory(name, number)))
        except FileNotFoundError:
            return None

    def turn(self, name, size=BIG, *, finish=True):
        """Let an agent have a turn with output on disk and in the journal; returns the turn's id."""
        agents = self.agents
        agents.spawn(name, "do it") if not agents.registry.has_name(name) else agents.supervisor.send(name, "more")
        return self.work(name, size, finish=finish)

    def work(self, name, size=BIG, *, finish=True):
        turn = self.agents.turn(name)
        os.makedirs(self.directory(name, turn.number))
        bodies = [{"type": "thinking", "subtype": "delta", "text": text} for text in _noise(turn.number, size)]
        with open(os.path.join(self.directory(name, turn.number), "stdout"), "wb") as file:
            file.writelines(json.dumps(body).encode() + b"\n" for body in bodies)
        self.agents.write(name, *bodies)
        if finish:
            self.agents.finish(name, f"turn {turn.number} is done")
        return turn.id

    def journal(self):
        """A journal without memory, which reads every line from disk."""
        places, store = self.places, self.agents.store

        def find(agent, turn):
            return places.agent(agent).turn(store.turn(turn).number).stdout

        return Journal(store, find, self.agents.clock)

    def texts(self, turn):
        events = [json.loads(event.json) for event in self.journal().page(0, None, 100_000)]
        return [event["text"] for event in events if event["turn"] == turn and event["kind"] == "thinking:delta"]

    async def sweep(self):
        with trio.fail_after(PATIENCE):
            return await self.sweeper.sweep()


def _noise(seed, size):
    numbers = random.Random(seed)
    return [numbers.randbytes(500).hex() for _ in range(size // 1000)]


@pytest.fixture
def new_yard(tmp_path, new_agents):
    return lambda **disk: Yard(tmp_path, new_agents, **disk)


async def test_old_output_is_compressed_and_reads_as_before(new_yard):
    yard = new_yard()
    first, second = yard.turn("anna"), yard.turn("anna")
    before = [event.json for event in yard.journal().page(0, None, 10_000)]
    lines = [yard.journal().line_of(event.row) for event in yard.journal().page(0, None, 10_000)]
    swept = await yard.sweep()
    assert (swept.compressed, swept.dropped) == (1, 0)
    assert swept.freed > 0
    assert yard.files("anna", 1) == ["stdout.z"]
    assert yard.files("anna", 2) == ["stdout"]  # the newest
    assert [event.json for event in yard.journal().page(0, None, 10_000)] == before
    assert [yard.journal().line_of(event.row) for event in yard.journal().page(0, None, 10_000)] == lines
    assert len(yard.texts(first)) == len(yard.texts(second)) == BIG // 1000
    for _ in range(2):
        yard.turn("bert", 2000)
    assert not any(await yard.sweep()), "little output isn't worth it"


async def test_a_turn_is_dropped_when_it_is_too_old(new_yard):
    yard = new_yard(keep=1000.0)
    first, second = yard.turn("anna"), yard.turn("anna")
    with yard.agents.registry.change("note taken") as change:  # as of a program that doesn't print its prompt
        anna = yard.agents.agent("anna").id
        change.record(*(DaemonEvent(anna, turn, "user", f"prompt {turn}") for turn in (first, second)))
    await yard.sweep()
    yard.agents.clock.time += 2000
    kept = [event.cursor for event in yard.journal().page(0, None, 10_000) if event.row.turn != first]
    swept = await yard.sweep()
    assert (swept.dropped, swept.deleted) == (1, 1)
    assert yard.files("anna", 1) is None
    assert yard.texts(first) == []
    assert len(yard.texts(second)) == BIG // 1000
    assert not os.listdir(yard.places.trash)
    # What the daemon said of it is still there, its row too, and every other event has its cursor.
    assert [text for kind, text in yard.agents.told("anna", "turn:ended")] == [
        text for _, text in yard.agents.told("anna") if "success" in (text or "")
    ]
    assert yard.agents.store.turn(first).result == "turn 1 is done"
    assert set(kept) <= {event.cursor for event in yard.journal().page(0, None, 10_000)}
    assert [text for _, text in yard.agents.told("anna", "user")] == [f"prompt {second}"]
    ((_, text),) = yard.agents.told("anna", "history:dropped")
    assert text.startswith("turn 1 was dropped: it is older than disk.keep allows; its output had ")
    in_memory = [event.cursor for event in yard.agents.journal.page(0, None, 10_000)]
    assert in_memory == [event.cursor for event in yard.journal().page(0, None, 10_000)]
    assert not any(await yard.sweep())


async def test_an_agent_over_its_limit_loses_its_oldest(new_yard):
    yard = new_yard(agent=70_000, compress_after=1e9)
    for _ in range(4):
        yard.turn("anna")
    yard.turn("bert")
    swept = await yard.sweep()
    assert swept.compressed == 3
    assert swept.dropped >= 1
    assert yard.files("anna", 1) is None
    assert yard.files("anna", 4) == yard.files("bert", 1) == ["stdout"]


async def test_all_agents_together_have_a_limit(new_yard):
    yard = new_yard(state=120_000, compress_after=1e9)
    for name in ("anna", "bert", "anna", "bert"):
        yard.turn(name)
    await yard.sweep()
    sizes = sum(
        os.stat(os.path.join(directory, name)).st_blocks * 512
        for directory, _, names in os.walk(yard.places.agents)
        for name in names
    )
    assert sizes <= 120_000
    assert yard.files("anna", 1) is None


async def test_a_running_turn_and_the_newest_stay(new_yard):
    yard = new_yard(keep=1.0, agent=1, state=1)
    yard.turn("anna")
    yard.turn("bert", finish=False)
    yard.agents.clock.time += 100
    assert not any(await yard.sweep())
    assert yard.files("anna", 1) == yard.files("bert", 1) == ["stdout"]
    yard.agents.supervisor.end("anna")
    assert (await yard.sweep()).dropped == 1, "the newest of an ended agent goes too"


async def test_a_turn_whose_report_waits_is_unread(new_yard):
    yard = new_yard(keep=1.0)
    yard.turn("boss")
    yard.agents.supervisor.suspend("boss")
    yard.agents.spawn("anna", "do it", parent="boss")
    yard.work("anna")
    yard.turn("anna")  # so that the first isn't the newest
    assert yard.agents.agent("boss").waiting == 1
    yard.agents.clock.time += 100
    await yard.sweep()
    assert yard.files("anna", 1) == ["stdout"]
    yard.agents.supervisor.resume("boss", None)
    assert yard.agents.agent("boss").waiting == 0
    await yard.sweep()
    assert yard.files("anna", 1) is None


@pytest.mark.parametrize("after", ["drop_turn", "put", "delete_events"])
async def test_a_drop_that_was_cut_short_is_finished(new_yard, monkeypatch, after):
    yard = new_yard(keep=1000.0)
    first = yard.turn("anna")
    yard.turn("anna")
    yard.agents.clock.time += 2000

    class Died(BaseException):
        pass

    def die(*_arguments):
        raise Died

    cut = {"drop_turn": (yard.trash, "put"), "put": (Retention, "_clear"), "delete_events": None}[after]
    if cut:
        monkeypatch.setattr(*cut, die)
    else:
        monkeypatch.setattr(yard.agents.store, "turn_cleared", die)
    with pytest.raises(Died):
        await yard.sweep()
    monkeypatch.undo()
    yard.restart()
    await yard.sweep()
    await yard.sweep()
    assert yard.files("anna", 1) is None
    assert yard.texts(first) == []
    assert len(yard.agents.told("anna", "history:dropped")) == 1
    assert not any(await yard.sweep())


async def test_left_over_compressions_and_trash_are_removed_and_what_is_in_no_book_stays(new_yard):
    yard = new_yard(keep=1000.0, state=1)
    stranger = yard.places.agent("11111111-0000-4000-8000-000000000000").turn(1).root
    os.makedirs(stranger)
    yard.turn("anna")
    left = os.path.join(yard.directory("anna", 1), "stdout" + archive.PART_SUFFIX)
    with open(left, "wb") as file:
        file.write(b"half")
    os.makedirs(os.path.join(yard.places.trash, "old", "deep"))
    assert (await yard.sweep()).deleted == 1
    assert yard.files("anna", 1) == ["stdout"]
    assert not os.listdir(yard.places.trash)
    assert os.path.isdir(stranger)


@pytest.mark.parametrize("is_cut_short", [False, True])
async def test_a_removed_agents_files_are_gone_at_once_and_deleted_later(new_yard, is_cut_short):
    yard = new_yard()
    yard.turn("anna")
    root = yard.places.agent(yard.agents.agent("anna").id).root
    yard.agents.supervisor.remove("anna")
    if is_cut_short:
        yard.restart()
    else:
        yard.trash.discard(root)
        assert not os.path.exists(root)
        assert len(os.listdir(yard.places.trash)) == 1
    assert (await yard.sweep()).deleted == 1
    assert not os.path.exists(root)
    assert not os.listdir(yard.places.trash)
    assert yard.agents.store.removed_agents() == []


async def test_a_removed_agents_events_are_hidden_at_once_and_deleted_piece_by_piece(new_yard, monkeypatch):
    yard = new_yard()
    yard.turn("anna")
    yard.turn("bob")
    store, anna = yard.agents.store, yard.agents.agent("anna").id
    with store.transaction():
        store.add_events(store.events_after(0, anna, 1)[0]._replace(kind="made-up") for _ in range(2500))
    yard.agents.supervisor.remove("anna")
    assert {row.agent for row in store.events_after(0, None, 10_000)} == {yard.agents.agent("bob").id}
    assert store.events_after(0, anna, 10_000) == [], "a client that follows anna alone is still there"
    assert store.cursor_back(10_000, 1, anna) == 0
    with yard.agents.registry.change("clone kept") as change:
        change.record(DaemonEvent(anna, None, "clone:pruned", "removed"))
    yard.restart()
    store, pieces = yard.agents.store, []
    delete = store.delete_events_of

    def note(*asked):
        pieces.append(delete(*asked))
        return pieces[-1]

    monkeypatch.setattr(store, "delete_events_of", note)
    await yard.sweep()
    assert (len(pieces), pieces[:2]) == (3, [1000, 1000])
    assert [row.kind for row in store.events_after(0, anna, 10_000)] == ["clone:pruned"], "it came after the removal"


async def test_a_removed_agents_files_free_their_room_though_its_events_cant_be_deleted(new_yard, monkeypatch):
    yard = new_yard()
    yard.turn("anna")
    root = yard.places.agent(yard.agents.agent("anna").id).root
    yard.agents.supervisor.remove("anna")

    def full(*_asked):
        raise StorageFailed("the disk is full")

    monkeypatch.setattr(yard.agents.store, "delete_events_of", full)
    with pytest.raises(StorageFailed):
        await yard.sweep()
    assert not os.path.exists(root)
    assert not os.listdir(yard.places.trash)


async def test_no_room_for_the_archive_leaves_the_turn_as_it_was(new_yard, monkeypatch):
    yard = new_yard()
    yard.turn("anna")
    yard.turn("anna")

    def full(_path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "compress", full)
    assert not any(await yard.sweep())
    assert yard.files("anna", 1) == ["stdout"]


async def test_it_sweeps_at_the_start_when_asked_and_now_and_then(new_yard, monkeypatch, autojump_clock):
    yard = new_yard()
    sweeps = []

    async def sweep(_sweeper):
        sweeps.append(trio.current_time())
        raise (StorageFailed("the disk is full") if len(sweeps) == 1 else RuntimeError("a bug"))

    monkeypatch.setattr(Retention, "sweep", sweep)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(yard.sweeper.run)
        await trio.sleep(1)
        assert len(sweeps) == 1
        for _ in range(100):
            yard.wanted.set()
        await trio.sleep(10)
        assert len(sweeps) == 2
        await trio.sleep(INTERVAL + 10)
        assert len(sweeps) == 3
        nursery.cancel_scope.cancel()
