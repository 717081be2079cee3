"""Pages of events are read in slices: a turn's output is opened once a page, and other tasks run in between."""

import contextlib
import json
import os

import pytest
import trio

from substrat.core.programs.cursor import stream
from substrat.daemon.state import event_json
from substrat.daemon.state import events as journal_module
from substrat.daemon.state.archive import compress
from substrat.daemon.state.event_json import with_line
from substrat.daemon.state.events import Journal
from tests.daemon.state.journals import OUTPUT, read_all


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
