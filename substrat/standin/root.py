"""The chat's root record, `ConversationStateStructure`, as bytes and back; pure, and only the fields in use.

It is a protobuf message: field 1 repeats the messages' blob ids, field 5 holds the tokens used and the limit, field 9
repeats the workspace's URIs. Reading skips every field it does not need.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(message_ids: Sequence[bytes], tokens_used: int, tokens_limit: int, workspace_uri: str) -> bytes:
    """The root of a conversation with these messages."""
    tokens = _varint(1 << 3 | _VARINT) + _varint(tokens_used) + _varint(2 << 3 | _VARINT) + _varint(tokens_limit)
    parts = [_field(1, blob_id) for blob_id in message_ids]
    return b"".join([*parts, _field(5, tokens), _field(9, workspace_uri.encode())])


def message_ids(data: bytes) -> list[bytes]:
    """The messages' blob ids of a root, in order.

    Raises:
        ValueError: The bytes are no such record.
    """
    return [value for number, value in _fields(data) if number == 1]


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == _BYTES:
            size, at = _read_varint(data, at)
            if at + size > len(data):
                raise ValueError("a root record ends inside a field")
            yield key >> 3, data[at : at + size]
            at += size
        elif key & 7 == _VARINT:
            _, at = _read_varint(data, at)
        elif key & 7 in (_FIXED64, _FIXED32):
            at += 8 if key & 7 == _FIXED64 else 4
        else:
            raise ValueError(f"a root record holds a field of the unknown wire type {key & 7}")


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7
    raise ValueError("a root record ends inside a number")
