"""Reads the head of one HTTP request to a proxy, and counts its body, strictly by RFC 9112. Pure.

A request that could be read in two ways is refused: the client is an agent, and the server may read it the other way.
Example: `Content-Length` together with `Transfer-Encoding`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

LARGEST = 32 * 1024
"""A head may have this many bytes; with a session's cookies it has some 4,000."""

_VISIBLE = re.compile(rb"[!-~]+")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#]+)(?::([0-9]{1,5}))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[\t -~\x80-\xff]*)?")
_LONGEST_CHUNK_LINE = 4096  # a few digits; extensions, rarely used, may follow (RFC 9112, 7.1.1)
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
_BETWEEN_HOPS = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"upgrade",
})  # fmt: skip
_FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding"})


class BadRequest(Exception):
    """The proxy doesn't answer this request; the message says why, `status` is HTTP's."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class Request(NamedTuple):
    """One request.

    Args:
        host: the server's name or address as the client wrote it; an IPv6 address without its brackets.
        port: the port there.
        head: the head to send to the server; None for a tunnel (CONNECT).
        body: counts the body.
        rest: the bytes that came behind the head.
    """

    host: str
    port: int
    head: bytes | None
    body: Body
    rest: bytes

    @property
    def is_tunnel(self) -> bool:
        """Whether the client asks for a tunnel (CONNECT)."""
        return self.head is None


class Body:
    """Counts the bytes of a request's body, as they come.

    Args:
        length: how many there are; None: the body comes in chunks, each with its length (RFC 9112, 7.1).
    """

    def __init__(self, length: int | None = 0) -> None:
        self._left = length or 0
        self._in_chunks = length is None
        self._line = b""
        self._is_last = False
        self._ends_chunk = False
        self.is_over = length == 0

    def take(self, data: bytes) -> int:
        """Return how many of some further bytes belong to the body; raises `BadRequest` if its chunks can't be read."""
        at = 0
        while at < len(data) and not self.is_over:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                self.is_over = not self._left and not self._in_chunks
            else:
                at = self._take_line(data, at)
        return at

    def _take_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end + 1
        self._line += data[at:stop]
        if len(self._line) > _LONGEST_CHUNK_LINE:
            raise BadRequest("a chunk's line is too long")
        if end >= 0:
            line, self._line = self._line, b""
            self._read_line(line)
        return stop

    def _read_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n") or not _VALUE.fullmatch(line[:-2]):
            raise BadRequest("a chunk's line can't be read")
        if self._ends_chunk:
            self._ends_chunk = False
            if line != b"\r\n":
                raise BadRequest("a chunk is longer than it says")
            return
        if self._is_last:  # trailers, up to an empty line
            self.is_over = line == b"\r\n"
            return
        found = _CHUNK_SIZE.fullmatch(line[:-2])
        if found is None:
            raise BadRequest("a chunk's size can't be read")
        size = int(found[1], 16)
        self._is_last = size == 0
        self._ends_chunk = size > 0
        self._left = size


def read(data: bytes, server: str | None = None) -> Request | None:
    """Read everything that was sent so far; None: the head isn't whole yet.

    Args:
        data: the bytes.
        server: the host that they are sent to, if it isn't a proxy; None: the request names it.

    Raises:
        BadRequest: no continuation could make it a request that the proxy answers.
    """
    if data and not _TOKEN.match(data):
        raise BadRequest("it doesn't begin with a method")
    end = data.find(b"\r\n\r\n")
    head = data[: LARGEST if end < 0 else end + 2]
    lines = head.split(b"\n")
    if any(not line.endswith(b"\r") for line in lines[:-1]) or any(b"\r" in line[:-1] for line in lines):
        raise BadRequest("a line of the request doesn't end in CR LF")
    if (len(data) if end < 0 else end + 4) > LARGEST:
        raise BadRequest(f"the request's head is longer than {LARGEST} bytes", 431)
    if end < 0:
        return None
    first, *rest = (line[:-1] for line in lines[:-1])
    fields = [_field(line) for line in rest]
    return _request(first, fields, data[end + 4 :], server)


def _request(line: bytes, fields: list[tuple[bytes, bytes]], rest: bytes, server: str | None) -> Request:
    words = line.split(b" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]) or not _VISIBLE.fullmatch(words[1]):
        raise BadRequest("its first line isn't METHOD TARGET VERSION")
    method, target, version = words
    if version not in _VERSIONS:
        raise BadRequest("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
    if server is not None:
        if not target.startswith(b"/") or _all(fields, b"upgrade"):
            raise BadRequest("it isn't a plain request for a path")
        target = b"http://" + server.encode("ascii") + target
    if method == b"CONNECT":
        host, port = _authority(target, None)
        return Request(host, port, None, Body(), rest)
    if target[:7].lower() != b"http://":
        raise BadRequest("this is a proxy: it takes CONNECT HOST:PORT and http:// addresses")
    at = re.search(rb"[/?#]|$", target[7:])
    assert at is not None
    authority, path = target[7 : 7 + at.start()], target[7 + at.start() :]
    host, port = _authority(authority, 80)
    if b"#" in path:
        raise BadRequest("its address has a fragment")
    if not path.startswith(b"/"):
        path = b"*" if method == b"OPTIONS" and not path else b"/" + path
    body = _body(fields, version)
    kept = [(name, value) for name, value in fields if name.lower() not in _not_passed_on(fields)]
    passed = [(b"Host", authority), *kept, (b"Connection", b"close")]
    head = b" ".join((method, path, version)) + b"\r\n" + b"".join(b"%b: %b\r\n" % field for field in passed) + b"\r\n"
    return Request(host, port, head, body, rest)


def _authority(text: bytes, default: int | None) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text.decode("ascii"))
    if found is None or (found[2] is None and default is None):
        raise BadRequest("its address isn't HOST:PORT")
    port = int(found[2]) if found[2] is not None else default
    if port is None or not 1 <= port <= 65535:
        raise BadRequest("its port isn't a number from 1 to 65535")
    host = found[1]
    if host.startswith("["):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise BadRequest("the text in its address's brackets isn't an IPv6 address") from None
    return host, port


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    # Refused here: a line that begins with white space, once the continuation of the line before (RFC 9112, 5.2), and a
    # space between name and colon (5.1).
    if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
        raise BadRequest("a line of its head isn't NAME: VALUE")
    return name, value.strip(b" \t")


def _not_passed_on(fields: list[tuple[bytes, bytes]]) -> set[bytes]:
    named = {word.strip(b" \t").lower() for word in b",".join(_all(fields, b"connection")).split(b",")}
    return (named - _FRAMING) | _BETWEEN_HOPS | {b"host"}


def _all(fields: list[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    return [value for name, value in fields if name.lower() == wanted]


def _body(fields: list[tuple[bytes, bytes]], version: bytes) -> Body:
    lengths, codings = _all(fields, b"content-length"), _all(fields, b"transfer-encoding")
    if codings:
        if lengths or version != b"HTTP/1.1" or [coding.lower() for coding in codings] != [b"chunked"]:
            raise BadRequest("the length of its body can be read in two ways")
        return Body(None)
    if not lengths:
        return Body()
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadRequest("its Content-Length isn't one number")
    return Body(int(lengths[0]))


def answer(status: int, reason: str, text: str) -> bytes:
    """Return a whole answer with one line of text.

    Args:
        status: HTTP's status code, for example 403.
        reason: the code's name, for example `Forbidden`.
        text: the sentence for a person.
    """
    body = (text + "\n").encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
