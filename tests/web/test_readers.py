"""A reader between the journal's pages and the window, with a daemon that is only played."""

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import trio

from substrat import errors
from substrat.web import fanout as module
from substrat.web.calls import Calls
from substrat.web.fanout import Fanout, Reader
from substrat.web.window import EncodedEvent, Wanted, Window

ALL = Wanted(None, 0, "id", without_thinking=False)


class Journal:
    """The daemon's journal, which is all that readers ask of it."""

    def __init__(self):
        self.events = []

    def add(self, kind, call=""):
        raw = {"type": "tool_call", "call_id": call}
        self.events.append({"cursor": len(self.events) + 1, "agent": "anna", "kind": kind, "raw": raw})

    async def read_events(self, _, cursor, limit, __):
        found = [{**event} for event in self.events[cursor : cursor + limit]]
        return found, cursor + len(found)

    async def call(self, *_, **__):
        return {"events": [], "cursor": len(self.events), "journal": "id"}


@pytest.fixture
def journal(monkeypatch):
    played = Journal()

    @asynccontextmanager
    async def connected(_):
        yield played

    monkeypatch.setattr(module, "connected", connected)
    return played


async def ring(fanout):
    fanout.news, news = anyio.Event(), fanout.news
    news.set()


async def test_a_page_whose_calls_are_sought_for_long_is_read_once(journal, monkeypatch, autojump_clock):
    async def paired(_, event):
        await trio.sleep(20)
        return event

    monkeypatch.setattr(Calls, "paired", paired)
    journal.add("tool-call-started")
    journal.add("tool-call-completed")
    fanout = Fanout("")
    fanout.window = Window("id", 2)
    assert [event.cursor for event in await Reader(fanout, ALL).next()] == [1, 2]


async def test_a_reader_is_quiet_while_only_others_say_something(autojump_clock):
    fanout = Fanout("")
    fanout.window = Window("id", 0)

    async def others_speak():
        for cursor in range(1, 100):
            await trio.sleep(1)
            fanout.window.add(EncodedEvent(cursor, "eve", False, b"{}"))
            await ring(fanout)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others_speak)
        began = trio.current_time()
        assert await Reader(fanout, ALL._replace(agent="anna")).next() == []
        assert trio.current_time() == pytest.approx(began + module._QUIET_S)
        nursery.cancel_scope.cancel()


async def test_a_call_is_paired_with_no_start_from_before_the_window_was_read(journal, monkeypatch):
    async def look_back(*_):
        return {"cursor": 4}

    monkeypatch.setattr(Calls, "_look_back", look_back)
    fanout = Fanout("")
    reader = Reader(fanout, ALL)
    journal.add("tool-call-started", "one")
    fanout.window = Window("id", 1)
    assert [event.cursor for event in await reader.next()] == [1]
    for cursor, kind in ((2, "tool-call-completed"), (3, "turn:ended"), (4, "tool-call-started")):
        journal.add(kind, "one")
        fanout.window.add(EncodedEvent(cursor, "anna", False, b"{}"))
    assert [event.cursor for event in await reader.next()] == [2, 3, 4]
    journal.add("tool-call-completed", "one")
    fanout.window = Window("id", 5)
    (ended,) = await reader.next()
    assert b'"call":{"cursor":4}' in ended.json


async def test_a_removed_agent_is_missed_only_where_a_page_must_be_read(journal, monkeypatch, autojump_clock):
    async def gone(*_):
        raise errors.NotFound("there is no anna")

    monkeypatch.setattr(journal, "read_events", gone)
    fanout = Fanout("")
    reader = Reader(fanout, ALL._replace(agent="anna"))
    fanout.window = Window("id", 0)
    assert await reader.next() == []
    fanout.window = Window("id", 1)
    with pytest.raises(errors.NotFound):
        await reader.next()


async def test_a_reader_that_knows_of_another_state_first_is_not_ended_by_it(journal, autojump_clock):
    fanout = Fanout("")
    fanout.window = Window("the old id", 9)

    async def see_it():
        await trio.sleep(1)
        fanout.generation += 1
        fanout._show(Window("id", 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(see_it)
        reader = Reader(fanout, ALL._replace(journal=None))
        await reader.start()
        assert await reader.next() == []


async def test_a_window_lasts_no_longer_than_its_subscription():
    fanout, seen = Fanout(""), []
    scope: Any = anyio.CancelScope()

    async def fail():
        seen.append(fanout.window.journal)
        raise OSError

    events: Any = SimpleNamespace(journal="id", cursor=1, receive=fail)
    for _ in range(2):
        with pytest.raises(OSError):
            await fanout._fill(events, scope)
        assert fanout.window is module._NONE
        scope.cancel()
    assert seen == ["id", None], "the last reader has left before the second one began"
