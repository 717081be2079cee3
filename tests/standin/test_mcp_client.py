"""The stand-in as an MCP client: discovery, handshake, calls, environment and ending."""

import json
import os
import signal

import pytest


def read_record(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def messages(path):
    return [entry["message"] for entry in read_record(path) if "message" in entry]


def test_a_tool_call(standin):
    record = standin.use_mcp()
    outcome = standin.run('/tool echo {"text":"ümlaut"}\n/tool echo')
    looked_up, called = (line["tool_call"] for line in outcome.of("tool_call", "completed")[:2])
    assert json.loads(looked_up["getMcpToolsToolCall"]["result"]["success"]["content"]) == {
        "tool": "echo",
        "description": "The tool echo.",
        "inputSchema": {"type": "object"},
    }
    args = called["mcpToolCall"]["args"]
    assert list(args) == [
        *("name", "args", "toolCallId", "providerIdentifier", "toolName", "smartModeApprovalOnly", "skipApproval"),
        "serverIdentifier",
    ]
    assert (args["name"], args["args"], args["toolName"]) == ("echo-echo", {"text": "ümlaut"}, "echo")
    text = 'echo {"text": "\\u00fcmlaut"}'
    assert called["mcpToolCall"]["result"] == {
        "success": {"content": [{"text": {"text": text}}], "isError": False, "systemReminders": []}
    }
    # The tool is looked up once, however often it is called.
    kinds = [next(iter(line["tool_call"])) for line in outcome.of("tool_call", "started")]
    assert kinds == ["getMcpToolsToolCall", "mcpToolCall", "mcpToolCall"]
    assert [message["method"] for message in messages(record)] == [
        *("initialize", "notifications/initialized", "tools/list", "tools/call", "tools/call")
    ]


def test_the_handshake_is_cursors(standin):
    record = standin.use_mcp()
    standin.run("no tools needed")
    initialize, initialized, listing = messages(record)
    assert initialize == {
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {"form": {}}},
            "clientInfo": {"name": "Cursor", "version": "1.0.0"},
        },
        "jsonrpc": "2.0",
        "id": 0,
    }
    assert initialized == {"method": "notifications/initialized", "jsonrpc": "2.0"}
    assert listing["method"] == "tools/list"


def test_a_server_gets_six_variables_and_its_own(standin):
    standin.environ |= {"SECRET": "hidden", "TOKEN": "from outside", "USER": "somebody", "SHELL": "/bin/sh"}
    environ = {"TOKEN": "${env:TOKEN}", "GREETING": "${NAME:-nobody} at ${workspaceFolder}"}
    record = standin.use_mcp(environ=environ)
    standin.run("x")
    seen = read_record(record)[0]
    assert {"HOME", "PATH", "USER", "SHELL", "TOKEN", "GREETING"} <= set(seen["environ"])
    assert not {"SECRET", "PYTHONPATH", "TMPDIR"} & set(seen["environ"])
    assert seen["environ"]["TOKEN"] == "from outside"
    assert seen["environ"]["GREETING"] == f"nobody at {standin.workspace}"
    assert seen["cwd"] == str(standin.workspace)


def test_without_approval_a_project_server_is_not_started(standin):
    record = standin.use_mcp()
    flags = ("-p", "--force", "--output-format", "stream-json")
    outcome = standin.run("/tool echo {}", usual=flags)
    assert list(outcome.calls("mcp")[0]) == ["serverNotFound"]
    assert not record.exists()


def test_the_projects_entry_wins_and_its_root_has_the_git(standin):
    ours = standin.use_mcp(name="echo")
    (standin.home / ".cursor").mkdir()
    (standin.home / ".cursor" / "mcp.json").write_text('{"mcpServers":{"echo":{"command":"/nonexistent"}}}')
    (standin.workspace / ".git").mkdir()
    below = standin.workspace / "a" / "b"
    below.mkdir(parents=True)
    outcome = standin.run("/tool echo-echo {}", cwd=below)
    assert "success" in outcome.calls("mcp")[0]
    assert messages(ours)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"mcpServers":[]}',
        '{"mcpServers":{"bad":{"args":[]},"good":GOOD}}',
        '{"mcpServers":{"bad":{"command":1},"good":GOOD}}',
        '{"mcpServers":{"bad":{"command":"x","args":[1]},"good":GOOD}}',
    ],
)
def test_any_mistake_empties_the_file_silently(standin, text):
    record = standin.use_mcp()
    path = standin.workspace / ".cursor" / "mcp.json"
    good = json.dumps(json.loads(path.read_text())["mcpServers"]["echo"])
    path.write_text(text.replace("GOOD", good))
    outcome = standin.run("hello")
    assert (outcome.text, outcome.stderr) == ("hello", "")
    assert not record.exists()


def test_servers_that_fail_are_left_out(standin):
    standin.use_mcp()
    path = standin.workspace / ".cursor" / "mcp.json"
    value = json.loads(path.read_text())
    value["mcpServers"] |= {
        "absent": {"command": "/nonexistent/program"},
        "elsewhere": {"url": "http://localhost:1/mcp"},
        "short": {"command": "true"},
    }
    path.write_text(json.dumps(value))
    standin.use_mcp("old", name="old")
    outcome = standin.run("/tool echo {}\n/tool missing {}")
    found, missing = outcome.calls("mcp")
    assert "success" in found
    assert missing["toolNotFound"]["name"] == "missing"
    assert outcome.stderr == ""
    (log,) = standin.temporary.glob("cursor-agent-logs-*/*.log")
    text = log.read_text()
    assert all(f"MCP server {name} failed" in text for name in ("absent", "elsewhere", "short", "old"))


def test_results_of_every_kind(standin):
    standin.use_mcp()
    broken, rich, died, gone = standin.run("/tool broken\n/tool rich\n/tool die\n/tool echo").calls("mcp")
    assert broken == {"error": {"error": "that is not right", "readToolDefReminder": ""}}
    assert rich["success"]["isError"] is True
    assert [next(iter(item)) for item in rich["success"]["content"]] == ["text", "image", "text"]
    assert "structuredContent" not in json.dumps(rich)
    assert died["error"]["error"] == "MCP error -32000: Connection closed"
    assert "serverNotFound" in gone


def test_a_call_that_takes_too_long(standin):
    record = standin.use_mcp()
    outcome = standin.run("/tool-timeout 0.05\n/tool slow {}\n/tool-timeout 60\n/tool echo {}")
    late, next_one = outcome.calls("mcp")
    assert late["error"]["error"] == "MCP error -32001: Request timed out"
    assert "success" in next_one
    (cancelled,) = [message for message in messages(record) if message["method"] == "notifications/cancelled"]
    call = next(message for message in messages(record) if message["method"] == "tools/call")
    assert cancelled["params"]["requestId"] == call["id"]


def test_a_call_may_be_repeated_silently(standin):
    record = standin.use_mcp()
    outcome = standin.run('/tool-twice echo {"a":1}')
    assert len(outcome.calls("mcp")) == 1
    calls = [message["params"] for message in messages(record) if message["method"] == "tools/call"]
    assert calls == [{"name": "echo", "arguments": {"a": 1}}] * 2


def test_servers_end_by_the_end_of_their_stdin(standin):
    record = standin.use_mcp()
    standin.run("hello")
    entries = read_record(record)
    assert entries[-1] == {"ended": "stdin"}
    assert not os.path.exists(f"/proc/{entries[0]['pid']}")


@pytest.mark.slow
def test_a_stubborn_server_is_killed_after_all(standin):
    record = standin.use_mcp("stubborn")
    running = standin.start("hello")
    running.read_until("result")
    assert running.finish().code == 0
    entries = read_record(record)
    assert entries[-2:] == [{"ended": "stdin"}, {"signal": "SIGTERM"}]
    assert not os.path.exists(f"/proc/{entries[0]['pid']}")


def test_servers_end_with_the_run_when_it_is_stopped(standin, until):
    record = standin.use_mcp()
    running = standin.start("/tool slow {}")
    until(lambda: "tools/call" in [message.get("method") for message in messages(record)])
    running.signal(signal.SIGTERM)
    until(lambda: read_record(record)[-1] == {"ended": "stdin"})


def test_a_mute_server_does_not_delay_the_first_lines(standin):
    standin.use_mcp("mute")
    running = standin.start("/say hi\n/shell true\n")
    running.read_until("tool_call", "completed")
    assert running.signal(signal.SIGTERM).code == 143
