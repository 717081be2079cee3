"""The real Claude Code from its npm package, in a real sandbox, against a model server of the test's own beside it."""

import json
import shutil
import subprocess

import pytest

from substrat.core.programs.claude import command_line
from tests.support import claude_model

PACKAGE = "@anthropic-ai/claude-code-linux-x64@2.1.197"
# It is called like cursor-agent and calls claude. The key is any key: the model server asks for none.
WRAPPER = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import claude_model
os.environ.update({environment!r}, ANTHROPIC_API_KEY="x")
claude_model.run({claude!r}, {arguments!r})
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
def test_a_turn_of_claude_reads_like_one_of_cursor_agents(house, claude):
    work = house.workspace()
    program, *arguments = command_line.command(
        str(claude), f"{work}/.cursor/mcp.json", f"{work}/.cursor/rules/substrat.mdc", "auto", session=None
    )
    source = WRAPPER.format(environment=dict(command_line.ENVIRONMENT), claude=program, arguments=arguments)
    wrapper = house.program(source)
    shutil.copy(claude_model.__file__, wrapper.parent)
    house.start(agent=wrapper, config=f'[agent]\nbind_ro = ["{claude}"]\n')
    house.ok("spawn", "anna", "-w", work, "go\n/shell echo hello > made; exit 3\n/tool whoami")
    house.ok("wait", "anna", "--timeout", "120")
    turn = house.show("anna")["turn"]
    assert (turn["outcome"], turn["result"], turn["usage"]["inputTokens"]) == ("success", "prompts seen: 1", 300)
    assert (work / "made").read_text() == "hello\n"
    shell, whoami = house.events("anna", "tool-call-completed")
    assert shell["text"] == "shell: echo hello > made; exit 3 → exit 3"
    (answer,) = whoami["raw"]["tool_call"].values()
    assert json.loads(answer["result"]["success"]["content"])["name"] == "anna"
