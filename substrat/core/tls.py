"""The server name in a TLS ClientHello, from the first bytes of a connection as they arrive; pure.

RFC 8446, 4.1.2 and 5.1 (which older versions agree with as far as this goes), RFC 6066, 3. What begins like TLS and can't
be read is `BROKEN`, never "no name": a server might read it otherwise.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

LARGEST = 16 * 1024
"""A ClientHello with all its records may have this many bytes; with post-quantum key shares it has some 2,000."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_LONGEST_RECORD = 1 << 14
_SERVER_NAME = 0
_HOST_NAME = 0


class Kind(Enum):
    """What the first bytes of a connection are."""

    INCOMPLETE = "incomplete"
    OTHER = "other"
    BROKEN = "broken"
    HELLO = "hello"


class Hello(NamedTuple):
    """What was found; `name` as the client wrote it, None when it gave none."""

    kind: Kind
    name: str | None = None


def read(data: bytes) -> Hello:
    """Look at everything a client has sent so far.

    Args:
        data: from the connection's first byte on.
    """
    if not data:
        return Hello(Kind.INCOMPLETE)
    if data[0] != _HANDSHAKE:
        return Hello(Kind.OTHER)
    try:
        message = _first_message(data)
        name = None if message is None else _server_name(message)
    except _Broken:
        return Hello(Kind.BROKEN)
    if message is None:
        return Hello(Kind.BROKEN if len(data) >= LARGEST else Kind.INCOMPLETE)
    return Hello(Kind.HELLO, name)


class _Broken(Exception):
    """It isn't a ClientHello as the standard has it."""


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


def _first_message(data: bytes) -> bytes | None:
    """Put the first handshake message together from its records; None while bytes are missing."""
    message, position, wanted = b"", 0, None
    while wanted is None or len(message) < wanted:
        if len(data) < position + 5:
            return None
        length = int.from_bytes(data[position + 3 : position + 5], "big")
        if data[position] != _HANDSHAKE or data[position + 1] != 3 or not 0 < length <= _LONGEST_RECORD:
            raise _Broken
        # A part of a record may tell already how long the message is to be.
        message += data[position + 5 : position + 5 + length]
        if len(message) >= 4 and wanted is None:
            wanted = 4 + int.from_bytes(message[1:4], "big")
            if message[0] != _CLIENT_HELLO or wanted > LARGEST:
                raise _Broken
        if len(data) < position + 5 + length:
            return None
        position += 5 + length
    return message[4:wanted]


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
    """Read the extension: a list of names, of which the standard allows one of each kind and has only one kind."""
    reader = _Reader(extension)
    names = _Reader(reader.vector(2))
    kind, name = names.number(1), names.vector(2)
    if reader or names or kind != _HOST_NAME or not name or not name.isascii():
        raise _Broken
    return name.decode("ascii")
