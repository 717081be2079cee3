"""The real Claude Code from its npm package, in a real sandbox, against a model server of the test's own beside it."""

import json
import shutil
import subprocess

import pytest

from tests.support import claude_model
from tests.support.waiting import wait_until

PACKAGE = "@anthropic-ai/claude-code-linux-x64@2.1.197"
# It starts the model server beside claude, in the sandbox.
WRAPPER = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import claude_model
claude_model.run({claude!r}, sys.argv[1:])
"""


@pytest.fixture(scope="module")
def claude(tmp_path_factory):
    if shutil.which("npm") is None:
        pytest.skip("npm is needed to fetch Claude Code")
    where = tmp_path_factory.mktemp("claude")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(where), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm couldn't fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
    return where / "node_modules" / PACKAGE.rpartition("@")[0] / "claude"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_claude_works_is_suspended_and_goes_on_with_its_memory(daemon, claude):
    work = daemon.workspace()
    wrapper = daemon.program(WRAPPER.format(claude=str(claude)))
    shutil.copy(claude_model.__file__, wrapper.parent)
    daemon.start(
        config=f"""
        [agent]
        bind_ro = ["{claude}"]
        [programs.claude]
        binary = "{wrapper}"
        env = {{ ANTHROPIC_API_KEY = "sk-any" }}
    """
    )
    daemon.ok("spawn", "anna", "--program", "claude", "-w", work, "/shell echo hello > made; exit 3\n/tool whoami")
    daemon.ok("wait", "anna", "--timeout", "120")
    agent = daemon.show("anna")
    turn = agent["turn"]
    assert (turn["outcome"], turn["result"], turn["usage"]["inputTokens"]) == ("success", "prompts seen: 1", 300)
    assert agent["program"] == "claude"
    assert not (daemon.home / ".cursor").exists()
    assert (work / "made").read_text() == "hello\n"
    shell, whoami = daemon.events("anna", "tool-call-completed")
    assert shell["text"] == "shell: echo hello > made; exit 3 → exit 3"
    (answer,) = whoami["raw"]["tool_call"].values()
    assert json.loads(answer["result"]["success"]["content"])["name"] == "anna"

    daemon.ok("send", "anna", "go\n/shell echo begun > begun; until test -e end; do sleep 0.1; done")
    wait_until((work / "begun").exists, "the second turn")
    daemon.ok("suspend", "anna")
    (work / "end").touch()
    daemon.ok("resume", "anna")
    daemon.ok("wait", "anna", "--timeout", "120")
    after = daemon.show("anna")
    assert (after["session_id"], after["turn"]["number"]) == (agent["session_id"], 3)
    assert after["turn"]["result"] == "prompts seen: 3"
    assert "sk-any" not in daemon.ctl("explain", "anna").out
    assert "sessions of claude can't be read: `substratctl transcript anna` shows" in daemon.ctl("export", "anna").err
    taken = daemon.ctl("spawn", "bert", "-w", work, "--program", "claude", "--adopt", agent["session_id"])
    assert "claude can't take a chat over: leave the session out" in taken.err

    shutil.rmtree(daemon.state / "agents" / agent["id"] / "dot-claude" / "projects")
    daemon.ctl("send", "anna", "and now?", "--wait")
    assert daemon.show("anna")["turn"]["error"].startswith(
        f"the session {agent['session_id']} of anna is gone from its own"
    )
