"""Reads DNS queries strictly and writes answers to them, as bytes. Pure (RFC 1035, EDNS as of RFC 6891).

No input raises: `parse` returns a `Query`, or `Malformed` with the error to answer, if the message deserves an answer.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

A, AAAA, IN = 1, 28, 1  # RFC 1035, 3.2.2 and 3.2.4; RFC 3596
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_SUCH_NAME, NOT_IMPLEMENTED, REFUSED = 0, 1, 2, 3, 4, 5  # RFC 1035, 4.1.1
LARGEST_UDP = 1232
"""The announced size of a datagram: it fits into IPv6's smallest MTU, 1,280 bytes (dnsflagday.net/2020)."""
TTL = 60
"""Seconds for which a client may keep an answer; any number would do, since an answer holds for the whole turn."""

# RFC 1035, 4.1.1: the bits of the flags; 3.1 and 2.3.4: the lengths; RFC 6891, 6.1.1: the type of the EDNS record.
_HEADER = struct.Struct("!6H")
_RESPONSE, _AUTHORITATIVE, _RECURSION_WANTED, _RECURSION = 0x8000, 0x0400, 0x0100, 0x0080
_OPCODE = 0x7800
_OPT = 41
_LONGEST_LABEL = 63
_LONGEST_NAME = 255


class Query(NamedTuple):
    """A question, for example `pypi.org`, type `A`, class `IN`.

    Args:
        id: the client's number for it, which the answer repeats.
        flags: as they came.
        name: the labels joined by dots, bytes that aren't ASCII or are dots themselves replaced by `?`, which no name has.
        type: of the records wanted.
        cls: `IN`, nearly always.
        question: its bytes, which the answer repeats.
        edns: whether the client speaks EDNS.
    """

    id: int
    flags: int
    name: str
    type: int
    cls: int
    question: bytes
    edns: bool


class Malformed(NamedTuple):
    """A message that is no query; `answer` is the error for its sender, None for a message that gets no answer."""

    answer: bytes | None


def parse(message: bytes) -> Query | Malformed:
    """Read a query: one question, no compression, at most one further record, EDNS's.

    Args:
        message: a datagram, or over TCP the bytes after the length.
    """
    if len(message) < _HEADER.size:
        return Malformed(None)
    number, flags, questions, answers, authorities, additional = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        return Malformed(None)
    if flags & _OPCODE:
        return Malformed(_error(number, flags, NOT_IMPLEMENTED))
    malformed = Malformed(_error(number, flags, FORMAT_ERROR))
    if (questions, answers, authorities) != (1, 0, 0) or additional > 1:
        return malformed
    found = _name(message, _HEADER.size)
    if found is None or len(message) < found[1] + 4:
        return malformed
    name, end = found
    kind, cls = struct.unpack_from("!2H", message, end)
    end += 4
    if not _ends_well(message, end, additional):
        return malformed
    return Query(number, flags, name, kind, cls, message[_HEADER.size : end], additional == 1)


def answer(query: Query, code: int, addresses: tuple[str, ...] = ()) -> bytes:
    """Write the answer to a query.

    Args:
        query: the question.
        code: one of the codes above.
        addresses: those of the kind that was asked for.
    """
    records = b""
    for address in addresses:
        packed = ipaddress.ip_address(address).packed
        # 0xC00C points at the question's name.
        records += struct.pack("!HHHIH", 0xC00C, A if len(packed) == 4 else AAAA, IN, TTL, len(packed)) + packed
    extra = struct.pack("!BHHIH", 0, _OPT, LARGEST_UDP, 0, 0) if query.edns else b""
    flags = _RESPONSE | _AUTHORITATIVE | _RECURSION | (query.flags & _RECURSION_WANTED) | code
    return _HEADER.pack(query.id, flags, 1, len(addresses), 0, int(query.edns)) + query.question + records + extra


def _error(number: int, flags: int, code: int) -> bytes:
    return _HEADER.pack(number, _RESPONSE | (flags & (_OPCODE | _RECURSION_WANTED)) | code, 0, 0, 0, 0)


def _name(message: bytes, position: int) -> tuple[str, int] | None:
    """Read a name, and return it with the position of its end.

    A compression pointer is refused: no name precedes the question's, so it has no target (RFC 1035, 4.1.4).
    """
    labels: list[str] = []
    start = position
    while position < len(message):
        length = message[position]
        position += 1
        if length == 0:
            return ".".join(labels), position
        if length > _LONGEST_LABEL or position + length > len(message) or position + length - start >= _LONGEST_NAME:
            return None
        labels.append(
            "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x2E else "?" for byte in message[position:][:length])
        )
        position += length
    return None


def _ends_well(message: bytes, end: int, additional: int) -> bool:
    """Say whether nothing follows the question, or exactly one EDNS record."""
    if not additional:
        return end == len(message)
    if len(message) < end + 11:
        return False
    root, kind, _, _, length = struct.unpack_from("!BHHIH", message, end)
    return (root, kind) == (0, _OPT) and end + 11 + length == len(message)
