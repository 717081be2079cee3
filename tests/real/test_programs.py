"""The real claude and codex where something fails, and beside each other; tests/system/test_programs.py has more."""

import pytest

from tests.support import waiting
from tests.support.npm_programs import KEYS, configure, npm
from tests.system.test_programs import BUSY

__all__ = ["configure", "npm"]

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]
MOST_TOKENS = {"claude": 6000, "codex": 4500}
"""The tokens of the descriptions of all tools in a request, by four characters each."""
FAILURES = {401: "is refused: ", 404: "there is no such model for this account"}
PASSING = (429, 500)


def wait_until(condition, what):
    """Wait longer than other tests: several agents' programs start at once, and each of their failures takes its time."""
    return waiting.wait_until(condition, what, patience=200)


@pytest.fixture(params=["claude", "codex"])
def program(request):
    return request.param


def test_failures_are_told_or_tried_again_and_a_spent_account_holds_its_own_turns(daemon, configure, program):
    work = daemon.workspace()
    daemon.start(config=configure(program))

    def turn_of(name):
        return wait_until(lambda: (turn := daemon.show(name)["turn"]) and turn["outcome"] and turn, f"the end of {name}")

    def spawn(name, prompt, *options):
        daemon.ok("spawn", name, "--program", program, "-w", work, f"go\n{prompt}", *options)

    for status in (*FAILURES, *PASSING):
        spawn(f"a{status}", f"/status {status}", "--env", f"{KEYS[program]}=key-{status}")
    spawn("spent", "/status 402", "--env", f"{KEYS[program]}=spent")
    spawn("tools", "/tools")
    for status, sentence in FAILURES.items():
        turn = turn_of(f"a{status}")
        assert turn["outcome"] == "error"
        assert sentence in turn["error"], turn
    for status in PASSING:
        wait_until(lambda status=status: daemon.events(f"a{status}", "turn:retry"), f"the next try after {status}")
        daemon.ok("end", f"a{status}")
    assert 0 < int(turn_of("tools")["result"]) < MOST_TOKENS[program]
    wait_until(lambda: daemon.events("spent", "gate:held"), "the gate")
    spawn("same", "", "--env", f"{KEYS[program]}=spent")
    spawn("other", "", "--env", f"{KEYS[program]}=other")
    assert turn_of("other")["result"] == "prompts seen: 1"
    same = daemon.show("same")
    assert (same["state"], same["turn"]) == ("queued", None)


def test_a_model_that_hangs_is_stuck_and_then_the_turns_end(daemon, configure, program):
    limits = "turns.stuck_after = 5\nturns.silence_limit = 15\n"
    daemon.start(config=configure(program, further=limits))
    daemon.ok("spawn", "anna", "--program", program, "-w", daemon.workspace(), "go\n/hang")
    wait_until(lambda: daemon.show("anna")["attention"]["kind"] == "stuck", "the attention")
    wait_until(lambda: daemon.show("anna")["state"] == "failed", "the limit")
    assert daemon.show("anna")["turn"]["outcome"] == "timed_out"


def test_a_turn_goes_on_when_the_daemon_is_killed(daemon, configure, program):
    work, config = daemon.workspace(), configure(program)
    daemon.start(config=config)
    daemon.ok("spawn", "anna", "--program", program, "-w", work, f"{BUSY}/tool whoami")
    wait_until((work / "begun").exists, "the turn")
    daemon.kill()
    daemon.start(config=config)
    (work / "end").touch()
    first = daemon.wait("anna")
    assert (first["turn"]["number"], first["turn"]["result"]) == (1, "prompts seen: 1")
    daemon.ok("send", "anna", "go on", "--wait")
    assert daemon.show("anna")["turn"]["result"] == "prompts seen: 2"


def test_agents_of_three_programs_write_to_each_other(daemon, configure):
    work = daemon.workspace()
    daemon.start(config=configure("claude", "codex"))
    family = ("cursor", "claude", "codex")
    for name in family:
        daemon.ok("spawn", name, "--program", name, "-w", work, "go")
    daemon.ok("wait", *family, "--timeout", "200")
    for name, to in zip(family, family[1:] + family[:1], strict=True):
        daemon.ok("send", name, f'go\n/tool send_message {{"to": "{to}", "text": "hello from {name}", "intent": "inform"}}')
    for name, sender in zip(family, family[-1:] + family[:-1], strict=True):
        wait_until(lambda name=name: daemon.events(name, "message:received"), "the message")
        agent = daemon.wait(name)
        (received,) = daemon.events(name, "message:received")
        assert received["text"] == f"from {sender}: hello from {sender}"
        assert (agent["program"], agent["turn"]["outcome"]) == (name, "success")
        assert agent["turn"]["usage"]["inputTokens"] > 0
        *_, call = daemon.events(name, "tool-call-completed")
        assert call["text"].startswith('mcp send_message: {"to": '), call["text"]
        assert f"to {family[(family.index(name) + 1) % 3]}" in daemon.ctl("transcript", name).out
    assert {agent["program"] for agent in daemon.ok("ls")} == set(family)
