"""DNS messages: queries are read strictly, another reader understands the answers, no input raises."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.netfilter import dns
from tests.support.optional import present

labels = st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True), max_size=5)


def query(labels, kind=dns.A, *, number=7, flags=0x0100, cls=1, counts=(1, 0, 0, 0), tail=b""):
    question = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in labels) + b"\0"
    return struct.pack("!6H", number, flags, *counts) + question + struct.pack("!2H", kind, cls) + tail


EDNS = struct.pack("!BHHIH", 0, 41, 4096, 0, 0)


@given(labels, st.integers(0, 65535), st.integers(0, 65535), st.booleans())
def test_a_query_is_read(labels, kind, number, edns):
    tail, counts = (EDNS, (1, 0, 0, 1)) if edns else (b"", (1, 0, 0, 0))
    read = dns.parse(query(labels, kind, number=number, counts=counts, tail=tail))
    assert isinstance(read, dns.Query)
    assert (read.id, read.name, read.type, read.cls, read.edns) == (number, ".".join(labels), kind, 1, edns)


@given(st.binary(max_size=600))
def test_noise_is_no_exception(data):
    read = dns.parse(data)
    assert isinstance(read, dns.Query) or read.answer is None or len(read.answer) == 12


@given(labels, st.integers(0, 300), st.integers(0, 255))
def test_a_damaged_query_is_no_exception(labels, place, byte):
    data = bytearray(query(labels))
    data[place % len(data)] = byte
    dns.parse(bytes(data))
    dns.parse(bytes(data)[: place % len(data)])


@given(labels, st.lists(st.ip_addresses(v=4), max_size=3), st.booleans(), st.sampled_from([0, 2, 3, 5]))
def test_an_answer(labels, addresses, edns, code):
    asked = dns.parse(query(labels, counts=(1, 0, 0, int(edns)), tail=EDNS if edns else b""))
    assert isinstance(asked, dns.Query)
    told = dns.answer(asked, code, tuple(map(str, addresses)))
    number, flags, questions, answers, authorities, additional = struct.unpack_from("!6H", told)
    assert (number, flags & 0x8000, flags & 15, flags & 0x0100) == (7, 0x8000, code, 0x0100)
    assert (questions, answers, authorities, additional) == (1, len(addresses), 0, int(edns))
    position = 12 + len(asked.question)
    assert told[12:position] == asked.question
    for address in addresses:
        pointer, kind, cls, ttl, length = struct.unpack_from("!HHHIH", told, position)
        assert (pointer, kind, cls, ttl, length) == (0xC00C, dns.A, 1, dns.TTL, 4)
        assert told[position + 12 : position + 16] == address.packed
        position += 16
    assert told[position:] == (struct.pack("!BHHIH", 0, 41, dns.LARGEST_UDP, 0, 0) if edns else b"")


def test_an_ipv6_answer():
    asked = dns.parse(query(["a"], dns.AAAA))
    assert isinstance(asked, dns.Query)
    assert dns.answer(asked, 0, ("fd00::1",)).endswith(b"\0\x10" + ipaddress.ip_address("fd00::1").packed)


@pytest.mark.parametrize("message", [
    b"", b"x" * 11, query(["a"], flags=0x8100),
])  # fmt: skip
def test_not_worth_an_answer(message):
    assert dns.parse(message) == dns.Malformed(None)


@pytest.mark.parametrize(("message", "code"), [
    (query(["a"], flags=0x2800), dns.NOT_IMPLEMENTED),
    (query(["a"], counts=(2, 0, 0, 0)), dns.FORMAT_ERROR),
    (query(["a"], counts=(1, 1, 0, 0)), dns.FORMAT_ERROR),
    (query(["a"], counts=(0, 0, 0, 0)), dns.FORMAT_ERROR),
    (query(["a"], tail=b"x"), dns.FORMAT_ERROR),
    (query(["a"], counts=(1, 0, 0, 1)), dns.FORMAT_ERROR),
    (query(["a"])[:-1], dns.FORMAT_ERROR),
    (query(["a" * 63] * 5), dns.FORMAT_ERROR),
    (struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", dns.FORMAT_ERROR),
    (struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\x05ab", dns.FORMAT_ERROR),
])  # fmt: skip
def test_malformed(message, code):
    found = dns.parse(message)
    assert isinstance(found, dns.Malformed)
    answer = present(found.answer)
    assert struct.unpack("!6H", answer)[0] == 7
    assert answer[3] & 15 == code


def test_bytes_that_names_do_not_have_show():
    assert dns.parse(query(["evil.com\0", "b\xe9"])).name == "evil?com?.b?"


@given(st.lists(st.sampled_from([b"\xc0\x0c", b"\xc0\x0e", b"\xc0\xff", b"\x01a", b"\x3f", b"\x40", b"\0"]), max_size=9))
def test_pointers_lead_nowhere(parts):
    """A pointer has nothing before the question to point at, so a loop of them isn't followed."""
    message = struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"".join(parts) + struct.pack("!2H", 1, 1)
    read = dns.parse(message)
    if isinstance(read, dns.Query):
        assert b"\xc0" not in read.question[:-4]
        assert len(read.name) < 255


@given(st.lists(st.binary(min_size=1, max_size=63), max_size=6), st.booleans())
def test_an_answer_fits_into_the_smallest_datagram(parts, edns):
    name = b"".join(bytes([len(part)]) + part for part in parts) + b"\0"
    head = struct.pack("!6H", 7, 0x0100, 1, 0, 0, int(edns))
    asked = dns.parse(head + name + struct.pack("!2H", dns.AAAA, 1) + (EDNS if edns else b""))
    if isinstance(asked, dns.Query):
        assert len(dns.answer(asked, 0, ("fd00::1",))) <= 512
