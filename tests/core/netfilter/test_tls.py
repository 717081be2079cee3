"""The server name of a ClientHello: as OpenSSL writes it, in however many pieces; nothing raises, nothing is guessed."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.netfilter import tls
from substrat.core.netfilter.tls import Hello, HelloKind
from tests.support.cases import each
from tests.support.certificate import certificate


def hello(name, *, newest=ssl.TLSVersion.TLSv1_3):
    """What OpenSSL says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.maximum_version = newest
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def records(message, size):
    """Split a handshake message into records of so many bytes."""
    pieces = [message[start : start + size] for start in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def handmade(extensions, *, kind=1):
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0"
    if extensions is not None:
        packed = b"".join(k.to_bytes(2, "big") + len(b).to_bytes(2, "big") + b for k, b in extensions)
        body += len(packed).to_bytes(2, "big") + packed
    return records(bytes([kind]) + len(body).to_bytes(3, "big") + body, 1 << 14)


def names(*entries):
    packed = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for kind, name in entries)
    return (0, len(packed).to_bytes(2, "big") + packed)


NAME = "some.Example.com"
HELLO = hello(NAME)


def test_what_openssl_says():
    for newest in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
        assert tls.read(hello(NAME, newest=newest)) == Hello(HelloKind.HELLO, NAME)
        assert tls.read(hello(None, newest=newest)) == Hello(HelloKind.HELLO)


def test_every_beginning_is_incomplete():
    whole = hello(NAME)
    assert all(tls.read(whole[:size]) == Hello(HelloKind.INCOMPLETE) for size in range(1, len(whole)))
    assert tls.read(b"") == Hello(HelloKind.UNDECIDED)
    assert tls.end_of_hello(whole + b"more") == len(whole)
    assert tls.read(whole + b"more") == Hello(HelloKind.HELLO, NAME)


@given(st.integers(1, 600))
def test_in_many_records(size):
    assert tls.read(records(hello(NAME)[5:], size)) == Hello(HelloKind.HELLO, NAME)


ELSE = [
    b"GET / HTTP/1.1\r\n", b"SSH-2.0-x", b"PRI * HTTP/2.0", b"PROXIED", b"\r\n\r\n\0\r\nQUIZ", b"\x17\x10\0\0\0",
    b"\x80\0\0\0", b"\xff\xfb\x18", b"\x20\0\0\1", b"\0\0\0\x08\x04\xd2\x16\x2f", b"\x00",
]  # fmt: skip


def test_something_else():
    for data in ELSE:
        assert tls.read(data) == Hello(HelloKind.OTHER)


SKIPPED = {
    "warning": b"\x15\3\1\0\2\1\0", "warning of an odd version": b"\x15\x0f\xff\0\2\1\0", "heartbeat": b"\x18\3\3\0\1x",
    "version 0": b"\x15\0\0\0\2\1\x5a", "ciphers changed": b"\x14\3\3\0\1\1", "data": b"\x17\3\3\0\1x",
    "empty data": b"\x17\3\3\0\0",
    "empty handshake": b"\x16\3\1\0\0", "connection id": b"\x19\3\3\0\0", "acknowledgement": b"\x1a\3\3\0\0",
    "SSLv2": b"\x80\x2e\1\3\1\0\x15\0\0\0\x10", "SSLv2, long": b"\xff\xff\1\0\2",
    "hello request": b"\x16\3\1\0\4\0\0\0\0",
    "proxy 1": b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n", "proxy 1, unknown": b"PROXY UNKNOWN\r\n",
    "proxy 2": b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
}  # fmt: skip


@pytest.mark.parametrize("data", SKIPPED.values(), ids=SKIPPED)
def test_what_some_server_skips_before_a_hello_is_broken(data):
    """Nothing of it may be passed on whole, in whatever pieces it comes."""
    assert tls.read(data) == tls.read(data + HELLO) == Hello(HelloKind.BROKEN)
    kinds = [tls.read((data + HELLO)[:size]).kind for size in range(1, len(data) + len(HELLO))]
    undecided = kinds.index(HelloKind.BROKEN)
    assert set(kinds[:undecided]) <= {HelloKind.UNDECIDED, HelloKind.INCOMPLETE}
    assert set(kinds[undecided:]) == {HelloKind.BROKEN}
    # A record's head has 5 bytes, SSLv2's has 3: undecided bytes were no head yet.
    assert kinds[:undecided].count(HelloKind.UNDECIDED) < (12 if data[0] in b"P\r" else 3)


@each("first", range(256))
def test_no_first_byte_leaves_a_hello_behind_it_unread(first):
    """In front of a hello there is either another protocol's byte, which no TLS server skips, or nothing is passed on."""
    found = tls.read(bytes([first, 3, 1, 0, 2, 1, 0]) + HELLO)
    assert found.kind is (HelloKind.BROKEN if first in range(20, 27) or first & 0x80 else HelloKind.OTHER)


def test_two_messages_in_one_record_are_broken():
    message = HELLO[5:]
    assert tls.read(records(message + message, 1 << 14)).kind is HelloKind.BROKEN
    assert tls.read(records(message + b"x", 1 << 14)[:-1]).kind is HelloKind.BROKEN
    assert tls.read(records(message, 1 << 14) * 2) == Hello(HelloKind.HELLO, NAME)


@pytest.fixture
def flight(tmp_path):
    """A client's hello, the answer of an OpenSSL server that wants another group, and the client's second hello."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate(tmp_path))
    server.set_ecdh_curve("secp384r1")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=NAME)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    said = []
    for end, out in ((ours, to_server), (theirs, to_client), (ours, to_server)):
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
        said.append(out.read())
        out.write(said[-1])
    return said


def test_a_second_hello(flight):
    first, retry, second = flight
    assert tls.read(first) == tls.read_second(second) == Hello(HelloKind.HELLO, NAME)
    assert [tls.wants_another(retry[:size]) for size in (0, 42, 43, len(retry))] == [None, None, True, True]
    assert tls.wants_another(b"\x15\3\3\0\2\1\x70" + retry) is True
    assert (
        tls.wants_another(retry[:42] + b"?")
        is tls.wants_another(b"SSH-2.0")
        is tls.wants_another(b"\x16\3\3\0\x5a\1")
        is False
    )
    early = b"\x17\3\3\0\3abc\x14\3\3\0\1\1"
    assert tls.read_second(early + second) == Hello(HelloKind.HELLO, NAME)
    assert all(tls.read_second((early + second)[:size]).kind is HelloKind.INCOMPLETE for size in range(len(early + second)))


def test_what_is_no_second_hello_is_broken():
    for data in [b"GET", b"\x15\3\1\0\2\1\0", b"\x16\3\3\0\4\x10\0\0\0", b"PROXY ", b"\x17\3\3\x40\0" + bytes(20_000)]:
        assert tls.read_second(data).kind is HelloKind.BROKEN


def test_broken():
    for data in [
        b"\x16\x05\1\0\1\1",
        b"\x16\3\1\0\0",
        b"\x16\3\1\xff\xff",
        handmade(None, kind=2),
        records(b"\1\xff\xff\xff" + bytes(9), 99),
        records(b"\1\0\0\x04abcd", 99),
        b"\x16\3\1\0\2\1\0" + b"\x15\3\1\0\2\1\0",
        handmade([names((0, b"a")), names((0, b"b"))]),
        handmade([names((0, b"a"), (0, b"b"))]),
        handmade([names((1, b"a"))]),
        handmade([names((0, b""))]),
        handmade([names((0, b"\xe4"))]),
        handmade([(0, b"\0\1")]),
        handmade([(0, b"")]),
        handmade([names()]),
        handmade([(0, names((0, b"a"))[1] + b"x")]),
    ]:
        assert tls.read(data) == Hello(HelloKind.BROKEN)


def test_without_extensions():
    assert tls.read(handmade(None)) == Hello(HelloKind.HELLO)
    assert tls.read(handmade([(16, b"\0\0")])) == Hello(HelloKind.HELLO)
    assert tls.read(handmade([names((0, b"a\0b"))])) == Hello(HelloKind.HELLO, "a\0b")


def test_it_does_not_go_on_for_ever():
    assert tls.read(records(b"\1\0\x30\xff" + bytes(200), 1) + b"\x16\3\1\0\1") == Hello(HelloKind.INCOMPLETE)
    assert tls.read(records(b"\1\0\x3f\xf0" + bytes(5_000), 1)).kind is HelloKind.BROKEN


@given(st.binary(max_size=200), st.booleans())
def test_noise_is_no_exception(data, begins):
    tls.read(b"\x16\x03\x01" + data if begins else data)


@given(st.integers(0, 600), st.integers(0, 255))
def test_damage_is_no_exception(place, byte):
    data = bytearray(HELLO)
    data[place % len(data)] = byte
    tls.read(bytes(data))


@given(st.binary(max_size=300), st.integers(0, 600), st.integers(0, 255), st.booleans())
def test_what_is_decided_stays_so_whatever_follows(more, place, byte, damaged):
    """Bytes arrive in pieces: a decision about the first must not depend on how many there were."""
    data = bytearray(HELLO)
    if damaged:
        data[place % len(data)] = byte
    data = bytes(data[: place + 1]) + more
    decided = None
    for size in range(0, len(data) + 1, 7):
        found = tls.read(data[:size])
        if decided is not None and decided.kind not in {HelloKind.INCOMPLETE, HelloKind.UNDECIDED}:
            assert found == decided
        decided = found
