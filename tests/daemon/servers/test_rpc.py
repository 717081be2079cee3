"""One connection whose own tasks break: its client is told and waits no more."""

import json

import pytest
import trio

from substrat.daemon.servers import rpc
from substrat.daemon.servers.methods.table import BY_NAME
from substrat.errors import StorageFailed


class Subscribing:
    """Methods of which each subscribes to something that fails."""

    def __init__(self, problem):
        self.problem = problem

    def find(self, method):
        return BY_NAME.get(method)

    async def perform(self, request, connection):
        if request.method == "hello":
            connection.greet("test")
            return {}

        async def fail(_number):
            raise self.problem

        return {"subscription": connection.subscribe(fail), "cursor": 0}


async def serve(stream, methods):
    async with stream:
        await rpc.ClientConnection(stream, methods).serve()


@pytest.mark.parametrize(
    ("problem", "words"), [(ValueError("odd"), "an internal error, "), (StorageFailed("unreadable"), "unreadable")]
)
async def test_a_subscription_that_breaks_is_told_and_ends_its_connection(problem, words):
    ours, theirs = trio.socket.socketpair()
    client, received = trio.SocketStream(ours), b""
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, client:
            nursery.start_soon(serve, trio.SocketStream(theirs), Subscribing(problem))
            for number, (method, params) in enumerate(
                [("hello", {"protocol": 1, "client": "test"}), ("events.subscribe", {})]
            ):
                line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                await client.send_all(line.encode() + b"\n")
            while data := await client.receive_some():
                received += data
    told = [json.loads(line) for line in received.splitlines()]
    assert told[0] == {"jsonrpc": "2.0", "id": 0, "result": {}}
    (error,) = [message for message in told if "error" in message]
    assert error["id"] is None
    assert words in error["error"]["message"]
