"""The companion as cursor-agent starts it, against a daemon of the test's own."""

import ast
import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from mcp_server import relay
from tests.support.optional import present
from tests.support.waiting import is_readable

RELAY = Path(relay.__file__)
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else "python3"
PATIENCE = 20.0
ALLOWED = {"__future__", "_json", "_socket", "posix", "select", "sys", "time"}

# Runs the companion with other numbers than its own.
DRIVER = "import sys; sys.path.insert(0, {directory!r}); import relay; {settings}; sys.exit(relay.main())"


class Lines:
    """Reads lines from a descriptor, each within a bound."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self._held = b""

    def read(self):
        """Return the next line, or None at the end."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._held:
            assert is_readable(self._descriptor, max(0.0, deadline - time.monotonic())), (
                f"no line came; there is {self._held[:200]!r}"
            )
            data = os.read(self._descriptor, 1 << 20)
            if not data:
                assert not self._held, f"half a line came: {self._held[:200]!r}"
                return None
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line


class Daemon:
    """The agent socket: connections are accepted one by one, by hand."""

    def __init__(self, path):
        self.path = str(path)
        self._connections = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(PATIENCE)
        self._listener.bind(self.path)
        self._listener.listen()

    def accept(self):
        connection = Connection(self._listener.accept()[0])
        self._connections.append(connection)
        connection.hello = json.loads(connection.read())
        return connection

    def leave(self):
        for connection in self._connections:
            connection.close()
        self._listener.close()
        os.unlink(self.path)


class Connection:
    """One companion's connection."""

    def __init__(self, sock):
        self._sock = sock
        self._lines = Lines(sock.fileno())
        self.hello = None

    def read(self):
        return self._lines.read()

    def read_message(self):
        return json.loads(self.read())

    def send(self, message):
        self._sock.sendall(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def close(self):
        self._sock.close()


class Companion:
    """The companion's process, with the client's ends of its pipes."""

    def __init__(self, path, settings=""):
        program = ["-c", DRIVER.format(directory=str(RELAY.parent), settings=settings)] if settings else [str(RELAY)]
        environment = {"SUBSTRAT_SOCKET": str(path)} if path is not None else {}
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-S", *program, "--agent-id", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self._lines = Lines(self.process.stdout.fileno())

    def send(self, message):
        self.process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read(self):
        return self._lines.read()

    def read_message(self):
        return json.loads(self.read())

    def close_stdin(self):
        self.process.stdin.close()

    def wait(self):
        return self.process.wait(PATIENCE)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):  # what was still in the buffer has nobody to go to
                pipe.close()


@pytest.fixture
def daemon(tmp_path):
    found = Daemon(tmp_path / "s")
    yield found
    found.leave()


@pytest.fixture
def start(tmp_path):
    """Start companions that are ended with the test."""
    started = []

    def go(path=None, settings=""):
        started.append(Companion(path or tmp_path / "s", settings))
        return started[-1]

    yield go
    for companion in started:
        companion.end()


def request(number, method="tools/call", **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def answer(number, **result):
    return {"jsonrpc": "2.0", "id": number, "result": result}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def shake_hands(companion, connection, number=0):
    companion.send(request(number, "initialize", protocolVersion="2025-11-25"))
    assert connection.read_message()["method"] == "initialize"
    connection.send(answer(number, protocolVersion="2025-11-25"))
    assert companion.read_message()["id"] == number
    companion.send(INITIALIZED)
    assert connection.read_message() == INITIALIZED


def test_it_says_who_it_is_first(daemon, start):
    start(), start()
    one, other = daemon.accept().hello, daemon.accept().hello
    assert one["substrat"] == other["substrat"] == "companion"
    assert one["relay"] != other["relay"]


def test_lines_pass_both_ways_byte_for_byte_whole_in_pieces_and_many_at_once(daemon, start):
    companion = start()
    connection = daemon.accept()
    odd = b'{ "jsonrpc" : "2.0",\t"method":"x", "params":{"text":"\\u00e4 \xc3\xa4 \\ud800"} , "id" : 1 }'
    companion.send(odd + b"\n")
    assert connection.read() == odd
    back = b'  {"id":1 ,"result":{"a":"\xf0\x9f\x8c\x8d"}}'
    connection.send(back + b"\n")
    assert companion.read() == back
    for byte in json.dumps(request(1)).encode() + b"\n":
        companion.send(bytes([byte]))
    assert connection.read_message() == request(1)
    for byte in json.dumps(answer(1)).encode() + b"\n":
        connection.send(bytes([byte]))
    assert companion.read_message() == answer(1)
    companion.send(b"".join(json.dumps(request(number)).encode() + b"\n" for number in range(500)))
    assert [connection.read_message()["id"] for _ in range(500)] == list(range(500))


def test_a_large_message_passes_both_ways(daemon, start):
    companion = start()
    connection = daemon.accept()
    text = 'é"\\n' * 200_000
    for sender, message, receiver in (
        (companion, request(1, x=text), connection),
        (connection, answer(1, x=text), companion),
    ):
        sending = threading.Thread(target=sender.send, args=(message,))
        sending.start()
        assert receiver.read_message() == message
        sending.join(PATIENCE)


IDS = [0, 1, -1, 2**53, 1.5, "a", "", "7", 'say "id"', "back\\slash\\", "ü", "x" * 250, "id", "method", "}"]


@pytest.mark.parametrize("number", IDS)
def test_after_a_reconnection_what_was_not_answered_is_said_again(daemon, start, number):
    companion = start()
    first = daemon.accept()
    shake_hands(companion, first, "handshake")
    companion.send(request("done before"))
    first.read()
    first.send(answer("done before"))
    companion.read()
    companion.send(request(number, name="whoami"))
    first.read()
    first.close()
    second = daemon.accept()
    assert second.hello == first.hello
    assert second.read_message()["method"] == "initialize"
    assert second.read_message() == INITIALIZED
    assert second.read_message() == request(number, name="whoami")
    second.send(answer("handshake", protocolVersion="2025-11-25"))
    second.send(answer(number, text="me"))
    assert companion.read_message() == answer(number, text="me")
    companion.send(request("next"))
    assert second.read_message() == request("next")


def test_the_number_and_the_text_are_two_ids(daemon, start):
    companion = start()
    first = daemon.accept()
    companion.send(request(7))
    companion.send(request("7"))
    first.read(), first.read()
    first.send(answer(7))
    companion.read()
    first.close()
    assert daemon.accept().read_message() == request("7")


def test_a_handshake_that_was_not_answered_is_answered_once(daemon, start):
    companion = start()
    first = daemon.accept()
    companion.send(request(0, "initialize"))
    first.read()
    first.close()
    second = daemon.accept()
    assert second.read_message() == request(0, "initialize")
    second.send(answer(0, ok=True))
    assert companion.read_message() == answer(0, ok=True)
    second.close()
    third = daemon.accept()
    assert third.read_message() == request(0, "initialize")
    third.send(answer(0, ok=False))
    companion.send(request(1))
    third.read()
    third.close()
    fourth = daemon.accept()
    assert [fourth.read_message() for _ in range(2)] == [request(0, "initialize"), request(1)], "each time the same"
    fourth.send(answer(0, ok=False))
    fourth.send(answer(1))
    assert companion.read_message() == answer(1)


def test_a_request_of_the_daemons_own_answers_nothing(daemon, start):
    companion = start()
    first = daemon.accept()
    companion.send(request(1))
    first.read()
    first.send(request(1, "ping"))
    assert companion.read_message() == request(1, "ping")
    companion.send(answer(1))
    assert first.read_message() == answer(1)
    first.close()
    assert daemon.accept().read_message() == request(1)


def test_half_an_answer_is_not_passed_on(daemon, start):
    companion = start()
    first = daemon.accept()
    companion.send(request(1))
    first.read()
    first.send(b'{"id":1,"resu')
    first.close()
    second = daemon.accept()
    second.read()
    second.send(answer(1))
    assert companion.read_message() == answer(1)


def test_a_daemon_that_comes_later(tmp_path, start):
    companion = start()
    companion.send(request(1))
    daemon = Daemon(tmp_path / "s")
    assert daemon.accept().read_message() == request(1)
    daemon.leave()


def test_without_a_daemon_requests_are_answered_with_an_error_and_one_that_comes_back_is_found(tmp_path, start):
    companion = start(settings="relay.RETRY_SECONDS = 0.1")
    ids = [1, "two", 'thr"ee\\', "x" * 2000]
    for number in ids:
        companion.send(request(number))
    companion.send(INITIALIZED)
    for number in ids:
        told = companion.read_message()
        assert told["jsonrpc"] == "2.0"
        assert told["id"] == number
        assert isinstance(told["error"]["code"], int)
        assert "substratd" in told["error"]["message"]
    companion.send(request("four"))
    assert companion.read_message()["id"] == "four"
    daemon = Daemon(tmp_path / "s")
    connection = daemon.accept()
    companion.send(request(2))
    assert [connection.read_message() for _ in range(2)] == [INITIALIZED, request(2)]
    connection.send(answer(2))
    assert companion.read_message() == answer(2)
    daemon.leave()


@pytest.mark.parametrize("has_daemon", [True, False])
def test_when_the_client_closes_its_side_the_companion_leaves(request, start, has_daemon):
    daemon = request.getfixturevalue("daemon") if has_daemon else None
    companion = start()
    if daemon is not None:
        daemon.accept()
    companion.close_stdin()
    assert companion.wait() == 0


def test_answers_under_way_still_come_after_the_client_closed_its_side(daemon, start):
    companion = start(settings="relay.GOODBYE_SECONDS = 15")
    connection = daemon.accept()
    companion.send(request(1))
    companion.close_stdin()
    assert connection.read_message() == request(1)
    connection.send(answer(1))
    assert companion.read_message() == answer(1)
    assert companion.wait() == 0


def test_it_does_not_wait_for_ever_for_an_answer(daemon, start):
    companion = start(settings="relay.GOODBYE_SECONDS = 0.1")
    connection = daemon.accept()
    companion.send(request(1))
    companion.close_stdin()
    connection.read()
    assert companion.wait() == 0


def test_a_client_that_is_gone_is_no_crash(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.process.stdout.close()
    connection.send(answer(1))
    assert companion.wait() == 1
    assert companion.process.stderr.read() == b""


def test_what_is_not_answered_in_time_is_told_before_it_leaves(start):
    companion = start(settings="relay.GOODBYE_SECONDS = 0.1")
    companion.send(request(1))
    companion.close_stdin()
    told = companion.read_message()
    assert told["id"] == 1
    assert "closed its side" in told["error"]["message"]
    assert companion.wait() == 0


def test_without_a_socket_it_says_what_it_is():
    companion = Companion(None)
    try:
        assert companion.wait() == 2
        assert b"SUBSTRAT_SOCKET" in companion.process.stderr.read()
    finally:
        companion.end()


def test_it_imports_only_what_costs_nothing():
    imported = set()
    for node in ast.walk(ast.parse(RELAY.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(present(node.module))
    assert imported <= ALLOWED | {"json.decoder"}  # for a line that is no JSON


def test_nothing_else_is_loaded_by_it():
    def loaded(statement):
        run = [
            PYTHON,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(RELAY.parent)!r}); {statement}; print(*sys.modules)",
        ]
        return set(subprocess.run(run, capture_output=True, check=True, text=True, env={}).stdout.split())

    assert loaded("import relay") - loaded("pass") <= ALLOWED | {"relay"}
