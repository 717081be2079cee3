"""Events: the same from memory as from disk, missed by no follower, announced only when they are stored."""

import base64
import contextlib
import json
from unittest.mock import Mock

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Splitter
from substrat.daemon.state import events as journal_module
from substrat.daemon.state.event_json import with_line
from substrat.daemon.state.events import Journal
from substrat.errors import StorageFailed
from tests.daemon.state.journals import CALL, OUTPUT, Bench, read_all

PATIENCE = 20


def shown(events):
    return [json.loads(event.json) for event in events]


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
