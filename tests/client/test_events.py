"""The client's events: in order, kept for slow consumers, and their connection's end, with a scripted daemon."""

import threading

import pytest
import trio
import trio.testing

import substrat
from substrat import errors
from substrat.protocol import framing

pytestmark = pytest.mark.filterwarnings("error")


def subscription(events, *, then=lambda peer: peer.read()):
    """A script for two kinds of connection: one that asks for the list of agents, and one that subscribes."""

    def serve(peer):
        peer.greet()
        while (request := peer.read()) is not None:
            if request["method"] == "events.subscribe":
                # In one packet with the answer: nothing may be lost between the two.
                notes = [framing.notification("event", {"subscription": 5, "event": found}) for found in events]
                peer.write(framing.success(request["id"], {"subscription": 5, "cursor": 40}), *notes)
                then(peer)
                return
            peer.answer(request, [request["method"]])

    return serve


async def test_events_come_in_order_and_none_is_lost_to_a_slow_consumer(fake, event):
    fake(subscription([event("user", cursor=number) for number in range(1000)]))
    cursors = []
    async with substrat.Client.connect() as client, client.events("anna", since=0) as events:
        async for found in events:
            cursors.append(found["cursor"])
            await trio.testing.wait_all_tasks_blocked()
            if len(cursors) == 1000:
                break
    assert cursors == list(range(1000))


async def test_a_consumer_may_make_requests_however_many_events_wait(fake, event):
    fake(subscription([event("user", "x" * 2000, cursor=number) for number in range(5000)]))
    handled = 0
    with trio.fail_after(30):
        async with substrat.Client.connect() as client, client.events() as events:
            async for _ in events:
                assert await client.agents() == ["agent.list"]
                handled += 1
                if handled == 300:
                    break


async def test_a_consumer_that_reads_nothing_keeps_nobody_from_answers(fake, event):
    fake(subscription([event("user", "x" * 2000, cursor=number) for number in range(5000)]))
    async with substrat.Client.connect() as client:
        async with client.events():
            assert await client.agents() == ["agent.list"]
        assert await client.agents() == ["agent.list"]


async def test_events_of_a_subscription_made_by_a_call_are_not_kept(fake, event):
    def serve(peer):
        peer.greet()
        peer.answer(peer.read(), {"subscription": 1, "cursor": 0})
        for number in range(100):
            peer.event(1, event("user", "x", cursor=number))
        peer.answer(peer.read(), [])
        peer.read()

    fake(serve)
    async with substrat.Client.connect() as client:
        await client.call("events.subscribe")
        assert await client.agents() == []
        assert not client._conversation.notifications


async def test_two_subscriptions_are_kept_apart(fake, event):
    def serve(peer):
        peer.greet()
        request = peer.read()
        if request is not None:
            peer.answer(request, {"subscription": 1, "cursor": 0})
            peer.event(1, event("user", request["params"]["agent"]))
            peer.read()

    fake(serve)
    async with substrat.Client.connect() as client, client.events("a") as one, client.events("b") as two:
        assert (await two.receive())["text"] == "b"
        assert (await one.receive())["text"] == "a"


async def test_a_lost_daemon_is_told_after_what_had_come(fake, event):
    fake(subscription([event("user", cursor=number) for number in (41, 42)], then=lambda peer: None))
    async with substrat.Client.connect() as client, client.events(reconnect=0) as events:
        assert events.cursor == 40
        assert [(await events.receive())["cursor"] for _ in range(2)] == [41, 42]
        with pytest.raises(errors.ConnectionLost, match="again since 42"):
            await anext(events)
        assert events.cursor == 42


async def test_what_the_daemon_said_before_it_closed_a_subscription_is_the_error(fake):
    fake(subscription([], then=lambda peer: peer.fail(None, errors.InternalError("a bug"))))
    async with substrat.Client.connect() as client, client.events() as events:
        with pytest.raises(errors.InternalError, match="a bug"):
            await events.receive()


@pytest.mark.parametrize("said", [b"[]\n", b"nonsense\n", b'{"method":"event","params":7}\n', b'{"method":"event"}\n'])
async def test_a_subscription_that_is_no_protocol_is_one_error(fake, said):
    fake(subscription([], then=lambda peer: peer.write(said)))
    async with substrat.Client.connect() as client, client.events() as events:
        with pytest.raises(errors.SubstratError, match="are both of one version"):
            await events.receive()


async def test_a_cancelled_receive_loses_nothing(fake, event):
    more = threading.Event()

    def then(peer):
        half = framing.notification("event", {"subscription": 5, "event": event("user", cursor=1)})
        peer.write(half[:30])
        more.wait(20)
        peer.write(half[30:])
        peer.read()

    fake(subscription([], then=then))
    async with substrat.Client.connect() as client, client.events() as events:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events.receive)
                await trio.testing.wait_all_tasks_blocked(0.05)
                scope.cancel()
        more.set()
        assert (await events.receive())["cursor"] == 1


async def test_a_refused_subscription_is_itself(fake):
    fake({"events.subscribe": errors.NotFound("there is no a"), "agent.list": []})
    async with substrat.Client.connect() as client:
        with pytest.raises(errors.NotFound):
            async with client.events("a"):
                pytest.fail("it was refused")
        assert await client.agents() == []


async def test_leaving_events_by_an_error_or_by_cancellation_closes_their_connection(fake):
    ended = threading.Semaphore(0)

    def until_closed(peer):
        peer.read()
        ended.release()

    fake(subscription([], then=until_closed))
    async with substrat.Client.connect() as client:
        with pytest.raises(ZeroDivisionError):
            async with client.events():
                raise ZeroDivisionError
        assert await trio.to_thread.run_sync(lambda: ended.acquire(timeout=20))
        with trio.CancelScope() as scope:
            async with client.events() as events:
                scope.cancel()
                await events.receive()
        assert scope.cancelled_caught
        assert await trio.to_thread.run_sync(lambda: ended.acquire(timeout=20))
        assert client._conversation.pending == {}


async def test_cancellation_of_the_whole_is_no_error(fake):
    asked = threading.Event()

    def serve(peer):
        peer.greet()
        peer.read()
        asked.set()
        peer.read()

    fake(serve)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def stop():
                await trio.to_thread.run_sync(asked.wait, 20)
                scope.cancel()

            nursery.start_soon(stop)
            async with substrat.Client.connect() as client:
                await client.show("a")
    assert scope.cancelled_caught
