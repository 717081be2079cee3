"""Random bytes and messages at the doors of a running daemon: it answers on, with numbered errors, and logs no failure.

`SUBSTRAT_MODEL_DEPTH` says how many times as many are tried as usually.
"""

import contextlib
import itertools
import json
import os
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_server import tools
from substrat.daemon.servers.methods.request import parameters
from substrat.daemon.servers.methods.table import METHODS
from substrat.paths import short_socket_path
from substrat.protocol import vocabulary
from tests.support.daemon import DaemonFixture
from tests.support.waiting import wait_until
from tests.support.wire import Wire

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
PATIENCE = 20.0


def tries(count):
    return settings(
        max_examples=int(count * DEEP),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A daemon with an agent whose turn goes on, so that its door is open."""
    with DaemonFixture(tmp_path_factory.mktemp("fuzz")) as daemon:
        daemon.start(config="[limits]\nagents = 40\n")
        daemon.held("anna", daemon.workspace())
        yield daemon


@pytest.fixture(scope="module", autouse=True)
def at_the_end(place):
    """Afterwards nothing has gone wrong inside the daemon."""
    yield
    assert place.show("anna")["state"] == "running"
    assert "Traceback" not in place.log, place.log
    assert '"level": "error"' not in place.log, place.log


@pytest.fixture(scope="module")
def doors(place):
    """Where the agents' doors are, the listeners that their sandboxes see, one after the other: each has a pace."""
    agents = ["anna"]
    for number in range(min(20, 1 + int(DEEP))):
        agents.append(f"bert-{number}")
        place.held(agents[-1], place.workspace(agents[-1]))
    return itertools.cycle([str(place.runtime / "agents" / place.show(name)["id"] / "agent.sock") for name in agents])


def connect(path):
    spelling, directory = short_socket_path(str(path))
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(PATIENCE)
    try:
        end.connect(spelling)
    except BaseException:
        end.close()
        raise
    finally:
        if directory is not None:
            os.close(directory)
    return end


def converse(path, *pieces):
    """Write pieces, close the sending side, and read lines until the other end has closed too."""
    with connect(path) as end:
        told = b""
        with contextlib.suppress(ConnectionError):  # the daemon may cut such a connection off
            for piece in pieces:
                end.sendall(piece)
            end.shutdown(socket.SHUT_WR)
            while data := end.recv(1 << 16):
                told += data
    return [json.loads(line) for line in told.splitlines()]


# Values


odd_texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "anna", "operator", "\0", "\ud800", "..", "/", "/tmp", "-1", "x" * 5000, "a\nb", "\x1b[2J", "\u202e"]
    ),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | odd_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(odd_texts, inner, max_size=4),
    max_leaves=8,
)
deep = st.integers(2, 3000).map(lambda depth: b"[" * depth + b"]" * depth)
junk = st.one_of(
    st.binary(max_size=200),
    deep,
    values.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"\xff\xfe{}", b'{"a":1,"a":2}', b"NaN", b"[" * 100_000, b'{"id":1' * 500, b" \t\r", b"9" * 5000]),
)


def line(message):
    return json.dumps(message).encode() + b"\n"


# The operator's door


GREETING = line({"jsonrpc": "2.0", "id": "hello", "method": "hello", "params": {"protocol": 1}})
OFTEN_MISSING = 3
BY_KIND = {
    "string": odd_texts,
    "integer": st.integers(-3, 9) | st.integers() | st.floats(),
    "number": st.floats(-1, 0.01) | st.floats(),
    "boolean": st.booleans() | values,
    "strings": st.lists(odd_texts, max_size=3) | values,
    "integers": st.lists(st.integers(-3, 9) | st.integers(), max_size=3) | values,
    "states": st.lists(st.sampled_from(vocabulary.AGENT_STATES), max_size=2) | values,
}


@st.composite
def requests(draw):
    """A request as the table has it, with odd values in some of its places."""
    kind = draw(st.sampled_from([kind for kind in METHODS if kind.method != "daemon.shutdown"]))
    params = {}
    for param in parameters(kind):
        if param.required or draw(st.integers(0, OFTEN_MISSING)) == 0:
            params[param.name] = draw(BY_KIND[param.kind] if draw(st.integers(0, 9)) else values)
    if "timeout" in {param.name for param in parameters(kind)}:
        params["timeout"] = draw(st.sampled_from([0, 0.001, -1, "x", 1e300]) if draw(st.booleans()) else st.just(0.001))
        params["timeout"] = 0.001 if params["timeout"] == 1e300 else params["timeout"]
    if kind.method in {"agent.suspend", "agent.end", "agent.interrupt", "agent.rm", "agent.resume"}:
        params["agent"] = draw((odd_texts | values).filter(lambda value: value != "anna"))
    if draw(st.integers(0, 9)) == 0:
        params[draw(odd_texts)] = draw(values)
    message = {
        "jsonrpc": "2.0",
        "id": draw(st.integers(0, 99) | odd_texts | values),
        "method": kind.method,
        "params": params,
    }
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        message[draw(st.sampled_from(["jsonrpc", "id", "more"]))] = draw(values)
    return message


def numbered(answer):
    """Whether a message is an answer in good form: a result, or an error with a number and a sentence."""
    assert answer["jsonrpc"] == "2.0"
    if "error" in answer:
        error = answer["error"]
        assert isinstance(error["code"], int)
        assert error["code"] != -32603, error
        assert error["message"]
        assert error["data"]["type"]
    else:
        assert "result" in answer
    return True


@pytest.mark.slow
@tries(60)
@given(st.lists(requests(), min_size=1, max_size=8))
def test_requests_at_the_operators_door(place, asked):
    told = converse(place.socket, GREETING, *map(line, asked))
    answers = [message for message in told if "method" not in message]
    assert len(answers) == 1 + len(asked)
    assert all(map(numbered, answers))


@tries(60)
@given(st.lists(junk, min_size=1, max_size=5), st.booleans())
def test_bytes_at_the_operators_door(place, pieces, greeted):
    told = converse(place.socket, *([GREETING] if greeted else []), *(piece + b"\n" for piece in pieces))
    lines = [part for piece in pieces for part in piece.split(b"\n") if part.strip()]
    assert len(told) == greeted + len(lines)
    assert all("error" in answer and numbered(answer) for answer in told[greeted:])


@tries(25)
@given(st.lists(st.binary(max_size=50), max_size=5))
def test_connections_that_end_anywhere_at_the_operators_door(place, pieces):
    with connect(place.socket) as end:
        for piece in [GREETING[: len(pieces) * 20], *pieces]:
            end.sendall(piece)
    with Wire(place.socket) as wire:
        assert wire.call("daemon.status")["pid"] == place.process.pid


# The agents' door


INITIALIZE = line({
    "jsonrpc": "2.0", "id": "init", "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "0"}},
}) + line({"jsonrpc": "2.0", "method": "notifications/initialized"})  # fmt: skip
MCP = (
    "tools/call", "tools/list", "ping", "initialize", "resources/list", "resources/read", "prompts/get",
    "completion/complete",
    "logging/setLevel", "notifications/cancelled", "notifications/progress", "notifications/initialized", "sampling/x",
)  # fmt: skip
hellos = st.sampled_from([b"", line({"substrat": "companion", "version": 1, "relay": "fuzz"})]) | st.builds(
    lambda relay, more: line({"substrat": "companion", "relay": relay, "more": more}), values, values
)


@st.composite
def calls(draw):
    """A message of MCP, mostly a tool call with arguments that are nearly right."""
    tool = draw(st.sampled_from(tools.TOOLS))
    names = [*tools.schema_of(tool)["properties"], "text", "more"]
    arguments = draw(st.dictionaries(st.sampled_from(names), values, max_size=4) | values)
    params = {"name": tools.name_of(tool) if draw(st.integers(0, 9)) else draw(values), "arguments": arguments}
    method = "tools/call" if draw(st.integers(0, 3)) else draw(st.sampled_from(MCP))
    message = {"jsonrpc": "2.0", "id": draw(st.integers(0, 9) | values), "method": method, "params": params}
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        message[draw(st.sampled_from(["jsonrpc", "id", "method", "params", "more"]))] = draw(values)
    return line(message)


def answers_on(door):
    (told,) = converse_until(door, "alive")
    assert json.loads(told["result"]["content"][0]["text"])["name"]


def converse_until(path, number):
    """Ask who one is on a connection of its own."""
    with connect(path) as end, end.makefile("rb") as lines:
        call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}
        end.sendall(INITIALIZE + line(call))
        for told in lines:
            if (message := json.loads(told)).get("id") == number:
                return [message]
    raise AssertionError("no answer")


@pytest.mark.slow
@tries(60)
@given(hellos, st.booleans(), st.lists(calls(), max_size=6))
def test_messages_at_an_agents_door(doors, hello, greeted, asked):
    door = next(doors)
    for answer in converse(door, hello, INITIALIZE if greeted else b"", *asked):
        assert answer["jsonrpc"] == "2.0"
        assert ("result" in answer) != ("error" in answer) or "method" in answer
    answers_on(door)


@tries(60)
@given(hellos, st.lists(junk | calls(), max_size=5))
def test_bytes_at_an_agents_door(doors, hello, pieces):
    door = next(doors)
    converse(door, hello, *(piece + b"\n" for piece in pieces))
    answers_on(door)


def test_an_end_of_all_that_was_opened(place):
    """No connection is held that nobody has."""
    with Wire(place.socket) as wire:
        assert wire.call("daemon.status")["pid"] == place.process.pid
    most = 40 + 20 * len(place.ok("ls"))
    wait_until(lambda: len(os.listdir(f"/proc/{place.process.pid}/fd")) < most, "the end of the connections")
