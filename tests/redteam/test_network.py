"""What a hostile agent tries with the `filtered` network, in a fresh turn and in a resumed one, beside a control outside.

The "internet" is a network namespace of the test's own, see `tests/system/world.py`; the control is the same script in it,
without a sandbox.
"""

import json
import socket
import subprocess
import sys

import pytest

from tests.system.conftest import daemon  # noqa: F401 - fixtures
from tests.system.test_network import ALLOW, BOTH_FORMS, form, net, told, world  # noqa: F401 - fixtures

ATTACK = r"""
import json, os, socket, struct, sys

found = {}

def attempt(name, do):
    try:
        found[name] = "reached" if do() else "nothing"
    except (OSError, UnicodeError) as problem:
        found[name] = type(problem).__name__

def web(host, port=80):
    def do():
        with socket.create_connection((host, port), 9) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return s.recv(9)
    return do

def datagram(host, port, family=socket.AF_INET):
    def do():
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(5); s.connect((host, port))
            s.send(struct.pack("!6H", 7, 256, 1, 0, 0, 0) + b"\4evil\4test\0\0\1\0\1")
            told = s.recv(999)
            return told[3] & 15 == 0 and told[7]
    return do

def dns(raw, place="198.18.0.1"):
    # Whether a name is given an address at all.
    def do():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(5); s.connect((place, 53))
            s.send(struct.pack("!6H", 7, 256, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l for l in raw) + b"\0\0\1\0\1")
            return s.recv(999)[7]
    return do

for host in ("9.9.9.9", "9.9.9.77", "10.0.0.1", "127.0.0.1", "169.254.169.254", "2606:4700::9", "::1",
             "::ffff:10.0.0.1", "::ffff:9.9.9.9"):
    for port in (80, 443, 9000):
        attempt(f"tcp {host} {port}", web(host, port))
for host in ("2130706433", "0x7f.1", "127.1", "0"):
    attempt(f"odd {host}", web(host))
for host in ("own.allowed.test", "own6.allowed.test", "inner.allowed.test", "loop.allowed.test", "meta.allowed.test",
             "mapped.allowed.test", "evil.test"):
    attempt(f"name {host}", web(host))
for host in ("9.9.9.9", "127.0.0.1", "169.254.169.254"):
    attempt(f"udp {host}", datagram(host, 5353)); attempt(f"dns {host}", datagram(host, 53))
for what, raw in {
    "suffix": (b"www", b"allowed", b"test", b"evil", b"test"), "nul": (b"evil.com\0", b"allowed", b"test"),
    "dot inside": (b"evil.test\0x", b"allowed", b"test"), "one label": (b"www.allowed.test",),
    "nul label": (b"\0", b"allowed", b"test"),
    "punycode": (b"xn--www-eub", b"xn--allwed-0of", b"test"), "parent": (b"allowed", b"test"),
    "utf-8": ("wwẃ".encode(), b"allowed", b"test"),
}.items():
    attempt(f"lookup {what}", dns(raw))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\0" + sys.argv[1]) or True)
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
attempt("low port", lambda: socket.create_server(("127.0.0.77", 81)))
def route():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        body = bytes((2, 32, 0, 0, 254, 3, 253, 1)) + bytes(4) + struct.pack("HHI", 8, 4, 1)
        body += struct.pack("HH4s", 8, 1, bytes((7, 7, 7, 7)))
        s.send(struct.pack("IHHII", 16 + len(body), 24, 0x405, 1, 0) + body)
        return struct.unpack_from("i", s.recv(999), 16)[0] in (0, -17)  # EEXIST: made by the one before
attempt("route", route)

# The proxy form: whatever can be said to the proxy, on the loopback and at the socket behind it.
def open_proxy(way):
    if way == "relay":
        return socket.create_connection(("127.0.0.1", 61280), 9)
    s = socket.socket(socket.AF_UNIX); s.settimeout(9); s.connect("/run/substrat/door/network.sock")
    return s

def ask(way, *parts):
    def do():
        with open_proxy(way) as s:
            for part in parts: s.sendall(part)
            answer = b""
            while piece := s.recv(9999):
                answer += piece
                if b"hello from" in answer: return True
            return False
    return do

for way in ("relay", "socket") if "HTTPS_PROXY" in os.environ else ():
    request = b"GET / HTTP/1.0\r\n\r\n"
    for host in ("9.9.9.9", "10.0.0.1", "127.0.0.1", "169.254.169.254", "[2606:4700::9]", "[::1]", "[::ffff:10.0.0.1]",
                 "[::ffff:9.9.9.9]", "2130706433", "0x7f.1", "127.1", "0", "localhost", "inner.allowed.test",
                 "own.allowed.test", "own6.allowed.test", "9.9.9.77", "[2606:4700::77]",
                 "loop.allowed.test", "meta.allowed.test", "mapped.allowed.test", "evil.test", "allowed.test",
                 "evil.test\0.allowed.test", "www.allowed.test@evil.test", "www.allowed.test.evil.test"):
        for port in (80, 9000):
            place = f"{host}:{port}".encode()
            attempt(f"{way} CONNECT {place}", ask(way, b"CONNECT " + place + b" HTTP/1.1\r\n\r\n", request))
            attempt(f"{way} GET {place}", ask(way, b"GET http://" + place + b"/ HTTP/1.1\r\n\r\n"))
    for name, data in {
        "port": b"CONNECT www.allowed.test:9000 HTTP/1.1\r\n\r\n" + request,
        "huge port": b"CONNECT www.allowed.test:65616 HTTP/1.1\r\n\r\n" + request,
        "other host": b"CONNECT evil.test:80 HTTP/1.1\r\nHost: www.allowed.test\r\n\r\n" + request,
        "two lines": b"CONNECT evil.test:80 HTTP/1.1\r\nCONNECT www.allowed.test:80 HTTP/1.1\r\n\r\n" + request,
        "bare feed": b"CONNECT www.allowed.test:80 HTTP/1.1\nGET http://evil.test/ HTTP/1.1\r\n\r\n",
        "server": b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "https": b"GET https://evil.test/ HTTP/1.1\r\n\r\n",
    }.items():
        attempt(f"{way} {name}", ask(way, data))
    if not ask(way, b"CONNECT www.allowed.test:80 HTTP/1.1\r\n\r\n", request)():
        found[f"{way} control"] = "reached"  # it must be: something else is wrong
print("FOUND" + json.dumps(found))
"""
ALLOWED_CONTROL = "import urllib.request; print(urllib.request.urlopen('http://WWW.Allowed.TEST./').read().decode())"


def found(text):
    (line,) = (line for line in text.splitlines() if line.startswith("FOUND"))
    return json.loads(line.removeprefix("FOUND"))


@pytest.fixture
def abstract():
    """A listener in the abstract namespace of this machine, and its name."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # unix(7), autobind: the kernel makes up an abstract name
        listener.listen()
        yield listener.getsockname()[1:].decode()


@pytest.mark.slow
@BOTH_FORMS
def test_nothing_but_allowed_names_is_reached(net, world, abstract, form):  # noqa: F811 - fixtures
    work = net.workspace()
    (work / "attack.py").write_text(ATTACK)
    (work / "control.py").write_text(ALLOWED_CONTROL)
    outside = subprocess.run(
        [*world[0], sys.executable, work / "attack.py", abstract], capture_output=True, text=True, check=True
    )
    control = found(outside.stdout)
    for what in ("tcp 9.9.9.9 80", "tcp 10.0.0.1 80", "tcp 127.0.0.1 9000", "tcp 169.254.169.254 80", "tcp ::1 80",
                 "packet", "tcp ::ffff:10.0.0.1 80", "odd 127.1", "name inner.allowed.test", "name evil.test",
                 "name own.allowed.test", "name own6.allowed.test", "tcp 9.9.9.77 80",
                 "route", "low port"):  # fmt: skip
        assert control[what] == "reached", (what, control)
    script = f"/shell python3 attack.py '{abstract}'\n/shell python3 control.py"
    net.spawn("anna", work, script, *ALLOW)
    fresh = net.shell("anna")
    net.ok("suspend", "anna")
    net.ok("resume", "anna", script)
    assert net.wait("anna")["turn"]["number"] == 2
    resumed = net.shell("anna").removeprefix(fresh)
    for said in (fresh, resumed):
        assert "hello from 9.9.9.9" in said
        assert {name: how for name, how in found(said).items() if how == "reached"} == {}
        assert "TimeoutError" not in found(said).values()
    denied = " ".join(told(net, "anna", "denied"))
    for text in (
        "169.254.169.254:80: no allowed name",
        "inner.allowed.test:80: it leads to 10.0.0.1",
        "own.allowed.test:80: it leads to 9.9.9.77, an address of this machine",
        "own6.allowed.test:80: it leads to 2606:4700::77, an address of this machine",
        "evil.test:53: the name" if form == "transparent" else "evil.test:80: it isn't on the allow-list",
    ):
        assert text in denied
