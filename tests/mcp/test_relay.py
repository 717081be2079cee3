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
from hypothesis import given
from hypothesis import strategies as st

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
    start()
    hello = daemon.accept().hello
    assert hello["substrat"] == "companion"
    assert hello["relay"]


def test_two_companions_have_two_names(daemon, start):
    start()
    start()
    assert daemon.accept().hello["relay"] != daemon.accept().hello["relay"]


def test_lines_pass_both_ways_byte_for_byte(daemon, start):
    companion = start()
    connection = daemon.accept()
    odd = b'{ "jsonrpc" : "2.0",\t"method":"x", "params":{"text":"\\u00e4 \xc3\xa4 \\ud800"} , "id" : 1 }'
    companion.send(odd + b"\n")
    assert connection.read() == odd
    back = b'  {"id":1 ,"result":{"a":"\xf0\x9f\x8c\x8d"}}'
    connection.send(back + b"\n")
    assert companion.read() == back


def test_bytes_that_come_one_by_one(daemon, start):
    companion = start()
    connection = daemon.accept()
    for byte in json.dumps(request(1)).encode() + b"\n":
        companion.send(bytes([byte]))
    assert connection.read_message() == request(1)
    for byte in json.dumps(answer(1)).encode() + b"\n":
        connection.send(bytes([byte]))
    assert companion.read_message() == answer(1)


def test_many_lines_at_once_stay_in_order(daemon, start):
    companion = start()
    connection = daemon.accept()
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
    third.send(answer(1))
    assert companion.read_message() == answer(1)


def test_every_reconnection_is_the_same(daemon, start):
    companion = start()
    connection = daemon.accept()
    shake_hands(companion, connection)
    companion.send(request(1))
    connection.read()
    for _ in range(5):
        connection.close()
        connection = daemon.accept()
        assert [connection.read_message().get("id") for _ in range(3)] == [0, None, 1]
        connection.send(answer(0))
    connection.send(answer(1))
    assert companion.read_message() == answer(1)


@pytest.mark.parametrize("spelling", [
    b'{"method":"tools/call","params":{"id":99,"method":"initialize"},"jsonrpc":"2.0","id":5}',
    b'{"params":{"text":"\\"id\\":99, \\"method\\":\\"initialize\\"\\\\"},"method":"tools/call","id":5}',
    b'{"params":["id",{"id":99},"method"],"id":5,"method":"tools/call"}',
    b'{ "id" :\t5 , "method" : "tools/call" , "params" : {"a":"}{]["} }',
    b'{"x":"id","y":"method","id":5,"method":"tools/call","z":{}}',
])  # fmt: skip
def test_only_the_messages_own_id_and_method_count(daemon, start, spelling):
    companion = start()
    first = daemon.accept()
    companion.send(spelling + b"\n")
    assert first.read() == spelling
    first.close()
    second = daemon.accept()
    assert second.read() == spelling  # as unanswered, not as a handshake
    second.send(answer(99))
    assert companion.read_message() == answer(99)
    second.send(answer(5))
    assert companion.read_message() == answer(5)
    second.close()
    third = daemon.accept()
    companion.send(request(6))
    assert third.read_message() == request(6)


def test_an_answer_that_merely_speaks_of_ids_is_passed_on(daemon, start):
    companion = start()
    first = daemon.accept()
    shake_hands(companion, first)
    companion.send(request(1))
    first.read()
    first.close()
    second = daemon.accept()
    for _ in range(3):
        second.read()
    told = {"jsonrpc": "2.0", "result": {"text": '{"id":0}', "id": 0}, "id": 1}
    second.send(told)
    assert companion.read_message() == told


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


def test_without_a_daemon_requests_are_answered_with_an_error(start):
    companion = start(settings="relay.RETRY_SECONDS = 0.1")
    ids = [1, "two", 'thr"ee\\']
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


def test_an_error_for_a_request_with_a_long_id_is_json(start):
    companion = start(settings="relay.RETRY_SECONDS = 0.1")
    companion.send(request("x" * 2000))
    assert companion.read_message()["id"] == "x" * 2000


def test_after_giving_up_it_still_finds_a_daemon_that_comes_back(tmp_path, start):
    companion = start(settings="relay.RETRY_SECONDS = 0.1")
    companion.send(request(1))
    assert "error" in companion.read_message()
    daemon = Daemon(tmp_path / "s")
    connection = daemon.accept()
    companion.send(request(2))
    assert connection.read_message() == request(2)
    connection.send(answer(2))
    assert companion.read_message() == answer(2)
    daemon.leave()


def test_when_the_client_closes_its_side_the_companion_leaves(daemon, start):
    companion = start()
    daemon.accept()
    companion.close_stdin()
    assert companion.wait() == 0


def test_without_a_daemon_it_leaves_too(start):
    companion = start()
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


def test_a_message_without_end_is_refused(daemon, start):
    companion = start(settings="relay._MAX_HELD = 1000")
    daemon.accept()
    companion.send(b"x" * 2000)
    assert companion.wait() == 1
    assert b"longer than" in companion.process.stderr.read()


def test_empty_lines_are_left_out(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.send(b"\n  \n\r\n" + json.dumps(request(1)).encode() + b"\n")
    assert connection.read_message() == request(1)


@pytest.mark.parametrize(("line", "code", "number"), [
    (b'{"id":', -32700, None),
    (b'{"id":1,"method":"x\\', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"x"} x', -32700, None),
    (b"\xff\xfe{\x00}\x00", -32700, None),
    (b"}}}]]", -32700, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"x"},', -32700, None),
    (b"[" * 100_000, -32700, None),
    (b'{"id":NaN,"method":"x"}', -32700, None),
    (b'"text"', -32600, None),
    (b"[]", -32600, None),
    (b'{"jsonrpc":"2.0","id":{},"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
    (b'{"jsonrpc":"2.0","method":7}', -32600, None),
    (b'{"jsonrpc":"2.0","method":"x","params":"y"}', -32600, None),
])  # fmt: skip
def test_a_line_that_is_no_message_is_answered_at_once(daemon, start, line, code, number):
    companion = start()
    connection = daemon.accept()
    companion.send(line + b"\n")
    told = companion.read_message()
    assert (told["error"]["code"], told["id"]) == (code, number)
    assert told["error"]["message"]
    companion.send(request(6))
    assert connection.read_message() == request(6)


def test_a_byte_order_mark_is_left_out(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.send(b"\xef\xbb\xbf" + json.dumps(request(1)).encode() + b"\r\n")
    assert connection.read_message() == request(1)


def test_a_batch_is_answered_as_one_array_in_its_order(daemon, start):
    companion = start()
    first = daemon.accept()
    batch = [request(1), INITIALIZED, 7, request("two"), answer(99), {"id": 3}, request(4.5)]
    companion.send(json.dumps(batch).encode() + b" \n")
    assert [first.read_message() for _ in range(5)] == [request(1), INITIALIZED, request("two"), answer(99), request(4.5)]
    first.send(answer("two"))
    first.close()
    second = daemon.accept()
    assert [second.read_message() for _ in range(3)] == [INITIALIZED, request(1), request(4.5)]
    second.send(answer(4.5))
    second.send(answer(1))
    told = companion.read_message()
    assert [one["id"] for one in told] == [1, None, "two", 3, 4.5]
    assert [one.get("error", {}).get("code") for one in told] == [None, -32600, None, -32600, None]


def test_a_batch_of_notifications_is_not_answered(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.send([INITIALIZED, answer(3)])
    companion.send(request(1))
    assert [connection.read_message() for _ in range(3)] == [INITIALIZED, answer(3), request(1)]
    connection.send(answer(1))
    assert companion.read_message() == answer(1)


def test_two_requests_with_one_id_have_two_answers(daemon, start):
    companion = start()
    first = daemon.accept()
    companion.send(request(7, x=1))
    companion.send(request(7, x=2))
    first.read(), first.read()
    first.send(answer(7, x=1))
    assert companion.read_message() == answer(7, x=1)
    first.close()
    second = daemon.accept()
    assert second.read_message() == request(7, x=2)
    second.send(answer(7, x=2))
    assert companion.read_message() == answer(7, x=2)


def test_the_last_line_needs_no_end(daemon, start):
    companion = start(settings="relay.GOODBYE_SECONDS = 15")
    connection = daemon.accept()
    companion.send(json.dumps(request(1)).encode())
    companion.close_stdin()
    assert connection.read_message() == request(1)
    connection.send(answer(1))
    assert companion.read_message() == answer(1)


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


# Any line at all

ids = st.integers() | st.text(max_size=300) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    ids | st.none() | st.booleans() | st.sampled_from(["2.0", '"id":1', "\\", '\\"', "{", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "a", '"']), inner, max_size=3),
    max_leaves=6,
)
messages = st.fixed_dictionaries({}, optional={
    "jsonrpc": st.just("2.0") | values, "id": ids | values, "method": st.sampled_from(["ping", "x"]) | values,
    "params": values, "result": values, "a": values,
})  # fmt: skip
lines = st.lists(messages | values, max_size=4) | messages | values


def is_id(value):
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def wanted(message):
    """Return the id that the answer to a message has, in a list; an empty list if there is to be no answer."""
    if not isinstance(message, dict):
        return [None]
    if "method" not in message and ("result" in message or "error" in message):
        return []
    if "method" in message and "id" not in message:
        well = message.get("jsonrpc") == "2.0" and isinstance(message["method"], str)
        return [] if well and isinstance(message.get("params"), dict | list | None) else [None]
    return [message["id"] if is_id(message.get("id")) else None]


def answers_wanted(line):
    """Return the ids of the answers to a line, in order."""
    if not isinstance(line, list):
        return wanted(line)
    return [number for message in line for number in wanted(message)] if line else [None]


class Loop(relay.Relay):
    """A companion without pipes: what it says to the daemon and to the client is kept."""

    def __init__(self):
        super().__init__(b"")
        self.passed_on = []

    def to_server(self, data):
        self.passed_on.append(data)


@given(lines, st.sampled_from([None, 1]), st.booleans(), st.randoms())
def test_each_request_is_answered_exactly_once_with_its_id(line, indent, ascii_only, order):
    text = json.dumps(line, indent=indent, ensure_ascii=ascii_only).replace("\n", " ")
    said = []
    loop = Loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay, "write_all", lambda data: said.append(data) if data else None)
        loop.take_client_line(text.encode("utf-8", "replace"))
        order.shuffle(loop.unanswered)
        for asked in tuple(loop.unanswered):
            loop.take_server_line(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % present(asked.message.key))
    told = [json.loads(data) for data in said]
    ids = [one.get("id") for one in (told[0] if told and isinstance(told[0], list) else told)]
    assert len(told) <= 1
    assert [repr(number) for number in ids] == [
        repr(number) for number in answers_wanted(json.loads(text.encode("utf-8", "replace")))
    ]
    assert not loop.unanswered


@given(
    st.binary(max_size=80)
    | st.lists(st.sampled_from([b'"', b"\\", b"id", b":", b"{", b"}", b",", b"[", b"]"])).map(b"".join)
)
def test_any_bytes_can_be_read(line):
    found, _ = relay.read(line)
    for message in found:
        assert message.refusal is None or message.key is not None


def test_a_call_that_the_daemon_would_not_take_is_answered_here(daemon, start):
    companion = start(settings="relay.MAX_LINE = 1000")
    connection = daemon.accept()
    companion.send(request(1, x="y" * 2000))
    refused = companion.read_message()
    assert refused["id"] == 1
    assert "longer than" in refused["error"]["message"]
    companion.send(request(2))
    assert connection.read_message() == request(2)
