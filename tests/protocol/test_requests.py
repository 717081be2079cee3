"""Requests, answers and errors, whatever the method."""

import json

import trio

from substrat import errors
from substrat.client import Client
from tests.protocol import document
from tests.protocol.rules import rule
from tests.support.waiting import PATIENCE

QUEUE = ("queue.list", "queue.gates", "queue.try")


def request(method="agent.list", **more):
    return {"jsonrpc": "2.0", "id": "r", "method": method, **more}


@rule("P-REQ-1")
def test_what_a_request_has(idle_wire):
    assert idle_wire.exchange(request())["result"] == []
    assert idle_wire.exchange(request(params={}, extra={"anything": [1]}))["result"] == []
    for broken in (
        {"id": "r", "method": "agent.list"},
        request(jsonrpc="1.0"),
        {"jsonrpc": "2.0", "id": "r"},
        request(method=7),
        {"jsonrpc": "2.0", "id": "r", "result": None},
    ):
        assert idle_wire.error(broken) == ("r", "InvalidRequest")


@rule("P-REQ-2", "P-ANS-1")
def test_ids_that_are_ids(idle_wire):
    for number in (0, 1, -7, 2**53, 10**30, "", "text", "é\n"):
        assert idle_wire.exchange(request(id=number)) == {"jsonrpc": "2.0", "id": number, "result": []}


@rule("P-REQ-2", "P-ANS-2")
def test_an_answer_without_a_request_has_no_id(idle_wire):
    for odd in (1.5, None, [1], {"a": 1}, True):
        assert idle_wire.error(request(id=odd)) == (None, "InvalidRequest")
    notification = {"jsonrpc": "2.0", "method": "agent.spawn", "params": {"workspace": "/"}}
    assert idle_wire.error(notification) == (None, "InvalidRequest")
    assert idle_wire.error(b'{"jsonrpc":"2.0","id":5,') == (None, "ParseError")


@rule("P-REQ-3")
def test_an_id_in_flight_is_taken(wire, running):
    running.hold(wire)
    wait = request("agent.wait", params={"agents": ["anna"]})
    wire.send(wait)
    assert wire.error(request()) == ("r", "InvalidRequest")
    running.release()
    (agent,) = wire.receive()["result"]
    assert agent["name"] == "anna"
    assert len(wire.exchange(request())["result"]) == 1, "it is free again"


@rule("P-REQ-4")
def test_the_sixty_fifth_request_is_refused(wire, running):
    running.hold(wire)
    for number in range(64):
        wire.send(request("agent.wait", id=number, params={"agents": ["anna"]}))
    spawn = request("agent.spawn", params={"workspace": str(running.workspace), "name": "bert"})
    assert wire.error(spawn) == ("r", "TooManyRequests")
    with running.wire() as other:
        assert [agent["name"] for agent in other.call("agent.list")] == ["anna"]
    running.release()
    assert sorted(wire.receive()["id"] for _ in range(64)) == list(range(64))
    assert wire.exchange(spawn)["result"]["name"] == "bert"


@rule("P-REQ-5")
def test_a_long_request_holds_up_no_other(wire, running):
    running.hold(wire)
    wire.send(
        request("agent.wait", id="long", params={"agents": ["anna"]}), request("daemon.status", id="short"),
    )  # fmt: skip
    assert wire.receive()["id"] == "short"
    running.release()
    assert wire.receive()["id"] == "long"


@rule("P-REQ-6")
def test_there_is_no_other_method(idle_wire):
    for name in ("agent.fly", "", "__init__", "Hello", "agent.list "):
        assert idle_wire.refused(name) == "MethodNotFound"


@rule("P-REQ-7")
def test_parameters_of_every_method(wire, running):
    running.spawn(wire)
    wrong = {
        "string": 7, "integer": "1", "number": "1", "boolean": 1, "strings": ["a", 7], "states": ["asleep"],
        "integers": ["a"],
    }  # fmt: skip
    fitting = {
        "string": "anna", "integer": 1, "number": 0, "boolean": False, "strings": ["anna"], "states": ["idle"],
        "integers": [1],
    }  # fmt: skip
    choices = {"network": "none", "restore": "hold", "priority": "low", "by": "day"}
    for method in document.methods():
        parameters = document.parameters(method)
        valid = {name: choices.get(name, fitting[kind]) for name, kind, _ in parameters}
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
def test_params_and_their_kinds(idle_wire):
    for absent in (request(params=None), request(params={}), request()):
        assert idle_wire.exchange(absent)["result"] == []
    odd: object
    for odd in ([], "x", 1, {"unheard_of": None}):
        assert idle_wire.error(request(params=odd)) == ("r", "InvalidParams")
    assert idle_wire.call("events.read", agent=None, since=None, limit=None, lines=None)["events"] == []
    assert idle_wire.call("events.read", since=-(2**63 - 1))["events"] == []
    assert idle_wire.refused("events.read", since=2**63 - 1) == "CursorUnknown"
    for odd in (2**63, -(2**63), 1.0, True, 1e3):
        assert idle_wire.refused("events.read", since=odd) == "InvalidParams"
    for method in ("events.read", "events.subscribe"):
        assert idle_wire.refused(method, agent="nobody") == "NotFound"
    for odd in (-1, 1e9 + 1, 10**400):
        assert idle_wire.refused("agent.wait", agents=[], timeout=odd) == "InvalidParams"


@rule("P-ANS-3")
def test_what_was_answered_survives_a_kill(daemon):
    daemon.start()
    with daemon.wire() as wire:
        agent = daemon.spawn(wire)
        daemon.kill()
    daemon.start()
    with daemon.wire() as wire:
        assert wire.call("agent.list") == [agent]


@rule("P-ERR-1")
def test_an_error_has_its_three_members(idle_wire):
    codes = {name: int(code) for rows in document.tables(document.sections()["Errors"]) for code, name, _ in rows[1:]}
    for method, params in (("agent.show", {"agent": "x"}), ("agent.fly", {}), ("agent.show", {})):
        error = idle_wire.answer(idle_wire.ask(method, **params))["error"]
        assert list(error) == ["code", "message", "data"]
        assert error["code"] == codes[error["data"]["type"]]
        assert error["message"]


@rule("P-ERR-2")
def test_what_is_refused_has_changed_nothing(wire, running):
    agent = running.spawn(wire)
    work = str(running.workspace)
    before = wire.pages()
    refusals = {
        "NameTaken": {"workspace": work, "name": "anna", "prompt": "x"},
        "WorkspaceUnusable": {"workspace": work + "/none"},
        "InvalidParams": {"workspace": work, "name": "no name"},
    }
    for name, params in refusals.items():
        assert wire.refused("agent.spawn", **params) == name
    assert wire.refused("agent.spawn", workspace=work, allow=["no name"]) == "InvalidParams"
    assert wire.refused("agent.spawn", workspace=work, network="none", allow=["a.net"]) == "InvalidParams"
    assert wire.refused("agent.interrupt", agent="anna") == "Refused"
    assert wire.refused("agent.send", agent="bert", prompt="x") == "NotFound"
    assert wire.refused("agent.wait", agents=["anna"], until=["ended"], timeout=0) == "WaitTimedOut"
    assert wire.call("agent.list") == [agent]
    assert wire.pages() == before


@rule("P-ERR-3")
def test_an_unknown_code_is_a_failure():
    assert type(errors.from_wire(-31999, "something new")) is errors.SubstratError


@rule("P-STAB-2")
async def test_a_client_ignores_what_it_does_not_know(tmp_path):
    """The Python client, against a daemon of a later version."""
    said: dict[str, dict] = {
        "hello": {
            "id": 0, "result": {"protocol": 1, "server": "later", "new": 1}, "also": "new",
        },
        "agent.list": {"id": 1, "result": [{"id": "x", "new": None}]},
    }  # fmt: skip
    unasked: list[dict] = [
        {"method": "weather", "params": ["sunny"]},
        {"method": "event", "params": {"subscription": 99, "event": {}, "new": 1}},
    ]

    async def later_daemon(stream):
        unread = b""
        async for data in stream:
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                for message in (*unasked, said[json.loads(line)["method"]]):
                    await stream.send_all(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    path = str(tmp_path / "s")
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(path)
    listener.listen()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, later_daemon, [trio.SocketListener(listener)])
            async with Client.connect(path) as client:
                assert await client.agents() == [{"id": "x", "new": None}]
            nursery.cancel_scope.cancel()


def question(wire, running, name):
    """Let an agent ask the operator something; returns the question's number."""
    running.run(wire, f"{name}-asks", '/tool ask_operator {"question": "shall I?"}')
    number = wire.call("inbox.list")[-1]["id"]
    if name == "for-inbox-list":
        wire.call("inbox.dismiss", id=number)
    return number


def test_results_are_those_of_the_document(wire, running, caller):
    """Every method once, each on an agent of its own."""
    given = {
        "workspace": str(running.workspace),
        "prompt": "/say x",
        "protocol": 1,
        "turn": 1,
        "name": "renamed",
        "by": "day",
        "tasks": '[{"title": "a part", "id": "t1"}]',
        "task": "t1",
    }
    given["directory"] = str(running.workspace.parent / "working-copy")
    given.update(plan=json.dumps({"name": "for-run", "members": [{"name": "one", "prompt": "/say x"}]}), file="f.toml")
    in_clones = {"agent.diff", "agent.merge", "agent.setup", "agent.restore", "agent.checkout"}
    seen = set()
    for method, text in sorted(document.methods().items(), key=lambda item: item[0] == "daemon.shutdown"):
        name = "for-" + method.replace(".", "-")
        given.update(agents=[name], agent=name)
        if method == "agent.interrupt":
            running.hold(wire, name)
        elif method in in_clones:
            wire.call("agent.spawn", workspace=running.repository(), name=name, prompt="/say x", clone=True)
            wire.call("agent.wait", agents=[name], timeout=PATIENCE)
        elif method == "agent.spawn":
            given["workspace"] = running.repository()  # where no other agent works in place
        else:
            running.spawn(wire, name, "/say x" if method == "agent.wait_message" else None)
        if method.startswith("inbox."):
            given.update(id=question(wire, running, name), text="yes")
        if method in {"task.retry", "task.skip"}:
            wire.call("task.add", agent=name, tasks=given["tasks"])
        if method == "task.retry":
            wire.call("task.skip", agent=name, task="t1")
        if method == "message.drop":
            wire.call("agent.suspend", agent=name)
            given["id"] = wire.call("agent.send", agent=name, prompt="never mind")["message"]
        if method == "agent.accept":
            running.run(wire, f"{name}-fails", prompt="/exit 3")
            given["agent"] = f"{name}-fails"
        if method == "events.unsubscribe":
            given["subscription"] = wire.call("events.subscribe")["subscription"]
        if method == "notify.test":
            running.reload('[notify]\ncommand = ["true"]\n')
        if method == "agent.exec":
            given["command"], given["descriptors"] = ["true"], caller.path
        number = wire.ask(method, **{key: given[key] for key, _, needed in document.parameters(method) if needed})
        if method == "agent.exec":
            caller.lend()
        result = wire.answer(number)["result"]
        if "Result: an object." in text:
            seen.add("object")
            assert list(result) == list(document.result_members(method))
            check_types(result, document.result_members(method))
        elif "Result: an agent object" in text:
            seen.add("agent")
            if method == "agent.show":
                assert all(isinstance(result.pop(name), float) for name in ("time_limit", "silence_limit"))
            check_agent(result)
        elif "Result: an array of agent objects" in text:
            seen.add("agents")
            assert name in [agent["name"] for agent in result]
            for agent in result:
                check_agent(agent)
        elif "Result: a run object" in text:
            seen.add("run")
            given["run"] = check_run(result)
        elif "Result: an array of run objects" in text:
            seen.add("runs")
            assert [check_run(one) for one in result] == ["for-run"]
        elif "Result: null." in text:
            seen.add("null")
            assert result is None
        elif "Result: an array of objects, one for each" in text:
            seen.add("objects")
            for one in result:
                assert list(one) == list(document.result_members(method))
                check_types(one, document.result_members(method))
        elif method in {"task.list", "task.add", "task.retry", "task.skip"}:
            seen.add("task")
            for one in result if isinstance(result, list) else [result]:
                check_task(one)
        elif method == "session.list":
            seen.add(method)
            given["session"] = result[0]["session"]
        else:
            seen.add(method)
            assert result == []
    kinds = {"object", "agent", "agents", "objects", "null", "run", "runs", "task"}
    assert seen == {*kinds, "inbox.list", "session.list", "wait.list", *QUEUE}


@rule("P-SESS-1")
def test_chats_are_listed_and_read_without_a_trace(wire, running):
    agent = running.run(wire, prompt="/say hello")
    chat = running.chats() / agent["session_id"]
    damaged = running.chats() / "00000000-0000-4000-8000-000000000000"
    damaged.mkdir()
    (damaged / "store.db").write_text("not a database")
    before = {path: path.stat().st_mtime_ns for path in running.chats().rglob("*")}
    params = {"workspace": str(running.workspace)}
    found = {session["session"]: session for session in wire.call("session.list", **params)}
    members = document.result_members("session.list")
    for session in found.values():
        assert list(session) == list(members)
        check_types(session, members)
    assert (found[chat.name]["agent"], found[chat.name]["damage"]) == ("anna", None)
    assert found[damaged.name]["damage"]
    page = wire.call("session.read", **params, session=chat.name)
    assert [message["role"] for message in page["messages"]] == ["user", "assistant"]
    assert all(list(message) == ["role", "text", "calls"] for message in page["messages"])
    assert wire.call("session.read", **params, session=chat.name, after=page["after"])["messages"] == []
    assert wire.refused("session.read", **params, session=damaged.name) == "SessionDamaged"
    assert {path: path.stat().st_mtime_ns for path in running.chats().rglob("*")} == before


@rule("P-INBOX-1")
def test_the_inbox_is_read_in_pages(wire, running):
    """Characters that are six bytes of JSON each fill a page with texts that are cut."""
    text = json.dumps({"to": "operator", "text": "\x01" * 4000})
    for name in ("anna", "bert"):
        running.run(wire, name, prompt=f"/tool send_message {text}\n" * 75)
    whole = wire.call("inbox.list")
    assert len(whole) == 150
    members = document.result_members("inbox.list")
    assert list(whole[0]) == list(members)
    check_types(whole[0], members)
    assert (whole[0]["from"], whole[-1]["from"]) == ("anna", "bert")
    pages, page = [], {"after": 0, "more": True}
    while page["more"]:
        page = wire.call("inbox.list", after=page["after"])
        assert page["after"] == page["items"][-1]["id"]
        assert len(json.dumps(page)) < 1.3 * 1024 * 1024
        pages.append(page["items"])
    assert [len(items) for items in pages] == [96, 54]
    assert [item for items in pages for item in items] == whole
    assert {(item["text"], item["cut"]) for item in whole} == {("\x01" * 1999 + "…", True)}
    shown = wire.call("inbox.show", id=whole[0]["id"])
    assert (shown["id"], shown["text"]) == (whole[0]["id"], "\x01" * 4000)
    wire.call("inbox.dismiss", id=whole[0]["id"])
    assert wire.refused("inbox.show", id=whole[0]["id"]) == "Refused"
    assert wire.refused("inbox.show", id=10**6) == "NotFound"
    assert wire.call("inbox.list", after=-5)["items"][0] == whole[1]
    assert wire.call("inbox.list", after=10**9) == {"items": [], "after": 10**9, "more": False}


TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "null": type(None), "number": float}


def check_types(value, members):
    for name, kinds in members.items():
        assert isinstance(value[name], tuple(TYPES[kind] for kind in kinds.split(" or "))), (name, value[name])
        assert isinstance(value[name], bool) == (kinds == "boolean")


def check_run(run):
    run.pop("seen", None)
    run.setdefault("result", "")
    assert list(run) == document.column("A run", "member")
    check_types(run, {row[0]: row[1] for row in document.table("A run", "member")})
    return run["family"]


def check_task(task):
    assert list(task) == document.column("A task", "member")
    check_types(task, {row[0]: row[1] for row in document.table("A task", "member")})


def check_agent(agent):
    assert list(agent) == document.column("The agent object", "member")
    check_types(agent, {row[0]: row[1] for row in document.table("The agent object", "member")})
    if agent["turn"] is not None:
        check_types(agent["turn"], {row[0]: row[1] for row in document.table("The turn object", "member")})


@rule("P-REQ-5")
def test_requests_that_wait_for_nothing_are_carried_out_in_order(wire, running):
    names = [f"agent-of-order-{number}" for number in range(50)]
    for number, name in enumerate(names):
        params = {"workspace": str(running.workspace), "name": name}
        wire.send(request("agent.spawn", id=number, params=params))
    assert [wire.receive()["id"] for _ in names] == list(range(50))
    assert [agent["name"] for agent in wire.call("agent.list")] == names
