"""The transparent form with real sandboxes' listeners: a launcher makes the network, the test serves it, a script asks."""

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys

import pytest
import trio

from sandbox import launch
from substrat.core.netfilter.names import AllowList
from substrat.daemon.network import filtered
from substrat.daemon.network.connections import ConnectionRelay
from substrat.daemon.network.decisions import Decision, Decisions
from substrat.daemon.network.transparent import Names, TransparentNetwork

PATIENCE = 30
HELPERS = """
import contextlib, json, os, socket, ssl, struct, sys
def ask(name, kind=1, place="198.18.0.1"):
    labels = b"".join(bytes([len(l)]) + l for l in name.split(b"."))
    query = struct.pack("!6H", 7, 256, 1, 0, 0, 0) + labels + b"\\0" + struct.pack("!2H", kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(9); s.connect((place, 53)); s.send(query)
    answer = s.recv(999)
    return answer[3] & 15, answer[-4:] if answer[7] else b""
def get(host, port, data=b"hi", family=socket.AF_INET):
    try:
        with socket.create_connection((host, port), 9) as s:
            s.sendall(data)
            with contextlib.suppress(OSError): s.shutdown(socket.SHUT_WR)  # refused already: recv says how
            found = b""
            while piece := s.recv(1 << 20): found += piece
            return found.decode("latin-1")
    except OSError as problem:
        return type(problem).__name__
def say(value): print(json.dumps(value)); sys.stdout.flush()
"""


class Net:
    """One network, and its recorded decisions."""

    def __init__(self, nursery):
        self.nursery = nursery
        self.recorded = []
        self.looked_up = []
        self.addresses = {}

    async def resolve(self, name, _port):
        self.looked_up.append(name)
        if name not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses[name]

    async def run(self, allow, script):
        """Run a script in a new network; returns its output."""
        wanted = AllowList.of(allow)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = (*launch.launcher(str(theirs.fileno()), wanted.ports), sys.executable, "-c", HELPERS + script)
        with ours, theirs:
            process = await trio.lowlevel.open_process(
                command, stdout=subprocess.PIPE, pass_fds=(theirs.fileno(),), env={"PATH": os.environ["PATH"]}
            )
            theirs.close()
            listeners = await filtered.receive(ours)
            network = TransparentNetwork(ConnectionRelay(wanted, self.recorded.append, self.resolve), Names())
            output = b""
            async with trio.open_nursery() as nursery:
                nursery.start_soon(network.serve, listeners)
                async for piece in process.stdout:
                    output += piece
                nursery.cancel_scope.cancel()
            assert all(listener.fileno() == -1 for listener in listeners)
            assert await process.wait() == 0
        return [json.loads(line) for line in output.splitlines()]

    async def server(self, handle, host="127.0.0.1"):
        """Serve on this machine's loopback; returns the port."""
        (listener,) = await trio.open_tcp_listeners(0, host=host)
        self.nursery.start_soon(trio.serve_listeners, handle, [listener])
        return listener.socket.getsockname()[1]

    @property
    def denied(self):
        return [decision.text for decision in self.recorded if not decision.allowed]

    @property
    def allowed(self):
        return [decision.text for decision in self.recorded if decision.allowed]


async def echo(stream):
    with contextlib.suppress(trio.BrokenResourceError):
        async for piece in stream:
            await stream.send_all(piece)


@pytest.fixture
async def net():
    probe = await trio.run_process([*launch.launcher("-", (443,)), "/bin/true"], capture_stderr=True, check=False)
    if probe.returncode:
        pytest.skip(probe.stderr.decode())
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            yield Net(nursery)
            nursery.cancel_scope.cancel()


async def test_a_name_and_its_address(net):
    port = await net.server(echo)
    net.addresses["a.test"] = ["10.9.9.9", "127.0.0.1"]
    said = await net.run(
        (f"a.test:{port}", f"127.0.0.1:{port}"),
        "code, address = ask(b'A.Test'); place = socket.inet_ntoa(address); say([code, place])\n"
        f"say(get(place, {port})); say(get(place, {port})); say(get('127.0.0.1', {port})); say(get(place, 443))\n"
        f"say(ask(b'b.test')[0]); say(ask(b'a.test', 65)[0]); say(get('198.18.0.9', {port}))",
    )  # fmt: skip
    assert said == [[0, "198.18.0.2"], "hi", "hi", "hi", "ConnectionResetError", 3, 0, "ConnectionResetError"]
    assert net.allowed == [f"a.test:{port}: on the allow-list", f"127.0.0.1:{port}: the address is on the allow-list"]
    assert net.denied == [
        f"a.test:{port}: it leads to 10.9.9.9, a private address",
        "a.test:443: the name isn't allowed at this port",
        "b.test:53: the name isn't looked up: it isn't on the allow-list",
        f"198.18.0.9:{port}: no allowed name has this address",
    ]


@pytest.mark.parametrize(("addresses", "why"), [
    (["127.0.0.1"], "it leads to 127.0.0.1, a loopback address"),
    (["::ffff:127.0.0.1"], "it leads to 127.0.0.1, a loopback address"),
    (["64:ff9b::7f00:1"], "it leads to 64:ff9b::7f00:1, a loopback address"),
    (["169.254.169.254"], "it leads to 169.254.169.254, a link-local or metadata address"),
    (["::1"], "it leads to ::1, a loopback address"),
    (["fe80::1%lo"], "it leads to fe80::1%lo, a link-local address"),
    (None, "the name can't be looked up: Name or service not known"),
])  # fmt: skip
async def test_where_a_name_may_not_lead(net, addresses, why):
    port = await net.server(echo)
    if addresses:
        net.addresses["a.test"] = addresses
    said = await net.run((f"a.test:{port}",), f"say(get(socket.inet_ntoa(ask(b'a.test')[1]), {port}))")
    assert said == ["ConnectionResetError"]
    assert net.denied == [f"a.test:{port}: {why}"]


async def test_the_tls_name_has_to_agree(net):
    got = []

    async def server(stream):
        got.append(await stream.receive_some())
        await stream.send_all(b"seen")

    port = await net.server(server)
    net.addresses["a.test"] = ["127.0.0.1"]
    said = await net.run(
        (f"a.test:{port}", f"b.test:{port}", f"127.0.0.1:{port}"),
        f"""
def hello(name):
    c = ssl.create_default_context(); c.check_hostname = False
    out = ssl.MemoryBIO(); o = c.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try: o.do_handshake()
    except ssl.SSLWantReadError: return out.read()
place = socket.inet_ntoa(ask(b"a.test")[1])
warning = b"\\x15\\x03\\x01\\x00\\x02\\x01\\x00"
for data in (hello("A.TEST"), hello(None), hello("b.test"), b"\\x16\\x03\\x01\\x00\\x02\\x01", b"\\x16\\x09", b"plain",
             warning + hello("b.test"), warning + hello("a.test"), b"PROXY UNKNOWN\\r\\n" + hello("a.test")):
    say(get(place, {port}, data))
""",
    )
    refused = "ConnectionResetError"
    assert said == ["seen", "seen", refused, refused, refused, "seen", refused, refused, refused]
    assert net.denied == [
        f"a.test:{port}: its TLS handshake names b.test instead",
        f"a.test:{port}: its TLS handshake can't be read",
    ]
    assert len([data for data in got if data]) == 3


async def test_a_server_that_speaks_first_and_many_bytes(net):
    async def server(stream):
        await stream.send_all(b"220 welcome\n")
        count = 0
        async for piece in stream:
            count += len(piece)
        await stream.send_all(str(count).encode() + bytes(3_000_000))

    port = await net.server(server)
    net.addresses["a.test"] = ["127.0.0.1"]
    said = await net.run(
        (f"a.test:{port}", f"127.0.0.1:{port}"),
        f"""
s = socket.create_connection((socket.inet_ntoa(ask(b"a.test")[1]), {port}))
say(s.recv(12).decode()); s.sendall(bytes(5_000_000)); s.shutdown(socket.SHUT_WR)
found = b""
while piece := s.recv(1 << 16): found += piece
say([found[:7].decode(), len(found)])
""",
    )
    assert said == ["220 welcome\n", ["5000000", 3_000_007]]


@pytest.fixture
def many_descriptors():
    """As many as the machine allows, which substratd gives itself as it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
async def test_many_connections_and_noise(net):
    port = await net.server(echo)
    net.addresses["a.test"] = ["127.0.0.1"]
    said = await net.run(
        (f"a.test:{port}", f"127.0.0.1:{port}"),
        f"""
place = socket.inet_ntoa(ask(b"a.test")[1])
held, count = [], 0
for _ in range(270):
    try: held.append(socket.create_connection((place, {port})))
    except ConnectionResetError: pass  # one too many, refused before the call came back
for s in held:
    s.settimeout(9)
    try:
        s.sendall(b"x"); count += s.recv(1) == b"x"
    except OSError: pass
say(count)
for s in held: s.close()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("198.18.0.1", 53))
for size in range(50): u.send(bytes([size]) * size)
t = socket.create_connection(("198.18.0.1", 53)); t.sendall(b"\\xff\\xffx"); t.close()
t = socket.create_connection(("198.18.0.1", 53))
q = struct.pack("!6H", 7, 256, 1, 0, 0, 0) + b"\\x01a\\x04test\\0\\0\\x01\\0\\x01"
t.sendall(struct.pack("!H", len(q)) + q); say(len(t.recv(99)))
say(ask(b"a.test")[0]); say(ask(b"evil.com\\0")[0])
""",
    )
    assert said == [256, 42, 0, 3]
    assert "connections: there are 256 already" in net.denied
    assert "evil.com?:53: the name isn't looked up: " in net.denied[-1]


@pytest.mark.parametrize("kind", ["pipe", "huge", "garbage", "no names", "too many", "directory"])
def test_a_list_of_names_that_is_none_counts_for_nothing(tmp_path, kind):
    path = tmp_path / "names"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "huge":
            path.touch()
            os.truncate(path, 40 << 30)
        case "directory":
            path.mkdir()
        case _:
            path.write_bytes({"garbage": b"\xff\n", "no names": b"a..b\n", "too many": b"a.test\n" * 5000}[kind])
    names = Names(str(path))
    assert names.name("198.18.0.2") is None
    if kind in {"pipe", "directory"}:
        with pytest.raises(OSError, match="names"):
            names.number("a.test")


def test_names_are_kept(tmp_path):
    path = str(tmp_path / "names")
    names = Names(path)
    assert [names.number(name) for name in ("a", "b", "a")] == [0, 1, 0]
    again = Names(path)
    assert (again.name("198.18.0.3"), again.name("fd53:7562:7374::2"), again.number("c")) == ("b", "a", 2)
    assert [again.name(address) for address in ("198.18.0.1", "198.18.0.9", "127.0.0.1", "::1", "fe80::1%lo")] == [None] * 5


def test_refusals_are_counted_and_bounded():
    recorded: list[Decision] = []
    decisions = Decisions(recorded.append)
    for _ in range(250):
        decisions.denied("a:1", "no")
    assert [decision.text for decision in recorded] == ["a:1: no", "a:1: no (10 times)", "a:1: no (100 times)"]
    for number in range(5000):
        decisions.denied(f"b{number}:1", "no")
        decisions.allowed(f"b{number}", 1, "yes")
    assert len(recorded) < 2020
