"""The proxy at a Unix socket, as the relay of a sandbox reaches it: connections, refusals, and clients that misbehave.

`SUBSTRAT_MODEL_DEPTH` says how many times as many random streams are tried as usually.
"""

import contextlib
import os
import socket
import ssl

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.netfilter.names import AllowList
from substrat.daemon.kernel import sockets
from substrat.daemon.network import connections
from substrat.daemon.network.connections import ConnectionRelay
from substrat.daemon.network.proxy import Proxy
from tests.support.certificate import certificate

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
PATIENCE = 20


class Scene:
    """A proxy, a server of the test's own on this machine's loopback, and the recorded decisions."""

    def __init__(self, path, nursery):
        self.path = path
        self.nursery = nursery
        self.recorded = []
        self.addresses = {"a.test": ["127.0.0.1"], "priv.test": ["10.0.0.1", "::1"]}
        self.got = []
        self.port = 0
        self.relay = None
        self.serving = None

    async def resolve(self, name, _port):
        if name not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses[name]

    async def start(self, handle, allow):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        self.nursery.start_soon(trio.serve_listeners, handle, [listener])
        wanted = AllowList.of(tuple(text.replace("PORT", str(self.port)) for text in allow))
        self.relay = ConnectionRelay(wanted, self.recorded.append, self.resolve)
        self.nursery.start_soon(Proxy(self.relay).serve, sockets.listen(self.path, 0o600))
        await trio.testing.wait_all_tasks_blocked()

    async def ask(self, data, *, ends=False):
        """Send something and return the whole answer, marked if a reset cut it off."""
        data = data.replace(b"PORT", str(self.port).encode())
        async with await trio.open_unix_socket(self.path) as stream:
            said = b""
            try:
                await stream.send_all(data)
                if ends:
                    await stream.send_eof()
                async for piece in stream:
                    said += piece
            except trio.BrokenResourceError:
                return said + b"<reset>"
            return said

    async def echo(self, stream):
        if self.serving is not None:
            await self.serving(stream)
            return
        with contextlib.suppress(trio.BrokenResourceError):
            async for piece in stream:
                self.got.append(bytes(piece))
                await stream.send_all(piece)

    async def answer(self, stream):
        """Answer the first thing that comes as a web server that ends its connections does."""
        with contextlib.suppress(trio.BrokenResourceError):
            self.got.append(bytes(await stream.receive_some()))
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    @property
    def denied(self):
        return [decision.text.replace(str(self.port), "PORT") for decision in self.recorded if not decision.allowed]

    @property
    def allowed(self):
        return [decision.text.replace(str(self.port), "PORT") for decision in self.recorded if decision.allowed]


ALLOW = ("a.test:PORT", "priv.test:PORT", "127.0.0.1:PORT", "gone.test")


@contextlib.asynccontextmanager
async def scene(path, handle="echo", allow=ALLOW):
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            place = Scene(str(path), nursery)
            await place.start(getattr(place, handle), allow)
            yield place
            nursery.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("p") / "s"


async def test_a_tunnel(path):
    async with scene(path) as place:
        said = await place.ask(b"CONNECT A.Test.:PORT HTTP/1.1\r\n\r\nhello", ends=True)
        assert said == b"HTTP/1.1 200 Connection established\r\n\r\nhello"
        assert place.allowed == ["a.test:PORT: on the allow-list"]
        assert place.denied == []


async def test_a_plain_request_and_nothing_behind_it(path):
    async with scene(path, "answer") as place:
        said = await place.ask(b"GET http://a.test:PORT/x HTTP/1.1\r\nHost: b.test\r\nProxy-Connection: keep-alive\r\n\r\n")
        assert said == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        port = str(place.port).encode()
        assert place.got == [b"GET /x HTTP/1.1\r\nHost: a.test:" + port + b"\r\nConnection: close\r\n\r\n"]


SMUGGLED = [
    b"GET http://a.test:PORT/ HTTP/1.1\r\n\r\nGET http://b.test/secret HTTP/1.1\r\n\r\n",
    b"POST http://a.test:PORT/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET http://b.test/secret HTTP/1.1\r\n\r\n",
    b"POST http://a.test:PORT/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\nsecret",
]


@pytest.mark.parametrize("data", SMUGGLED)
async def test_a_second_request_goes_nowhere(path, data):
    async with scene(path) as place:
        await place.ask(data)
        assert b"secret" not in b"".join(place.got)


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"\r\n"],
)
async def test_a_body_comes_along(path, body):
    async with scene(path) as place:
        said = await place.ask(b"POST http://a.test:PORT/ HTTP/1.1\r\n" + body, ends=True)
        assert said.endswith(b"Connection: close\r\n\r\n" + body.partition(b"\r\n\r\n")[2])
        assert b"<reset>" not in said


REFUSED = {
    b"CONNECT b.test:443 HTTP/1.1\r\n\r\n": (403, "b.test:443: it isn't on the allow-list"),
    b"CONNECT a.test:1 HTTP/1.1\r\n\r\n": (403, "a.test:1: the name isn't allowed at this port"),
    b"CONNECT priv.test:PORT HTTP/1.1\r\n\r\n": (403, "priv.test:PORT: it leads to 10.0.0.1, a private address"),
    b"GET http://priv.test:PORT/ HTTP/1.1\r\n\r\n": (403, "priv.test:PORT: it leads to ::1, a loopback address"),
    b"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n": (403, "169.254.169.254:80: no allowed name has this address"),
    b"CONNECT [::1]:PORT HTTP/1.1\r\n\r\n": (403, "[::1]:PORT: no allowed name has this address"),
    b"CONNECT [::ffff:127.0.0.1]:1 HTTP/1.1\r\n\r\n": (403, "127.0.0.1:1: no allowed name has this address"),
    b"CONNECT 2130706433:PORT HTTP/1.1\r\n\r\n": (403, "2130706433:PORT: the name isn't looked up: it ends in a number"),
    b"CONNECT 127.1:PORT HTTP/1.1\r\n\r\n": (403, "127.1:PORT: the name isn't looked up: it ends in a number"),
    b"CONNECT a..test:PORT HTTP/1.1\r\n\r\n": (403, "a..test:PORT: the name isn't looked up: a part of it is empty"),
    b"GET http://gone.test/ HTTP/1.1\r\n\r\n": (502, "gone.test:80: the name can't be looked up"),
}


@pytest.mark.parametrize("data", REFUSED)
async def test_a_refusal_says_why_and_is_told(path, data):
    status, reason = REFUSED[data]
    async with scene(path) as place:
        said = await place.ask(data, ends=True)
        assert said.startswith(b"HTTP/1.1 %d " % status)
        (line,) = said.decode().partition("\r\n\r\n")[2].splitlines()
        assert line.startswith("substrat: ")
        assert reason.replace("PORT", str(place.port)).partition(": ")[0] in line
        assert any(text.startswith(reason) for text in place.denied)
        assert place.got == []


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"GET / HTTP/1.1\r\n\r\n", 400), (b"CONNECT a.test:99999 HTTP/1.1\r\n\r\n", 400), (b"\x16\x03\x01\n", 400),
     (b"GET http://a.test/ HTTP/1.1\r\nA: " + b"a" * 40_000, 431), (b"PRI * HTTP/2.0\r\n\r\n", 505)],
)  # fmt: skip
async def test_what_is_no_request(path, data, status):
    async with scene(path) as place:
        assert (await place.ask(data, ends=True)).startswith(b"HTTP/1.1 %d " % status)
        assert place.recorded == []


def hello(name):
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


async def test_the_tls_name_has_to_agree(path):
    async with scene(path) as place:
        connect = b"CONNECT a.test:PORT HTTP/1.1\r\n\r\n"
        for data in (hello("A.TEST"), hello(None), b"plain"):
            assert (await place.ask(connect + data, ends=True)).endswith(data)
        assert place.denied == []
        before = len(place.got)
        for data in (hello("b.test"), b"\x16\x03\x01\x00\x02\x01"):
            assert not (await place.ask(connect + data, ends=True)).endswith(data)
        assert len(place.got) == before
        assert place.denied == [
            "a.test:PORT: its TLS handshake names b.test instead", "a.test:PORT: its TLS handshake can't be read",
        ]  # fmt: skip


async def test_a_hello_in_pieces(path):
    async with scene(path) as place, await trio.open_unix_socket(str(path)) as stream:
        whole = f"CONNECT a.test:{place.port} HTTP/1.1\r\n\r\n".encode()
        for piece in (whole[:5], whole[5:-2], whole[-2:]):
            await stream.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        data = hello("b.test")
        await stream.send_all(data[:50])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert place.got == []
        await stream.send_all(data[50:])
        with contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        assert place.got == []


async def test_heads_that_dont_end(path, monkeypatch):
    monkeypatch.setattr("substrat.daemon.network.plain_http.HELLO_SECONDS", 0.05)
    async with scene(path) as place:
        assert (await place.ask(b"GET http://a.test")).startswith(b"HTTP/1.1 408 ")
        assert await place.ask(b"GET http://a.test", ends=True) == b""


async def test_many_connections(path):
    async with scene(path) as place, contextlib.AsyncExitStack() as stack:
        held = [
            await stack.enter_async_context(await trio.open_unix_socket(str(path)))
            for _ in range(connections.MAX_CONNECTIONS)
        ]
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await place.ask(b"", ends=True) in {b"", b"<reset>"}
        assert place.denied == ["connections: there are 256 already"]
        await held.pop().aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert b" 403 " in await place.ask(b"CONNECT b.test:1 HTTP/1.1\r\n\r\n", ends=True)


async def test_a_list_that_changes(path):
    async with scene(path) as place, await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(f"CONNECT a.test:{place.port} HTTP/1.1\r\n\r\n".encode())
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        place.relay.allow(AllowList.of(("b.test",)))
        with contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        assert place.denied == ["a.test:PORT: it isn't allowed any more, so its connection was ended"]
        assert b" 403 " in await place.ask(b"CONNECT a.test:PORT HTTP/1.1\r\n\r\n", ends=True)


pieces = st.sampled_from([
    b"CONNECT a.test:PORT HTTP/1.1\r\n\r\n", b"GET http://a.test:PORT/ HTTP/1.1\r\n\r\n", b"CONNECT ", b"[::1]:1",
    b"\r\n", b"\n", b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n\r\n",
    b"POST http://a.test:PORT/ HTTP/1.1\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"\x16\x03\x01", b"\0" * 3000, b"a" * 40_000,
]) | st.binary(max_size=60)  # fmt: skip
ends = st.sampled_from(["close", "half", "hold"])


@settings(max_examples=int(40 * DEEP))
@given(st.lists(st.tuples(st.lists(pieces, max_size=5), ends), max_size=6))
def test_it_serves_on_whatever_comes(tmp_path_factory, disturbances):
    async def main():
        path = tmp_path_factory.getbasetemp() / f"fuzz-{os.getpid()}"
        async with scene(path) as place, contextlib.AsyncExitStack() as held:
            for parts, end in disturbances:
                stream = await held.enter_async_context(await trio.open_unix_socket(str(path)))
                with contextlib.suppress(trio.BrokenResourceError):
                    for part in parts:
                        await stream.send_all(part.replace(b"PORT", str(place.port).encode()))
                    if end == "half":
                        await stream.send_eof()
                if end == "close":
                    await stream.aclose()
            said = await place.ask(b"CONNECT a.test:PORT HTTP/1.1\r\n\r\nhello", ends=True)
            assert said.endswith(b"\r\n\r\nhello")
            assert all(decision.text.isprintable() and len(decision.text) < 500 for decision in place.recorded)

    trio.run(main)


# What is said in a tunnel

CONNECT = b"CONNECT a.test:PORT HTTP/1.1\r\n\r\n"


BEFORE_A_HELLO = {
    "warning": b"\x15\3\1\0\2\1\0", "warning, any version": b"\x15\x0f\xff\0\2\1\0", "heartbeat": b"\x18\3\3\0\0",
    "empty": b"\x16\3\1\0\0", "ciphers": b"\x14\3\3\0\1\1", "data": b"\x17\3\3\0\0", "SSLv2": b"\x80\x2e\1\3\1",
    "proxy": b"PROXY UNKNOWN\r\n", "proxy 2": b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
}  # fmt: skip


async def end_of(stream):
    """Wait for a stream's end, whatever comes before it; true when it has come."""
    with contextlib.suppress(trio.BrokenResourceError):
        while await stream.receive_some():
            pass
    return True


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("first", BEFORE_A_HELLO.values(), ids=BEFORE_A_HELLO)
async def test_nothing_stands_before_a_hello(path, first, in_pieces):
    async with scene(path) as place:
        data = first + hello("b.test")
        if not in_pieces:
            assert (await place.ask(CONNECT + data)).removesuffix(b"<reset>").endswith(b"established\r\n\r\n")
        else:
            async with await trio.open_unix_socket(str(path)) as stream:
                await stream.send_all(CONNECT.replace(b"PORT", str(place.port).encode()))
                assert b"200" in await stream.receive_some()
                with contextlib.suppress(trio.BrokenResourceError):
                    for byte in data:
                        await stream.send_all(bytes([byte]))
                        await trio.testing.wait_all_tasks_blocked(0.001)
                assert await end_of(stream)
        assert place.denied == ["a.test:PORT: its TLS handshake can't be read"]
        got = b"".join(place.got)
        assert first not in got
        assert b"b.test" not in got


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-x\r\n", b"\r\n", b"P", b"PRO", b"\x80", b"\x17", b"\xff\xfb", b"\0\0\0\x08\x04\xd2\x16\x2f"]
)
async def test_other_protocols_go_on_however_little_is_said_first(path, said):
    async with scene(path) as place:
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(CONNECT.replace(b"PORT", str(place.port).encode()))
            assert b"200" in await stream.receive_some()
            await stream.send_all(said)
            assert await stream.receive_some() == said
            await stream.send_all(b"and more")
            assert await stream.receive_some() == b"and more"
        assert place.denied == []


class Frontend:
    """A server for several names, as a shared one is, that notes which were asked for."""

    def __init__(self, directory, curve):
        self.names: list[str | None] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate(directory))
        if curve:
            self.context.set_ecdh_curve(curve)
        self.context.sni_callback = lambda _, name, __: self.names.append(name)

    async def serve(self, stream):
        encrypted = trio.SSLStream(stream, self.context, server_side=True)
        with contextlib.suppress(trio.BrokenResourceError, ssl.SSLError):
            await encrypted.send_all(b"hi " + await encrypted.receive_some())


@pytest.mark.parametrize("curve", [None, "secp384r1"], ids=["at once", "asked for a second hello"])
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_real_handshake(path, tmp_path, curve, newest):
    frontend = Frontend(tmp_path, curve)
    async with scene(path) as place:
        place.serving = frontend.serve
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(CONNECT.replace(b"PORT", str(place.port).encode()))
            assert b"200" in await stream.receive_some()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, newest
            encrypted = trio.SSLStream(stream, context, server_hostname="a.test")
            await encrypted.send_all(b"me")
            assert await encrypted.receive_some() == b"hi me"
        assert place.denied == []
        assert set(frontend.names) == {"a.test"}


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_second_hello_has_to_agree_too(path, tmp_path, at_once):
    """A client that offers no key the server takes is asked again, and may name another server then."""
    frontend = Frontend(tmp_path, "secp384r1")
    async with scene(path) as place:
        place.serving = frontend.serve
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        came, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(came, said, server_hostname="a.test")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        first = said.read()
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(CONNECT.replace(b"PORT", str(place.port).encode()))
            assert b"200" in await stream.receive_some()
            await stream.send_all(first + (first.replace(b"a.test", b"b.test") if at_once else b""))
            with contextlib.suppress(trio.BrokenResourceError):
                came.write(await stream.receive_some())
            if not at_once:
                with pytest.raises(ssl.SSLWantReadError):
                    client.do_handshake()
                await stream.send_all(said.read().replace(b"a.test", b"b.test"))
            assert await end_of(stream)
        assert place.denied == ["a.test:PORT: its TLS handshake names b.test instead"]
        assert frontend.names == ["a.test"]
