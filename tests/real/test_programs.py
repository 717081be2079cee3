"""The real claude and codex where something fails, and beside each other; tests/system/test_programs.py has more."""

import pytest

from tests.support.npm_programs import KEYS, configure, npm
from tests.system.test_program_families import BUSY, lead_a_family, texts, wait_until

__all__ = ["configure", "npm"]

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]
MOST_TOKENS = {"claude": 6000, "codex": 4500}
"""The tokens of the descriptions of all tools in a request, by four characters each."""
FAILURES = {401: "is refused: ", 404: "there is no such model for this account"}
PASSING = {
    "429": "takes no more for now: ",
    "500": " failed: ",
    "529": "takes no more for now: ",
    "network": "the connection to ",
}


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
        no_model = ("--env", "NO_MODEL=1") if status == "network" else ()
        spawn(f"a{status}", f"/status {status}", "--env", f"{KEYS[program]}=key-{status}", *no_model)
    spawn("spent", "/status 402", "--env", f"{KEYS[program]}=spent")
    spawn("tools", "/tools")
    for status, sentence in FAILURES.items():
        turn = turn_of(f"a{status}")
        assert turn["outcome"] == "error"
        assert sentence in turn["error"], turn
    for status, sentence in PASSING.items():
        wait_until(lambda status=status: daemon.events(f"a{status}", "turn:retry"), f"the next try after {status}")
        assert sentence in texts(daemon, f"a{status}", "turn:ended")[0]
        daemon.ok("end", f"a{status}")
    assert 0 < int(turn_of("tools")["result"]) < MOST_TOKENS[program]
    wait_until(lambda: daemon.events("spent", "gate:held"), "the gate")
    spawn("same", "", "--env", f"{KEYS[program]}=spent")
    spawn("other", "", "--env", f"{KEYS[program]}=other")
    assert turn_of("other")["result"] == "prompts seen: 1"
    same = daemon.show("same")
    assert (same["state"], same["turn"]) == ("queued", None)


def test_claude_without_a_key_names_the_one_that_is_missing(daemon, configure):
    work, config = daemon.workspace(), configure("claude")
    daemon.start(config=config)
    assert daemon.ctl("spawn", "anna", "--program", "claude", "-w", work, "--wait", "go").out == "prompts seen: 1\n"
    daemon.stop()
    daemon.start(config=config.replace("env = ", "# "))
    told = daemon.ctl("spawn", "bert", "--program", "claude", "-w", work, "--wait", "go")
    assert told.code == 5, told
    assert "claude isn't logged in: set ANTHROPIC_API_KEY or " in told.err


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


def test_a_family_of_three_programs_is_suspended_and_writes_to_each_other(daemon, configure):
    daemon.start(config=configure("claude", "codex"))
    lead_a_family(daemon)
