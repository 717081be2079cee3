"""The documented names and defaults, the command line, and which program is found."""

import dataclasses
import enum
import os
import subprocess
import sys
from pathlib import Path

import pytest

import substrat.cursor_api as api
from substrat.cursor_api import AgentConfig, AgentResult, CursorAgentClient, EventType, OutputFormat, command, options
from substrat.errors import AgentProgramMissing


def test_the_documented_names_are_there():
    documented = (
        "OutputFormat EventType AgentConfig AgentResult AgentEvent StreamingResponse CursorAgentClient ConversationSession "
        "query query_stream"
    )
    assert set(documented.split()) <= set(api.__all__)
    assert {entry.name: entry.value for entry in OutputFormat} == {
        "TEXT": "text", "JSON": "json", "STREAM_JSON": "stream-json",
    }  # fmt: skip
    assert {entry.name: entry.value for entry in EventType} == {
        "SYSTEM_INIT": "system:init", "USER": "user", "THINKING_DELTA": "thinking:delta",
        "THINKING_COMPLETED": "thinking:completed", "ASSISTANT": "assistant", "ASSISTANT_DELTA": "assistant:delta",
        "TOOL_CALL_STARTED": "tool-call-started", "TOOL_CALL_COMPLETED": "tool-call-completed",
        "RESULT_SUCCESS": "result:success", "RESULT_ERROR": "result:error", "UNKNOWN": "unknown",
    }  # fmt: skip
    assert issubclass(EventType, enum.Enum)


def test_the_documented_fields_come_first_and_in_order():
    def names(kind):
        return [field.name for field in dataclasses.fields(kind)]

    assert names(AgentConfig)[:7] == [
        "workspace", "model", "force_approve", "approve_mcps", "api_key", "headers", "agent_binary",
    ]  # fmt: skip
    assert names(AgentResult) == [
        "success", "result", "session_id", "request_id", "duration_ms", "duration_api_ms", "error", "events",
    ]  # fmt: skip
    assert names(api.AgentEvent) == ["type", "raw_type", "subtype", "data", "text", "session_id", "timestamp_ms"]
    assert AgentConfig() == AgentConfig(None, None, False, False, None, [], "agent")
    assert AgentResult(True, "x", "s").events == []
    assert "secret" not in repr(AgentConfig(api_key="secret"))


def test_importing_it_needs_no_trio_and_starts_nothing():
    code = "import sys, threading, substrat.cursor_api; print('trio' in sys.modules, threading.active_count())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False 1\n"


def arguments(config=None, **order):
    return command.arguments(config or AgentConfig(), options.request("the prompt", **order))


def test_the_smallest_command_line():
    assert arguments(output_format="json") == ["--print", "--output-format", "json", "--trust"]
    assert arguments() == ["--print", "--output-format", "stream-json", "--stream-partial-output", "--trust"]
    assert "--stream-partial-output" not in arguments(stream_partial=False)


def test_every_field_has_its_flag():
    config = AgentConfig(
        workspace="/w", model="m", force_approve=True, approve_mcps=True, api_key="secret", headers=["A: 1", "B: 2"]
    )
    found = arguments(config, session_id="s", mode="plan", output_format=OutputFormat.TEXT)
    assert found == [
        "--print", "--output-format", "text", "--trust", "--force", "--approve-mcps", "-H", "A: 1", "-H", "B: 2",
        "--workspace", "/w", "--model", "m", "--mode", "plan", "--resume", "s",
    ]  # fmt: skip
    assert command.environment(config, {"PATH": "p"}) == {"PATH": "p", "CURSOR_API_KEY": "secret"}
    assert command.environment(AgentConfig(), {"PATH": "p"}) == {"PATH": "p"}


def test_odd_values_stay_values(place):
    assert arguments(resume="--force")[-1] == "--resume=--force"
    assert arguments(AgentConfig(workspace="sub/..")).count(str(place)) == 1


def test_orders_are_checked():
    with pytest.raises(ValueError, match="two chats"):
        options.request("x", session_id="a", resume="b")
    with pytest.raises(ValueError, match="positive"):
        options.request("x", timeout=0)
    with pytest.raises(TypeError, match="a text"):
        options.request(b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="yaml"):
        options.request("x", output_format="yaml")


def test_configurations_are_composed():
    base = AgentConfig(model="a")
    client = CursorAgentClient(base, workspace=Path("/w"), headers={"X": "1"})
    assert client.config == AgentConfig("/w", "a", headers=["X: 1"])
    assert base == AgentConfig(model="a")
    assert CursorAgentClient().config == AgentConfig()
    with pytest.raises(TypeError, match="modell"):
        CursorAgentClient(modell="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="AgentConfig"):
        CursorAgentClient("/w")  # type: ignore[arg-type]


def test_the_default_program_is_looked_up(tmp_path, program):
    def find(**environ):
        return command.find_binary(AgentConfig(), {"PATH": str(tmp_path), **environ})

    with pytest.raises(command.AgentNotFound, match="neither 'agent' nor 'cursor-agent'"):
        find()
    legacy = program("", "cursor-agent")
    assert find() == legacy
    primary = program("", "agent")
    assert find() == primary
    chosen = program("", "chosen")
    assert find(SUBSTRAT_AGENT_BINARY=chosen) == chosen
    assert find(SUBSTRAT_AGENT_BINARY="chosen") == chosen


def test_a_named_program_is_taken_by_its_name(tmp_path, program):
    named = program("", "named")
    environ = {"PATH": str(tmp_path), "SUBSTRAT_AGENT_BINARY": "/nowhere"}
    assert command.find_binary(AgentConfig(agent_binary=named), environ) == named
    assert command.find_binary(AgentConfig(agent_binary="named"), environ) == named
    (tmp_path / "plain").write_text("")
    for name, words in (
        ("plain", "isn't on PATH"),
        (str(tmp_path / "plain"), "isn't an executable"),
        ("/no/such", "doesn't exist"),
    ):
        with pytest.raises(AgentProgramMissing, match=words):
            command.find_binary(AgentConfig(agent_binary=name), environ)


def test_a_missing_program_is_also_what_subprocess_raises():
    client = CursorAgentClient(agent_binary="/no/such")
    for ask in (client.query, client.query_stream):
        with pytest.raises(FileNotFoundError, match="/no/such"):
            ask("x")


def test_a_program_that_cannot_be_started(tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x00\x01 no program")
    os.chmod(broken, 0o755)
    with pytest.raises(AgentProgramMissing, match="can't be started: exec format error"):
        CursorAgentClient(agent_binary=str(broken)).query("x")
