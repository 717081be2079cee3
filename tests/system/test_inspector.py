"""The MCP Inspector's command line, a client nobody here wrote, in the agent's place; fetched from the npm registry."""

import json
import shutil
import subprocess

import pytest

PACKAGE = "@modelcontextprotocol/inspector"

AGENT = """
import subprocess

INSPECTOR = ["node", "{modules}/.bin/mcp-inspector", "--cli", "--config", ".cursor/mcp.json", "--server", "substrat"]


def ask(*words):
    done = subprocess.run([*INSPECTOR, *words], capture_output=True, text=True, timeout=60)
    return done.stdout or done.stderr


begin()
answers = [
    ask("--method", "tools/list"),
    ask("--method", "tools/call", "--tool-name", "whoami"),
    ask("--method", "tools/call", "--tool-name", "send_message", "--tool-arg", "to=nobody", "--tool-arg", "text=hi"),
]
finish(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are needed to fetch the MCP Inspector")
    where = tmp_path_factory.mktemp("inspector")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(where), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm couldn't fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
    return where / "node_modules"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_inspector_lists_and_calls_the_tools(daemon, modules):
    program = daemon.program(AGENT.replace("{modules}", str(modules)))
    daemon.start(agent=program, config=f'[agent]\nbind_ro = ["{modules}"]\n')
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), "go")
    daemon.ok("wait", "anna", "--timeout", "200")
    agent = daemon.show("anna")
    listed, whoami, refused = map(json.loads, json.loads(agent["turn"]["result"]))
    assert [tool["name"] for tool in listed["tools"]] == [
        "whoami", "list_agents", "get_agent", "send_message", "check_inbox", "spawn_agent", "interrupt_agent", "end_agent",
        "wait_agents", "complete", "report_status", "ask_operator", "cancel_question", "remind_me", "cancel_reminder",
        "add_tasks", "claim_task", "finish_task", "list_tasks",
    ]  # fmt: skip
    assert json.loads(whoami["content"][0]["text"])["name"] == "anna"
    assert refused["isError"]
    assert "nobody" in refused["content"][0]["text"]
