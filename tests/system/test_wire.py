"""The operator socket, line by line."""

import base64
import contextlib
import json
import os
import socket
import time
from pathlib import Path

import pytest

from substrat import errors
from substrat.protocol import vocabulary

PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602


@pytest.fixture
def daemon(shared):
    """All tests here share a daemon, each with agents of its own."""
    return shared


def test_hello_comes_first(daemon):
    with daemon.wire(hello=False) as wire:
        error = wire.refuse("agent.list")
        assert error["code"] == errors.HelloRequired.code
        assert error["data"]["type"] == "HelloRequired"
        assert "hello" in error["message"]
    with daemon.wire(hello=False) as wire:
        answer = wire.call("hello", protocol=1, client="a test")
        assert list(answer) == ["protocol", "server", "pid", "state_dir"]
        assert answer["protocol"] == 1
        assert (answer["pid"], answer["state_dir"]) == (daemon.daemon.pid, str(daemon.state))


def test_versions_that_do_not_meet_are_refused(daemon):
    with daemon.wire(hello=False) as wire:
        assert wire.refuse("hello", protocol=0)["code"] == errors.UnsupportedVersion.code
    with daemon.wire(hello=False) as wire:
        assert wire.refuse("hello")["code"] == PARAMS
    with daemon.wire(hello=False) as wire:
        assert wire.call("hello", protocol=1000)["protocol"] == 1, "a newer client is answered with what is spoken here"


NO_REQUESTS = (
    (b"{bad", PARSE),
    (b"", None),
    (b"\xff\xfe\x00", PARSE),
    (b'"text"', REQUEST),
    (b"[]", REQUEST),
    (b'[{"jsonrpc":"2.0","id":1,"method":"agent.list"}]', REQUEST),
    (b"17", REQUEST),
    (b"null", REQUEST),
    (b"{}", REQUEST),
    (b'{"jsonrpc":"1.0","id":1,"method":"agent.list"}', REQUEST),
    (b'{"jsonrpc":"2.0","id":1}', REQUEST),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', REQUEST),
    (b'{"jsonrpc":"2.0","id":{},"method":"agent.list"}', REQUEST),
    (b'{"jsonrpc":"2.0","id":true,"method":"agent.list"}', REQUEST),
    (b'{"jsonrpc":"2.0","id":1,"method":"agent.list","params":{"x":NaN}}', PARSE),
    (b'{"jsonrpc":"2.0","id":1,"method":"agent.wait","params":{"agents":[],"timeout":Infinity}}', PARSE),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"agent.list"}', PARSE),
    (b'{"jsonrpc":"2.0","id":1,"method":"agent.list","params":{"a":' + b"[" * 100_000, PARSE),
    (b'{"jsonrpc":"2.0","id":1,"method":"agent.list","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"agent.show","params":{"agent":"\\ud800"}}', None),
    (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"agent.list"}', None),
    (b'{"jsonrpc":"2.0","id":1e400,"method":"agent.list"}', None),
)  # fmt: skip


def test_a_line_that_is_no_request_costs_only_itself(daemon):
    with daemon.wire() as wire:
        for line, code in NO_REQUESTS:
            wire.send(line)
            if line:
                answer = wire.receive()
                assert answer["jsonrpc"] == "2.0"
                assert "result" not in answer, line[:100]
                codes = {code} if code is not None else {PARSE, REQUEST, PARAMS, errors.NotFound.code}
                assert answer["error"]["code"] in codes, line[:100]
                assert answer["error"]["message"]
            assert wire.call("agent.list") == []


def test_unknown_methods_and_parameters(daemon):
    with daemon.wire() as wire:
        assert wire.refuse("agent.fly")["code"] == METHOD
        assert wire.refuse("__init__")["code"] == METHOD
        error = wire.refuse("agent.show", agnet="x")
        assert error["code"] == PARAMS
        assert "agnet" in error["message"]
        assert wire.refuse("agent.show")["code"] == PARAMS
        assert wire.refuse("agent.show", agent=7)["code"] == PARAMS
        assert wire.refuse("agent.spawn", workspace="/x", network="moon")["code"] in {PARAMS, errors.NotAvailable.code}
        assert wire.refuse("agent.wait", agents=["x"], until=["asleep"])["code"] == PARAMS
        assert wire.refuse("agent.wait", agents=[7])["code"] == PARAMS
        assert wire.refuse("agent.wait", agents=[], timeout="soon")["code"] == PARAMS
        assert wire.refuse("agent.show", agent="nobody")["code"] == errors.NotFound.code
        wire.send({"jsonrpc": "2.0", "id": "list", "method": "agent.list", "params": []})
        answer = wire.receive()
        assert (answer["id"], answer.get("error", {}).get("code", PARAMS)) == ("list", PARAMS)


def test_odd_numbers_are_refused_or_bounded(daemon):
    daemon.spawn("anna", daemon.workspace(), "x")
    with daemon.wire() as wire:
        odd = ({"since": 10**30}, {"since": -(10**30)}, {"limit": 0}, {"limit": -1}, {"limit": 10**30}, {"since": 1.5})
        for params in (*odd, {"since": True}):
            answer = wire.answer(wire.ask("events.read", **params))
            if "error" in answer:
                assert answer["error"]["code"] == PARAMS, (params, answer)
        for timeout in (-1, 1e308, 10**400):
            answer = wire.answer(wire.ask("agent.wait", agents=["anna"], timeout=timeout))
            assert "result" in answer or answer["error"]["code"] in {PARAMS, PARSE, errors.WaitTimedOut.code}, (
                timeout,
                answer,
            )


def test_an_answer_carries_the_requests_id(daemon):
    with daemon.wire() as wire:
        for number in (0, -7, "text", 2**53, "é"):
            wire.send({"jsonrpc": "2.0", "id": number, "method": "agent.list"})
            assert wire.receive() == {"jsonrpc": "2.0", "id": number, "result": []}


def test_a_line_that_is_too_large_is_refused_and_the_daemon_goes_on(daemon):
    with daemon.wire() as other, daemon.wire() as wire:
        error = None
        try:
            wire.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"agent.list","params":{"x":"')
            for _ in range(256):
                wire.socket.sendall(b"x" * (1 << 20))
        except ConnectionError:
            pass
        while (message := wire.receive()) is not None:
            error = message["error"]
        assert error is None or error["code"] == errors.MessageTooLarge.code
        assert error is not None, "it is told why"
        assert other.call("agent.list") == []


def test_many_requests_are_in_flight_at_once(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    with daemon.wire() as wire:
        waiting = wire.ask("agent.wait", agents=["anna"])
        for _ in range(20):
            assert [agent["name"] for agent in wire.call("agent.list")] == ["anna"]
        assert wire.refuse("agent.wait", agents=["anna"], timeout=0.05)["code"] == errors.WaitTimedOut.code
        (work / "go").touch()
        (agent,) = wire.answer(waiting)["result"]
        assert agent["state"] == "idle"


def test_requests_that_pile_up_are_answered_or_refused(daemon):
    daemon.held("anna", daemon.workspace())
    with daemon.wire() as wire:
        wire.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for number in range(5000):
                params = {"agents": ["anna"], "timeout": 30}
                wire.send({"jsonrpc": "2.0", "id": number, "method": "agent.wait", "params": params})
        with daemon.wire() as other:
            assert len(other.call("agent.list")) == 1
    assert daemon.show("anna")["state"] == "running"


def test_an_answer_waits_for_the_message_it_asked_about(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    with daemon.wire() as wire:
        first = wire.call("agent.send", agent="anna", prompt="one")
        assert list(first) == ["agent", "message"]
        second = wire.call("agent.send", agent="anna", prompt="two")
        waiting = wire.ask("agent.wait_message", agent="anna", message=second["message"])
        (work / "go").touch()
        assert wire.answer(waiting)["result"]["turn"]["result"] == "two"
        assert wire.call("agent.wait_message", agent="anna", message=first["message"])["turn"]["result"] == "one"
        assert wire.refuse("agent.wait_message", agent="anna", message=10_000)["code"] == errors.NotFound.code


def test_objects_on_the_wire_are_those_of_the_command_line(daemon):
    daemon.spawn("anna", daemon.workspace(), "x")
    with daemon.wire() as wire:
        (agent,) = wire.call("agent.list")
        assert tuple(agent) == vocabulary.AGENT_FIELDS
        assert tuple(agent["turn"]) == vocabulary.TURN_FIELDS
        whole = wire.call("agent.show", agent="anna")
        assert whole == daemon.show("anna")
        shown = {name: whole[name] for name in vocabulary.AGENT_FIELDS}
        assert agent == {**shown, "turn": {**whole["turn"], "result": None, "usage": None}}
        page = wire.call("events.read", since=0)
        assert page["events"] == daemon.ctl("events", "--json", "--since", "0").lines
        assert page["cursor"] == page["events"][-1]["cursor"]
        assert wire.call("events.read", since=page["cursor"])["events"] == []
        status = wire.call("daemon.status")
        assert (status["pid"], status["agents"], status["running"]) == (daemon.daemon.pid, 1, 0)


def test_pages_join_without_gap_or_overlap(daemon):
    daemon.spawn("anna", daemon.workspace(), "/emit 100 10")
    everything = daemon.ctl("events", "--json", "--since", "0").lines
    assert len(everything) > 100
    with daemon.wire() as wire:
        joined, cursor = [], 0
        while page := wire.call("events.read", since=cursor, limit=7)["events"]:
            assert len(page) <= 7
            joined += page
            cursor = page[-1]["cursor"]
        assert joined == everything
        assert wire.call("events.read", since=-5)["events"] == everything[-5:]


def test_a_subscription_replays_from_its_cursor_and_goes_on(daemon):
    work = daemon.workspace()
    daemon.spawn("anna", work, "one")
    stored = daemon.ctl("events", "--json", "--since", "0").lines
    with daemon.wire() as wire:
        answer = wire.call("events.subscribe", since=stored[2]["cursor"])
        assert isinstance(answer["subscription"], int)
        for expected in stored[3:]:
            assert wire.event() == expected
        daemon.ok("send", "anna", "two")
        new = [wire.event()]
        while new[-1]["kind"] != "turn:ended":
            new.append(wire.event())
        daemon.wait("anna")
        assert new == daemon.ctl("events", "--json", "--since", str(stored[-1]["cursor"])).lines
        wire.call("events.unsubscribe", subscription=answer["subscription"])
        daemon.ctl("send", "anna", "--wait", "three")
        wire.call("agent.list")
        assert wire.notifications == []
        assert wire.refuse("events.unsubscribe", subscription=12345)["message"]


def test_a_subscription_without_a_cursor_starts_now(daemon):
    work = daemon.workspace()
    daemon.spawn("anna", work, "one")
    with daemon.wire() as wire:
        cursor = wire.call("events.subscribe", agent="anna", lines=True)["cursor"]
        daemon.spawn("bert", work, "not for us")
        daemon.ok("send", "anna", "two")
        events = [wire.event()]
        while events[-1]["kind"] != "turn:ended":
            events.append(wire.event())
    assert {event["agent"] for event in events} == {daemon.show("anna")["id"]}
    assert all(event["cursor"] > cursor for event in events)
    lines = [base64.b64decode(event["line"]).rstrip(b"\n") for event in events if event.get("line")]
    raw = daemon.ctl("logs", "anna", "--raw", "--since", str(cursor)).raw
    assert lines == raw.rstrip(b"\n").split(b"\n")


def test_two_subscriptions_on_one_connection(daemon):
    work = daemon.workspace()
    with daemon.wire() as wire:
        first = wire.call("events.subscribe", since=0)["subscription"]
        second = wire.call("events.subscribe", since=0)["subscription"]
        daemon.spawn("anna", work, "x")
        seen: dict[int, list[dict]] = {first: [], second: []}
        while not all(events and events[-1]["kind"] == "turn:ended" for events in seen.values()):
            message = wire.notifications.pop(0) if wire.notifications else wire.receive()
            seen[message["params"]["subscription"]].append(message["params"]["event"])
        assert seen[first] == seen[second]


@pytest.mark.slow
def test_a_client_that_stops_reading_costs_only_itself(house):
    daemon = house.start(executed=True)  # its memory is its own
    work = daemon.workspace()
    with daemon.wire() as lazy, daemon.wire() as keen:
        lazy.call("events.subscribe", since=0)
        keen.call("events.subscribe", since=0)
        before = memory(daemon)
        done = daemon.ctl("spawn", "anna", "-w", work, "--wait", "/emit 1500 2000")
        assert done.code == 0
        kinds = []
        while "turn:ended" not in kinds:
            kinds.append(keen.event()["kind"])
        assert kinds.count("assistant:delta") >= 1500
        assert len(keen.call("agent.list")) == 1
        assert memory(daemon) < before + 100_000, "what it doesn't read isn't kept in memory"
        # It may be cut off, or be given everything later; in neither case does it get a part with a hole.
        cursors = []
        while (message := lazy.receive()) is not None:
            cursors.append(message["params"]["event"]["cursor"])
            if message["params"]["event"]["kind"] == "turn:ended":
                break
        assert cursors == list(range(cursors[0], cursors[0] + len(cursors))) or cursors == sorted(set(cursors))


def memory(house):
    """The daemon's resident memory in KiB."""
    status = Path(f"/proc/{house.daemon.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_a_client_that_never_reads_its_answers(daemon):
    with daemon.wire() as lazy:
        lazy.socket.settimeout(0.2)
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "daemon.status"}).encode() + b"\n"
        try:
            for _ in range(200):
                lazy.socket.sendall(request * 200)
        except (TimeoutError, ConnectionError):
            pass
        assert daemon.ctl("ls").code == 0
    assert daemon.ctl("ls").code == 0


def test_half_open_and_slow_connections_hinder_nobody(daemon):
    idle = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    try:
        for number, one in enumerate(idle):
            one.settimeout(5)
            one.connect(str(daemon.socket))
            if number % 2:
                one.sendall(b'{"jsonrpc":"2.0","id":1,"met')
        assert daemon.ctl("ls").code == 0
    finally:
        for one in idle:
            one.close()
    with daemon.wire(hello=False) as slow:
        for byte in b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1}}\n':
            slow.socket.sendall(bytes([byte]))
        assert slow.receive()["result"]["protocol"] == 1


def test_a_client_that_leaves_in_the_middle_of_a_wait(daemon):
    work = daemon.workspace()
    daemon.held("anna", work)
    for _ in range(20):
        with daemon.wire() as wire:
            wire.ask("agent.wait", agents=["anna"])
            wire.ask("events.subscribe", since=0)
    (work / "go").touch()
    assert daemon.wait("anna")["state"] == "idle"
    assert "Traceback" not in daemon.log


def test_requests_that_were_sent_before_the_end_of_input_are_answered(daemon):
    with daemon.wire() as wire:
        wire.ask("agent.list")
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.receive()["result"] == []
        assert wire.receive() is None


def test_a_stranger_is_turned_away(daemon):
    if os.geteuid() != 0:
        pytest.skip("needs another user to try it as")
    os.chmod(daemon.runtime, 0o755)
    os.chmod(daemon.socket, 0o666)
    child = os.fork()
    if child == 0:
        status = 9
        try:
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(5)
                one.connect(str(daemon.socket))
                one.sendall(b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1}}\n')
                status = 1 if b'"result"' in one.recv(4096) else 0
        except ConnectionError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_shutdown_answers_before_the_end(daemon):
    with daemon.wire() as wire:
        wire.call("daemon.shutdown")
        assert daemon.daemon.wait(20) == 0
    assert "Traceback" not in daemon.log


def test_a_log_of_secrets_is_not_kept(house):
    """Prompts and the environment stay out of the daemon's log."""
    house.start(environment={"CURSOR_API_KEY": "canary-key"})
    house.spawn("anna", house.workspace(), "/say canary-prompt")
    house.stop()
    assert "canary-key" not in house.log
    assert "canary-prompt" not in house.log


def test_an_event_reaches_a_subscriber_while_the_turn_runs(daemon):
    work = daemon.workspace()
    with daemon.wire() as wire:
        wire.call("events.subscribe", since=0)
        daemon.held("anna", work, before="/say early words\n")
        deadline = time.monotonic() + 10
        texts: list[str] = []
        while "early words" not in "".join(texts):
            assert time.monotonic() < deadline
            texts.append(wire.event()["text"] or "")
    assert daemon.show("anna")["state"] == "running"
