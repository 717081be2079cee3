"""The real codex from its npm package, in a real sandbox, against a model server of the test's own beside it."""

import json
import shutil
import subprocess

import pytest

from tests.support import codex_model
from tests.support.waiting import wait_until

PACKAGE = "@openai/codex@0.171.0-linux-x64"
# It starts the model server beside codex, in the sandbox.
WRAPPER = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import codex_model
codex_model.run({codex!r}, sys.argv[1:])
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if shutil.which("npm") is None:
        pytest.skip("npm is needed to fetch codex")
    where = tmp_path_factory.mktemp("codex")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(where), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm couldn't fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
    return where / "node_modules" / "@openai" / "codex"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_codex_works_is_suspended_and_goes_on_with_its_memory(daemon, package):
    work = daemon.workspace()
    (codex,) = package.glob("vendor/*/bin/codex")
    wrapper = daemon.program(WRAPPER.format(codex=str(codex)))
    shutil.copy(codex_model.__file__, wrapper.parent)
    daemon.start(
        config=f"""
        [agent]
        program = "codex"
        model = "gpt-5.1"
        bind_ro = ["{package}"]
        [programs.codex]
        binary = "{wrapper}"
    """
    )
    daemon.ok("spawn", "anna", "-w", work, "go\n/shell echo hello > made; exit 3\n/tool whoami")
    daemon.ok("spawn", "bert", "-w", work, "go\n/status 401")
    turn = daemon.wait("anna")["turn"]
    assert (turn["outcome"], turn["result"], turn["usage"]["inputTokens"]) == ("success", "prompts seen: 1", 300)
    assert (work / "made").read_text() == "hello\n"
    shell, whoami = daemon.events("anna", "tool-call-completed")
    assert shell["text"] == "shell: echo hello > made; exit 3 → exit 3"
    (answer,) = whoami["raw"]["tool_call"].values()
    assert json.loads(answer["result"]["success"]["content"][0]["text"])["name"] == "anna"
    assert "unexpected status 401" in daemon.wait("bert")["turn"]["error"]
    assert len(daemon.events("bert", "connection:reconnecting")) == 5

    first = daemon.show("anna")
    daemon.ok("send", "anna", "go\n/shell echo begun > begun; until test -e end; do sleep 0.1; done")
    wait_until((work / "begun").exists, "the second turn")
    daemon.ok("suspend", "anna")
    (work / "end").touch()
    daemon.ok("resume", "anna")
    daemon.ok("wait", "anna", "--timeout", "120")
    after = daemon.show("anna")
    assert (after["session_id"], after["turn"]["outcome"]) == (first["session_id"], "success")
    daemon.ok("send", "anna", "go on", "--wait")
    last = daemon.show("anna")["turn"]
    assert (last["result"], last["usage"]["inputTokens"]) == ("prompts seen: 3", 100)
