"""The same calls through a real daemon: events from the sandbox, agents that don't stay, conversations that do."""

import os
import threading

import pytest

from substrat.cli.connection import Connection
from substrat.cursor_api import (
    AgentConfig,
    ConversationSession,
    CursorAgentClient,
    EventType,
    OutputFormat,
    query,
    query_stream,
)
from substrat.errors import DaemonNotRunning, NotAvailable

SANDBOXED = AgentConfig(sandboxed=True)
HELD = "begun\n/shell while [ ! -e go ]; do sleep 0.02; done\nended"


def until_begun(stream):
    for event in stream:
        if event.type is EventType.TOOL_CALL_STARTED:
            return
    raise AssertionError("the turn ended before its tool call")


def test_a_query_runs_in_a_sandbox_and_leaves_nothing(daemon, place):
    found = query("hello\n/shell echo $HOME > seen; touch /tmp/only-inside-cursor-api", sandboxed=True)
    assert (found.success, found.result, found.events) == (True, "hello", [])
    assert found.session_id
    assert found.duration_ms is not None
    assert (place / "seen").exists()
    assert not os.path.exists("/tmp/only-inside-cursor-api")


def test_a_stream_has_the_programs_own_events(daemon):
    stream = query_stream("hello\n/shell echo hi", SANDBOXED)
    assert stream.process is None
    kinds = [event.type for event in stream]
    assert kinds[0] is EventType.SYSTEM_INIT
    assert kinds[-1] is EventType.RESULT_SUCCESS
    assert {EventType.USER, EventType.ASSISTANT_DELTA, EventType.TOOL_CALL_STARTED} <= set(kinds)
    ended = next(event for event in stream.events if event.type is EventType.TOOL_CALL_COMPLETED)
    assert ended.tool_result == {"success": True, "output": "hi\n", "exit_code": 0}
    assert ended.data["tool_call"]["shellToolCall"]["result"]["success"]["stdout"] == "hi\n"
    assert stream.result.result == "hello"
    assert daemon.agents() == []


def test_every_format_and_kind_of_line(daemon):
    client = CursorAgentClient(SANDBOXED)
    assert client.query("hello", output_format=OutputFormat.TEXT).result == "hello"
    found = client.query("/garbage rubbish\nhello", output_format="stream-json")
    assert found.result == "hello"
    assert "rubbish" in [event.text for event in found.events if event.raw_type == "raw"]


def test_a_failed_turn_is_a_failure_with_its_reason(daemon):
    found = query("/stderr Error: broken\n/exit 3", sandboxed=True, output_format="stream-json")
    assert not found.success
    assert "broken" in found.error
    assert found.events[-1].type is EventType.RESULT_ERROR


def test_a_timeout_interrupts_the_turn(daemon):
    found = query(HELD, sandboxed=True, timeout=2, output_format="stream-json")
    assert (found.success, found.error) == (False, "Request timed out after 2 s")
    assert found.result == "begun"


@pytest.mark.parametrize("how", ["cancel", "thread", "leave", "drop"])
def test_stopping_a_turn_removes_its_agent(daemon, how):
    stream = query_stream(HELD, sandboxed=True)
    until_begun(stream)
    assert [agent["state"] for agent in daemon.agents()] == ["running"]
    if how == "cancel":
        stream.cancel()
        assert list(stream) == []
    elif how == "thread":
        thread = threading.Thread(target=stream.cancel)
        thread.start()
        assert list(stream) == []
        thread.join()
    elif how == "leave":
        with stream:
            pass
    if how != "drop":
        assert stream.cancelled == (how in {"cancel", "thread"})
        assert not stream.result.success
    del stream


def test_a_conversation_keeps_one_agent(daemon):
    with ConversationSession(sandboxed=True) as session:
        first = session.send("the word is plum")
        (agent,) = daemon.agents()
        assert agent["session_id"] == first.session_id == session.session_id
        assert "plum" in session.send("/recall").result
        stream = session.send_stream("and on")
        assert [event.type for event in stream][-1] is EventType.RESULT_SUCCESS
        session.finalize_stream("and on", stream)
        assert [entry["id"] for entry in daemon.agents()] == [agent["id"]]
        assert len(session.history) == 3
    assert daemon.agents() == []


def test_a_conversation_goes_on_after_a_cancelled_answer(daemon):
    with ConversationSession(SANDBOXED) as session:
        session.send("the word is plum")
        stream = session.send_stream(HELD)
        until_begun(stream)
        stream.cancel()
        assert not session.finalize_stream(HELD, stream).success
        assert "plum" in session.send("/recall").result


def test_a_conversation_that_is_closed_in_the_middle(daemon):
    with ConversationSession(SANDBOXED) as session:
        stream = session.send_stream(HELD)
        until_begun(stream)
    assert daemon.agents() == []
    assert stream.finished


def test_a_dropped_conversation_removes_its_agent(daemon):
    session = ConversationSession(SANDBOXED)
    session.send("hello")
    assert len(daemon.agents()) == 1
    del session


def test_somebody_else_ends_the_agent(daemon):
    stream = query_stream(HELD, sandboxed=True)
    until_begun(stream)
    (agent,) = daemon.agents()
    with Connection() as connection:
        connection.call("agent.end", agent=agent["id"])
    assert [event.type for event in stream][-1] is EventType.RESULT_ERROR
    assert "stopped" in stream.result.error


def test_what_a_sandbox_does_not_have_is_refused(daemon, place):
    for config in (AgentConfig(api_key="k"), AgentConfig(headers=["A: 1"]), AgentConfig(agent_binary="/x")):
        with pytest.raises(NotAvailable, match="no effect on a sandboxed agent"):
            query("x", config, sandboxed=True)
    with pytest.raises(NotAvailable, match="session_id"):
        query("x", sandboxed=True, session_id="s")
    with pytest.raises(NotAvailable, match="session_id"):
        ConversationSession(sandboxed=True, session_id="s")
    with pytest.raises(NotAvailable, match="no modes"):
        query_stream("x", sandboxed=True, mode="plan")


def test_without_a_daemon_the_error_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("SUBSTRAT_SOCKET", str(tmp_path / "none.sock"))
    with pytest.raises(DaemonNotRunning, match="start one"):
        query("x", sandboxed=True)
