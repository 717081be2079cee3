"""Where the socket is, who may come in, how lines are framed, the greeting."""

import contextlib
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from substrat import paths
from substrat.protocol import framing
from tests.protocol.rules import rule
from tests.protocol.test_framing import NO_OBJECTS, NOT_JSON
from tests.support.waiting import is_readable

HELLO = {"jsonrpc": "2.0", "id": "h", "method": "hello", "params": {"protocol": 1}}
STATUS = {"jsonrpc": "2.0", "id": "s", "method": "daemon.status"}


@rule("P-SOCK-1")
def test_the_socket_is_where_the_environment_says(idle, tmp_path):
    assert stat.S_ISSOCK(idle.socket.stat().st_mode)
    first = {"SUBSTRAT_SOCKET": "/a/b.sock", "SUBSTRAT_RUNTIME_DIR": "/c", "XDG_RUNTIME_DIR": "/d"}
    assert paths.operator_socket(first) == "/a/b.sock"
    assert paths.operator_socket({**first, "SUBSTRAT_SOCKET": ""}) == "/c/daemon.sock"
    assert paths.operator_socket({"SUBSTRAT_SOCKET": "x.sock"}) == str(Path.cwd() / "x.sock")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    private.chmod(0o700)
    assert ask_path(XDG_RUNTIME_DIR=str(private)) in {
        f"{private}/substrat/daemon.sock", *fallbacks(),
    }, "a directory whose parents anybody can replace doesn't count"  # fmt: skip
    assert ask_path() in fallbacks()


def ask_path(**environment):
    """What a client of its own environment takes for the socket."""
    code = "from substrat import paths; print(paths.operator_socket())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def fallbacks():
    uid = os.geteuid()
    return {f"/run/user/{uid}/substrat/daemon.sock", f"/tmp/runtime-{uid}/substrat/daemon.sock"}


@rule("P-SOCK-2")
def test_only_the_user_may_touch_it(idle):
    assert stat.S_IMODE(idle.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(idle.runtime.stat().st_mode) == 0o700


STRANGER = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as one:
    one.settimeout(20)
    one.connect(sys.argv[1])
    try:
        one.sendall(sys.argv[2].encode())
        said = one.recv(4096)
    except ConnectionError:
        said = b""
print(said.decode())
"""


@rule("P-SOCK-3")
def test_a_stranger_is_told_nothing(running):
    if os.geteuid() != 0:
        pytest.skip("needs another user to try it as")
    for path, mode in ((running.root, 0o755), (running.runtime, 0o755), (running.socket, 0o666)):
        os.chmod(path, mode)
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, running.socket, json.dumps(HELLO) + "\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
    with running.wire() as wire:
        assert wire.call("agent.list") == []


@rule("P-SOCK-4")
def test_one_connection_too_many_waits(running):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 700:
        pytest.skip("needs 700 descriptors")
    connections = [running.wire(hello=False) for _ in range(512)]
    try:
        for connection in connections:
            assert connection.exchange(HELLO)["id"] == "h"
        with running.wire(hello=False) as late:
            late.send(HELLO)
            assert connections[-1].exchange(STATUS)["id"] == "s", "the daemon has had its turn"
            assert not is_readable(late.socket)
            connections.pop(0).socket.close()
            assert late.receive()["id"] == "h"
    finally:
        for connection in connections:
            connection.socket.close()


def is_closed(connection):
    with contextlib.suppress(ConnectionResetError):  # what was sent last wasn't read
        return connection.socket.recv(1) == b""
    return True


@rule("P-SOCK-5")
def test_connections_that_do_not_greet_keep_nobody_out(running):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 700:
        pytest.skip("needs 700 descriptors")
    connections = []
    try:
        for _ in range(530):
            connections.append(running.wire(hello=False))
            connections[-1].socket.sendall(b'{"jsonrpc": "2.0", "id": 1, "meth')
        with running.wire() as wire:
            assert wire.call("agent.list") == []
            assert is_closed(connections[0]), "the oldest has made room"
    finally:
        for connection in connections:
            connection.socket.close()


@rule("P-FRAME-1", "P-FRAME-2")
def test_a_line_is_a_message_however_it_is_sent(idle):
    with idle.wire(hello=False) as wire:
        for byte in json.dumps(HELLO, ensure_ascii=False).encode() + b"\n":
            wire.socket.sendall(bytes([byte]))
        assert wire.receive()["id"] == "h"
        wire.send(b"", b"   \t", b"\r", STATUS)
        assert wire.receive()["id"] == "s"
        wire.send({**STATUS, "id": "é\n"})
        line = wire.receive_line()
        assert json.loads(line)["id"] == "é\n"


@rule("P-FRAME-3")
def test_the_longest_line_is_taken_and_a_longer_one_ends_the_connection(idle_wire, idle):
    def padded(size):
        line = json.dumps({**STATUS, "pad": ""}).encode()
        return line[:-2] + b"x" * (size - len(line)) + b'"}'

    assert len(padded(1000)) == 1000
    assert idle_wire.exchange(padded(framing.MAX_LINE))["id"] == "s"
    with idle.wire() as other:
        # The idle may have said why and closed before all of it was sent.
        with contextlib.suppress(ConnectionError):
            other.send(padded(framing.MAX_LINE + 1))
        answer = other.receive()
        assert (answer["id"], answer["error"]["data"]["type"]) == (None, "MessageTooLarge")
        assert other.receive() is None
    assert idle_wire.exchange(STATUS)["id"] == "s"


@rule("P-FRAME-4")
def test_what_is_no_json(idle_wire):
    for line in filter(None, NOT_JSON):
        assert idle_wire.error(line) == (None, "ParseError"), line[:100]
        assert idle_wire.exchange(STATUS)["id"] == "s"


def test_numbers_and_depths_that_no_client_sends_cost_their_line_only(idle_wire):
    for line in (
        b'{"jsonrpc":"2.0","id":1,"method":"agent.list","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"agent.list"}',
        b'{"jsonrpc":"2.0","id":1e400,"method":"agent.list"}',
    ):
        assert idle_wire.error(line)[1] in {"ParseError", "InvalidRequest", "InvalidParams"}
        assert idle_wire.exchange(STATUS)["id"] == "s"


@rule("P-FRAME-5", "P-ANS-2")
def test_what_is_no_object(idle_wire):
    for line in NO_OBJECTS:
        assert idle_wire.error(line) == (None, "InvalidRequest"), line
        assert idle_wire.exchange(STATUS)["id"] == "s"


@rule("P-FRAME-7")
def test_a_client_that_has_said_all_gets_its_answers(idle):
    with idle.wire(hello=False) as wire:
        wire.send(HELLO, {**STATUS, "id": 1, "method": "events.subscribe"}, STATUS)
        wire.socket.sendall(b'{"jsonrpc":"2.0","id":"half"')
        wire.socket.shutdown(1)
        assert {wire.receive()["id"] for _ in range(3)} == {"h", 1, "s"}
        assert wire.receive() is None


@rule("P-HELLO-1")
def test_hello_comes_first(idle):
    with idle.wire(hello=False) as wire:
        assert wire.error(STATUS) == ("s", "HelloRequired")
        assert wire.error({**HELLO, "params": {}}) == ("h", "InvalidParams")
        assert wire.error(STATUS) == ("s", "HelloRequired")
        assert wire.exchange(HELLO)["result"]["protocol"] == 1
        assert wire.exchange(STATUS)["result"]["pid"] == idle.process.pid
        assert wire.exchange(HELLO)["result"]["protocol"] == 1, "it may be repeated"


@rule("P-HELLO-2")
@pytest.mark.parametrize("newest", [1, 2, 1000])
def test_the_answer_is_the_version_that_is_spoken(idle, newest):
    with idle.wire(hello=False) as wire:
        result = wire.exchange({**HELLO, "params": {"protocol": newest, "client": "a test"}})["result"]
        assert result["protocol"] == framing.PROTOCOL_VERSION <= newest


@rule("P-HELLO-3")
def test_versions_that_do_not_meet(idle):
    with idle.wire(hello=False) as wire:
        assert wire.error({**HELLO, "params": {"protocol": 0}}) == ("h", "UnsupportedVersion")
        assert wire.error(STATUS) == ("s", "HelloRequired")
        assert wire.exchange(HELLO)["result"]["protocol"] == 1


@rule("P-HELLO-4")
def test_requests_in_the_packet_of_the_greeting(idle):
    with idle.wire(hello=False) as wire:
        wire.send(HELLO, STATUS, {**STATUS, "id": 2})
        answers = [wire.receive() for _ in range(3)]
        assert {answer["id"] for answer in answers} == {"h", "s", 2}
        assert all("result" in answer for answer in answers)
