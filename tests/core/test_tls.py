"""The server name of a ClientHello: as OpenSSL writes it, in however many pieces; nothing raises, nothing is guessed."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core import tls
from substrat.core.tls import Hello, Kind


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


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_openssl_says(newest):
    assert tls.read(hello(NAME, newest=newest)) == Hello(Kind.HELLO, NAME)
    assert tls.read(hello(None, newest=newest)) == Hello(Kind.HELLO)


def test_every_beginning_is_incomplete():
    whole = hello(NAME)
    assert all(tls.read(whole[:size]) == Hello(Kind.INCOMPLETE) for size in range(len(whole)))
    assert tls.read(whole + b"more") == Hello(Kind.HELLO, NAME)


@given(st.integers(1, 600))
def test_in_many_records(size):
    assert tls.read(records(hello(NAME)[5:], size)) == Hello(Kind.HELLO, NAME)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x", b"PRI * HTTP/2.0", b"\x80\x2e\1\3\1", b"\x17\3\3\0\1x"]
)
def test_something_else(data):
    assert tls.read(data) == Hello(Kind.OTHER)


@pytest.mark.parametrize("data", [
    b"\x16\x05\1\0\1\1", b"\x16\3\1\0\0", b"\x16\3\1\xff\xff", handmade(None, kind=2),
    records(b"\1\xff\xff\xff" + bytes(9), 99),
    records(b"\1\0\0\x04abcd", 99), b"\x16\3\1\0\2\1\0" + b"\x15\3\1\0\2\1\0",
    handmade([names((0, b"a")), names((0, b"b"))]), handmade([names((0, b"a"), (0, b"b"))]), handmade([names((1, b"a"))]),
    handmade([names((0, b""))]), handmade([names((0, b"\xe4"))]), handmade([(0, b"\0\1")]), handmade([(0, b"")]),
    handmade([names()]),
    handmade([(0, names((0, b"a"))[1] + b"x")]),
])  # fmt: skip
def test_broken(data):
    assert tls.read(data) == Hello(Kind.BROKEN)


def test_without_extensions():
    assert tls.read(handmade(None)) == Hello(Kind.HELLO)
    assert tls.read(handmade([(16, b"\0\0")])) == Hello(Kind.HELLO)
    assert tls.read(handmade([names((0, b"a\0b"))])) == Hello(Kind.HELLO, "a\0b")


def test_it_does_not_go_on_for_ever():
    assert tls.read(records(b"\1\0\x30\xff" + bytes(200), 1) + b"\x16\3\1\0\1") == Hello(Kind.INCOMPLETE)
    assert tls.read(records(b"\1\0\x3f\xf0" + bytes(5_000), 1)).kind is Kind.BROKEN


@given(st.binary(max_size=200), st.booleans())
def test_noise_is_no_exception(data, begins):
    tls.read(b"\x16\x03\x01" + data if begins else data)


@given(st.integers(0, 600), st.integers(0, 255))
def test_damage_is_no_exception(place, byte):
    data = bytearray(HELLO)
    data[place % len(data)] = byte
    tls.read(bytes(data))


HELLO = hello(NAME)


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
        if decided is not None and decided.kind is not Kind.INCOMPLETE:
            assert found == decided
        decided = found
