"""Decodes the rows of a chat's `store.db`: its description and its messages; it opens no database.

`meta` holds one row whose value is JSON as a hexadecimal string. `blobs` holds messages as JSON and a root record in
protobuf, whose field 1 repeats the ids of the messages in order. All of it was written by a program that an agent
controls, so nothing here trusts anything.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_ENVELOPE = re.compile(r"<(user_info|timestamp|system_reminder|additional_data)>.*?</\1>", re.DOTALL)
_MAX_TITLE = 200
"""Characters: a title is shown on one line of a list."""


NO_TITLES = frozenset({"", "New Agent"})
"""Titles that cursor-agent gives a chat for which it has found none."""


class ChatDamaged(ValueError):
    """A chat's rows can't be decoded; the message says why."""


class Description(NamedTuple):
    """A chat's `meta` row.

    Args:
        root: the newest root record's blob id; None for a chat without a turn.
        title: its title, as cursor-agent gives it.
        model: the model last used.
        created_ms: when it began, in milliseconds since the epoch.
    """

    root: str | None
    title: str
    model: str | None
    created_ms: int | None


class ChatMessage(NamedTuple):
    """One message of a chat.

    Args:
        role: `user`, `assistant`, `tool` or `system`.
        text: the words, without the envelope that cursor-agent puts around a prompt.
        calls: the tools the message calls, a line each.
    """

    role: str
    text: str
    calls: tuple[str, ...] = ()


def describe(value: str) -> Description:
    """Read a `meta` row's value; raises `ChatDamaged` if it isn't hexadecimal JSON."""
    try:
        meta = json.loads(bytes.fromhex(value))
    except (ValueError, RecursionError) as problem:
        raise ChatDamaged(f"its description can't be read: {problem}") from None
    if not isinstance(meta, dict):
        raise ChatDamaged("its description is no object")
    root, title, model = meta.get("latestRootBlobId"), meta.get("name"), meta.get("lastUsedModel")
    return Description(
        root=root if isinstance(root, str) and root else None,
        title=" ".join(title.split())[:_MAX_TITLE] if isinstance(title, str) else "",
        model=model if isinstance(model, str) and model else None,
        created_ms=_whole(meta.get("createdAt")),
    )


def title_of(prompt: str) -> str:
    """Return a title made from a prompt: its beginning, as one line."""
    return " ".join(prompt[: 4 * _MAX_TITLE].split())[:_MAX_TITLE]


def message_ids(root: bytes) -> list[str]:
    """Return the blob ids of a root record's messages, in order; raises `ChatDamaged` if it is no protobuf message."""
    return [value.hex() for number, value in _fields(root) if number == 1]


def read_message(data: bytes) -> ChatMessage | None:
    """Read one message's blob; None when it is none that a person would want to see."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    role = body.get("role") if isinstance(body, dict) else None
    if not isinstance(role, str):
        return None
    content = body.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts, calls = [], []
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif block.get("type") == "tool-call":
            calls.append(f"{block.get('toolName')} {json.dumps(block.get('args'), ensure_ascii=False)}")
        elif block.get("type") == "tool-result":
            result = block.get("result")
            texts.append(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
    return ChatMessage(role, _without_envelope("\n".join(texts), role), tuple(calls))


def _without_envelope(text: str, role: str) -> str:
    if role != "user":
        return text
    queries = _QUERY.findall(text)
    return "\n\n".join(queries) if queries else _ENVELOPE.sub("", text).strip()


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else None


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Walk a protobuf message's length-delimited fields (protobuf.dev, encoding)."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire_type = key & 7
        if wire_type == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ChatDamaged("its root record ends in the middle of a field")
            yield key >> 3, data[at : at + size]
            at += size
        elif wire_type == 0:
            _, at = _varint(data, at)
        elif wire_type in {1, 5}:
            at += 8 if wire_type == 1 else 4
        else:
            raise ChatDamaged(f"its root record has a field of wire type {wire_type}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ChatDamaged("its root record has a number without an end")
