"""Events: the same from memory as from disk, missed by no follower, announced only when they are stored."""

import base64
import contextlib
import json
import os
from unittest.mock import Mock

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import Splitter
from substrat.daemon.state import event_json
from substrat.daemon.state import events as journal_module
from substrat.daemon.state.archive import compress
from substrat.daemon.state.event_json import with_line
from substrat.daemon.state.events import DaemonEvent, Journal
from substrat.errors import StorageFailed

PATIENCE = 20


class Bench:
    """A journal over a store, and an agent whose output is written as an agent program would."""

    def __init__(self, store, directory, clock):
        self.store = store
        self.clock = clock
        self.path = directory / "stdout"
        self.path.touch()
        self.journal = self.again()
        self._splitter, self._pairing = Splitter(), Pairing()

    def again(self):
        """Open a journal that has nothing in memory."""
        return Journal(self.store, lambda _agent, _turn: str(self.path), self.clock)

    def write(self, data, agent="a", turn="t", *, end=False):
        with self.path.open("ab") as file:
            file.write(data)
        lines = list(self._splitter.feed(data)) + (list(self._splitter.finish()) if end else [])
        decoded = [(line, stream.decode(line, self._pairing)) for line in lines]
        with self.journal.transaction():
            self.journal.append(agent, turn, decoded)

    def fail(self, problem, agent="a"):
        with self.journal.transaction():
            self.journal.record(DaemonEvent(agent, None, "told", "this never happened"))
            with self.journal.transaction():
                self.journal.record(DaemonEvent(agent, None, "told", "this never either"))
            raise problem

    def record(self, *texts, agent="a"):
        with self.journal.transaction():
            self.journal.record(*(DaemonEvent(agent, None, "told", text) for text in texts))


@pytest.fixture
def bench(store, tmp_path, clock):
    return Bench(store, tmp_path, clock)


def read_all(journal, cursor=0, agent=None, limit=256):
    found = []
    while page := journal.page(cursor, agent, limit):
        assert len(page) <= limit
        found += page
        cursor = page[-1].cursor
    return found


def shown(events):
    return [json.loads(event.json) for event in events]


CALL = b'{"type":"tool_call","subtype":"%s","call_id":"c\\n1","timestamp_ms":%d,"tool_call":{"shellToolCall":{%s}}}\n'
OUTPUT = [
    b'{"type":"system","subtype":"init","session_id":"s","model":"Auto"}\n',
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"h\xc3\xa9llo"}]}}\n',
    b' {"type" : "user" ,\t"message":"spaces"} \r\n',
    CALL % (b"started", 1000, b'"args":{"command":"make"}'),
    CALL % (b"completed", 3500, b'"result":{"success":{"exitCode":0}}'),
    b"not json at all\n",
    b"\n",
    b"\xff\xfe\x00\n",
    b'{"type":"user","x":NaN,"message":"\\ud800"}\n',
    b'{"a":1,"a":2}\n',
    b'{"type":"result","subtype":"success","result":"done","usage":{"inputTokens":12345678901234567890}}\n',
    b'{"deep":' + b"[" * 400 + b"]" * 400 + b"}\n",
    b'{"half a line',
]


def test_an_event_has_the_contracts_fields(bench):
    bench.write(OUTPUT[1])
    (event,) = shown(read_all(bench.journal))
    assert list(event) == ["cursor", "agent", "turn", "time", "kind", "text", "raw", "data", "cause"]
    assert event["raw"] == json.loads(OUTPUT[1])
    assert (event["agent"], event["turn"], event["kind"], event["text"]) == ("a", "t", "assistant", "héllo")


def test_a_line_that_is_json_is_passed_on_byte_for_byte(bench):
    bench.write(b'{"type":"user","n":1.0000000000000000001,"u":"\\u00e4"}\n')
    for journal in (bench.journal, bench.again()):
        assert b'"raw":{"type":"user","n":1.0000000000000000001,"u":"\\u00e4"}' in read_all(journal)[0].json


def test_a_completed_call_keeps_what_its_start_said(bench):
    bench.write(OUTPUT[3] + OUTPUT[4])
    for journal in (bench.journal, bench.again()):
        assert shown(read_all(journal))[1]["text"] == "shell: make → exit 0 (2.5 s)"


def test_the_newest_tool_call_is_known_while_any_is_open(bench):
    begun, ended = (
        CALL % (kind, 1000, body) for kind, body in ((b"started", b'"args":{"command":"make"}'), (b"completed", b""))
    )
    other = begun.replace(b"c\\n1", b"c2").replace(b"make", b"ls")
    bench.record("nothing yet")
    assert bench.journal.open_call("a", "t") is None
    for data, expected in (
        (begun, "shell: make"),
        (other, "shell: ls"),
        (ended, "shell: ls"),
        (ended.replace(b"c\\n1", b"c2"), None),
    ):
        bench.write(data)
        assert bench.journal.open_call("a", "t") == expected
        assert bench.again().open_call("a", "t") == expected, "as a new daemon finds it"
        assert bench.journal.open_call("a", "another turn") is None


pieces = st.sampled_from(OUTPUT[:-1]) | st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"") + b"\n")


@given(
    st.lists(st.tuples(pieces, st.sampled_from("ab")), max_size=12), st.integers(1, 5), st.sampled_from([None, "a", "b"])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_output_reads_the_same_from_memory_and_disk(store, tmp_path_factory, clock, output, limit, agent):
    start = store.last_cursor()
    bench = Bench(store, tmp_path_factory.mktemp("turn"), clock)
    for data, name in output:
        bench.write(data, agent=name)
    from_memory = read_all(bench.journal, start, agent, limit)
    assert [e.json for e in from_memory] == [e.json for e in read_all(bench.again(), start, agent, limit)]
    assert [e.agent for e in from_memory] == [name for _, name in output if agent in {None, name}]


def test_more_than_memory_holds_is_read_from_disk(bench, monkeypatch):
    monkeypatch.setattr(journal_module, "_RECENT_EVENTS", 10)
    for number in range(35):
        bench.record(f"number {number}")
    texts = [event["text"] for event in shown(read_all(bench.journal, limit=4))]
    assert texts == [f"number {number}" for number in range(35)]
    monkeypatch.setattr(journal_module, "_RECENT_BYTES", 5000)
    for number in range(9):
        bench.record(f"{number} " + "x" * 1000)
    assert sum(len(event.json) for event in bench.journal._recent) <= 5000
    assert len(read_all(bench.journal)) == 44


@pytest.mark.parametrize("damage", ["removed", "truncated", "overwritten", "link", "directory"])
def test_output_that_was_tampered_with_says_so(bench, tmp_path, damage):
    bench.write(OUTPUT[1] * 3)
    match damage:
        case "removed":
            bench.path.unlink()
        case "truncated":
            bench.path.write_bytes(b"")
        case "overwritten":
            bench.path.write_bytes(b"x" * bench.path.stat().st_size)
        case "link":
            copy = tmp_path / "copy"
            bench.path.rename(copy)
            bench.path.symlink_to(copy)
        case "directory":
            bench.path.unlink()
            bench.path.mkdir()
    for event in shown(read_all(bench.again())):
        assert event["raw"] is None
        assert "removed" in event["text"]
        assert event["kind"] == "assistant"
    assert all(bench.journal.line_of(event.row) is None for event in read_all(bench.again()))
    assert len(shown(read_all(bench.journal))) == 3


def test_a_turn_that_was_deleted(store, clock):
    journal = Journal(store, lambda _agent, _turn: None, clock)
    lines = list(Splitter().feed(OUTPUT[1]))
    with journal.transaction():
        journal.append("a", "t", [(line, stream.decode(line)) for line in lines])
    (event,) = shown(read_all(Journal(store, lambda _agent, _turn: None, clock)))
    assert "removed" in event["text"]


@pytest.mark.parametrize("data", [OUTPUT[1], b"\xff\n", b"\n"])
def test_an_event_with_its_line(bench, data):
    bench.write(data)
    (event,) = read_all(bench.journal)
    told = json.loads(with_line(event, bench.journal.line_of(event.row)))
    assert base64.b64decode(told["line"]) == data
    assert told["line_size"] == len(data)
    assert with_line(event, None) == event.json


# Where to begin


async def test_the_start_is_now_or_a_cursor_or_counted_from_the_end_piece_by_piece(bench, monkeypatch):
    monkeypatch.setattr(journal_module, "_COUNTED", 2)
    bench.record("one", "two", "three")
    bench.record("other", agent="b")
    journal, bench.store.cursor_back = bench.journal, Mock(wraps=bench.store.cursor_back)
    assert [await journal.start_of(since, None) for since in (None, 0, 2)] == [journal.last_cursor, 0, 2]
    for since, agent, texts in ((-2, None, "three other"), (-2, "a", "two three"), (-9, None, "one two three other")):
        assert [e["text"] for e in shown(read_all(journal, await journal.start_of(since, agent), agent))] == texts.split()
    assert max(call.args[1] for call in bench.store.cursor_back.call_args_list) == 2
    assert bench.journal.page(10**9, None) == bench.again().page(10**9, None) == [], "of the future"


# Forgetting


@pytest.mark.parametrize("order", ["ab", "ba", "aba", "bab", "b", "a"])
def test_a_forgotten_agents_events_are_gone(bench, order):
    for name in order:
        bench.record(f"of {name}", agent=name)
    last = bench.journal.last_cursor
    with bench.journal.transaction():
        bench.store.forget_agent("b")
    bench.journal.forget("b")
    left = [event.agent for event in read_all(bench.journal)]
    assert left == [event.agent for event in read_all(bench.again())] == [name for name in order if name == "a"]
    bench.record("new")
    assert [e["text"] for e in shown(read_all(bench.journal, last))] == ["new"]


# Transactions and followers


@pytest.fixture
def flag_of(bench):
    """Follow as one who waits for the next event."""
    with contextlib.ExitStack() as stack:
        yield lambda agent=None: stack.enter_context(bench.journal.followers.following(agent))()


async def test_a_follower_is_woken_by_its_own_agent_alone(bench, flag_of):
    everybody, a, b = flag_of(), flag_of("a"), flag_of("b")
    bench.record("x")
    assert everybody.is_set()
    assert a.is_set()
    assert not b.is_set()


class Broken(Exception):
    """Breaks a transaction."""


@pytest.mark.parametrize("wrong", [Broken, StorageFailed])
async def test_an_event_that_is_rolled_back_is_never_told(bench, flag_of, wrong):
    bench.record("before")
    flag = flag_of()
    with pytest.raises(wrong):
        bench.fail(wrong("x"))
    assert not flag.is_set()
    for journal in (bench.journal, bench.again()):
        assert [e["text"] for e in shown(read_all(journal))] == ["before"]
    bench.record("after")
    assert flag.is_set()
    for journal in (bench.journal, bench.again()):
        assert [e["text"] for e in shown(read_all(journal))] == ["before", "after"]


async def test_a_full_disk_wakes_no_follower(bench, flag_of):
    pages = bench.store._db.execute("PRAGMA page_count").fetchone()[0]
    bench.store._db.execute(f"PRAGMA max_page_count={pages}")
    flag = flag_of()
    with pytest.raises(StorageFailed):
        bench.record("x" * 1_000_000)
    assert not flag.is_set()
    assert read_all(bench.journal) == []


async def test_followers_are_told_after_the_commit_and_once_all_is_there(bench, flag_of):
    flag = flag_of()
    with bench.journal.transaction():
        bench.record("one")
        bench.record("two")
        assert not flag.is_set()
    assert flag.is_set()
    assert len(read_all(bench.journal)) == 2
    with bench.journal.followers.following("b") as next_event:
        next_event()
        next_event()
    assert "b" not in bench.journal.followers._waiting, "one that left is forgotten"


@given(
    st.lists(st.tuples(st.sampled_from(["tell", "write", "fail", "yield", "nested"]), st.sampled_from("ab")), max_size=25),
    st.sampled_from([None, "a", "b"]),
    st.integers(1, 4),
    st.sampled_from([0, 40]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
async def test_a_follower_misses_nothing_whatever_happens_in_between(
    store, tmp_path_factory, clock, acts, agent, limit, crowd
):
    bench = Bench(store, tmp_path_factory.mktemp("turn"), clock)
    start, seen, over, ended = store.last_cursor(), [], trio.Event(), trio.Event()

    async def follow():
        cursor = start
        with bench.journal.followers.following(agent) as next_event:
            while True:
                more = next_event()
                while events := bench.journal.page(cursor, agent, limit):
                    seen.extend(events)
                    cursor = events[-1].cursor
                    await trio.lowlevel.checkpoint()
                if over.is_set():
                    ended.set()
                    return
                await more.wait()

    with trio.fail_after(PATIENCE), contextlib.ExitStack() as others:
        for _ in range(crowd):
            others.enter_context(bench.journal.followers.following(agent))()
        async with trio.open_nursery() as waking, trio.open_nursery() as nursery:
            waking.start_soon(bench.journal.followers.run)
            nursery.start_soon(follow)
            for act, name in acts:
                match act:
                    case "tell":
                        bench.record("x", "y", agent=name)
                    case "write":
                        bench.write(OUTPUT[1], agent=name)
                    case "nested":
                        with bench.journal.transaction():
                            bench.record("outer", agent=name)
                            bench.write(OUTPUT[5], agent=name)
                    case "fail":
                        with pytest.raises(Broken):
                            bench.fail(Broken(), agent=name)
                    case "yield":
                        await trio.lowlevel.checkpoint()
            over.set()
            bench.record("the end", agent=agent or "a")
            await ended.wait()
            waking.cancel_scope.cancel()
    assert [event.json for event in seen] == [event.json for event in read_all(bench.again(), start, agent)]
    assert b"never" not in b"".join(event.json for event in seen)


@pytest.mark.parametrize(
    "damage", ["time = 9e999", "time = -1e300", "offset = -5", "length = -5", "checksum = -1", "kind = ''"]
)
def test_the_others_are_read_beside_a_damaged_row(bench, damage):
    bench.write(OUTPUT[0])
    bench.write(OUTPUT[1])
    bench.record("after")
    with bench.store.transaction():
        bench.store.connection.execute(f"UPDATE events SET {damage} WHERE cursor = 1")
    events = shown(read_all(bench.again()))
    assert len(events) == 3
    assert [event["text"] for event in events[1:]] == ["héllo", "after"]


# Pages that are read in slices


async def pages(journal, limit=1000, most=1 << 20, agent=None, **how):
    found, cursor = [], 0
    while page := await journal.read(cursor, agent, limit, most, **how):
        found.append(page)
        cursor = page[-1].cursor
    return found


@pytest.fixture
def counted(bench, monkeypatch):
    """Makes a journal without memory, and counts how often it has looked up, opened and read turns' outputs."""
    counts = {"looked up": 0, "opened": 0, "read": 0}

    def count(name, function):
        def counting(*arguments):
            counts[name] += 1
            return function(*arguments)

        return counting

    monkeypatch.setattr(os, "open", count("opened", os.open))
    monkeypatch.setattr(os, "pread", count("read", os.pread))
    find = count("looked up", lambda _agent, _turn: str(bench.path))
    return lambda: Journal(bench.store, find, bench.clock), counts


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("archived", [False, True])
async def test_a_page_looks_its_turn_up_and_opens_its_output_once(bench, counted, archived, lines):
    again, counts = counted
    bench.write(OUTPUT[1] * 2000)
    expected = [event.json for event in read_all(bench.journal)]
    if lines:
        expected = [with_line(event, OUTPUT[1]) for event in read_all(bench.journal)]
    if archived:
        compress(str(bench.path))
    counts.update(dict.fromkeys(counts, 0))
    found = await pages(again(), lines=lines)
    assert [event.json for page in found for event in page] == expected
    assert counts["looked up"] == len(found) <= 3
    # An archive is looked for beside the file it has replaced.
    assert counts["opened"] == len(found) * (2 if archived else 1)
    assert counts["read"] < 20
    assert not [path for path in os.listdir("/proc/self/fd") if link(path).startswith(str(bench.path))], "left open"


def link(number):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{number}")
    return ""


async def test_turns_side_by_side_are_opened_once_a_page(bench, counted, tmp_path):
    again, counts = counted
    for number in range(200):
        bench.write(OUTPUT[1], turn=f"t{number % 10}")
    found = await pages(again())
    assert [event.json for page in found for event in page] == [event.json for event in read_all(bench.journal)]
    assert counts["looked up"] == counts["opened"] == 10


async def test_others_have_their_turn_between_slices(bench):
    bench.write(OUTPUT[1] * (journal_module.SLICE_EVENTS * 5))
    between: list[None] = []

    async def other():
        while True:
            between.append(None)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        between.clear()
        (page,) = await pages(bench.again())
        nursery.cancel_scope.cancel()
    assert len(page) == journal_module.SLICE_EVENTS * 5
    assert len(between) >= 4


async def test_a_hundred_readers_take_turns_and_one_slice_is_read_between_two_turns_of_another_task(bench, monkeypatch):
    bench.write(OUTPUT[1] * (journal_module.SLICE_EVENTS * 3))
    journal, decoded, most = bench.again(), [0], [0]
    decode = stream.decode

    def counting(line, *rest):
        decoded[0] += 1
        return decode(line, *rest)

    async def other():
        while True:
            most[0], decoded[0] = max(most[0], decoded[0]), 0
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(event_json, "decode", counting)
    found = []

    async def reader():
        found.extend(await pages(journal))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async with trio.open_nursery() as readers:
            for _ in range(100):
                readers.start_soon(reader)
        nursery.cancel_scope.cancel()
    assert len(found) == 100
    # Two, where a page's last slice and the next page's first one fall together.
    assert 0 < most[0] <= 2 * journal_module.SLICE_EVENTS


async def test_long_lines_are_read_in_threads_and_end_a_page(bench, monkeypatch):
    monkeypatch.setattr(journal_module, "_THREAD_BYTES", 1000)
    long = b'{"type":"user","message":"%s"}\n' % (b"x" * 5000)
    bench.write((OUTPUT[1] + long) * 3)
    expected = [event.json for event in read_all(bench.journal)]
    threads: list[None] = []
    run_sync = trio.to_thread.run_sync

    async def counting(*arguments):
        threads.append(None)
        return await run_sync(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", counting)
    found = await pages(bench.again(), most=4000)
    assert [[event.json for event in page] for page in found] == [expected[0:2], expected[2:4], expected[4:6]]
    assert len(threads) == 3


async def test_an_event_deleted_while_a_page_is_read_is_not_in_it(bench):
    bench.write(OUTPUT[1] * (journal_module.SLICE_EVENTS * 2), agent="a")
    bench.write(OUTPUT[1], agent="b")
    journal = bench.again()

    async def remove():
        with bench.store.transaction():
            bench.store.forget_agent("a")
        journal.forget("a")

    found = []
    async with trio.open_nursery() as nursery:

        async def read():
            found.extend(await pages(journal))

        nursery.start_soon(read)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(remove)
    read_after = await pages(journal)
    assert [json.loads(event.json)["agent"] for page in read_after for event in page] == ["b"]
    assert [json.loads(event.json)["agent"] for page in found for event in page][-1] == "b"
