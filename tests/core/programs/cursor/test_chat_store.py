"""The rows of a chat: what they mean, and that damaged ones say so."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.cursor import chat_store
from substrat.core.programs.cursor.chat_store import ChatDamaged, ChatMessage, Description


def described(**meta):
    return chat_store.describe(json.dumps(meta).encode().hex())


def test_a_description():
    assert described(latestRootBlobId="ab", name=" My\n chat ", lastUsedModel="auto", createdAt=5) == Description(
        "ab", "My chat", "auto", 5
    )
    assert described(createdAt="1700000000000").created_ms == 1_700_000_000_000
    assert described(latestRootBlobId="", name=3, lastUsedModel=[], createdAt=True) == Description(None, "", None, None)
    assert len(described(name="x" * 5000).title) == 200


@pytest.mark.parametrize("value", ["", "zz", "7b", b"[]".hex(), b'"x"'.hex(), ("[" * 100_000).encode().hex()])
def test_a_damaged_description_says_so(value):
    with pytest.raises(ChatDamaged):
        chat_store.describe(value)


def field(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def test_the_roots_messages_in_order():
    root = field(1, b"\x01" * 32) + b"\x18\x96\x01" + field(5, b"\x08\x01") + field(1, b"\x02" * 32) + b"\x2d" + bytes(4)
    assert chat_store.message_ids(root) == ["01" * 32, "02" * 32]
    assert chat_store.message_ids(b"") == []


@pytest.mark.parametrize("root", [b"\x0a\x20short", b"\x0a", b"\xff" * 20, b"\x0b\x00", b"\x0f"])
def test_a_damaged_root_says_so(root):
    with pytest.raises(ChatDamaged):
        chat_store.message_ids(root)


@given(st.binary(max_size=60))
def test_any_root_is_read_or_damaged(root):
    try:
        assert all(isinstance(blob_id, str) for blob_id in chat_store.message_ids(root))
    except ChatDamaged as problem:
        assert str(problem)  # noqa: PT017 - either is right


def read(**body):
    return chat_store.read_message(json.dumps(body).encode())


def test_messages():
    envelope = "<timestamp>now</timestamp>\n<user_query>\ndo it\n</user_query>"
    assert read(role="user", content=[{"type": "text", "text": envelope}]) == ChatMessage("user", "do it")
    assert read(role="user", content="<user_info>x</user_info>plain") == ChatMessage("user", "plain")
    calls = [{"type": "text", "text": "a"}, {"type": "tool-call", "toolName": "Shell", "args": {"command": "ls"}}]
    assert read(role="assistant", content=calls) == ChatMessage("assistant", "a", ('Shell {"command": "ls"}',))
    result = [{"type": "tool-result", "result": "out"}, {"type": "tool-result", "result": {"a": 1}}, 3]
    assert read(role="tool", content=result) == ChatMessage("tool", 'out\n{"a": 1}')


@given(st.binary(max_size=80) | st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
       | st.dictionaries(st.sampled_from(["role", "content", "type", "text"]), inner, max_size=3), max_leaves=8)
       .map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_blob_is_a_message_or_none(data):
    found = chat_store.read_message(data)
    assert found is None or isinstance(found.text, str)
