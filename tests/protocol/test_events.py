"""Events, cursors, pages, subscriptions, long lines, clients that don't read."""

import base64
import json

import trio
import trio.testing

from substrat.core.programs import lenient
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Line
from substrat.daemon.servers import rpc
from substrat.daemon.servers.methods.table import BY_NAME
from substrat.protocol import framing
from tests.protocol import document
from tests.protocol.rules import rule
from tests.support.optional import present
from tests.support.waiting import PATIENCE


@rule("P-EVENT-1", "P-EVENT-2")
def test_cursors_grow_for_ever(daemon):
    daemon.start()
    with daemon.wire() as wire:
        daemon.run(wire)
        daemon.run(wire, "bert")
        first = wire.pages()
        cursors = [event["cursor"] for event in first]
        assert cursors == sorted(set(cursors))
        assert cursors[0] > 0
        wire.call("agent.rm", agent="bert")
        kept = [event for event in first if event["agent"] == wire.call("agent.show", agent="anna")["id"]]
        assert wire.pages() == kept
    daemon.kill()
    daemon.start()
    with daemon.wire() as wire:
        assert wire.pages() == kept, "the same after a restart"
        assert wire.pages(since=kept[3]["cursor"]) == kept[4:]
        daemon.spawn(wire, "carl")
        (newest,) = wire.call("events.read", since=-1)["events"]
        assert newest["cursor"] > cursors[-1], "a cursor isn't used twice"


@rule("P-EVENT-3", "P-EVENT-4")
def test_since_and_pages(wire, running):
    empty = wire.call("events.read")
    assert empty == {"events": [], "cursor": 0, "journal": empty["journal"]}
    running.run(wire)
    running.run(wire, "bert", prompt="/emit 20 10")
    everything = wire.pages()
    last = everything[-1]["cursor"]
    assert wire.call("events.read", since=0)["events"] == wire.call("events.read", since=None)["events"] == everything
    assert wire.call("events.read", since=-5)["events"] == everything[-5:]
    assert wire.call("events.read", since=-10_000)["events"] == everything
    of_anna = wire.pages(agent="anna")
    assert {event["agent"] for event in of_anna} == {wire.call("agent.show", agent="anna")["id"]}
    assert wire.call("events.read", agent="anna", since=-2)["events"] == of_anna[-2:]
    assert wire.call("events.read", since=last) == empty | {"cursor": last}
    assert wire.call("events.subscribe")["cursor"] == last
    for limit, size in ((7, 7), (1, 1), (0, 1), (-5, 1), (10**6, len(everything))):
        page = wire.call("events.read", limit=limit)
        assert page["events"] == everything[:size]
        assert page["cursor"] == page["events"][-1]["cursor"]
    assert wire.pages(limit=7) == everything
    assert wire.call("events.subscribe", since=-3)["cursor"] == everything[-4]["cursor"]


@rule("P-EVENT-12", "P-EVENT-3")
def test_a_cursor_is_of_one_journal(daemon):
    daemon.start()
    with daemon.wire() as wire:
        daemon.run(wire)
        page = wire.call("events.read")
        journal, newest = page["journal"], page["cursor"]
    daemon.kill()
    daemon.start()
    with daemon.wire() as wire:
        assert wire.call("events.subscribe", since=newest - 2, journal=journal)["journal"] == journal
        assert [wire.event(), wire.event()] == page["events"][-2:]
        assert wire.journals == [journal]
        for method in ("events.read", "events.subscribe"):
            for since, of in ((newest + 1, journal), (newest + 1, None), (0, "another")):
                error = wire.refuse(method, since=since, journal=of)
                assert error["data"]["type"] == "CursorUnknown"
                assert f"its newest cursor is {newest};" in error["message"]


@rule("P-EVENT-5", "P-EVENT-6", "P-EVENT-8")
def test_an_event_is_its_line(wire, running):
    agent = running.run(wire, prompt="/think hm\n/say hello\n/shell echo out")
    plain = wire.pages()
    assert all(list(event) == document.column("Events", "member") for event in plain)
    known = {row[0] for rows in document.tables(document.sections()["Kinds"]) for row in rows[1:]}
    assert {event["kind"] for event in plain} <= known
    full = wire.pages(lines=True)
    of_agent = [event for event in full if "line" in event]
    assert [{name: event[name] for name in document.column("Events", "member")} for event in full] == plain
    output = (running.state / "agents" / agent["id"] / "turns" / "1" / "stdout").read_bytes()
    lines = [base64.b64decode(event["line"]) for event in of_agent]
    assert b"".join(lines) == output
    assert [event["line_size"] for event in of_agent] == [len(line) for line in lines]
    for event, line in zip(of_agent, lines, strict=True):
        assert json.dumps(event["raw"]) == json.dumps(json.loads(line)), "with its members in their order"
    assert all(event["raw"] is None for event in full if "line" not in event)
    (delta,) = [event for event in plain if event["kind"] == "thinking:delta"]
    assert delta["text"] == "hm"


@rule("P-EVENT-5")
def test_a_line_that_is_nearly_json_is_told_as_json():
    data = b'{"type":"assistant","n":NaN,"s":"\xff"}'
    event = stream.decode(Line(0, len(data), data))
    assert json.loads(lenient.as_json(present(event.body))) == {"type": "assistant", "n": None, "s": "\ufffd"}


@rule("P-EVENT-7")
def test_what_nobody_knows_has_a_kind():
    for data, kind in (
        (b"plain words", "raw"),
        (b'{"type":"weather"}', "unknown"),
        (b'{"type":5}', "unknown"),
        (b"[]", "raw"),
    ):
        assert stream.decode(Line(0, len(data), data)).kind == kind


@rule("P-FRAME-6", "P-EVENT-4", "P-EVENT-9")
def test_a_page_of_long_events_is_short_and_a_line_that_is_too_long_is_cut(wire, running):
    running.run(wire, prompt="/emit 1 5200000")
    wire.call("events.subscribe", since=0, lines=True)
    sizes = [0]
    while max(sizes) < 16 * 1024**2:  # a line from the daemon may be longer than one to it
        line = wire.receive_line()
        sizes.append(len(line))
        assert json.loads(line)["params"]["event"]["kind"] != "turn:ended", "no line was that long"
    with running.wire() as other:
        running.run(other, "bert", prompt="/emit 1 8500000")
        page, everything = other.call("events.read")["events"], other.pages()
        events = other.pages(agent="bert", lines=True)
    assert page == everything[: len(page)]
    assert len(page) < len(everything)
    cut = [event for event in events if event.get("line_size", 0) > 8_500_000]
    assert [event["kind"] for event in cut] == ["raw", "raw", "result:success"], "a piece, the whole and the result"
    for event in cut:
        line = base64.b64decode(event["line"])
        assert len(line) == 8 * 1024**2
        if event["kind"] == "raw":
            assert event["raw"] is None
            beginning, mark = event["text"][:65536], event["text"][65536:]
            assert line.startswith(beginning.encode())
        else:
            head, _, rest = line.partition(b'"result":"')
            assert list(event["raw"]) == [*json.loads(head.rstrip(b",") + b"}"), "result"]
            assert event["raw"]["result"] == event["text"]
            beginning, cut_at, mark = event["text"].partition("…")
            assert cut_at
            assert beginning
            assert rest.startswith(beginning.encode())
        assert str(event["line_size"]) in mark


@rule("P-EVENT-11")
def test_causes_are_older_than_their_effects(wire, running):
    running.run(wire, prompt='/tool spawn_agent {"prompt": "/say hi", "name": "child"}')
    wire.call("agent.wait", agents=["child", "anna"], timeout=PATIENCE)
    events = wire.call("events.read")["events"]
    assert all(event["cause"] is None or event["cause"] < event["cursor"] for event in events)
    by_cursor = {event["cursor"]: event for event in events}
    spawned = next(event for event in events if (event["data"] or {}).get("by") == "agent:anna")
    assert (spawned["kind"], by_cursor[spawned["cause"]]["kind"]) == ("agent:spawned", "turn:started")


@rule("P-EVENT-10")
def test_an_event_outlives_its_line(daemon):
    daemon.start()
    with daemon.wire() as wire:
        agent = daemon.run(wire)
        before = wire.pages()
        daemon.kill()
    (daemon.state / "agents" / agent["id"] / "turns" / "1" / "stdout").write_bytes(b"")
    daemon.start()
    with daemon.wire() as wire:
        after = wire.pages(lines=True)
    assert [(event["cursor"], event["kind"]) for event in after] == [(event["cursor"], event["kind"]) for event in before]
    assert all(event["raw"] is None and "line" not in event for event in after)


# Subscriptions


@rule("P-SUB-1")
def test_stored_events_then_new_ones(wire, running):
    with running.wire() as other:
        running.run(other)
        stored = other.pages()
        request = wire.request("events.subscribe", since=stored[2]["cursor"])
        wire.send(request)
        answer = wire.receive()
        assert answer["id"] == request["id"], "the answer comes before the first event"
        assert answer["result"]["cursor"] == stored[2]["cursor"]
        assert [wire.event() for _ in stored[3:]] == stored[3:]
        other.call("agent.send", agent="anna", prompt="/emit 50 10")
        new = wire.events_until("turn:ended")
        assert new == other.pages(since=stored[-1]["cursor"])


@rule("P-SUB-2", "P-SUB-5")
def test_subscriptions_side_by_side(wire, running):
    numbers = [wire.call("events.subscribe", since=0)["subscription"] for _ in range(64)]
    assert len(set(numbers)) == 64
    assert wire.refused("events.subscribe") == "TooManyRequests"
    wire.call("events.unsubscribe", subscription=numbers[0])
    assert wire.call("events.subscribe", since=0)["subscription"] not in numbers
    with running.wire() as other:
        running.spawn(other)
        expected, journal = other.pages(), other.call("events.read")["journal"]
    numbers = [*numbers[1:], max(numbers) + 1]
    seen: dict[int, list[dict]] = {number: [] for number in numbers}
    while any(len(events) < len(expected) for events in seen.values()):
        params = (wire.notifications.pop(0) if wire.notifications else wire.receive())["params"]
        assert list(params) == ["subscription", "event"]
        seen[params["subscription"]].append(params["event"])
    first = expected[0] | {"journal": journal}
    assert all(events == [first, *expected[1:]] for events in seen.values())


@rule("P-SUB-3")
def test_after_the_end_nothing_comes(wire, running):
    running.spawn(wire)
    one = wire.call("events.subscribe", since=0)["subscription"]
    two = wire.call("events.subscribe", agent="anna", since=0)["subscription"]
    with running.wire() as other:
        wire.call("events.unsubscribe", subscription=one)
        wire.notifications.clear()
        other.call("agent.send", agent="anna", prompt="/emit 50 10")
        other.call("agent.wait_message", agent="anna")
        expected = other.pages(agent="anna")
        while not wire.notifications or wire.notifications[-1]["params"]["event"]["cursor"] != expected[-1]["cursor"]:
            wire.notifications.append(wire.receive())
        other.call("agent.rm", agent="anna")
        running.run(other, "bert")
        wire.call("daemon.status")
    assert {message["params"]["subscription"] for message in wire.notifications} == {two}
    assert {message["params"]["event"]["cursor"] for message in wire.notifications} <= {
        event["cursor"] for event in expected
    }
    wire.call("events.unsubscribe", subscription=two)
    for number in (one, two, 12345):
        assert wire.refused("events.unsubscribe", subscription=number) == "NotFound"


@rule("P-SUB-4")
def test_a_client_that_stops_reading_costs_only_itself(wire, running):
    with running.wire() as lazy:
        lazy.call("events.subscribe", since=0)
        lazy.ask("events.read")
        running.run(wire, prompt="/emit 800 3000")
        assert wire.call("agent.show", agent="anna")["turn"]["outcome"] == "success"
        everything = wire.pages()
        size = sum(len(json.dumps(event)) for event in everything)
        assert size > 3 * rpc._OUTBOX_BYTES, "more than the daemon holds for a connection"
        got: list[dict] = []
        while not got or got[-1]["kind"] != "turn:ended":
            message = lazy.receive()
            if "id" not in message:
                got.append(message["params"]["event"])
        got[0].pop("journal")
        assert got == everything, "everything, later"
        assert lazy.call("agent.list")[0]["name"] == "anna"


class Feed:
    """A socket with one subscription, to numbered events that are as long as its maker says."""

    def __init__(self, count, size):
        self.events = [b'{"n":%d,"pad":"%s"}\n' % (number, b"x" * size) for number in range(count)]

    def find(self, method):
        return BY_NAME[method]

    async def perform(self, request, connection):
        if request.method == "hello":
            connection.greet(request.client)
            return {}
        assert request.method == "events.subscribe"

        async def follow(_number):
            for event in self.events[request.since :]:
                async with connection.room_for_page():
                    await connection.send(event)

        return {"subscription": connection.subscribe(follow)}

    async def follower(self, nursery, since=0):
        """A client's end of a new connection, subscribed; nothing of the subscription is read yet."""
        ours, theirs = trio.socket.socketpair()

        async def serve():
            async with trio.SocketStream(ours) as stream:
                await rpc.ClientConnection(stream, self).serve()

        nursery.start_soon(serve)
        client = trio.SocketStream(theirs)
        hello = framing.request(0, "hello", {"protocol": 1, "client": "a test"})
        await client.send_all(hello + framing.request(1, "events.subscribe", {"since": since}))
        await trio.testing.wait_all_tasks_blocked()
        return client


async def everything_from(client):
    """All whole lines of the subscription up to the end of the connection, and what comes after the last."""
    got = b""
    while data := await client.receive_some(1 << 20):
        got += data
    lines = got.split(b"\n")
    return [line + b"\n" for line in lines[2:-1]], lines[-1]


@rule("P-SUB-6")
async def test_a_client_that_takes_nothing_is_disconnected_and_comes_back_at_its_cursor(autojump_clock):
    feed = Feed(400, 5000)
    async with trio.open_nursery() as nursery:
        crowd = [await feed.follower(nursery) for _ in range(50)]
        began = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(rpc.STALLED_SECONDS * 1.5)
        assert not nursery.child_tasks, "each was disconnected"
        for client in crowd:
            async with client:
                first, torn = await everything_from(client)
            assert first == feed.events[: len(first)]
            assert 0 < len(first) < 100, "no more was sent than a socket holds"
            assert torn == feed.events[len(first)][: len(torn)]
        assert trio.current_time() - began < rpc.STALLED_SECONDS * 2
        back = await feed.follower(nursery, since=len(first))
        got = b""
        while not got.endswith(feed.events[-1]):
            got += await back.receive_some(1 << 20)
        assert got.split(b"\n", 2)[2] == b"".join(feed.events[len(first) :])
        await back.aclose()


@rule("P-SUB-6")
async def test_a_client_that_reads_a_byte_now_and_then_is_disconnected(autojump_clock):
    feed = Feed(400, 5000)
    async with trio.open_nursery() as nursery:
        client = await feed.follower(nursery)
        while nursery.child_tasks:
            assert len(await client.receive_some(1)) == 1
            await trio.sleep(rpc.STALLED_SECONDS / 2)
        await client.aclose()


@rule("P-SUB-6")
async def test_a_slow_client_is_given_everything(autojump_clock):
    feed = Feed(100, 5000)
    async with trio.open_nursery() as nursery:
        client = await feed.follower(nursery)
        got = b""
        while not got.endswith(feed.events[-1]):
            # A quarter of a piece at a time, so that several readings free nothing.
            got += await client.receive_some(4096)
            await trio.sleep(rpc.STALLED_SECONDS / 5)
        assert got.split(b"\n", 2)[2] == b"".join(feed.events)
        await client.aclose()
