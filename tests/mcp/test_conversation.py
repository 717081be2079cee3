"""Our server beside the official SDK's: the same conversation gets the same answers; the newest revision is the SDK's."""

import json

import trio
from hypothesis import given
from hypothesis import strategies as st

from mcp_server import conversation, host, relay, tools
from tests.mcp.test_host import Wire, official, official_client

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}  # fmt: skip
SERVED = {"initialize", "ping", "tools/list", "tools/call"}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "x"]), inner, max_size=2),
    max_leaves=4,
)
metas = st.fixed_dictionaries({}, optional={"progressToken": st.none() | st.text() | st.integers(), "x": values}) | values
clients = st.fixed_dictionaries({"name": st.text(), "version": st.text()})


def params(**members):
    """Parameters that are nearly right: members are missing, or something else."""
    return st.fixed_dictionaries({}, optional={"_meta": metas, **{name: kind | values for name, kind in members.items()}})


requests = st.one_of(
    st.tuples(st.just("initialize"), st.fixed_dictionaries({
        "protocolVersion": st.sampled_from([*conversation.REVISIONS, "2026-07-28", "1999-01-01", ""]),
        "capabilities": st.just({}), "clientInfo": clients,
    })),
    st.tuples(st.just("initialize"), params(
        protocolVersion=st.just("2025-06-18"), capabilities=st.just({}), clientInfo=clients,
    )),
    st.tuples(st.just("tools/call"), params(
        name=st.text(max_size=9), arguments=st.dictionaries(st.text(max_size=9), values), task=st.just({"ttl": 5}),
    )),
    st.tuples(st.just("tools/list"), params(cursor=st.text())),
    st.tuples(st.just("ping"), params()),
    st.tuples(
        st.sampled_from(["server/discover", "prompts/list", "resources/list", "logging/setLevel", "x", ""]), st.just({}),
    ),
    st.tuples(st.sampled_from(["ping", "tools/list", "tools/call"]), st.just({"_meta": ENVELOPE, "name": "x"})),
)  # fmt: skip
notes = st.tuples(st.sampled_from(["notifications/initialized", "notifications/cancelled", "x"]), params())


async def answers(server, conversation):
    """Have a conversation, message by message; returns the answers and the calls that were made."""
    wire = Wire(lambda name, arguments, _request: (f"{name} é {json.dumps(arguments)}", name == ""), server=server)
    told = []
    async with wire.served():
        for number, (method, params, is_request) in enumerate(conversation):
            message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})}
            if is_request:
                told.append(await wire.ask(number, method, **params))
            else:
                await wire.send(message)
                # The SDK takes notifications up in tasks of their own.
                await trio.testing.wait_all_tasks_blocked()
    return told, wire.calls


@given(st.lists(st.one_of(requests.map(lambda one: (*one, True)), notes.map(lambda one: (*one, False))), max_size=6))
async def test_the_official_server_answers_the_same(conversation):
    conversation = [("ping", {}, True), *conversation]  # it is a handshake's connection from the beginning
    (ours, our_calls), (theirs, their_calls) = (
        await answers(host.serve, conversation),
        await answers(official, conversation),
    )
    asked = [method for method, _, is_request in conversation if is_request]
    for method, our, their in zip(asked, ours, theirs, strict=True):
        if method not in SERVED:
            # The SDK checks the parameters of methods that it knows before it says that this server has no such method.
            assert (our["id"], our["error"]["code"]) == (their["id"], -32601)
            assert their["error"]["code"] in {-32601, -32602}
        elif "error" in their and their["error"]["code"] == relay.INVALID_REQUEST:
            assert our["error"]["code"] == relay.INVALID_REQUEST
        else:
            assert our == their
    assert our_calls == their_calls


async def test_a_client_of_the_newest_revision_is_served_by_the_official_server():
    wire = Wire(server=host.serve)
    async with official_client(wire) as session:
        found = await session.discover()
        assert found.supported_versions == ["2026-07-28"]
        assert [tool.name for tool in (await session.list_tools()).tools] == [tools.name_of(tool) for tool in tools.TOOLS]
        done = await session.call_tool("send_message", {"to": "bob", "text": "hi"})
        assert [block.text for block in done.content] == ["did send_message"]
    assert [call[:2] for call in wire.calls] == [("send_message", {"to": "bob", "text": "hi"})]


async def test_a_batch_that_opens_the_newest_revision_is_answered_as_one_array():
    async with Wire(server=host.serve).served() as wire:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
        await wire.send([7, {"jsonrpc": "2.0", "method": "notifications/initialized"}, listing, {**listing, "id": 2}])
        refused, *listed = await wire.read()
        assert refused["error"]["code"] == relay.INVALID_REQUEST
        assert [len(one["result"]["tools"]) for one in listed] == [len(tools.TOOLS)] * 2
        assert (await wire.ask(3, "initialize", protocolVersion="2025-06-18"))["error"]["code"] == -32022


async def test_the_official_server_is_imported_for_nobody_else(monkeypatch):
    async def refuse():
        raise AssertionError("imported")

    def serve(version, lines, send, call, pace, has_tasks):
        return host.serve(version, lines, send, call, pace, refuse, has_tasks=has_tasks)

    async with Wire(server=serve).served() as wire:
        await wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (await wire.ask(1, "resources/list"))["error"]["code"] == conversation.METHOD_NOT_FOUND
        await wire.shake_hands()
        assert "result" in await wire.ask(2, "tools/list")
        assert (await wire.ask(3, "tools/list", _meta=ENVELOPE))["error"]["code"] == relay.INVALID_REQUEST
