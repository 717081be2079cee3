"""The daemon's side of MCP, spoken to by the official client and by hand; all of it is tried with both servers.

The official SDK serves clients that speak the newest revision, and here those of the others too: what it answers them is
what ours must answer.
"""

import contextlib
import json
from functools import partial

import anyio
import mcp_types as types
import pytest
import trio
from hypothesis import given
from mcp.client.session import ClientSession
from mcp.shared.message import SessionMessage

from mcp_server import conversation, host, newer, relay, tools
from tests.mcp.test_relay_lines import answers_wanted, lines

PATIENCE = 20


async def official(version, lines, send, call, pace, *, has_tasks):
    """Serve a connection as `host.serve` does, by the SDK from its first message on."""
    await newer.serve(version, [], relay.Reply([], is_batch=False), lines, send, call, pace, has_tasks)


@pytest.fixture(autouse=True, scope="module", params=[host.serve, official], ids=["ours", "official"])
def server(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "server", staticmethod(request.param))
        yield request.param


class Wire:
    """A connection to a server: lines in, lines out, and the calls that were made."""

    server = staticmethod(host.serve)

    def __init__(self, perform=None, pace=trio.lowlevel.checkpoint, server=None):
        self._serve = server or self.server
        self._pace = pace
        self._to_host, self._lines = trio.open_memory_channel[bytes](1000)
        self._from_host, self.answers = trio.open_memory_channel[bytes](1000)
        self.calls = []
        self._perform = perform or (lambda name, _arguments, _request: (f"did {name}", False))

    async def _call(self, name, arguments, request):
        self.calls.append((name, arguments, request))
        return self._perform(name, arguments, request)

    async def send(self, message):
        await self._to_host.send(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def read(self):
        with trio.fail_after(PATIENCE):
            line = await self.answers.receive()
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        return json.loads(line)

    async def ask(self, number, method, **params):
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return await self.read()

    async def shake_hands(self, version="2025-06-18"):
        info = {"name": "test", "version": "1"}
        told = await self.ask(0, "initialize", protocolVersion=version, capabilities={}, clientInfo=info)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return told["result"]

    async def _lines_in(self):
        async for line in self._lines:
            yield line

    async def _send_out(self, data):
        await self._from_host.send(data)

    @contextlib.asynccontextmanager
    async def served(self):
        async with trio.open_nursery() as nursery:
            serve = partial(self._serve, has_tasks=lambda: True)
            nursery.start_soon(serve, "1.2.3", self._lines_in(), self._send_out, self._call, self._pace)
            yield self
            self._to_host.close()  # the end of the lines ends the service


@contextlib.asynccontextmanager
async def official_client(wire):
    to_client, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    write_stream, from_client = anyio.create_memory_object_stream[SessionMessage](100)

    async def inwards():
        async for line in wire.answers:
            await to_client.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def outwards():
        async for message in from_client:
            await wire.send(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async with wire.served(), trio.open_nursery() as nursery:
        nursery.start_soon(inwards)
        nursery.start_soon(outwards)
        async with ClientSession(read_stream, write_stream) as session:
            with trio.fail_after(PATIENCE):
                yield session
        nursery.cancel_scope.cancel()
    for stream in (to_client, read_stream, write_stream, from_client):
        stream.close()


async def test_the_official_client_sees_our_tools():
    async with official_client(Wire()) as session:
        told = await session.initialize()
        assert told.server_info.name == "substrat"
        assert told.server_info.version == "1.2.3"
        assert told.instructions
        found = (await session.list_tools()).tools
        assert [tool.name for tool in found] == [tools.name_of(tool) for tool in tools.TOOLS]
        for tool, defined in zip(found, tools.TOOLS, strict=True):
            assert tool.input_schema == tools.schema_of(defined)
            assert tool.description == tools.description_of(defined)


async def test_the_official_client_calls_a_tool():
    wire = Wire()
    async with official_client(wire) as session:
        await session.initialize()
        done = await session.call_tool("send_message", {"to": "bob", "text": "hi"})
        assert [block.text for block in done.content] == ["did send_message"]
        assert not done.is_error
    ((name, arguments, request),) = wire.calls
    assert (name, arguments) == ("send_message", {"to": "bob", "text": "hi"})
    assert isinstance(request, str)


async def test_a_tool_that_fails_is_a_result_and_not_a_protocol_error():
    async with official_client(Wire(lambda *_: ("there is no agent 'eve'", True))) as session:
        await session.initialize()
        done = await session.call_tool("send_message", {"to": "eve", "text": "hi"})
        assert done.is_error
        assert done.content[0].text == "there is no agent 'eve'"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2031-01-01"])
async def test_clients_of_all_ages_are_answered(version):
    async with Wire().served() as wire:
        told = await wire.shake_hands(version)
        assert told["protocolVersion"]
        assert told["capabilities"]["tools"] is not None
        assert len((await wire.ask(1, "tools/list"))["result"]["tools"]) == len(tools.TOOLS)


@pytest.mark.parametrize("number", [1, 7, "seven", "", "x" * 300])
async def test_the_request_id_is_handed_on_and_comes_back(number):
    async with Wire().served() as wire:
        await wire.shake_hands()
        told = await wire.ask(number, "tools/call", name="whoami", arguments={})
        assert told["id"] == number
        await wire.ask(2, "tools/call", name="shell")
        assert wire.calls == [("whoami", {}, str(number)), ("shell", None, "2")], "unknown tools are the caller's business"


@pytest.mark.parametrize(("method", "params"), [("no/such", {}), ("tools/call", {}), ("tools/call", {"name": 7})])
async def test_a_bad_request_is_answered_with_an_error(method, params):
    async with Wire().served() as wire:
        await wire.shake_hands()
        told = await wire.ask(3, method, **params)
        assert told["id"] == 3
        assert isinstance(told["error"]["code"], int)
        assert wire.calls == []


@pytest.mark.parametrize(("line", "code", "number"), [
    (b"{nonsense", -32700, None), (b"[" * 100_000, -32700, None), (b"\xff\xfe", -32700, None),
    (b"null", -32600, None), (b"[]", -32600, None),
    (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}', -32602, 3),
    (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":1}', -32600, 3),
    (b'{"jsonrpc":"1.0","id":3,"method":"ping"}', -32600, 3), (b'{"jsonrpc":"2.0","id":3,"method":7}', -32600, 3),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":3,"method":"notifications/initialized"}', -32601, 3),
    (b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"x\\ud800"}}', -32602, 3),
])  # fmt: skip
async def test_what_is_wrong_is_answered_with_its_code(line, code, number):
    async with Wire().served() as wire:
        await wire.shake_hands()
        await wire.send(line)
        told = await wire.read()
        assert (told["error"]["code"], told["id"]) == (code, number)
        assert (await wire.ask(9, "ping"))["result"] == {}, "the conversation goes on"


@pytest.mark.parametrize("number", [1.5, -3, 2**70, "\ud800", "é"])
async def test_an_id_of_an_odd_kind_comes_back(number):
    async with Wire().served() as wire:
        await wire.shake_hands()
        assert (await wire.ask(number, "ping")) == {"jsonrpc": "2.0", "id": number, "result": {}}


async def test_requests_before_the_handshake_are_answered():
    async with Wire().served() as wire:
        for method in ("tools/list", "tools/call", "ping", "no/such"):
            told = await wire.ask(1, method)
            assert told["id"] == 1
            assert ("result" in told) == (method == "ping")
        assert (await wire.shake_hands())["protocolVersion"]
        assert "result" in await wire.ask(1, "tools/list")


async def test_a_batch_is_answered_as_one_array_in_its_order():
    waited = []

    async def pace():
        waited.append(1)

    async with Wire(pace=pace).served() as wire:
        await wire.shake_hands("2025-03-26")
        whoami = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "whoami"}}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await wire.send([whoami, note, {**whoami, "id": "two"}, 7, {"jsonrpc": "2.0", "id": 1, "method": "no/such"}])
        told = await wire.read()
        assert [one["id"] for one in told] == [1, "two", None, 1]
        assert ["result" in one for one in told] == [True, True, False, False]
        assert len(waited) == 4
        await wire.send([note, note])
        await wire.send([whoami] * (conversation.MAX_BATCH + 1))
        assert f"{conversation.MAX_BATCH} messages" in (await wire.read())["error"]["message"]
    assert len(wire.calls) == 2


@given(lines)
async def test_each_request_of_any_line_is_answered_exactly_once_with_its_id(line):
    text = json.dumps(line)
    async with Wire().served() as wire:
        await wire.shake_hands()
        await wire.send(text.encode())
        await wire.send({"jsonrpc": "2.0", "id": "the end", "method": "ping"})
        found = [await wire.read()]
        expected = answers_wanted(json.loads(text))
        if expected:
            found.append(await wire.read())
        found.remove({"jsonrpc": "2.0", "id": "the end", "result": {}})
        told = found[0] if found and isinstance(found[0], list) else found
        assert [repr(one["id"]) for one in told] == [repr(number) for number in expected]
        assert wire.answers.statistics().current_buffer_used == 0


async def test_more_requests_than_are_worked_on_at_once_are_all_answered():
    async with Wire().served() as wire:
        await wire.shake_hands()
        many = 5 * newer.MAX_IN_FLIGHT
        for number in range(1, many + 1):
            await wire.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "whoami"}})
        assert {(await wire.read())["id"] for _ in range(many)} == set(range(1, many + 1))


async def test_cancelled_requests_do_not_use_up_the_room():
    async with Wire().served() as wire:
        await wire.shake_hands()
        for number in range(1, 3 * newer.MAX_IN_FLIGHT):
            await wire.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "whoami"}})
            cancelled = {"requestId": number, "reason": "enough"}
            await wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        await wire.send({"jsonrpc": "2.0", "id": "last", "method": "ping"})
        while (await wire.read())["id"] != "last":
            pass


async def test_the_end_of_the_lines_ends_the_service():
    with trio.fail_after(PATIENCE):
        async with Wire().served():
            pass
        async with Wire().served() as wire:
            await wire.shake_hands()


async def test_a_client_that_stops_reading_stops_its_own_service_only(server):
    to_host, lines = trio.open_memory_channel[bytes](100)

    async def served_lines():
        async for line in lines:
            yield line

    async def nobody_reads(_data):
        raise trio.BrokenResourceError

    info = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    await to_host.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode())
    broken = pytest.RaisesGroup(trio.BrokenResourceError, flatten_subgroups=True, allow_unwrapped=True)
    with trio.fail_after(PATIENCE), broken:
        await server("1", served_lines(), nobody_reads, lambda *_: ("", False), trio.lowlevel.checkpoint, has_tasks=bool)
