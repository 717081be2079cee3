"""Requests to a proxy: those that are read and refused, in any pieces."""

import http.client
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.netfilter import proxying
from substrat.core.netfilter.proxying import LARGEST, BadRequest, Body, answer, read
from tests.support.cases import each


def head(text):
    return text.replace("\n", "\r\n").encode("latin-1")


CONNECTS = [
    ("a.test:443", "a.test", 443),
    ("A.Test.:8443", "A.Test.", 8443),
    ("9.9.9.9:80", "9.9.9.9", 80),
    ("[2606:4700::9]:443", "2606:4700::9", 443),
    ("[::ffff:9.9.9.9]:1", "::ffff:9.9.9.9", 1),
    ("a.test:0443", "a.test", 443),
]


@pytest.mark.parametrize(("target", "host", "port"), CONNECTS)
def test_a_tunnel(target, host, port):
    found = read(head(f"CONNECT {target} HTTP/1.1\nHost: x\nProxy-Connection: keep-alive\n\n") + b"\x16rest")
    assert (found.host, found.port, found.is_tunnel, found.rest) == (host, port, True, b"\x16rest")


PLAIN = [
    ("http://a.test", "a.test", 80, b"GET / HTTP/1.1"),
    ("HTTP://a.test/", "a.test", 80, b"GET / HTTP/1.1"),
    ("http://a.test:8080/x?y=http://b.test/", "a.test", 8080, b"GET /x?y=http://b.test/ HTTP/1.1"),
    ("http://a.test?q", "a.test", 80, b"GET /?q HTTP/1.1"),
    ("http://[::1]:9/x", "::1", 9, b"GET /x HTTP/1.1"),
    ("http://a.test/@b.test", "a.test", 80, b"GET /@b.test HTTP/1.1"),
]


@pytest.mark.parametrize(("target", "host", "port", "line"), PLAIN)
def test_a_plain_request(target, host, port, line):
    found = read(head(f"GET {target} HTTP/1.1\nHost: other.test\nAccept: */*\n\n"))
    assert (found.host, found.port, found.is_tunnel) == (host, port, False)
    assert found.head.startswith(line + b"\r\nHost: ")
    assert found.head.count(b"Host:") == 1
    assert b"other.test" not in found.head
    assert found.head.endswith(b"\r\nAccept: */*\r\nConnection: close\r\n\r\n")
    assert found.body.is_over


def test_a_request_to_a_server_gets_the_name_that_was_looked_up():
    found = read(head("GET /x HTTP/1.1\nHost: other.test\n\n"), "a.test")
    assert (found.host, found.port, found.head) == (
        "a.test",
        80,
        head("GET /x HTTP/1.1\nHost: a.test\nConnection: close\n\n"),
    )
    for other in ("GET / HTTP/1.1\nUpgrade: websocket\n\n", "GET http://b.test/ HTTP/1.1\n\n", "CONNECT b:1 HTTP/1.1\n\n",
                  "\x16\x03\x01"):  # fmt: skip
        with pytest.raises(BadRequest):
            read(head(other), "a.test")


def test_what_is_between_hops_isnt_passed_on():
    found = read(head(
        "POST http://a.test/ HTTP/1.1\nConnection: keep-alive, X-Mine, Content-Length\nX-Mine: 1\nKeep-Alive: 5\n"
        "Proxy-Authorization: Basic x\nProxy-Connection: y\nTE: trailers\nUpgrade: h2c\nContent-Length: 3\nCookie: c\n\nabc"
    ))  # fmt: skip
    assert found.head == head("POST / HTTP/1.1\nHost: a.test\nContent-Length: 3\nCookie: c\nConnection: close\n\n")
    assert found.body.take(found.rest) == 3
    assert found.body.is_over
    assert read(head("OPTIONS http://a.test HTTP/1.0\n\n")).head.startswith(b"OPTIONS * HTTP/1.0\r\n")


REFUSED = {
    "CONNECT a.test HTTP/1.1\n\n": 400,
    "CONNECT a.test:0 HTTP/1.1\n\n": 400,
    "CONNECT a.test:65536 HTTP/1.1\n\n": 400,
    "CONNECT a.test:99999999999 HTTP/1.1\n\n": 400,
    "CONNECT a.test:+1 HTTP/1.1\n\n": 400,
    "CONNECT a:b.test:443 HTTP/1.1\n\n": 400,
    "CONNECT me@a.test:443 HTTP/1.1\n\n": 400,
    "CONNECT [a.test]:443 HTTP/1.1\n\n": 400,
    "CONNECT [::1 HTTP/1.1\n\n": 400,
    "CONNECT [fe80::1%25lo]:443 HTTP/1.1\n\n": 400,
    "CONNECT ::1:443 HTTP/1.1\n\n": 400,
    "CONNECT a.test:443 HTTP/2\n\n": 505,
    "CONNECT  a.test:443 HTTP/1.1\n\n": 400,
    "CONNECT a.test:443\n\n": 400,
    "GET / HTTP/1.1\n\n": 400,
    "GET https://a.test/ HTTP/1.1\n\n": 400,
    "GET ftp://a.test/ HTTP/1.1\n\n": 400,
    "GET http:///x HTTP/1.1\n\n": 400,
    "GET http://me:secret@a.test/ HTTP/1.1\n\n": 400,
    "GET http://a.test/#x HTTP/1.1\n\n": 400,
    "GET http://a.test/\x00 HTTP/1.1\n\n": 400,
    "GET http://a.t\xe9st/ HTTP/1.1\n\n": 400,
    "G(T http://a.test/ HTTP/1.1\n\n": 400,
    "\nGET http://a.test/ HTTP/1.1\n\n": 400,
    "GET http://a.test/ HTTP/1.1\n folded\n\n": 400,
    "GET http://a.test/ HTTP/1.1\nA: b\n c\n\n": 400,
    "GET http://a.test/ HTTP/1.1\nA : b\n\n": 400,
    "GET http://a.test/ HTTP/1.1\nno colon\n\n": 400,
    "GET http://a.test/ HTTP/1.1\nA: \x07\n\n": 400,
    "POST http://a.test/ HTTP/1.1\nContent-Length: 1\nContent-Length: 2\n\n": 400,
    "POST http://a.test/ HTTP/1.1\nContent-Length: 1, 2\n\n": 400,
    "POST http://a.test/ HTTP/1.1\nContent-Length: -1\n\n": 400,
    "POST http://a.test/ HTTP/1.1\nContent-Length: 1\nTransfer-Encoding: chunked\n\n": 400,
    "POST http://a.test/ HTTP/1.1\nTransfer-Encoding: gzip, chunked\n\n": 400,
    "POST http://a.test/ HTTP/1.1\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n": 400,
    "POST http://a.test/ HTTP/1.0\nTransfer-Encoding: chunked\n\n": 400,
}


@each("text", REFUSED)
def test_what_is_refused(text):
    with pytest.raises(BadRequest) as problem:
        read(head(text))
    assert problem.value.status == REFUSED[text]
    assert str(problem.value).isprintable()


@pytest.mark.parametrize(
    "data", [b"GET http://a.test/ HTTP/1.1\n\n", b"GET http://a.test/ HTTP/1.1\r\nA: b\n", b"GET\rhttp://a.test/"]
)
def test_lines_end_in_one_way(data):
    with pytest.raises(BadRequest, match="CR LF"):
        read(data)


def test_a_head_has_a_bound():
    begin = b"GET http://a.test/ HTTP/1.1\r\nA: "
    assert read(begin.ljust(LARGEST, b"a")) is None
    whole = begin.ljust(LARGEST - 4, b"a") + b"\r\n\r\n"
    assert read(whole + bytes(100_000)) is not None
    for data in (begin.ljust(LARGEST + 1, b"a"), begin.ljust(LARGEST - 3, b"a") + b"\r\n\r\n"):
        with pytest.raises(BadRequest) as problem:
            read(data)
        assert problem.value.status == 431


def outcome(data):
    try:
        return read(data)
    except BadRequest as problem:
        return problem.status


words = st.sampled_from([
    b"CONNECT", b"GET", b"POST", b" ", b"a.test:443", b"http://a.test/", b"[::1]:80", b"HTTP/1.1", b"\r\n", b"\r\n\r\n",
    b"\n", b"\r", b"Host: b", b"Content-Length: 4", b"Transfer-Encoding: chunked", b":", b"\x00", b"\xff",
])  # fmt: skip
good = st.sampled_from([
    head("CONNECT a.test:443 HTTP/1.1\nHost: a.test:443\n\n\x16\x03"), head("GET http://a.test/x HTTP/1.1\nHost: y\n\n"),
    head("POST http://a.test/x HTTP/1.1\nContent-Length: 4\n\nabcdGET http://b.test/ HTTP/1.1\n\n"),
])  # fmt: skip
streams = good | st.lists(words, max_size=12).map(b"".join) | st.binary(max_size=80)


def shown(found):
    return {**found._asdict(), "body": None} if isinstance(found, proxying.Request) else found


@given(streams, st.data())
def test_pieces_say_the_same_as_the_whole(data, draw):
    """A refused beginning stays refused, and a request that was read stays the same, with more bytes behind it."""
    cut = draw.draw(st.integers(0, len(data)))
    early, late = outcome(data[:cut]), outcome(data)
    if isinstance(early, int):
        assert isinstance(late, int)
    elif early is not None:
        assert shown(early._replace(rest=early.rest + data[cut:])) == shown(late)


@given(streams)
def test_what_is_passed_on_says_one_thing(data):
    """The standard library's reading of the new head agrees with ours."""
    found = outcome(data)
    if not isinstance(found, proxying.Request) or found.is_tunnel:
        return
    line, _, fields = found.head.partition(b"\r\n")
    assert len(line.split(b" ")) == 3
    again = http.client.parse_headers(io.BytesIO(fields))
    assert again.get_all("connection") == ["close"]
    assert len(again.get_all("host", [])) == 1
    assert not (again.get_all("content-length") and again.get_all("transfer-encoding"))


def take(body, data, cuts):
    """Give a body data in pieces; return how much it took, None if it can't be read."""
    taken = 0
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    try:
        for piece in pieces:
            count = body.take(piece)
            taken += count
            if count < len(piece):
                break
    except BadRequest:
        return None
    return taken


chunks = st.lists(st.binary(min_size=1, max_size=9), max_size=4)


def chunked(parts, trailer=b""):
    return b"".join(b"%x;q\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailer + b"\r\n"


@given(chunks, st.sampled_from([b"", b"A: b\r\n"]), st.binary(max_size=9), st.data())
def test_a_body_in_chunks_ends_where_it_says(parts, trailer, more, draw):
    whole = chunked(parts, trailer)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(whole + more)), max_size=4)))
    body = Body(None)
    assert take(body, whole + more, cuts) == len(whole)
    assert body.is_over


@given(st.integers(0, 20), st.binary(max_size=30), st.data())
def test_a_body_with_a_length_ends_there(length, data, draw):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    body = Body(length)
    assert take(body, data, cuts) == min(length, len(data))
    assert body.is_over == (len(data) >= length)


@given(
    st.binary(max_size=40) | st.lists(st.sampled_from([b"0", b"\r\n", b"\n", b"5", b"x", b";"]), max_size=9).map(b"".join)
)
def test_any_chunks_are_read_or_refused(data):
    whole, piecewise = Body(None), Body(None)
    assert take(whole, data, []) == take(piecewise, data, list(range(1, len(data))))


def test_odd_chunks_are_refused():
    for data in (
        b"5\nhello\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"\r\n",
        b" 5\r\n",
        b"1" * 16 + b"\r\n",
        b"a" * 5000,
        b"1\r\nab\r\n",
    ):
        with pytest.raises(BadRequest):
            Body(None).take(data)


def test_an_answer_is_one_line_of_text():
    said = answer(403, "Forbidden", "no")
    reader: Any = Reader(said)
    response = http.client.HTTPResponse(reader)
    response.begin()
    assert (response.status, response.read(), response.getheader("connection")) == (403, b"no\n", "close")


class Reader:
    """What http.client takes for a socket."""

    def __init__(self, data):
        self._data = data

    def makefile(self, _mode):
        return io.BytesIO(self._data)
