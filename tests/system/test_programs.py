"""The real claude and codex, in real sandboxes: they work, are suspended and resumed, and hear words amid a turn.

`make real` has the rest (tests/real/test_programs.py).
"""

import shutil

import pytest

from tests.support.npm_programs import configure, npm
from tests.support.waiting import wait_until
from tests.system.test_program_families import BUSY

__all__ = ["configure", "npm"]

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(300)]
SESSIONS = {"claude": "dot-claude/projects", "codex": "dot-codex/sessions"}


def answer_of(call):
    """The text that a tool of the companion's has answered, in the form of either program."""
    (answer,) = call["raw"]["tool_call"].values()
    content = answer["result"]["success"]["content"]
    return content if isinstance(content, str) else content[0]["text"]


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_it_works_is_suspended_and_goes_on_with_its_memory(daemon, configure, program):
    work = daemon.workspace()
    daemon.start(config=configure(program))
    daemon.ok("spawn", "anna", "--program", program, "-w", work, "go\n/shell echo hello > made; exit 3\n/tool whoami")
    first = daemon.wait("anna")
    turn = first["turn"]
    assert (turn["outcome"], turn["result"], turn["usage"]["inputTokens"]) == ("success", "prompts seen: 1", 300), turn
    assert first["program"] == program
    assert not (daemon.home / ".cursor").exists()
    assert (work / "made").read_text() == "hello\n"
    shell, whoami = daemon.events("anna", "tool-call-completed")
    assert shell["text"] == "shell: echo hello > made; exit 3 → exit 3"
    assert '"name":"anna"' in answer_of(whoami)

    daemon.ok("send", "anna", BUSY)
    wait_until((work / "begun").exists, "the second turn")
    daemon.ok("suspend", "anna")
    (work / "end").touch()
    daemon.ok("resume", "anna")
    after = daemon.wait("anna")
    assert (after["session_id"], after["turn"]["outcome"]) == (first["session_id"], "success")
    daemon.ok("send", "anna", "go on", "--wait")
    last = daemon.show("anna")["turn"]
    assert (last["result"], last["usage"]["inputTokens"]) == ("prompts seen: 3", 100)
    assert "sk-any" not in daemon.ctl("explain", "anna").out
    assert f"sessions of {program} can't be read: `substratctl transcript anna` shows" in daemon.ctl("export", "anna").err
    taken = daemon.ctl("spawn", "bert", "-w", work, "--program", program, "--adopt", first["session_id"])
    assert f"{program} can't take a chat over: leave the session out" in taken.err

    shutil.rmtree(daemon.agents_directory(first) / SESSIONS[program])
    daemon.ctl("send", "anna", "go, and now?", "--wait")
    said = daemon.show("anna")["turn"]["error"]
    assert said.startswith(f"the session {first['session_id']} of anna is gone from its own"), said


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_the_operators_words_are_in_the_next_request_of_the_same_turn(daemon, configure, program):
    work = daemon.workspace()
    daemon.start(config=configure(program))
    daemon.ok("spawn", "anna", "--program", program, "-w", work, f"{BUSY}/shell false\n/count use tabs")
    wait_until((work / "begun").exists, "the turn")
    assert daemon.ok("send", "anna", "use tabs", "--now")["into"] == "running"
    (work / "end").touch()
    agent = daemon.wait("anna")
    assert (agent["turn"]["number"], agent["turn"]["result"]) == (1, "1 parts")
    assert len(daemon.events("anna", "prompt:delivered")) == 1
