"""Events as they come, over both ways: none lost or doubled, calls paired, and a client that doesn't read."""

from typing import Any

import anyio
import pytest
import trio.testing
from starlette.websockets import WebSocketDisconnect

from substrat import errors
from substrat.web import streams
from substrat.web.window import EncodedEvent
from tests.web.conftest import EventSource, Messages, unpaired


def test_both_streams_have_the_events_of_the_journal(web, daemon, anna):
    stored = web.get("/events?agent=anna")["events"]
    with EventSource(web, "?since=0&agent=anna") as source, Messages(web, "?since=0&agent=anna") as socket:
        assert [unpaired(source.next()) for _ in stored] == stored
        assert [unpaired(socket.next()) for _ in stored] == stored
    middle = stored[3]["cursor"]
    with EventSource(web, "?since=0&agent=anna", **{"Last-Event-ID": str(middle)}) as source:
        assert unpaired(source.next()) == stored[4]
    journal = web.get("/events?since=-1")["journal"]
    with EventSource(web, f"?since=0&journal={journal}") as source:
        assert source.next()["journal"] == journal
    for query in (f"since={10**6}", "since=0&journal=another"):
        refused = web.ask(f"/api/v1/events?{query}", Accept="text/event-stream")
        assert (refused.status, refused.error) == (409, "CursorUnknown")


def test_a_stream_without_a_cursor_has_only_later_events(web, daemon, anna):
    last = web.get("/events?since=-1")["cursor"]
    with EventSource(web) as source, Messages(web) as socket:
        web.post("/agents/anna/send", prompt="again")
        first = source.next()
        assert (first["kind"], first["cursor"]) == ("prompt:queued", last + 1)
        assert socket.next() == first


def test_a_completed_call_has_its_start_also_from_before_the_stream(web, daemon, anna):
    stored = web.get("/events?agent=anna")["events"]
    (started,) = [event for event in stored if event["kind"] == "tool-call-started"]
    (completed,) = [event for event in stored if event["kind"] == "tool-call-completed"]
    for since in (0, started["cursor"]):
        with Messages(web, f"?since={since}") as socket:
            found = socket.until("tool-call-completed")[-1]
        assert unpaired(found) == completed
        assert found["call"] == {"cursor": started["cursor"], "raw": started["raw"]}


def test_thinking_is_left_out_where_it_is_asked_for(web, daemon):
    daemon.spawn("anna", daemon.workspace(), "/think\nHello.")
    for query in ("?since=0", "?since=0&filter=no-thinking"):
        with EventSource(web, query) as source, Messages(web, query) as socket:
            seen = {event["kind"] for event in source.until("turn:ended")}
            assert seen == {event["kind"] for event in socket.until("turn:ended")}
        assert any(kind.startswith("thinking:") for kind in seen) != query.endswith("no-thinking"), seen
    assert web.ask("/api/v1/events?filter=nothing", Accept="text/event-stream").status == 400


def test_nothing_is_lost_or_doubled_when_the_daemon_is_killed(web, daemon, anna):
    with EventSource(web, "?since=0") as source, Messages(web, "?gathered=true&since=0") as socket:
        seen, heard = source.until("turn:ended"), socket.until("turn:ended")
        for _ in range(2):
            daemon.kill()
            daemon.start()
            web.post("/agents/anna/send", prompt="again")
            seen += source.until("turn:ended")
            heard += socket.until("turn:ended")
        assert [unpaired(event) for event in seen] == web.get("/events")["events"]
    assert heard == seen


def test_a_client_comes_back_to_another_server_at_its_cursor(web, serve, daemon, anna):
    other = serve()
    with EventSource(other, "?since=0") as source:
        seen = [source.next() for _ in range(4)]
    other.stop()
    web.post("/agents/anna/send", prompt="again")
    daemon.wait("anna")
    with EventSource(web, "", **{"Last-Event-ID": str(seen[-1]["cursor"])}) as source:
        seen += [*source.until("turn:ended"), *source.until("turn:ended")]
    assert [unpaired(event) for event in seen] == web.get("/events")["events"]


def test_an_unknown_agent_has_no_stream(web):
    assert web.ask("/api/v1/events?agent=nobody", Accept="text/event-stream").status == 404
    with pytest.raises(Exception, match="404"), Messages(web, "?agent=nobody"):
        pytest.fail("there is nobody")


class Stuck:
    """A client that takes nothing from some message on, until it reads again; and a feed for it."""

    def __init__(self):
        self.reading = anyio.Event()
        self.sent = []

    async def next(self):
        await anyio.lowlevel.checkpoint()
        cursor = len(self.sent) + 1
        return [EncodedEvent(cursor, "anna", False, b'{"cursor":%d}' % cursor)]

    async def send_text(self, text):
        if len(self.sent) == 3:
            await self.reading.wait()
        self.sent.append(text)

    async def send(self, message):
        if message["type"] == "http.response.body":
            await self.send_text(message["body"].decode())

    async def close(self, code, reason):
        await self.reading.wait()
        self.sent.append(code)

    async def receive(self):
        await anyio.sleep_forever()


async def test_a_client_that_takes_nothing_is_dropped(autojump_clock):
    client: Any = Stuck()
    await streams.send_messages(client, client, gathered=True)
    assert client.sent == ['{"cursor":1}', '{"cursor":2}', '{"cursor":3}']
    assert trio.current_time() == pytest.approx(streams.SLOW_S + 30)
    await streams.send_events(client, client.receive, client.send, [])
    assert len(client.sent) == 3


EXPECTED = "its agent is gone, or the daemon has another state"
LONG = "é" * 100


@pytest.mark.parametrize(
    ("problem", "reason", "logged"),
    [
        (errors.NotFound("there is no anna"), EXPECTED, 0),
        (errors.CursorUnknown("the daemon has another state"), EXPECTED, 0),
        (errors.UnsupportedVersion("it speaks another version"), "it speaks another version", 1),
        (errors.InternalError(LONG), LONG[:61], 1),
    ],
)
async def test_a_stream_that_ends_says_why_and_the_unexpected_is_logged(problem, reason, logged, caplog):
    class Ended(Stuck):
        async def next(self):
            raise problem

        async def close(self, code, reason):
            self.sent.append((code, reason))

    client: Any = Ended()
    await streams.send_messages(client, client, gathered=True)
    assert client.sent == [(1000, reason)]
    assert len(caplog.records) == logged
    await streams.send_events(client, client.receive, client.send, [])
    assert len(caplog.records) == 2 * logged


async def test_the_close_code_waits_for_a_client_that_reads_again(autojump_clock):
    client: Any = Stuck()

    async def read_again():
        await trio.sleep(streams.SLOW_S + 20)
        client.reading.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_again)
        await streams.send_messages(client, client, gathered=True)
    assert client.sent[3:] == [4008]


async def test_a_client_that_is_gone_is_no_fault_of_the_servers(autojump_clock):
    class Gone(Stuck):
        async def send_text(self, text):
            raise WebSocketDisconnect(1006)

        async def close(self, code, reason):
            raise RuntimeError("a WebSocket whose client is gone can't be closed")  # as Starlette's does

    client: Any = Gone()
    await streams.send_messages(client, client, gathered=True)
    await streams.send_events(client, client.receive, client.send, [])
    assert client.sent == []
