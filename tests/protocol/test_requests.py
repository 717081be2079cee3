"""Requests, answers and errors, whatever the method."""

import json
import socket

import pytest

from substrat import errors
from substrat.client import Client
from tests.protocol import document
from tests.protocol.rules import rule


def request(method="agent.list", **more):
    return {"jsonrpc": "2.0", "id": "r", "method": method, **more}


@rule("P-REQ-1")
def test_what_a_request_has(wire):
    assert wire.exchange(request())["result"] == []
    assert wire.exchange(request(params={}, extra={"anything": [1]}))["result"] == []
    for broken in (
        {"id": "r", "method": "agent.list"},
        request(jsonrpc="1.0"),
        {"jsonrpc": "2.0", "id": "r"},
        request(method=7),
        {"jsonrpc": "2.0", "id": "r", "result": None},
    ):
        assert wire.error(broken) == ("r", "InvalidRequest")


@rule("P-REQ-2", "P-ANS-1")
def test_ids_that_are_ids(wire):
    for number in (0, 1, -7, 2**53, 10**30, "", "text", "é\n"):
        assert wire.exchange(request(id=number)) == {"jsonrpc": "2.0", "id": number, "result": []}


@rule("P-REQ-2")
def test_ids_that_are_none(wire):
    for odd in (1.5, None, [1], {"a": 1}, True):
        assert wire.error(request(id=odd))[1] == "InvalidRequest"
    notification = {"jsonrpc": "2.0", "method": "agent.spawn", "params": {"workspace": "/"}}
    assert wire.error(notification) == (None, "InvalidRequest")


@rule("P-ANS-2")
def test_an_answer_without_a_request_has_no_id(wire):
    for odd in (1.5, None, [1], {"a": 1}):
        assert wire.error(request(id=odd)) == (None, "InvalidRequest")
    assert wire.error(b'{"jsonrpc":"2.0","id":5,') == (None, "ParseError")


@rule("P-REQ-3")
def test_an_id_in_flight_is_taken(wire, daemon):
    daemon.hold(wire)
    wait = request("agent.wait", params={"agents": ["anna"]})
    wire.send(wait)
    assert wire.error(request()) == ("r", "InvalidRequest")
    daemon.release()
    (agent,) = wire.receive()["result"]
    assert agent["name"] == "anna"
    assert len(wire.exchange(request())["result"]) == 1, "it is free again"


@rule("P-REQ-4")
def test_the_sixty_fifth_request_is_refused(wire, daemon):
    daemon.hold(wire)
    for number in range(64):
        wire.send(request("agent.wait", id=number, params={"agents": ["anna"]}))
    spawn = request("agent.spawn", params={"workspace": str(daemon.workspace), "name": "bert"})
    assert wire.error(spawn) == ("r", "TooManyRequests")
    with daemon.wire() as other:
        assert [agent["name"] for agent in other.call("agent.list")] == ["anna"]
    daemon.release()
    assert sorted(wire.receive()["id"] for _ in range(64)) == list(range(64))
    assert wire.exchange(spawn)["result"]["name"] == "bert"


@rule("P-REQ-5")
def test_a_long_request_holds_up_no_other(wire, daemon):
    daemon.hold(wire)
    wire.send(
        request("agent.wait", id="long", params={"agents": ["anna"]}), request("daemon.status", id="short"),
    )  # fmt: skip
    assert wire.receive()["id"] == "short"
    daemon.release()
    assert wire.receive()["id"] == "long"


@rule("P-REQ-6")
def test_there_is_no_other_method(wire):
    for name in ("agent.fly", "", "__init__", "Hello", "agent.list "):
        assert wire.refused(name) == "MethodNotFound"


@rule("P-REQ-7")
def test_parameters_of_every_method(wire, daemon):
    daemon.spawn(wire)
    wrong = {"string": 7, "integer": "1", "number": "1", "boolean": 1, "strings": ["a", 7], "states": ["asleep"]}
    fitting = {"string": "anna", "integer": 1, "number": 0, "boolean": False, "strings": ["anna"], "states": ["idle"]}
    for method in document.methods():
        parameters = document.parameters(method)
        valid = {name: fitting[kind] for name, kind, _ in parameters}
        assert wire.refused(method, **valid, unheard_of=1) == "InvalidParams"
        for name, kind, required in parameters:
            answer = wire.answer(wire.ask(method, **{**valid, name: wrong[kind]}))
            assert answer["error"]["data"]["type"] == "InvalidParams", (method, name)
            assert repr(name) in answer["error"]["message"]
            if required:
                missing = {key: value for key, value in valid.items() if key != name}
                assert wire.refused(method, **missing) == "InvalidParams"
                assert wire.refused(method, **{**valid, name: None}) == "InvalidParams"


@rule("P-REQ-7", "P-STAB-3")
def test_params_and_their_kinds(wire):
    for absent in (request(params=None), request(params={}), request()):
        assert wire.exchange(absent)["result"] == []
    for odd in ([], "x", 1, {"unheard_of": None}):
        assert wire.error(request(params=odd)) == ("r", "InvalidParams")
    assert wire.call("events.read", agent=None, since=None, limit=None, lines=None)["events"] == []
    for size in (2**63 - 1, -(2**63 - 1)):
        assert wire.call("events.read", since=size)["events"] == []
    for odd in (2**63, -(2**63), 1.0, True, 1e3):
        assert wire.refused("events.read", since=odd) == "InvalidParams"
    for odd in (-1, 1e9 + 1, 10**400):
        assert wire.refused("agent.wait", agents=[], timeout=odd) == "InvalidParams"


@rule("P-ANS-3")
def test_what_was_answered_survives_a_kill(house):
    house.start()
    with house.wire() as wire:
        agent = house.spawn(wire)
        house.kill()
    house.start()
    with house.wire() as wire:
        assert wire.call("agent.list") == [agent]


@rule("P-ERR-1")
def test_an_error_has_its_three_members(wire):
    codes = {name: int(code) for rows in document.tables(document.sections()["Errors"]) for code, name, _ in rows[1:]}
    for method, params in (("agent.show", {"agent": "x"}), ("agent.fly", {}), ("agent.show", {})):
        error = wire.answer(wire.ask(method, **params))["error"]
        assert list(error) == ["code", "message", "data"]
        assert error["code"] == codes[error["data"]["type"]]
        assert error["message"]


@rule("P-ERR-2")
def test_what_is_refused_has_changed_nothing(wire, daemon):
    agent = daemon.spawn(wire)
    work = str(daemon.workspace)
    before = wire.pages()
    refusals = {
        "NameTaken": {"workspace": work, "name": "anna", "prompt": "x"},
        "WorkspaceUnusable": {"workspace": work + "/none"},
        "NotAvailable": {"workspace": work, "network": "filtered"},
        "InvalidParams": {"workspace": work, "name": "no name"},
    }
    for name, params in refusals.items():
        assert wire.refused("agent.spawn", **params) == name
    assert wire.refused("agent.spawn", workspace=work, allow=["example.org"]) == "NotAvailable"
    assert wire.refused("agent.interrupt", agent="anna") == "Refused"
    assert wire.refused("agent.send", agent="bert", prompt="x") == "NotFound"
    assert wire.refused("agent.wait", agents=["anna"], until=["ended"], timeout=0) == "WaitTimedOut"
    assert wire.call("agent.list") == [agent]
    assert wire.pages() == before


@rule("P-ERR-3")
def test_an_unknown_code_is_a_failure():
    assert type(errors.from_wire(-31999, "something new")) is errors.SubstratError


@rule("P-STAB-2")
async def test_a_client_ignores_what_it_does_not_know():
    """The Python client, against a daemon of a later version."""
    import trio

    def lines():
        yield {"jsonrpc": "2.0", "id": 1, "result": {"protocol": 1, "server": "later", "new": 1}, "also": "new"}
        yield {"jsonrpc": "2.0", "method": "weather", "params": ["sunny"]}
        yield {"jsonrpc": "2.0", "method": "event", "params": {"subscription": 99, "event": {}, "new": 1}}
        yield {"jsonrpc": "2.0", "id": 2, "result": [{"id": "x", "new": None}]}

    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines()))
        client = Client(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        with trio.fail_after(20):
            async with client._stream, trio.open_nursery() as nursery:
                await_answers = [client._greet, client.agents]
                # Both are asked before the answers are read, because they are there already.
                results = []

                async def ask():
                    for method in await_answers:
                        results.append(await method())
                    nursery.cancel_scope.cancel()

                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(client._read)
    assert results == [None, [{"id": "x", "new": None}]]


@pytest.mark.parametrize("method", sorted(document.methods()))
def test_results_are_those_of_the_document(house, method):
    house.start()
    with house.wire() as wire:
        if method != "inbox.list":
            house.spawn(wire)
        required = {
            "workspace": str(house.workspace),
            "agents": ["anna"],
            "agent": "anna",
            "prompt": "/say x",
            "protocol": 1,
        }
        if method == "events.unsubscribe":
            required["subscription"] = wire.call("events.subscribe")["subscription"]
        if method == "agent.interrupt":
            house.hold(wire, "bert")
            required["agent"] = "bert"
        if method == "agent.wait_message":
            wire.call("agent.send", agent="anna", prompt="/say x")
        params = {name: required[name] for name, _, needed in document.parameters(method) if needed}
        result = wire.call(method, **params)
        text = document.methods()[method]
        if "Result: an object." in text:
            assert list(result) == list(document.result_members(method))
            check_types(result, document.result_members(method))
        elif "Result: an agent object" in text:
            check_agent(result)
        elif "Result: an array of agent objects" in text:
            for agent in result:
                check_agent(agent)
        elif "Result: null." in text:
            assert result is None
        else:
            assert result == []


TYPES = {"string": str, "integer": int, "object": dict, "array": list, "null": type(None)}


def check_types(value, members):
    for name, kinds in members.items():
        assert isinstance(value[name], tuple(TYPES[kind] for kind in kinds.split(" or "))), (name, value[name])
        assert not isinstance(value[name], bool)


def check_agent(agent):
    check_types(agent, dict((row[0], row[1]) for row in document.table("The agent object", "member")))
    if agent["turn"] is not None:
        check_types(agent["turn"], dict((row[0], row[1]) for row in document.table("The turn object", "member")))
