"""`substrat.Client` under asyncio as under Trio: the same calls, losses and cancellations."""

import os
import threading
from typing import Any

import anyio
import anyio.abc
import pytest

import substrat
from substrat import errors
from substrat.protocol import framing, methods

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    """Run a coroutine function on one of the loops."""
    return lambda main: anyio.run(main, backend=request.param)


def test_a_life_with_a_real_daemon(run, real_daemon, tmp_path):
    async def main():
        async with substrat.Client.connect(real_daemon) as client:
            async with client.events(since=0) as events:
                agent = await client.spawn(str(tmp_path), name="anna", prompt="/say hello")
                done = await client.wait_message("anna", timeout=30)
                assert (done["turn"]["outcome"], done["id"]) == ("success", agent["id"])
                said: str | None = None
                while said != "hello":
                    event = await events.receive()
                    said = event["text"] if event["kind"] == "result:success" else None
            assert (await client.usage("anna"))["turns"] == 1
            assert [message["text"] for message in await client.messages("anna")] == ["/say hello"]
            assert (await client.why("anna"))["whole"]
            assert (await client.explain("anna"))["program"]
            assert (await client.rename("anna", "bob"))["name"] == "bob"
            assert (await client.set("bob", priority="high"))["priority"] == "high"
            with pytest.raises(errors.Refused):
                await client.diff("bob")
            assert await client.rm("bob") == {"agent": "bob", "tree": None, "text": None}

    run(main)


def test_there_is_a_method_for_each_of_the_protocols():
    parts = (substrat.Client, *substrat.Client.__bases__)
    named = "".join(str(method.__doc__) for part in parts for method in (part, *vars(part).values()))
    mentioned = {name for name in methods.METHODS if f"`{name}`" in named}
    assert set(methods.METHODS) - mentioned == {"hello", "events.unsubscribe"}


def test_tasks_share_a_connection(run, fake):
    def serve(peer):
        peer.greet()
        for request in reversed([peer.read() for _ in range(20)]):
            name = request["params"]["agent"]
            peer.fail(request, errors.NotFound(name)) if int(name) % 3 == 0 else peer.answer(request, name)

    fake(serve)
    found = {}

    async def show(client, name):
        try:
            found[name] = await client.show(name)
        except errors.NotFound as problem:
            found[name] = "not " + problem.message

    async def main():
        async with substrat.Client.connect() as client, anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(show, client, str(number))

    run(main)
    assert found == {str(n): f"not {n}" if n % 3 == 0 else str(n) for n in range(20)}


def test_a_call_that_is_cancelled_while_it_is_sent_ends_the_connection_cleanly(run, fake):
    stuck = threading.Event()
    lines = []

    def serve(peer):
        peer.greet()
        first = peer.read()
        assert stuck.wait(20)
        while (request := peer.read()) is not None:
            lines.append(request)
        # It answers the earlier requests, as the real one does when its client has closed its sending side.
        peer.answer(first, "in time")

    fake(serve)
    early = []

    async def main():
        async def ask():
            early.append(await client.show("early"))

        async with substrat.Client.connect() as client, anyio.create_task_group() as outer:
            outer.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as tasks:
                # More than a socket's buffer holds, to a daemon that doesn't read.
                tasks.start_soon(client.send, "a", "x" * 8_000_000)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            with pytest.raises(errors.ConnectionLost, match="cancelled while it was being sent"):
                await client.show("a")
            stuck.set()

    run(main)
    assert early == ["in time"]
    assert lines == []


def test_a_call_that_is_cancelled_on_its_way_to_the_socket_costs_nothing(run, fake):
    def serve(peer):
        peer.greet()
        while (request := peer.read()) is not None:
            peer.answer(request, request["params"]["agent"])

    fake(serve)

    async def main():
        async with substrat.Client.connect() as client:
            for rounds in range(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.show, "cancelled")
                    for _ in range(rounds):
                        await anyio.lowlevel.checkpoint()
                    tasks.cancel_scope.cancel()
                assert await client.show("whole") == "whole", rounds

    run(main)


def test_a_call_that_is_cancelled_while_it_waits_costs_nothing(run, fake):
    asked = threading.Event()

    def serve(peer):
        peer.greet()
        first = peer.read()
        asked.set()
        peer.answer(peer.read(), "mine")
        peer.answer(first, "late")

    fake(serve)

    async def main():
        async with substrat.Client.connect() as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.show, "first")
                assert await anyio.to_thread.run_sync(asked.wait, 20)
                tasks.cancel_scope.cancel()
            assert await client.show("second") == "mine"

    run(main)


def test_events_go_on_with_the_daemon_that_comes_back(run, fake, event):
    subscribed: list[Any] = []

    def serve(peer):
        if len(subscribed) == 2:
            subscribed.append(None)  # this daemon dies before it greets
            return
        peer.greet()
        request = peer.read()
        if request is None:
            return  # the client's other connection
        subscribed.append(request["params"])
        first = request["params"].get("since", 40) + 1
        notes = [framing.notification("event", {"event": event("user", cursor=first + number)}) for number in range(2)]
        peer.write(framing.success(request["id"], {"subscription": 1, "cursor": first - 1}), *notes)

    fake(serve)
    cursors: list[int] = []

    async def main():
        async with substrat.Client.connect() as client, client.events("anna", reconnect=20) as events:
            while len(cursors) < 6:
                cursors.append((await events.receive())["cursor"])
            with anyio.move_on_after(0):
                await events.receive()  # in the middle of a reconnection
            cursors.append((await events.receive())["cursor"])

    run(main)
    assert cursors == list(range(41, 48))
    assert subscribed == [{"agent": "anna"}, {"agent": "anna", "since": 42}, None, *subscribed[3:]]


def test_events_of_a_daemon_that_stays_away_end(run, fake):
    def vanish(peer):
        peer.greet()
        request = peer.read()
        if request is not None:
            os.unlink(daemon.path)
            peer.answer(request, {"subscription": 1, "cursor": 7})

    daemon = fake(vanish)

    async def main():
        async with substrat.Client.connect() as client, client.events(reconnect=0.2) as events:
            for _ in range(2):
                with pytest.raises(errors.ConnectionLost, match="again since 7"):
                    await events.receive()

    run(main)
