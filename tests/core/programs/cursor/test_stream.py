"""cursor-agent's lines: what each shape is called and says, and that nothing a program prints can break it."""

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
from substrat.core.programs.ndjson import MAX_LINE, Line, Splitter
from substrat.core.programs.program import LineEvent, TurnResult
from substrat.daemon.state.columns import USAGE
from tests.support.cases import each
from tests.support.optional import present

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


def line_of(data):
    return Line(0, len(data), data)


def decode(body):
    return stream.decode(line_of(body if isinstance(body, bytes) else json.dumps(body).encode()))


def said(*texts):
    return {"role": "assistant", "content": [{"type": "text", "text": text} for text in texts]}


def call(subtype, kind, *, at=None, call_id="tool_1", **inner):
    body = {"type": "tool_call", "subtype": subtype, "call_id": call_id, "session_id": SESSION}
    body["tool_call"] = {f"{kind}ToolCall": inner, "hookAdditionalContexts": [], "toolCallId": call_id, "startedAtMs": "17"}
    return body if at is None else {**body, "timestamp_ms": at}


KINDS = [
    ({"type": "system", "subtype": "init", "session_id": SESSION, "model": "Auto"}, "system:init"),
    ({"type": "system", "subtype": "task_notification", "task_id": "3", "status": "done"}, "system:task_notification"),
    ({"type": "system", "subtype": "background_shell_timeout"}, "system:background_shell_timeout"),
    ({"type": "system", "subtype": "weather"}, "unknown"),
    ({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}}, "user"),
    ({"type": "thinking", "subtype": "delta", "text": "hm", "timestamp_ms": 5}, "thinking:delta"),
    ({"type": "thinking", "subtype": "completed", "timestamp_ms": 5}, "thinking:completed"),
    ({"type": "assistant", "message": said("a"), "timestamp_ms": 5}, "assistant:delta"),
    ({"type": "assistant", "message": said("a"), "timestamp_ms": 5, "model_call_id": "m"}, "assistant"),
    ({"type": "assistant", "message": said("a")}, "assistant"),
    (call("started", "shell", args={"command": "ls"}), "tool-call-started"),
    (call("completed", "shell", args={"command": "ls"}, result={"success": {"exitCode": 0}}), "tool-call-completed"),
    (
        {"type": "interaction_query", "subtype": "request", "query_type": "webFetchRequestQuery"},
        "interaction_query:request",
    ),
    ({"type": "interaction_query", "subtype": "response"}, "interaction_query:response"),
    ({"type": "connection", "subtype": "reconnecting", "attempt": 1}, "connection:reconnecting"),
    ({"type": "connection", "subtype": "reconnected"}, "connection:reconnected"),
    ({"type": "retry", "subtype": "starting", "attempt": 1}, "retry:starting"),
    ({"type": "retry", "subtype": "resuming"}, "retry:resuming"),
    ({"type": "result", "subtype": "success", "is_error": False, "result": "done"}, "result:success"),
    ({"type": "result", "subtype": "success", "is_error": True, "result": "no"}, "result:error"),
    ({"type": "result", "subtype": "error", "result": "no"}, "result:error"),
    ({"type": "something", "subtype": "new"}, "unknown"),
    ({"type": "something"}, "unknown"),
    ({"hello": "world"}, "unknown"),
    ({}, "unknown"),
]


def test_the_kind_of_each_documented_shape():
    for body, kind in KINDS:
        event = decode(body)
        assert event.kind == kind
        assert event.body == body
        assert event.verbatim is True


TEXTS = [
    ({"type": "user", "message": {"content": [{"text": "one "}, {"text": "two"}]}}, "one two"),
    ({"type": "user", "message": {"content": "plain"}}, "plain"),
    ({"type": "thinking", "subtype": "delta", "text": "hm"}, "hm"),
    ({"type": "assistant", "message": said("it ", "works")}, "it works"),
    ({"type": "assistant", "message": {"content": [{"type": "image"}, {"type": "text", "text": "seen"}]}}, "seen"),
    ({"type": "result", "subtype": "success", "result": "all done"}, "all done"),
    ({"type": "result", "subtype": "error", "error": "it broke"}, "it broke"),
]


def test_the_readable_form():
    for body, text in TEXTS:
        assert decode(body).text == text


def test_init_names_session_and_model():
    event = decode({"type": "system", "subtype": "init", "session_id": SESSION, "model": "Composer 2.5 Fast"})
    assert SESSION in event.text
    assert "Composer 2.5 Fast" in event.text
    assert stream.session_of(event) == SESSION


def test_a_session_that_is_none():
    for session in (None, "", 7, (), {"id": SESSION}, True):
        assert stream.session_of(decode({"type": "system", "subtype": "init", "session_id": session})) is None


def test_only_init_names_the_session():
    assert stream.session_of(decode({"type": "user", "session_id": SESSION})) is None
    assert stream.session_of(decode(b"nonsense")) is None


# Words cut anywhere: deltas of a segment, then the segment again as a flush; the last flush has no time.
segments = st.lists(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4), min_size=1, max_size=4)


@given(segments)
def test_deltas_and_flushes_each_give_the_whole_text(parts):
    bodies = []
    for number, segment in enumerate(parts):
        bodies += [{"type": "assistant", "message": said(delta), "timestamp_ms": 1} for delta in segment]
        flush = {"type": "assistant", "message": said("".join(segment))}
        last = number == len(parts) - 1
        bodies.append(flush if last else {**flush, "timestamp_ms": 1, "model_call_id": "m"})
    events = [decode(body) for body in bodies]
    whole = "".join(delta for segment in parts for delta in segment)
    assert "".join(event.text for event in events if event.kind == "assistant:delta") == whole
    assert "".join(event.text for event in events if event.kind == "assistant") == whole


# Tool calls

STARTS = [
    ("shell", {"command": "ls -l"}, "shell: ls -l"),
    ("read", {"path": "/w/a.py"}, "read: /w/a.py"),
    ("edit", {"path": "/w/a.py", "streamContent": "x"}, "edit: /w/a.py"),
    ("glob", {"targetDirectory": "/w", "globPattern": "*.py"}, "glob: *.py"),
    ("grep", {"pattern": "def "}, "grep: def"),
    ("webFetch", {"url": "https://example.org"}, "webFetch: https://example.org"),
    ("webSearch", {"searchTerm": "trio"}, "webSearch: trio"),
    ("mcp", {"toolName": "whoami", "name": "substrat-whoami", "args": {"a": 1}}, 'mcp whoami: {"a": 1}'),
    ("inventedYesterday", {"query": "why"}, "inventedYesterday: why"),
    ("inventedYesterday", {"depth": 3}, "inventedYesterday"),
    ("shell", {"command": "a\n  b\tc"}, "shell: a b c"),
]


def test_a_started_call_in_one_line():
    for kind, args, text in STARTS:
        assert decode(call("started", kind, args=args)).text == text


def test_a_long_call_is_told_shortly():
    for command in ["x" * 10_000, "line\n" * 3000]:
        text = decode(call("started", "shell", args={"command": command})).text
        assert len(text) <= 200
        assert "\n" not in text
        assert text.endswith("…")


ENDS = [
    ("shell", {"success": {"exitCode": 0}}, "exit 0"),
    ("shell", {"failure": {"exitCode": 3, "aborted": False}}, "exit 3"),
    ("read", {"success": {"content": "x"}}, "done"),
    ("read", {"error": {"errorMessage": "File not found"}}, "failed: File not found"),
    ("webFetch", {"rejected": {"reason": "User Rejected"}}, "rejected: User Rejected"),
    ("shell", {"permissionDenied": {"error": "blocked"}}, "denied: blocked"),
    ("mcp", {"success": {"isError": False, "content": []}}, "done"),
]


def test_a_completed_call_says_how_it_ended():
    for kind, result, verdict in ENDS:
        assert decode(call("completed", kind, args={"command": "c", "path": "p"}, result=result)).text.endswith(
            f"→ {verdict}"
        )


def test_a_tool_that_answers_with_an_error_has_failed():
    result = {"success": {"isError": True, "content": [{"text": {"text": "no such agent"}}]}}
    text = decode(call("completed", "mcp", args={"toolName": "send_message"}, result=result)).text
    assert "→ failed" in text


def follow(*bodies):
    """Decode a turn's lines in order, as a running turn does."""
    output = b"".join(json.dumps(body).encode() + b"\n" for body in bodies)
    pairing = Pairing()
    return [stream.decode(line, pairing).text for line in Splitter().feed(output)]


def test_a_completed_call_is_told_with_what_its_start_said():
    done = {"success": {"exitCode": 0}}
    texts = follow(
        call("started", "shell", at=1000, args={"command": "make"}), call("completed", "shell", at=3500, result=done)
    )
    assert texts == ["shell: make", "shell: make → exit 0 (2.5 s)"]


def test_parallel_calls_end_in_any_order():
    one, two = "call-1-0\nfc_a_0", "call-1-1\nfc_b_0"
    done = {"success": {"exitCode": 0}}
    texts = follow(
        call("started", "shell", at=0, call_id=one, args={"command": "first"}),
        call("started", "read", at=0, call_id=two, args={"path": "second"}),
        call("completed", "read", at=100, call_id=two, result={"success": {}}),
        call("completed", "shell", at=200, call_id=one, result=done),
    )
    assert texts[2:] == ["read: second → done (0.1 s)", "shell: first → exit 0 (0.2 s)"]


def test_a_call_nobody_saw_start_is_told_all_the_same():
    rejected = {"rejected": {"reason": "User Rejected"}}
    (text,) = follow(call("completed", "webSearch", at=5, result=rejected))
    assert "rejected: User Rejected" in text


def test_calls_without_end_cost_bounded_memory():
    bodies = [call("started", "shell", at=0, call_id=f"c{number}", args={"command": "x"}) for number in range(3000)]
    texts = follow(*bodies, call("completed", "shell", at=5, call_id="c2999", result={"success": {"exitCode": 0}}))
    assert texts[-1] == "shell: x → exit 0 (0.0 s)"


# Results


def test_a_result_with_usage():
    usage = {"inputTokens": 15, "outputTokens": 3, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    result = stream.result_of(decode({"type": "result", "subtype": "success", "result": "done", "usage": usage}))
    assert result == TurnResult("done", is_error=False, usage=usage)


def test_a_result_of_an_old_build_has_no_usage():
    result = stream.result_of(decode({"type": "result", "subtype": "success", "result": "done"}))
    assert result == TurnResult("done", is_error=False, usage=None)


def test_a_strange_usage_does_not_harm_the_result():
    for usage in (None, 7, (), "many", {"inputTokens": "many", "nested": {}, "outputTokens": 1.5}):
        result = stream.result_of(decode({"type": "result", "subtype": "success", "result": "done", "usage": usage}))
        assert result.text == "done"
        assert result.usage in ({}, None)


def test_an_error_result():
    result = stream.result_of(decode({"type": "result", "subtype": "error", "is_error": True, "error": "quota"}))
    assert result == TurnResult("quota", is_error=True, usage=None)


def test_the_words_of_a_result_are_its_result_whatever_else_it_holds():
    for other in [{"subtype": "success", "text": "more"}, {"subtype": "error", "error": "more"}]:
        assert stream.result_of(decode({"type": "result", "result": "done", **other})).text == "done"


def test_what_is_no_result():
    for body in [{"type": "assistant", "result": "done"}, {"type": "turn_ended"}, {"result": "x"}]:
        assert stream.result_of(decode(body)) is None


# Whatever a program may print


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
