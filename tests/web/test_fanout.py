"""One subscription for many readers: each has every event that it wants once, however far it is behind."""

import errno
import json
import shutil
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from websockets.exceptions import ConnectionClosedOK

from substrat import errors
from substrat.client import Client
from substrat.client.events import follow
from substrat.web import fanout as module
from substrat.web import window
from substrat.web.fanout import Fanout
from substrat.web.window import Wanted
from tests.support.daemon import DaemonFixture
from tests.support.waiting import PATIENCE
from tests.web.conftest import EventSource, Messages, Web, unpaired

ALL, BEN = (Wanted(agent, 0, None, without_thinking=False) for agent in (None, "ben"))


def run(daemon, story):
    """Run a story with a fan-out of its own."""

    async def whole():
        fanout = Fanout(str(daemon.socket))
        with anyio.fail_after(PATIENCE):
            async with fanout.running():
                return await story(fanout)

    return anyio.run(whole)


async def read(reader, kind="turn:ended", times=1):
    """Return the events up to one of a kind."""
    found: list[Any] = []
    while sum(event["kind"] == kind for event in found) < times:
        found += [json.loads(event.json) for event in await reader.next()]
    return found


async def send(daemon, name, prompt="again"):
    await to_thread.run_sync(lambda: daemon.ok("send", name, "--wait", prompt))


@pytest.fixture
def few(monkeypatch):
    """Keep a few events, and read short pages."""
    monkeypatch.setattr(window, "MOST_EVENTS", 4)
    monkeypatch.setattr(module, "_PAGE_EVENTS", 3)


@pytest.fixture
def asked(monkeypatch):
    """The pages that the daemon is asked for."""
    found: list[Any] = []
    read_events = Client.read_events

    async def noted(self, *arguments, **options):
        found.append(arguments)
        return await read_events(self, *arguments, **options)

    monkeypatch.setattr(Client, "read_events", noted)
    return found


async def subscribed(fanout):
    while fanout.window is module._NONE:
        await fanout.news.wait()


def test_readers_share_one_subscription_that_lasts_as_long_as_they(daemon, anna, monkeypatch):
    encoded, begun, ended = [], [], anyio.Event()
    encode = module._encoded

    def note(event):
        encoded.append(event["cursor"])
        return encode(event)

    @asynccontextmanager
    async def noted(*arguments, **options):
        begun.append(options)
        try:
            async with follow(*arguments, **options) as events:
                yield events
        finally:
            ended.set()

    monkeypatch.setattr(module, "follow", noted)
    monkeypatch.setattr(module, "_encoded", note)

    async def story(fanout):
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(fanout.opened(ALL._replace(since=None))) for _ in range(5)]
            await subscribed(fanout)
            await send(daemon, "anna")
            found = [await read(readers[0])]
            # All that is there comes at once.
            found += [[json.loads(event.json) for event in await reader.next()] for reader in readers[1:]]
        await ended.wait()
        return found

    first, *others = run(daemon, story)
    assert others == [first] * 4
    assert [unpaired(event) for event in first] == daemon.events("anna")[-len(first) :]
    assert encoded == [event["cursor"] for event in first]
    assert len(begun) == 1


def test_a_reader_that_falls_behind_has_everything_and_holds_up_nobody(daemon, anna, few):
    daemon.spawn("ben", daemon.workspace("other"), "Good morning.")

    async def story(fanout):
        async with AsyncExitStack() as stack:
            quick, slow, of_ben = [await stack.enter_async_context(fanout.opened(one)) for one in (ALL, ALL, BEN)]
            begun, found = await slow.next(), await read(of_ben)
            seen = await read(quick, times=2)
            for number in range(3):
                await send(daemon, "anna", f"/shell echo {number}")
                seen += await read(quick)
            await to_thread.run_sync(daemon.kill)
            await to_thread.run_sync(daemon.start)
            await send(daemon, "ben")
            seen += await read(quick)
            found += await read(of_ben)
            late = [json.loads(event.json) for event in begun] + await read(slow, times=6)
            return seen, late, found

    seen, late, found = run(daemon, story)
    with daemon.wire() as wire:
        stored = list(wire.pages())
    assert [unpaired(event) for event in seen] == stored
    assert late == seen
    assert [unpaired(event) for event in found] == daemon.events("ben")
    starts = {event["cursor"]: event["raw"] for event in stored if event["kind"] == "tool-call-started"}
    calls = [event["call"] for event in seen if event["kind"] == "tool-call-completed"]
    assert calls == [{"cursor": cursor, "raw": raw} for cursor, raw in starts.items()]


def test_a_reader_of_a_quiet_agent_does_not_ask_again_and_again(daemon, few, asked):
    for name in ("ben", "anna"):
        daemon.spawn(name, daemon.workspace(name), "Good morning.")

    async def story(fanout):
        async with fanout.opened(BEN) as reader:
            found = await read(reader)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send, daemon, "ben")
                return found + await read(reader)

    assert [unpaired(event) for event in run(daemon, story)] == daemon.events("ben")
    assert sorted({*asked}) == asked


def test_calls_that_never_began_are_not_sought_for_ever(daemon, asked):
    line = {"type": "tool_call", "subtype": "completed", "tool_call": {"shellToolCall": {"args": {}, "result": {}}}}
    lines = [f"/line {json.dumps({**line, 'call_id': str(number)})}" for number in range(100)]
    daemon.spawn("eve", daemon.workspace(), "\n".join(lines))

    async def story(fanout):
        async with fanout.opened(ALL) as reader:
            return await read(reader)

    calls = [event["call"] for event in run(daemon, story) if event["kind"] == "tool-call-completed"]
    assert calls == [None] * 100
    assert 0 < len(asked) < 100


def test_readers_outlast_a_subscription_that_fails_and_log_each_reason_once_an_outage(daemon, anna, monkeypatch, caplog):
    full = OSError(errno.EMFILE, "too many open files")
    failures: list[Exception] = [full, errors.UnsupportedVersion("it speaks another version"), full, KeyError("cursor")]

    def failing(*arguments, **options):
        if failures:
            raise failures.pop(0)
        return follow(*arguments, **options)

    monkeypatch.setattr(module, "follow", failing)

    async def story(fanout):
        async with fanout.opened(ALL._replace(since=None)) as reader:
            await subscribed(fanout)
            await send(daemon, "anna")
            found = await read(reader)
            failures.append(full)
            await to_thread.run_sync(daemon.kill)
            while failures:
                await anyio.lowlevel.checkpoint()
            await to_thread.run_sync(daemon.start)
            await send(daemon, "anna")
            return found + await read(reader)

    found = run(daemon, story)
    assert [unpaired(event) for event in found] == daemon.events("anna")[-len(found) :]
    logged = [(record.message.split(": ")[1], bool(record.exc_info)) for record in caplog.records]
    named = [one for one in logged if one[0] != "DaemonNotRunning"]  # is logged if an attempt comes before the new daemon
    assert named == [("OSError", True), ("UnsupportedVersion", False), ("KeyError", True), ("OSError", True)]


@pytest.fixture
def copied(tmp_path):
    """A daemon whose state was copied, and a function that lets it begin again with the copy."""
    with DaemonFixture(tmp_path) as daemon:
        daemon.start()
        daemon.ok("spawn", "anna", "-w", daemon.workspace())
        daemon.stop()
        shutil.copytree(daemon.state, tmp_path / "copy")
        daemon.start()

        def go_back():
            daemon.stop()
            shutil.rmtree(daemon.state)
            (tmp_path / "copy").rename(daemon.state)
            daemon.start()

        yield daemon, go_back


def test_a_reader_is_told_when_the_daemon_comes_back_with_an_older_copy_of_its_state(copied):
    daemon, go_back = copied
    daemon.ok("send", "anna", "--wait", "Good morning.")

    async def story(fanout):
        async with fanout.opened(ALL) as reader:
            await read(reader)
            await subscribed(fanout)
            await to_thread.run_sync(go_back)
            with pytest.raises(errors.CursorUnknown):
                await read(reader)
        async with fanout.opened(ALL) as reader:
            return [json.loads(event.json) for event in await reader.next()]

    assert [unpaired(event) for event in run(daemon, story)] == daemon.events("anna")


def test_no_vanished_event_is_sent_once_the_daemon_goes_on_with_the_copy_that_continues_its_journal(copied, tmp_path):
    daemon, go_back = copied
    with closing(sqlite3.connect(tmp_path / "copy" / "substrat.db")) as db, db:
        db.execute("UPDATE sqlite_sequence SET seq = seq + 1000000")  # as backup.prepare does

    async def story(fanout):
        async with fanout.opened(ALL._replace(since=None)) as reader:
            await subscribed(fanout)
            await send(daemon, "anna", "That is lost.")
            while not any(b'"turn:ended"' in event.json for event in fanout.window.events):
                await fanout.news.wait()
            await to_thread.run_sync(go_back)
            await send(daemon, "anna")
            return await read(reader)

    found = run(daemon, story)
    assert [unpaired(event) for event in found] == daemon.events("anna")[-len(found) :]
    assert found[0]["cursor"] > 1_000_000


def test_streams_end_when_the_state_was_made_anew(tmp_path):
    with DaemonFixture(tmp_path) as daemon:
        daemon.start()
        daemon.spawn("anna", daemon.workspace(), "Good morning.")
        web = Web(daemon)
        with EventSource(web, "?since=0") as source, Messages(web, "?since=0") as socket:
            assert source.until("turn:ended") == socket.until("turn:ended")
            daemon.stop()
            shutil.rmtree(daemon.state)
            daemon.start()
            daemon.spawn("anna", daemon.workspace("anew"), "Good morning.")
            with pytest.raises(AssertionError, match="the stream has ended"):
                source.next()
            with pytest.raises(ConnectionClosedOK, match="another state"):
                socket.next()
        web.stop()
        daemon.close_streams()
