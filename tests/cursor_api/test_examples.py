"""Programs as people write them for the documented API, unchanged but for the import; what they print is checked."""

import dataclasses
import json

import pytest

from substrat.cursor_api import (
    ConversationSession,
    EventType,
    query,
    query_stream,
)
from tests.cursor_api.conftest import STANDIN

TIME = 1705123456789
FLAT: list[dict] = [
    {"type": "system", "subtype": "init", "session_id": "abc", "request_id": "q", "model": "m", "workspace": "/w"},
    {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "how much is it?"}]}},
    {"type": "thinking", "subtype": "delta", "text": "counting", "timestamp_ms": TIME},
    {"type": "thinking", "subtype": "completed"},
    {"type": "tool-call-started", "tool_name": "Shell", "tool_call_id": "c1", "parameters": {"command": "expr 2 + 2"}},
    {
        "type": "tool-call-completed", "tool_name": "Shell", "tool_call_id": "c1", "duration_ms": 15,
        "result": {"success": True, "output": "4\n", "exit_code": 0},
    },
    {"type": "assistant", "text": "It ", "timestamp_ms": TIME + 1},
    {"type": "assistant", "text": "is ", "timestamp_ms": TIME + 2},
    {"type": "assistant", "text": "4.", "timestamp_ms": TIME + 3},
    {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "It is 4."}]}},
    {"type": "result", "subtype": "success", "result": "It is 4.", "session_id": "abc", "duration_ms": 7},
]  # fmt: skip
REAL: list[dict] = [
    {"type": "system", "subtype": "init", "session_id": "abc", "apiKeySource": "login", "cwd": "/w", "model": "M"},
    FLAT[1],
    FLAT[2],
    {**FLAT[3], "timestamp_ms": TIME},
    {
        "type": "tool_call", "subtype": "started", "call_id": "c1\nfc", "model_call_id": "m", "timestamp_ms": TIME,
        "tool_call": {"shellToolCall": {"args": {"command": "expr 2 + 2"}}, "toolCallId": "c1\nfc"},
    },
    {
        "type": "tool_call", "subtype": "completed", "call_id": "c1\nfc", "model_call_id": "m", "timestamp_ms": TIME + 15,
        "tool_call": {"shellToolCall": {"result": {"success": {"exitCode": 0, "stdout": "4\n", "stderr": ""}}}},
    },
    *(
        {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, "timestamp_ms": TIME}
        for text in ("It ", "is ", "4.")
    ),
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "It is 4."}]}},
    {**FLAT[-1], "duration_api_ms": 7, "usage": {}},
]  # fmt: skip


@pytest.fixture(params=["flat", "real"])
def agent(request, printing, monkeypatch):
    """The same answer in the documented dialect and in that of current builds."""
    monkeypatch.setenv("SUBSTRAT_AGENT_BINARY", printing(*(FLAT if request.param == "flat" else REAL)))
    return FLAT if request.param == "flat" else REAL


def test_events_are_told_apart_by_their_type(agent, capsys):
    for event in query_stream("how much is it?"):
        match event.type:
            case EventType.SYSTEM_INIT:
                print(f"chat {event.session_id}")
            case EventType.THINKING_DELTA:
                print(f"({event.text})")
            case EventType.ASSISTANT_DELTA:
                print(event.text, end="", flush=True)
            case EventType.TOOL_CALL_STARTED:
                tool = event.data.get("tool_name")
                print(f"runs {tool}")
            case EventType.TOOL_CALL_COMPLETED:
                result = event.data.get("result", {})
                print(f"ran: {result}")
            case EventType.RESULT_SUCCESS:
                print(f"\ntook {event.data.get('duration_ms')} ms")
            case EventType.RESULT_ERROR:
                print(f"\nfailed: {event.data.get('error')}")
    assert capsys.readouterr().out == (
        "chat abc\n(counting)\nruns Shell\nran: {'success': True, 'output': '4\\n', 'exit_code': 0}\nIt is 4.\ntook 7 ms\n"
    )


def test_the_raw_data_is_at_hand(agent):
    seen = []
    for event in query_stream("list them"):
        raw = event.data
        seen.append((raw.get("type"), raw.get("subtype")))
        if event.type == EventType.TOOL_CALL_COMPLETED:
            tool_result = raw.get("result", {})
            assert tool_result.get("exit_code") == 0
            assert tool_result.get("output") == "4\n"
            assert raw.get("duration_ms") == 15
        if event.type == EventType.SYSTEM_INIT:
            assert raw["workspace"] == "/w"
    assert seen == [(line["type"], line.get("subtype")) for line in agent]


def test_the_whole_stream_line_by_line(agent):
    events = list(query_stream("how much is it?"))
    assert [event.data for event in events] == agent
    assert [event.type.name for event in events] == [
        "SYSTEM_INIT", "USER", "THINKING_DELTA", "THINKING_COMPLETED", "TOOL_CALL_STARTED", "TOOL_CALL_COMPLETED",
        "ASSISTANT_DELTA", "ASSISTANT_DELTA", "ASSISTANT_DELTA", "ASSISTANT", "RESULT_SUCCESS",
    ]  # fmt: skip
    assert [event.text for event in events if event.text] == [
        "how much is it?", "counting", "It ", "is ", "4.", "It is 4.", "It is 4.",
    ]  # fmt: skip
    assert events[2].timestamp_ms == TIME
    assert events[0].session_id == "abc"


def test_a_result_has_all_its_fields(agent):
    result = query("how much is it?")
    assert result.success is True
    assert result.result == "It is 4."
    assert result.session_id == "abc"
    assert result.duration_ms == 7
    assert result.error is None
    assert result.events == []


def test_a_conversation_whose_stream_is_stopped(capsys):
    session = ConversationSession()
    prompt = "/emit 100000 8"
    stream = session.send_stream(prompt)
    for event in stream:
        print(event.text, end="")
        if len(stream.events) > 20:
            stream.cancel()
            break
    session.finalize_stream(prompt, stream)
    assert len(session.history) == 1
    assert session.session_id == stream.events[0].session_id
    assert session.send("and now?").result == "and now?"
    for asked, result in session.history:
        assert asked
        assert isinstance(result.result, str)


@pytest.mark.parametrize("name", ["agent", "cursor-agent"])
def test_a_turn_with_a_command_is_followed_without_any_configuration(name, place, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).symlink_to(STANDIN)
    monkeypatch.delenv("SUBSTRAT_AGENT_BINARY")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    answer, ran = "", []
    for event in query_stream("/think how much\n/shell expr 2 + 2\nIt is 4.", force_approve=True):
        match event.type:
            case EventType.ASSISTANT_DELTA:
                answer += event.text
            case EventType.TOOL_CALL_COMPLETED:
                result = event.data.get("result", {})
                ran.append((event.data.get("tool_name"), result.get("exit_code"), result.get("output")))
    assert answer == event.text == "It is 4."
    assert ran == [("Shell", 0, "4\n")]
    assert event.type is EventType.RESULT_SUCCESS


def test_events_can_be_kept_as_json(agent):
    kept = [json.loads(json.dumps(event.data)) for event in query_stream("how much is it?")]
    assert kept == agent
    result = query("how much is it?", output_format="stream-json")
    assert [event["data"] for event in dataclasses.asdict(result)["events"]] == agent
