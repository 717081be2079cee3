"""`substrat.Client`: requests, time limits and lost daemons, with a scripted daemon and a real one."""

import contextlib
import json
import os
import socket
from typing import Any

import pytest
import trio
import trio.testing

import substrat
from substrat import errors
from substrat.daemon.servers.methods import request as requests
from substrat.daemon.servers.methods import table
from substrat.protocol import framing, methods

pytestmark = pytest.mark.filterwarnings("error")


async def test_hello(fake):
    daemon = fake({})
    async with substrat.Client.connect() as client:
        assert client.server["server"] == "substratd 9.9"
    assert daemon.calls("hello") == [{"protocol": 1, "client": f"substrat.Client {substrat.__version__}"}]


async def test_the_inbox_is_read_page_by_page_with_whole_texts(fake):
    items = [{"id": number, "text": "t…", "cut": number % 2 == 0} for number in range(1, 6)]
    daemon = fake(
        {
            "inbox.list": lambda params: {
                "items": items[params["after"] : params["after"] + 2], "after": params["after"] + 2,
                "more": params["after"] < 4,
            },
            "inbox.show": lambda params: (
                {"id": 2, "text": "two"} if params["id"] == 2 else errors.Refused("4 is settled already")
            ),
        }
    )  # fmt: skip
    async with substrat.Client.connect() as client:
        found = await client.inbox()
    assert [(item["id"], item["text"]) for item in found] == [(1, "t…"), (2, "two"), (3, "t…"), (5, "t…")]
    assert not any("cut" in item for item in found)
    assert [call["after"] for call in daemon.calls("inbox.list")] == [0, 2, 4]


async def test_a_refused_hello_is_itself(fake):
    fake({"hello": errors.UnsupportedVersion("speak 2")})
    with pytest.raises(errors.UnsupportedVersion, match="speak 2"):
        async with substrat.Client.connect():
            pytest.fail("it was refused")


@pytest.mark.parametrize("path", ["none", "file", "no/such/place", "x" * 300, "d" * 120 + "/s"])
async def test_nobody_listens(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.DaemonNotRunning, match="start one with 'substratd'"):
        async with substrat.Client.connect(str(tmp_path / path)):
            pytest.fail("nobody listens")


async def test_a_long_socket_path(fake, tmp_path):
    path = tmp_path / ("d" * 120) / "daemon.sock"
    path.parent.mkdir()
    fake({"agent.list": []}, path=path)
    async with substrat.Client.connect(str(path)) as client:
        assert await client.agents() == []


async def test_each_method_says_what_the_protocol_has(fake, agent):
    answers = {"agent.send": {"agent": agent(), "message": 4}, "agent.resume": {"agent": agent(), "message": None}}
    answers["events.read"] = {"events": [1], "cursor": 9}
    daemon = fake({**{name: agent() for name in methods.METHODS if name != "hello"}, **answers})
    async with substrat.Client.connect() as client:
        await client.spawn("/w", name="n", model="m", network="none", allow=("a", "b"), prompt="p")
        await client.spawn("/w")
        assert await client.send("a", "p") == 4
        await client.agents()
        assert await client.show("a") == agent()
        await client.wait("a", "b", until=("idle",), timeout=1)
        await client.wait("a")
        await client.wait_message("a", 4, timeout=2.5)
        await client.suspend("a")
        assert await client.resume("a") is None
        await client.interrupt("a")
        await client.end("a")
        await client.rm("a")
        assert await client.read_events("a", 3) == ([1], 9)
        await client.status()
        await client.shutdown()
    assert daemon.calls("agent.spawn") == [
        {"workspace": "/w", "name": "n", "model": "m", "network": "none", "allow": ["a", "b"], "prompt": "p"},
        {"workspace": "/w"},
    ]
    assert daemon.calls("agent.wait") == [{"agents": ["a", "b"], "until": ["idle"], "timeout": 1}, {"agents": ["a"]}]
    for request in daemon.requests:
        requests.parse(table.BY_NAME[request["method"]], request["params"])


async def test_the_bodys_own_errors_propagate_as_themselves(fake):
    fake({})
    with pytest.raises(ZeroDivisionError):
        async with substrat.Client.connect():
            raise ZeroDivisionError
    group = ExceptionGroup("mine", [ValueError()])
    with pytest.raises(ExceptionGroup) as caught:
        async with substrat.Client.connect():
            raise group
    assert caught.value is group


async def test_a_call_that_is_cancelled_before_it_is_sent_leaves_the_connection_whole(fake):
    daemon = fake({"agent.show": "x"})
    async with substrat.Client.connect() as client:
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.show("never")
        assert scope.cancelled_caught
        assert await client.show("a") == "x"
    assert daemon.calls("agent.show") == [{"agent": "a"}]


async def test_a_lost_connection_is_told_to_all_who_wait_and_to_all_who_come(fake):
    def serve(peer):
        peer.greet()
        for _ in range(3):
            peer.read()

    fake(serve)
    lost = []

    async def ask(client):
        with pytest.raises(errors.ConnectionLost):
            await client.show("a")
        lost.append(1)

    async with substrat.Client.connect() as client:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, client)
        with pytest.raises(errors.ConnectionLost):
            await client.agents()
    assert len(lost) == 3


async def test_what_the_daemon_said_before_it_closed_is_the_error(fake):
    def serve(peer):
        peer.greet()
        peer.read()
        peer.fail(None, errors.MessageTooLarge("too long"))

    fake(serve)
    async with substrat.Client.connect() as client:
        with pytest.raises(errors.MessageTooLarge, match="too long"):
            await client.show("a")


async def test_after_the_context_the_connection_is_lost(fake):
    fake({"agent.show": {}})
    async with substrat.Client.connect() as client:
        await client.show("a")
    with pytest.raises(errors.ConnectionLost):
        await client.show("a")


async def test_something_that_is_no_daemon_is_one_error(fake):
    fake(lambda peer: (peer.write(b"HTTP/1.1 400\r\n"), peer.read(), peer.read()))
    with pytest.raises(errors.SubstratError, match="isn't a substratd"):
        async with substrat.Client.connect():
            pytest.fail("it said nonsense")


async def test_a_huge_answer(fake):
    text = "é" * (2 * framing.MAX_LINE // 6)
    fake({"agent.show": {"result": text}})
    async with substrat.Client.connect() as client:
        shown: Any = await client.show("a")
        assert shown["result"] == text


def test_the_package_gives_the_client_when_asked():
    assert substrat.Client.__name__ == "Client"
    assert not hasattr(substrat, "Server")
    assert json.dumps(substrat.__all__)


async def test_a_wait_ends_in_time_whether_or_not_the_daemon_answers(fake, autojump_clock):
    fake(lambda peer: (peer.greet(), peer.read(), peer.read(), peer.read()))
    async with substrat.Client.connect() as client:
        for wait in (client.wait("anna", timeout=5), client.wait_message("anna", 7, timeout=5)):
            with pytest.raises(errors.WaitTimedOut, match="has not answered within 5 s"):
                await wait


async def test_connecting_ends_in_time_whether_or_not_the_daemon_answers(fake, autojump_clock):
    fake(lambda peer: (peer.read(), peer.read()))
    with pytest.raises(errors.DaemonNotRunning, match="doesn't answer"):
        async with substrat.Client.connect(patience=3):
            pass


async def test_connecting_waits_for_room_in_the_daemons_queue(tmp_path, autojump_clock):
    path = str(tmp_path / "full.sock")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as others:
        listener.bind(path)
        listener.listen(0)
        full = False
        while not full:
            other = others.enter_context(socket.socket(socket.AF_UNIX))
            other.setblocking(False)
            full = other.connect_ex(path) != 0
        with pytest.raises(errors.DaemonNotRunning, match="doesn't answer"):
            async with substrat.Client.connect(path, patience=3):
                pass


async def test_a_wait_goes_on_with_the_daemon_that_comes_back_for_as_long_as_is_left(fake):
    asked: list[Any] = []

    def serve(peer):
        if len(asked) == 1:
            asked.append(None)  # this one closes before it greets, as a dying daemon may
            return
        peer.greet()
        request = peer.read()
        asked.append(request["params"])
        if len(asked) > 2:
            peer.answer(request, {"name": "anna"})
            peer.read()

    fake(serve)
    async with substrat.Client.connect() as client:
        assert await client.wait_message("anna", 7, timeout=100, reconnect=20) == {"name": "anna"}
        with pytest.raises(errors.ConnectionLost):
            await client.show("anna")
    assert asked[0] == {"agent": "anna", "message": 7, "timeout": 100}
    assert asked[2].pop("timeout") < 100
    assert asked[2] == {"agent": "anna", "message": 7}


async def test_a_wait_for_a_daemon_that_stays_away_ends(fake, autojump_clock):
    def vanish(peer):
        peer.greet()
        peer.read()
        os.unlink(daemon.path)

    daemon: Any = fake(vanish)
    async with substrat.Client.connect() as client:
        with pytest.raises(errors.DaemonNotRunning):
            await client.wait("anna", reconnect=20)
