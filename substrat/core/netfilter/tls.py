"""Reads the server name in a TLS ClientHello, from the first bytes of a connection as they arrive. Pure.

The formats are those of RFC 8446, 4.1.2 and 5.1 (older versions have the same), and RFC 6066, 3. Bytes that begin like TLS
and can't be read are `BROKEN`, never "no name": a server might read a name in them. Servers skip more than the standard
says before they read a ClientHello. For example Go's `crypto/tls` passes over warning alerts and looks only at the upper
half of the first version byte (conn.go, `readRecordOrCCS`), BoringSSL passes over empty records (tls_record.cc), OpenSSL
and Java take SSLv2's form of a ClientHello, which has no name. So every record that comes before a ClientHello is `BROKEN`.

A PROXY header (haproxy.org, proxy-protocol.txt) is `BROKEN` too: load balancers send it, a server that expects it reads the
ClientHello behind it, and no program in a sandbox is a load balancer.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

LARGEST = 16 * 1024
"""The most bytes of a ClientHello with all its records; with post-quantum key shares it has some 2,000."""

# Numbers without a source beside them: RFC 8446, 5.1 (records) and B.3 (handshake messages), RFC 6066, 3 (server names).
_RECORD_TYPES = range(20, 27)
"""From change_cipher_spec to tls12_cid and ACK (iana.org/assignments/tls-parameters, ContentType)."""
_CHANGE_CIPHER_SPEC, _ALERT, _HANDSHAKE, _APPLICATION_DATA = 20, 21, 22, 23
_FIRST_ODD_VERSION = 0x10
"""Go takes a first record for TLS up to version 0x0fff; other servers want 3 in the first byte."""
_SSL2_MESSAGES = (1, 4)
"""CLIENT-HELLO and SERVER-HELLO, which Java looks for (draft-hickman-netscape-ssl-00)."""
_PROXY_HEADERS = (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that is a HelloRetryRequest: SHA-256 of that word (RFC 8446, 4.1.3)."""
_LONGEST_RECORD = 1 << 14
_SERVER_NAME = 0
_HOST_NAME = 0


class HelloKind(Enum):
    """The kind of a connection's first bytes."""

    INCOMPLETE = "incomplete"
    """The beginning of a ClientHello: nothing of it may be passed on yet."""
    UNDECIDED = "undecided"
    """Too few bytes to tell the kind. They may be passed on, because no server can act on so few."""
    OTHER = "other"
    """Another protocol."""
    BROKEN = "broken"
    """Like TLS, but no ClientHello that can be read."""
    HELLO = "hello"


class Hello(NamedTuple):
    """The kind of some bytes, and the server name as the client wrote it, None when it gave none."""

    kind: HelloKind
    name: str | None = None


def read(data: bytes) -> Hello:
    """Look at everything a client has sent so far.

    Args:
        data: from the connection's first byte on.
    """
    if not data:
        return Hello(HelloKind.UNDECIDED)
    if data[0] != _HANDSHAKE:
        return Hello(_kind_of_other(data))
    try:
        message, _ = _first_message(data)
        name = None if message is None else _server_name(message)
    except _Broken:
        return Hello(HelloKind.BROKEN)
    if message is None:
        return Hello(HelloKind.BROKEN if len(data) >= LARGEST else HelloKind.INCOMPLETE)
    return Hello(HelloKind.HELLO, name)


def end_of_hello(data: bytes) -> int:
    """Return how many bytes the records of a whole ClientHello take.

    Args:
        data: bytes in which `read` found a ClientHello.
    """
    return _first_message(data)[1]


def wants_another(data: bytes) -> bool | None:
    """Say whether a server asks for a second ClientHello (RFC 8446, 4.1.4), which may have another name than the first.

    Args:
        data: the bytes that the server has sent so far.

    Returns:
        None while they are too few to tell.
    """
    while data[:1] == bytes([_ALERT]):  # older servers warn in front of their answer that they don't know the name
        if len(data) < 5:
            return None
        data = data[5 + int.from_bytes(data[3:5], "big") :]
    found = data[:1], data[1:2], data[5:6], data[11:43]
    wanted = bytes([_HANDSHAKE]), b"\3", bytes([_SERVER_HELLO]), _RETRY
    if any(have != want[: len(have)] for have, want in zip(found, wanted, strict=True)):
        return False
    return True if len(data) >= 43 else None


def read_second(data: bytes) -> Hello:
    """Look at everything that a client has sent since the server asked for a second ClientHello.

    It passes over early data and the empty change of ciphers, as servers do there (RFC 8446, 4.2.10 and D.4).
    """
    rest = data
    while rest[:1] and rest[0] in {_CHANGE_CIPHER_SPEC, _APPLICATION_DATA}:
        if len(rest) < 5 or len(rest) < 5 + int.from_bytes(rest[3:5], "big"):
            break
        rest = rest[5 + int.from_bytes(rest[3:5], "big") :]
    if not rest or rest[0] in {_CHANGE_CIPHER_SPEC, _APPLICATION_DATA}:
        return Hello(HelloKind.BROKEN if len(data) >= LARGEST else HelloKind.INCOMPLETE)
    found = read(rest)
    return found if found.kind in {HelloKind.HELLO, HelloKind.INCOMPLETE} else Hello(HelloKind.BROKEN)


def _kind_of_other(data: bytes) -> HelloKind:
    """Return the kind of bytes that don't begin with a handshake record."""
    for header in _PROXY_HEADERS:
        if data[: len(header)] == header[: len(data)]:
            return HelloKind.BROKEN if len(data) >= len(header) else HelloKind.UNDECIDED
    if data[0] in _RECORD_TYPES:
        return (
            HelloKind.UNDECIDED if len(data) < 2 else HelloKind.BROKEN if data[1] < _FIRST_ODD_VERSION else HelloKind.OTHER
        )
    if data[0] & 0x80:  # SSLv2: two bytes of length, the first bit set, then the message's type
        return HelloKind.UNDECIDED if len(data) < 3 else HelloKind.BROKEN if data[2] in _SSL2_MESSAGES else HelloKind.OTHER
    return HelloKind.OTHER


class _Broken(Exception):
    """The bytes aren't a ClientHello as the standard defines it."""


class _Reader:
    """Takes numbers and vectors from the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def __bool__(self) -> bool:
        return self._position < len(self._data)

    def take(self, size: int) -> bytes:
        """Take so many bytes."""
        if self._position + size > len(self._data):
            raise _Broken
        self._position += size
        return self._data[self._position - size : self._position]

    def number(self, size: int) -> int:
        """Take a number of so many bytes."""
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """Take a vector with a length of so many bytes in front."""
        return self.take(self.number(size))


def _first_message(data: bytes) -> tuple[bytes | None, int]:
    """Put the first handshake message together from its records, None while bytes are missing, and say where they end."""
    message, position, wanted, announced = b"", 0, None, 0
    while wanted is None or len(message) < wanted:
        if len(data) < position + 5:
            return None, 0
        length = int.from_bytes(data[position + 3 : position + 5], "big")
        if data[position] != _HANDSHAKE or data[position + 1] != 3 or not 0 < length <= _LONGEST_RECORD:
            raise _Broken
        # A part of a record may tell already how long the message is to be.
        message += data[position + 5 : position + 5 + length]
        announced += length
        if len(message) >= 4 and wanted is None:
            wanted = 4 + int.from_bytes(message[1:4], "big")
            if message[0] != _CLIENT_HELLO or wanted > LARGEST:
                raise _Broken
        # A second message in the same record would be a ClientHello that escapes the comparison.
        if wanted is not None and announced > wanted:
            raise _Broken
        if len(data) < position + 5 + length:
            return None, 0
        position += 5 + length
    return message[4:wanted], position


def _server_name(hello: bytes) -> str | None:
    reader = _Reader(hello)
    reader.take(2 + 32)  # version and random
    reader.vector(1)  # session
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    if not reader:
        return None
    extensions = _Reader(reader.vector(2))
    if reader:
        raise _Broken
    found = None
    while extensions:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            if found is not None:
                raise _Broken
            found = _host_name(body)
    return found


def _host_name(extension: bytes) -> str:
    """Read the extension, a list of names: the standard allows one of each kind, and defines one kind."""
    reader = _Reader(extension)
    names = _Reader(reader.vector(2))
    kind, name = names.number(1), names.vector(2)
    if reader or names or kind != _HOST_NAME or not name or not name.isascii():
        raise _Broken
    return name.decode("ascii")
