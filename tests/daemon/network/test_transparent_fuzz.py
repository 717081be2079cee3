"""Random bytes and half-open connections at a network's listeners: it goes on serving other clients.

`SUBSTRAT_MODEL_DEPTH` says how many times as many are tried as usually.
"""

import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.netfilter import dns
from substrat.core.netfilter.names import AllowList
from substrat.daemon.network import transparent
from substrat.daemon.network.connections import ConnectionRelay
from substrat.daemon.network.transparent import Names, TransparentNetwork

if TYPE_CHECKING:
    from substrat.daemon.network.decisions import Decision

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
PATIENCE = 20
INSIDE, OUTSIDE = "127.0.0.2", "127.0.0.1"
DNS_INSIDE = "127.0.0.3"


def tries(count):
    return settings(max_examples=int(count * DEEP))


class OneName(Names):
    """Every address is the same name's."""

    def name(self, _address):
        return "a.test"


async def resolve(_name, _port):
    return [OUTSIDE]


async def echo(stream):
    with contextlib.suppress(trio.BrokenResourceError):
        async for piece in stream:
            await stream.send_all(piece)


def question(name, kind=dns.A):
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b".")) + b"\0"
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!2H", kind, 1)


hello = st.binary(max_size=60).map(lambda data: b"\x16\x03\x01" + data)
queries = st.binary(max_size=60) | st.lists(st.binary(min_size=1, max_size=40), max_size=4).map(b".".join).map(question)
ends = st.sampled_from(["close", "reset", "half", "hold"])
at_the_port = st.tuples(st.just("port"), st.binary(max_size=300) | hello, ends)
over_tcp = st.tuples(
    st.just("tcp"), (st.binary(max_size=80) | queries.map(lambda query: struct.pack("!H", len(query)) + query)), ends
)
over_udp = st.tuples(st.just("udp"), st.binary(max_size=600) | queries, st.just("close"))
RESET = struct.pack("ii", 1, 0)


class Scene:
    """A transparent network on addresses of the loopback, with a server outside that echoes."""

    def __init__(self, listeners, port, dns_port, held):
        self.listeners = listeners
        self.places = {"port": (INSIDE, port), "tcp": (DNS_INSIDE, dns_port), "udp": (DNS_INSIDE, dns_port)}
        self.held = held

    async def disturb(self, where, data, end):
        """Send something, and end in one of the ways in which a program can."""
        if where == "udp":
            with trio.socket.socket(type=socket.SOCK_DGRAM) as datagram:
                await datagram.sendto(data, self.places[where])
            return
        stream = await trio.open_tcp_stream(*self.places[where])
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data)
            if end == "half":
                await stream.send_eof()
        if end == "reset":
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if end == "hold":
            self.held.push_async_callback(stream.aclose)
        else:
            await stream.aclose()

    async def works(self):
        """Whether an ordinary client is served at each listener."""
        async with await trio.open_tcp_stream(*self.places["port"]) as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        asked = question(b"a.test")
        async with await trio.open_tcp_stream(*self.places["tcp"]) as stream:
            await stream.send_all(struct.pack("!H", len(asked)) + asked)
            assert (await stream.receive_some())[2:4] == asked[:2]
        with trio.socket.socket(type=socket.SOCK_DGRAM) as datagram:
            await datagram.connect(self.places["udp"])
            await datagram.send(asked)
            assert (await datagram.recv(999))[:2] == asked[:2]


@contextlib.asynccontextmanager
async def scene(recorded):
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as held:
            (outside,) = await trio.open_tcp_listeners(0, host=OUTSIDE)
            port = outside.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, echo, [outside])
            listeners = [socket.create_server((INSIDE, port)), socket.create_server((DNS_INSIDE, 0))]
            dns_port = listeners[1].getsockname()[1]
            datagrams = socket.socket(type=socket.SOCK_DGRAM)
            datagrams.bind((DNS_INSIDE, dns_port))
            listeners.append(datagrams)
            before, transparent._DNS_PORT = transparent._DNS_PORT, dns_port
            try:
                allow = AllowList.of((f"a.test:{port}", f"{OUTSIDE}:{port}"))
                nursery.start_soon(
                    TransparentNetwork(ConnectionRelay(allow, recorded.append, resolve), OneName()).serve, listeners
                )
                yield Scene(listeners, port, dns_port, held)
            finally:
                transparent._DNS_PORT = before
            await held.aclose()
            nursery.cancel_scope.cancel()
    assert all(listener.fileno() == -1 for listener in listeners)


@tries(30)
@given(st.lists(at_the_port | over_tcp | over_udp, max_size=8))
def test_it_serves_on_whatever_comes(disturbances):
    recorded: list[Decision] = []

    async def main():
        async with scene(recorded) as place:
            for disturbance in disturbances:
                await place.disturb(*disturbance)
            await place.works()

    trio.run(main)
    assert all(decision.text.isprintable() and len(decision.text) < 500 for decision in recorded)


@tries(300)
@given(queries | st.binary(max_size=700))
def test_an_answer_is_well_formed_and_short(message):
    recorded: list[Decision] = []
    answer = TransparentNetwork(
        ConnectionRelay(AllowList.of(("*.a.test", "a.test")), recorded.append, resolve), Names()
    ).answer(message)
    assert all(decision.text.isprintable() and len(decision.text) < 500 for decision in recorded)
    if answer is None:
        return
    number, flags, questions, answers, authorities, additional = struct.unpack_from("!6H", answer)
    assert number == int.from_bytes(message[:2], "big")
    assert flags & 0x8000
    assert (authorities, questions <= 1, answers <= 1, additional <= 1) == (0, True, True, True)
    assert len(answer) <= 512
    assert len(answer) <= len(message) + 28
