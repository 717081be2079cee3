"""Any line that a program prints is an event that can be stored and sent, and costs bounded memory."""

import json
import math
import tracemalloc

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from substrat.core.programs import lenient
from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import MAX_LINE, Line
from substrat.core.programs.program import LineEvent
from substrat.daemon.state.columns import USAGE
from tests.core.programs.cursor.lines import KINDS, call, decode, follow, line_of
from tests.support.cases import each
from tests.support.optional import present


def usable(event):
    """Say everything the daemon does with an event: it must be possible."""
    msgspec.json.encode(event.text)
    if event.text is not None:
        event.text.encode()
    assert isinstance(event.kind, str)
    if event.body is not None:
        assert isinstance(msgspec.json.decode(lenient.as_json(event.body)), dict)
    if (session := stream.session_of(event)) is not None:
        repr(session).encode()
    if (result := stream.result_of(event)) is not None:
        result.text.encode()
        json.dumps(result.usage, allow_nan=False)
    return event


NOT_OBJECTS = [
    b"",
    b" ",
    b"null",
    b"[]",
    b'"text"',
    b"17",
    b"{",
    b'{"a":',
    b"Using worktree: /tmp/x",
    b"\xff\xfe",
    b"\0",
    b"}",
]


def test_what_is_no_object_is_raw():
    for data in NOT_OBJECTS:
        event = usable(decode(data))
        assert event == LineEvent("raw", data.decode("utf-8", "replace"), None, verbatim=False)


CUT = [
    (b'{"type":"assistant","message":{"content":[{"text":"xxx', "raw"),
    (b'{"type":"user"}', "raw"),
    (b'{"type":"result","subtype":"success","is_error":false,"result":"xxx', "result:success"),
    (b'{"type":"result","subtype":"success","is_error":true,"result":"xxx', "result:error"),
    (b'{"type":"tool_call","text":"\\",\\"type\\":\\"result\\"",', "raw"),
    (b'{"message":{"type":"result"},"x', "raw"),
]


def test_of_a_line_that_was_cut_only_a_result_counts():
    for data, kind in CUT:
        event = usable(stream.decode(Line(0, MAX_LINE + 1, data)))
        assert event.kind == kind
        assert (stream.result_of(event) is not None) == kind.startswith("result:")


def test_a_line_that_was_cut_costs_little():
    for head in [b'{"type":"result","subtype":"success","result":"', b'{"a":', b'{"type":"result",']:
        for filling in [b"x", b'\\"', b"\\", b'"a":1,', b"[", b" "]:
            data = (head + filling * MAX_LINE)[:MAX_LINE]
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                stream.decode(Line(0, MAX_LINE + 1, data))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak - before < 4 * MAX_LINE


def test_a_raw_line_is_told_with_a_bound():
    event = usable(decode(b"x" * (stream.MAX_TEXT + 5)))
    assert len(event.text) < stream.MAX_TEXT + 100
    assert str(stream.MAX_TEXT + 5) in event.text


LENIENT = [
    (b'{"type":"user","x":NaN}', {"type": "user", "x": None}),
    (b'{"type":"user","x":[Infinity,-Infinity]}', {"type": "user", "x": [None, None]}),
    (b'{"type":"user","x":1e999}', {"type": "user", "x": None}),
    (b'{"type":"user","x":"\\ud800"}', {"type": "user", "x": "?"}),
    (b'{"type":"user","\\udfff":1}', {"type": "user", "?": 1}),
    (b'{"type":"user","x":"\xff"}', {"type": "user", "x": "\ufffd"}),
]


def test_what_only_a_lenient_reader_takes_is_read_and_tamed():
    for data, tame in LENIENT:
        event = usable(decode(data))
        assert event.kind == "user"
        assert event.verbatim is False
        assert json.loads(lenient.as_json(event.body)) == tame


SURROGATES = [
    b'{"type":"assistant","message":{"content":[{"text":"a\\ud800b"}]}}',
    b'{"type":"assistant","message":{"content":"\\ud800"}}',
    b'{"type":"assistant","message":"\\ud800"}',
    b'{"type":"thinking","subtype":"delta","text":"\\udcff"}',
    b'{"type":"result","subtype":"success","result":"\\ud83d"}',
    b'{"type":"system","subtype":"init","session_id":"\\ud83d","model":"\\ud83d"}',
    b'{"type":"tool_call","subtype":"started","call_id":"\\ud800","tool_call":{"shellToolCall":{"args":{"command":"\\ud800"}}}}',
    b'{"type":"tool_call","subtype":"completed","tool_call":{"\\ud800ToolCall":{"result":{"\\ud800":{"reason":"\\ud800"}}}}}',
    b'{"type":"tool_call","subtype":"started","tool_call":{"mcpToolCall":{"args":{"name":"\\ud800","args":{"\\ud800":1}}}}}',
]


def test_half_a_character_can_be_stored_and_sent():
    for data in SURROGATES:
        usable(decode(data))


@each("depth", [100, 300, 480, 520, 700, 900, 990, 1100, 5000, 100_000])
@each("opening", [b"[", b'{"a":'])
@each("head", [b'"x":NaN', b'"x":1', b'"type":"tool_call","subtype":"started"'])
def test_deep_nesting(depth, opening, head):
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * depth + b"1" + closing * depth
    usable(decode(b"{" + head + b',"call_id":' + deep + b',"tool_call":{"mcpToolCall":{"args":{"args":' + deep + b"}}}}"))
    usable(decode(b"{" + head + b',"message":{"content":' + deep + b'},"session_id":' + deep + b"}"))


def test_huge_numbers():
    for digits in [18, 19, 20, 400, 4000, 5000]:
        number = b"9" * digits
        usable(decode(b'{"type":"system","subtype":"init","session_id":' + number + b"}"))
        usable(decode(b'{"type":"tool_call","subtype":"started","call_id":' + number + b',"timestamp_ms":' + number + b"}"))
        usable(decode(b'{"type":"result","result":"x","usage":{"inputTokens":' + number + b"}}"))


def test_a_call_that_lasts_for_ages_or_ends_before_it_starts():
    for start, end in ((0, 10**300), (10**400, 0), (5, 3), (True, False)):
        follow(
            call("started", "shell", at=start, args={"command": "x"}),
            call("completed", "shell", at=end, result={"success": {"exitCode": 0}}),
        )


def test_the_last_of_duplicate_keys_counts():
    event = usable(decode(b'{"type":"user","type":"result","result":"x"}'))
    assert event.kind == "result:success"


WRONG: list[object] = [None, True, 0, -1, 1.5, "", "x", [], [None], [[]], {}, {"a": None}, {"": {"": {}}}]
FIELDS = [
    "type", "subtype", "message", "text", "result", "error", "is_error", "usage", "call_id", "tool_call", "timestamp_ms",
    "model_call_id", "session_id", "model", "payload", "tool_name", "parameters",
]  # fmt: skip
WHOLE = [body for body, _ in KINDS if "type" in body] + [
    call("completed", "shell", at=5, args={"command": "c"}, result={"success": {"exitCode": 0}}),
]


@each("field", FIELDS)
@each("value", WRONG)
def test_wrong_types_everywhere(field, value):
    for body in WHOLE:
        usable(decode({**body, field: value}))


@each("value", WRONG)
def test_wrong_types_inside(value):
    for subtype in ("started", "completed"):
        body = {"type": "tool_call", "subtype": subtype}
        usable(decode({**body, "tool_call": {"shellToolCall": value}}))
        usable(decode({**body, "tool_call": {"shellToolCall": {"args": value, "result": value}}}))
        usable(decode({**body, "tool_call": {"mcpToolCall": {"args": {"name": value, "args": value}, "result": value}}}))
        for arm in ("success", "error", "failure", "rejected", "unheardOf"):
            usable(decode({**body, "tool_call": {"shellToolCall": {"result": {arm: value}}}}))
            usable(
                decode({**body, "tool_call": {"shellToolCall": {"result": {arm: {"exitCode": value, "reason": value}}}}})
            )
    usable(decode({"type": "assistant", "message": {"content": value}}))
    usable(decode({"type": "assistant", "message": {"content": [{"text": value}]}}))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
surprising = st.text(st.characters(exclude_categories=()), max_size=8)
keys = st.sampled_from([*FIELDS, "content", "args", "shellToolCall", "mcpToolCall", "success", "exitCode", "payload"])
words = st.sampled_from(
    ["system", "init", "user", "assistant", "thinking", "delta", "tool_call", "started", "completed", "result", "error"]
)
values = st.recursive(
    scalars | surprising | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys | surprising, inner, max_size=5),
    max_leaves=15,
)
objects = st.dictionaries(keys | surprising, values, max_size=8)


@given(objects)
@example({"type": "tool_call", "subtype": "completed", "tool_call": {"ToolCall": {}}})
def test_any_object_is_an_event(body):
    usable(decode(json.dumps(body).encode()))


@given(st.lists(objects, max_size=5))
def test_any_objects_one_after_another(bodies):
    pairing = Pairing()
    for body in bodies:
        usable(stream.decode(line_of(json.dumps(body).encode()), pairing))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event(data):
    usable(decode(data.replace(b"\n", b"")))


@given(values)
def test_taming_keeps_what_json_can_say(value):
    plain = json.dumps({"x": value})
    again = json.loads(lenient.as_json(json.loads(plain)), parse_constant=pytest.fail)
    if "NaN" not in plain and "Infinity" not in plain and "\\ud" not in plain and "e+" not in plain:
        assert again == json.loads(plain)


@given(st.floats())
def test_taming_numbers(number):
    (again,) = json.loads(lenient.as_json({"x": number})).values()
    assert again == (number if math.isfinite(number) else None)


def test_only_what_surely_speaks_counts_as_speech():
    for line, expected in [
        (b'{"type":"assistant","message":{"role":"assist', True),
        (b'{"type": "thinking", "subtype": "delta", "text": "if I called', True),
        (b'{"session_id":"x","type":"assistant","mess', True),
        (b'{"type":"tool_call","subtype":"started","call', False),
        (b'{"type":"assistant', False),  # its name may go on
        (b'{"message":{"type":"assistant",', False),
        (b"Welcome", False),
        (b"", False),
    ]:
        assert stream.only_speaks(line) is expected


MANY = {
    "objects": b"{},",
    "numbers": b"1,",
    "strings": b'"a",',
    "escaped quotes": b'"\\"",',
}


@pytest.mark.parametrize("filling", MANY.values(), ids=MANY.keys())
@pytest.mark.parametrize(
    ("start", "kind"), [(b'{"type":"user","x":[', "raw"), (b'{"type":"result","x":[', "result:success")]
)
def test_a_line_with_too_many_values_is_told_like_one_that_is_too_long(filling, start, kind):
    enough = stream.MAX_VALUES // 2 - 10  # brackets count too
    assert usable(decode(start + filling * enough + b"0]}")).kind in {"user", "result:success"}
    tracemalloc.start()
    try:
        event = usable(decode(start + filling * (stream.MAX_VALUES * 2) + b"0]}"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert event.kind == kind
    assert event.body is None or event.body == {"type": "result"}
    assert peak < 20 * len(filling) * stream.MAX_VALUES


def test_commas_and_brackets_in_a_text_are_no_values():
    text = '{[,\\"' * stream.MAX_VALUES
    assert decode({"type": "user", "text": text}).text == text


def test_a_usage_of_any_size_is_kept_as_far_as_it_can_be_read_again():
    usage = {"inputTokens": 1, "long" * 100: 2, "text": "9" * 19, **{f"n{number}": number for number in range(200_000)}}
    found = stream.result_of(decode({"type": "result", "result": "x", "usage": usage})).usage
    assert found["inputTokens"] == 1
    assert "text" not in found
    written = present(USAGE.write)(found)
    assert len(written) < 10_000
    assert USAGE.read(written) == found
