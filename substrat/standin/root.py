"""The chat's root record, `ConversationStateStructure`, as bytes and back; pure, and only the fields in use.

It is a protobuf message: field 1 repeats the messages' blob ids, field 5 holds the tokens used and the limit, field 9
repeats the workspace's URIs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_VARINT, _BYTES = 0, 2
_MESSAGE = bytes((1 << 3 | _BYTES, 32))
"""What stands before a blob's id, which is a SHA-256 digest."""


def encode(message_ids: Sequence[bytes], tokens_used: int, tokens_limit: int, workspace_uri: str) -> bytes:
    """The root of a conversation with these messages."""
    tokens = _varint(1 << 3 | _VARINT) + _varint(tokens_used) + _varint(2 << 3 | _VARINT) + _varint(tokens_limit)
    return b"".join(
        [*(_MESSAGE + blob_id for blob_id in message_ids), _field(5, tokens), _field(9, workspace_uri.encode())]
    )


def message_ids(data: bytes) -> list[bytes]:
    """The messages' blob ids of a root that `encode` has made, in order."""
    found = []
    while data.startswith(_MESSAGE):
        found.append(data[2:34])
        data = data[34:]
    return found


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
