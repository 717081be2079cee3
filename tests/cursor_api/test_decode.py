"""What each dialect's lines become, and that nothing of a line is changed."""

import copy
import dataclasses
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import Line
from substrat.cursor_api import AgentEvent, EventType, collect_text
from substrat.cursor_api.decode import Decoder
from substrat.cursor_api.dialect import DOCUMENTED
from tests.core.dialect_writer import DIALECTS, SESSION, Call, End, Say, Start, Turn
from tests.support.cases import each

MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": "hel"}, {"type": "image"}, {"type": "text", "text": "lo"}],
}


def decode(*bodies):
    decoder = Decoder()
    return [decoder.body(body) for body in bodies]


def one(body):
    return decode(body)[0]


def line(data, length=None):
    return Decoder().line(Line(0, len(data) if length is None else length, data))


@each(
    ("body", "kind"),
    [
        ({"type": "system", "subtype": "init"}, EventType.SYSTEM_INIT),
        ({"type": "system", "subtype": "task_notification"}, EventType.UNKNOWN),
        ({"type": "user", "message": {}}, EventType.USER),
        ({"type": "thinking", "subtype": "delta", "text": "x"}, EventType.THINKING_DELTA),
        ({"type": "thinking", "subtype": "completed"}, EventType.THINKING_COMPLETED),
        ({"type": "thinking", "payload": {"content": "x"}}, EventType.THINKING_DELTA),
        ({"type": "assistant", "text": "x", "timestamp_ms": 1}, EventType.ASSISTANT_DELTA),
        ({"type": "assistant", "message": MESSAGE, "timestamp_ms": 1}, EventType.ASSISTANT_DELTA),
        ({"type": "assistant", "message": MESSAGE, "timestamp_ms": 1, "model_call_id": "m"}, EventType.ASSISTANT),
        ({"type": "assistant", "message": MESSAGE, "timestamp_ms": None}, EventType.ASSISTANT),
        ({"type": "assistant", "message": MESSAGE}, EventType.ASSISTANT),
        ({"type": "assistant", "payload": {"message": MESSAGE, "timestamp_ms": 3}}, EventType.ASSISTANT_DELTA),
        ({"type": "tool-call-started", "tool_name": "Shell"}, EventType.TOOL_CALL_STARTED),
        ({"type": "tool-call-completed", "tool_name": "Shell"}, EventType.TOOL_CALL_COMPLETED),
        ({"type": "tool_call", "subtype": "started", "tool_call": {}}, EventType.TOOL_CALL_STARTED),
        ({"type": "tool_call", "subtype": "completed"}, EventType.TOOL_CALL_COMPLETED),
        ({"type": "tool_call", "subtype": "paused"}, EventType.UNKNOWN),
        ({"type": "result", "subtype": "success", "result": ""}, EventType.RESULT_SUCCESS),
        ({"type": "result", "subtype": "error", "error": "no"}, EventType.RESULT_ERROR),
        ({"type": "result", "subtype": "success", "is_error": True}, EventType.RESULT_ERROR),
        ({"type": "result", "subtype": "error", "payload": {"is_error": True}}, EventType.RESULT_ERROR),
        ({"type": "connection", "subtype": "reconnecting"}, EventType.UNKNOWN),
        ({"type": "brand-new"}, EventType.UNKNOWN),
        ({}, EventType.UNKNOWN),
        ({"type": 7, "subtype": ["x"]}, EventType.UNKNOWN),
    ],
)
def test_the_type_of_a_line(body, kind):
    before = copy.deepcopy(body)
    event = one(body)
    assert event.type is kind
    assert event.data == before
    assert json.loads(json.dumps(event.data)) == before
    raw_type = before.get("type")
    assert event.raw_type == (raw_type if isinstance(raw_type, str) else "")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"type": "x", "text": "first", "result": "second", "message": MESSAGE}, "first"),
        ({"type": "x", "result": "second", "message": MESSAGE}, "second"),
        ({"type": "x", "message": MESSAGE}, "hello"),
        ({"type": "x", "text": "", "message": MESSAGE}, "hello"),
        ({"type": "x", "text": 3, "result": {"a": 1}, "message": MESSAGE}, "hello"),
        ({"type": "assistant", "message": {"content": "plain"}}, "plain"),
        ({"type": "assistant", "payload": {"message": {"content": "plain"}}}, "plain"),
        ({"type": "assistant", "payload": {"message": MESSAGE}}, "hello"),
        ({"type": "thinking", "payload": {"content": "hm"}}, "hm"),
        ({"type": "user", "payload": {"prompt": "do it"}}, "do it"),
        ({"type": "error", "message": "it broke"}, "it broke"),
        ({"type": "assistant", "message": {"content": []}}, ""),
        ({"type": "assistant", "message": {"content": [{"type": "image"}]}}, ""),
        ({"type": "user", "message": "just words"}, "just words"),
        ({"type": "result", "subtype": "success", "result": ""}, ""),
        ({"type": "result", "subtype": "error", "error": "no"}, "no"),
        ({"type": "tool-call-completed", "tool_name": "Shell", "result": {"output": "x"}}, None),
        ({}, None),
    ],
)
def test_where_the_text_is_taken_from(body, text):
    assert one(body).text == text


def test_session_and_time_are_read_wherever_they_are():
    event = one({"type": "assistant", "session_id": "s", "timestamp_ms": "1705123456789", "text": "x"})
    assert (event.session_id, event.timestamp_ms) == ("s", 1705123456789)
    event = one({"type": "system", "subtype": "init", "payload": {"session_id": "inside"}})
    assert event.session_id == "inside"
    assert one({"type": "user", "session_id": ""}).session_id is None
    assert one({"type": "user", "timestamp_ms": "soon"}).timestamp_ms is None


def shell(subtype, **call):
    return {
        "type": "tool_call", "subtype": subtype, "call_id": "call-1\nfc_1",
        "tool_call": {"hookAdditionalContexts": [], "toolCallId": "call-1", "shellToolCall": call},
        "timestamp_ms": 1000 if subtype == "started" else 1250,
    }  # fmt: skip


def test_the_documented_fields_of_a_real_tool_call():
    done = {"success": {"exitCode": 3, "stdout": "out", "stderr": "err"}}
    started, completed = decode(shell("started", args={"command": "ls"}), shell("completed", result=done))
    assert started.data.get("tool_name") == started.data["tool_name"] == started.tool_name == "Shell"
    assert started.tool_call_id == completed.tool_call_id == "call-1\nfc_1"
    assert started.data["parameters"] == started.tool_parameters == completed.tool_parameters == {"command": "ls"}
    assert started.data.get("result") is None
    assert started.tool_result is None
    result = completed.data.get("result", {})
    assert result == {"success": False, "output": "outerr", "exit_code": 3, "error": "exit 3"}
    assert completed.tool_result == result
    assert completed.data.get("duration_ms") == 250


def test_the_view_is_no_part_of_the_data():
    body = shell("started", args={"command": "ls"})
    event = one(body)
    assert "tool_name" not in event.data
    assert set(event.data) == set(body)
    assert dict(event.data) == body
    assert event.data.copy() == body
    assert type(event.data.copy()) is dict
    assert event.data.get("nothing", 5) == 5
    with pytest.raises(KeyError):
        event.data["nothing"]
    for twin in (copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert twin == event
        assert twin.tool_name == "Shell"


def test_flat_tool_calls_are_as_they_are():
    given = {"success": True, "output": "total 0", "exit_code": 0}
    started, completed = decode(
        {"type": "tool-call-started", "tool_name": "LS", "tool_call_id": "c", "parameters": {"path": "."}},
        {"type": "tool-call-completed", "tool_name": "LS", "tool_call_id": "c", "result": given, "duration_ms": 9},
    )
    assert (started.tool_name, started.tool_call_id, started.tool_parameters) == ("LS", "c", {"path": "."})
    assert completed.tool_result is completed.data["result"] is given
    assert completed.data["duration_ms"] == 9


def test_an_end_without_a_name_gets_its_starts():
    call = {"id": "t", "shellToolCall": {"args": {"command": "x"}}}
    ended = {"id": "t", "result": {"exitCode": 0, "stdout": "hi"}}
    started, completed = decode(
        {"type": "tool_call", "subtype": "started", "payload": {"toolCall": call}},
        {"type": "tool_call", "subtype": "completed", "payload": {"toolCall": ended}},
    )
    assert started.tool_name == completed.tool_name == "Shell"
    assert completed.data.get("result") == {"success": True, "output": "hi", "exit_code": 0}
    alone = one({"type": "tool_call", "subtype": "completed", "payload": {"toolCall": {"id": "t", "result": {}}}})
    assert alone.tool_name is None


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ({"readToolCall": {"args": {"path": "a"}}}, "Read"),
        ({"editToolCall": {"args": {"path": "a", "streamContent": "x"}}}, "Write"),
        ({"editToolCall": {"args": {"path": "a", "oldString": "x"}}}, "StrReplace"),
        ({"writeToolCall": {"args": {"path": "a", "fileText": "x"}}}, "Write"),
        ({"lsToolCall": {"args": {}}}, "LS"),
        ({"globToolCall": {"args": {}}}, "Glob"),
        ({"grepToolCall": {"args": {}}}, "Grep"),
        ({"deleteToolCall": {"args": {}}}, "Delete"),
        ({"updateTodosToolCall": {"args": {}}}, "TodoWrite"),
        ({"mcpToolCall": {"args": {"name": "local-echo", "toolName": "echo"}}}, "local-echo"),
        ({"neverSeenToolCall": {"args": {}}}, "NeverSeen"),
        ({"function": {"name": "read_file", "arguments": '{"path": "a"}'}}, "read_file"),
        ({}, None),
    ],
)
def test_tools_have_their_documented_names(call, name):
    assert one({"type": "tool_call", "subtype": "started", "call_id": "c", "tool_call": call}).tool_name == name


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"rejected": {"reason": "no"}}, {"success": False, "error": "rejected: no"}),
        ({"success": {"content": "text"}}, {"success": True, "output": "text"}),
        ({"success": {"content": [{"text": {"text": "a"}}, {"text": {"text": "b"}}]}}, {"success": True, "output": "ab"}),
        ({"success": {"exitCode": 0, "stdout": "", "stderr": ""}}, {"success": True, "output": "", "exit_code": 0}),
    ],
)
def test_results_are_said_in_the_documented_way(result, expected):
    event = one({"type": "tool_call", "subtype": "completed", "tool_call": {"xToolCall": {"result": result}}})
    assert event.tool_result == expected


def test_other_documented_fields_are_found_too():
    assert one({"type": "system", "subtype": "init", "cwd": "/w"}).data.get("workspace") == "/w"
    assert one({"type": "assistant", "message": MESSAGE, "timestamp_ms": 1}).data.get("text") == "hello"
    assert one({"type": "assistant", "message": MESSAGE}).data.get("text") is None
    assert one({"type": "result", "subtype": "success", "is_error": True, "result": "bad"}).data.get("error") == "bad"
    assert one({"type": "result", "subtype": "success", "result": "good"}).data.get("error") is None
    assert one({"type": "result", "subtype": "success", "payload": {"is_error": False}}).data.get("is_error") is False


def test_lines_that_are_no_objects_are_events_without_data():
    for data, text in ((b"Using worktree: x", "Using worktree: x"), (b"[1]", "[1]"), (b"\xff{", "\ufffd{")):
        event = line(data)
        assert (event.type, event.raw_type, event.data, event.text) == (EventType.UNKNOWN, "raw", {}, text)
    assert line(b"") is None
    assert line(b"  \r") is None
    assert "cut" in line(b"x" * 70_000, 80_000_000).text


def test_an_event_made_by_hand():
    event = AgentEvent(
        EventType.UNKNOWN, "x", None, {"type": "tool_call", "subtype": "started", "tool_call": {"lsToolCall": {}}}
    )
    assert (event.text, event.session_id, event.timestamp_ms, event.tool_name) == (None, None, None, "LS")


def test_collecting_text():
    think = {"type": "thinking", "subtype": "delta", "text": "hm"}
    pieces = [{"type": "assistant", "text": text, "timestamp_ms": 1} for text in ("a", "b")]
    whole = {"type": "assistant", "message": MESSAGE}
    result = {"type": "result", "subtype": "success", "result": "r"}
    assert collect_text(decode(think, *pieces, whole, result)) == "ab"
    assert collect_text(iter(decode(think, *pieces)), include_thinking=True) == "[thinking: hm]ab"
    assert collect_text(decode(whole, whole, result)) == "hellohello"
    assert collect_text(decode(result)) == "r"
    assert collect_text(decode(think)) == ""


# Whatever is printed, and whatever it is printed like

PARTS = [name for name in DIALECTS if "pieces" not in name]
MAKE, LOOK, ASK = Call("a\nfc_a", "shell", "make", code=2), Call("b\nfc_b", "read", "a.py"), Call("c", "webFetch", "u")
STEPS = (
    Say(("I ", "look.")),
    *(Start(MAKE), Start(LOOK), Start(ASK._replace(end="rejected", reason="no"))),
    *(End(LOOK, bare=True), End(ASK._replace(end="rejected", reason="no"), bare=True), End(MAKE, bare=True)),
    Say(("It ", "fails.")),
)


@pytest.mark.parametrize("name", PARTS)
def test_a_turn_has_the_documented_fields_in_each_dialect(name):
    bodies = list(DIALECTS[name].lines(Turn("try it", STEPS)))
    events = decode(*bodies)
    assert [event.data for event in events] == bodies
    started = [event for event in events if event.type is EventType.TOOL_CALL_STARTED]
    completed = [event for event in events if event.type is EventType.TOOL_CALL_COMPLETED]
    assert [(event.data["tool_name"], event.data["parameters"]) for event in started] == [
        ("Shell", {"command": "make"}), ("Read", {"path": "a.py"}), ("WebFetch", {"url": "u"}),
    ]  # fmt: skip
    assert [event.data["tool_call_id"] for event in started] == [MAKE.id, LOOK.id, ASK.id]
    assert [(event.data["tool_name"], event.data["tool_call_id"]) for event in completed] == [
        ("Read", LOOK.id), ("WebFetch", ASK.id), ("Shell", MAKE.id),
    ]  # fmt: skip
    results = [event.data.get("result", {}) for event in completed]
    assert results[0]["output"] == "some output\n"
    assert results[2]["output"] == "some output\n"
    assert results[2]["exit_code"] == 2
    assert [event.type for event in events if event.text == "try it"] == [EventType.USER]
    said = [event.text for event in events if event.type in {EventType.ASSISTANT, EventType.ASSISTANT_DELTA}]
    assert "".join(said) == "I look.It fails."
    assert events[0].type is EventType.SYSTEM_INIT
    assert events[0].session_id == SESSION
    assert events[-1].type is EventType.RESULT_SUCCESS


KNOWN = st.sampled_from(
    [*DOCUMENTED, "type", "subtype", "payload", "toolCall", "tool_call", "function", "content", "args", "x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=4)
    | st.sampled_from(["tool_call", "assistant", "result", "started", "completed", '{"a": 1}', "12"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KNOWN, inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
CALLED = st.sampled_from(["shellToolCall", "mcpToolCall", "editToolCall", "function"])
LINES = st.dictionaries(KNOWN, JSON, max_size=5) | st.builds(
    lambda subtype, kind, inner, rest: {"type": "tool_call", "subtype": subtype, "tool_call": {kind: inner}, **rest},
    st.sampled_from(["started", "completed"]), CALLED, JSON, st.dictionaries(KNOWN, JSON, max_size=2),
)  # fmt: skip


TYPES = {kind.value for kind in EventType}
OWN_WORDS = {"user", "assistant", "assistant:delta", "thinking:delta", "result:success", "result:error", "error"}


@given(st.lists(LINES, min_size=1, max_size=3))
@settings(max_examples=150)
def test_every_object_is_an_event_that_agrees_with_the_log_and_answers_for_every_documented_field(bodies):
    decoder, calls = Decoder(), Pairing()
    for body in bodies:
        data = json.dumps(body).encode()
        event = decoder.line(Line(0, len(data), data))
        assert event is not None
        logged, call = stream.decode_with_call(Line(0, len(data), data), calls)
        assert event.type.value == (logged.kind if logged.kind in TYPES else "unknown")
        if logged.kind in OWN_WORDS:
            assert (event.text or "") == (logged.text or "")
        if (result := stream.result_of(logged)) is not None and result.is_error and "error" not in body and result.text:
            assert event.data["error"] == result.text
        if call is not None:
            assert event.tool_parameters in (call.args, logged.body.get("parameters"))
        assert isinstance(event.type, EventType)
        assert isinstance(event.data, dict)
        for name in DOCUMENTED:
            if (found := event.data.get(name)) is not None:
                assert event.data[name] == found
        assert isinstance(event.tool_name, str | None)
        assert isinstance(event.tool_parameters, dict | None)
        assert dataclasses.asdict(event)["data"] == event.data


@given(st.binary(max_size=60))
@settings(max_examples=100)
def test_all_bytes_are_an_event_or_blank(data):
    event = line(data)
    assert (event is None) == (not data.strip())
