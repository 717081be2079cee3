"""Turns that take too long or say nothing, and turns that are lost: each with its outcome, also after a restart."""

import json
import os
import signal
import time

import pytest

from tests.support.waiting import wait_until
from tests.system.test_freeze import is_inside


def lose(daemon, until, name="anna"):
    """Kill a turn's sandbox from outside, by bubblewrap's outer process."""
    turn = daemon.show(name)["turn"]["number"]
    kill_outer(daemon)
    until(lambda: lost(daemon, name, turn), "the loss")


def kill_outer(daemon):
    outer = [pid for pid in daemon.sandboxed() if not is_inside(pid)]
    assert outer
    for pid in outer:
        os.kill(pid, signal.SIGKILL)


def lost(daemon, name, number):
    return [turn["outcome"] for turn in daemon.turns(name) if turn["number"] == number] == ["lost"]


def test_a_silent_turn_is_stopped(daemon):
    """A tool call has a limit of its own, and is named."""
    daemon.start(config="[turns]\nsilence_limit = 0.5\ntool_limit = 0.5\n")
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "/sleep 1000")
    daemon.ok("spawn", "bert", "-w", work, "/shell sleep 1000")
    agents = [daemon.wait(name) for name in ("anna", "bert")]
    assert [(agent["state"], agent["turn"]["outcome"]) for agent in agents] == [("failed", "timed_out")] * 2
    assert "turns.silence_limit" in agents[0]["turn"]["error"]
    assert "nothing for 0.5 s (turns.tool_limit)" in agents[1]["turn"]["error"]
    assert "sleep 1000" in agents[1]["turn"]["error"]
    assert not daemon.sandboxed()


def test_a_turn_that_prints_is_not_silent(daemon):
    daemon.start(config="[turns]\nsilence_limit = 1.0\n")
    script = "\n".join("/shell sleep 0.4" for _ in range(5))
    assert daemon.spawn("anna", daemon.workspace(), script)["turn"]["outcome"] == "success"


def test_a_turn_that_only_tells_of_its_tries_to_connect_is_silent(daemon, until):
    daemon.start(config="[turns]\nsilence_limit = 4\nstuck_after = 0.4\n")
    line = '/line {"type":"connection","subtype":"reconnecting","attempt":1}'
    daemon.ok("spawn", "anna", "-w", daemon.workspace(), f"{line}\n/sleep 0.2\n" * 100)
    until(lambda: daemon.show("anna")["attention"]["kind"] == "stuck", "the attention")
    agent = daemon.wait("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("failed", "timed_out")
    assert "turns.silence_limit" in agent["turn"]["error"]


def test_a_quiet_command_is_not_silent(daemon):
    daemon.start(config="[turns]\nsilence_limit = 0.4\nstuck_after = 0.4\n")
    work = daemon.workspace()
    daemon.held("anna", work)
    wait_until(lambda: time.time() > (work / "ready-anna").stat().st_mtime + 1, "more than twice the limit")
    assert daemon.show("anna")["attention"]["kind"] == "working"
    (work / "go").touch()
    assert daemon.wait("anna", "idle")["turn"]["outcome"] == "success"


def test_a_quiet_command_is_told_as_stuck_in_its_own_time(daemon, until):
    daemon.start(config="[turns]\ntool_stuck_after = 0.4\n")
    work = daemon.workspace()
    daemon.held("anna", work)
    until(lambda: daemon.show("anna")["attention"]["kind"] == "stuck", "the attention")
    assert "during shell: touch ready-anna" in daemon.show("anna")["attention"]["text"]
    (work / "go").touch()


def test_an_agents_own_limits_go_before_the_configured_ones(daemon):
    daemon.start(config="[turns]\nsilence_limit = 1000\n")
    agent = daemon.spawn("anna", daemon.workspace(), "/sleep 1000", "--silence-limit", "0.5")
    assert agent["turn"]["outcome"] == "timed_out"
    assert "for 0.5 s" in agent["turn"]["error"]
    assert "set NAME silence_limit=SECONDS" in agent["turn"]["error"]
    assert own_limits(daemon, "anna") == [0, 0.5]
    assert "time unlimited, silence 0.5 s" in daemon.ctl("show", "anna").out
    daemon.ok("set", "anna", "silence_limit=", "time_limit=0.5")
    assert own_limits(daemon, "anna") == [0.5, 1000]
    changes = [event["data"] for event in daemon.events("anna", "agent:changed")]
    assert [(one["key"], one["old"], one["new"]) for one in changes] == [
        ("time_limit", None, 0.5), ("silence_limit", 0.5, None),
    ]  # fmt: skip
    assert daemon.ctl("send", "anna", "/shell sleep 1000", "--wait").code == 5
    assert "time limit of 0.5 s" in daemon.show("anna")["turn"]["error"]
    assert "set NAME time_limit=SECONDS" in daemon.show("anna")["turn"]["error"]
    for odd in ("time_limit=soon", "silence_limit=-1", "time_limit=nan", "time_limit"):
        assert daemon.ctl("set", "anna", odd).code == 2
    assert daemon.ctl("spawn", "bert", "-w", daemon.workspace("b"), "--time-limit", "x").code == 2
    with daemon.wire() as wire:
        assert wire.refused("agent.set", agent="anna", defaults=["phase"]) == "InvalidParams"
        assert wire.refused("agent.set", agent="anna", defaults=["time_limit"], time_limit=1) == "InvalidParams"


def test_a_child_has_its_parents_limits_and_restores_as_it_does(daemon, until):
    daemon.start()
    work = daemon.workspace()
    script = "/shell touch ready-kid; while [ ! -e go ]; do sleep 0.02; done"
    child = f"/tool spawn_agent {json.dumps({'name': 'kid', 'prompt': script})}"
    daemon.spawn("anna", work, child, "--time-limit", "99", "--silence-limit", "0", "--restore", "auto")
    assert own_limits(daemon, "kid") == [99, 0]
    until((work / "ready-kid").exists, "the child's turn")
    lose(daemon, until, "kid")
    (work / "go").touch()
    assert daemon.wait("kid", "idle")["turn"]["number"] == 2
    assert daemon.ctl("spawn", "bert", "-w", work, "--restore", "never").code == 2


def own_limits(daemon, name):
    agent = daemon.show(name)
    return [agent["time_limit"], agent["silence_limit"]]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["silence_limit", "time_limit"])
def test_the_time_without_a_daemon_counts(daemon, until, key):
    daemon.start(config=f"[turns]\n{key} = 2\n")
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, "/shell touch ready-anna\n/sleep 1000")
    until(lambda: daemon.events("anna", "tool-call-completed"), "the end of its command")
    daemon.kill()
    began = (work / "ready-anna").stat().st_mtime
    until(lambda: time.time() > began + 2, "time")
    daemon.start()
    agent = daemon.wait("anna", "failed")
    assert (agent["turn"]["outcome"], agent["turn"]["number"]) == ("timed_out", 1)
    assert key in agent["turn"]["error"]
    until(lambda: not daemon.sandboxed(), "the end of its processes")


def with_clock(seconds):
    """Run a daemon whose steady clock is so many seconds further than that of the one before."""
    if os.geteuid():
        pytest.skip("only root may set the clocks of a time namespace")
    return {"prefix": ("unshare", "--time", "--monotonic", str(seconds))}


def test_a_clock_that_was_set_back_puts_no_limit_off(daemon, until):
    daemon.start()
    keys = ("silence", "time")
    for key in keys:
        limits = ("--silence-limit", "0", "--time-limit", "0", f"--{key}-limit", "1000")
        daemon.ok("spawn", key, "-w", daemon.workspace(key), *limits, "/shell touch ready\n/sleep 1000")
        until(lambda key=key: daemon.events(key, "tool-call-completed"), "the end of its command")
    daemon.kill()
    # By the wall clock next to no time has passed; the machine has run for long.
    daemon.start(**with_clock(2000))
    for key in keys:
        assert daemon.wait(key, "failed")["turn"]["outcome"] == "timed_out", key


@pytest.mark.slow
def test_time_in_which_the_machine_slept_does_not_count(daemon, until):
    daemon.start(config="[turns]\nsilence_limit = 4\ntool_limit = 4\ntime_limit = 4\ntool_stuck_after = 4\n")
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.kill()
    began = time.time()
    until(lambda: time.time() > began + 5, "time")
    daemon.start(**with_clock(-5))
    assert daemon.show("anna")["attention"]["kind"] == "working"
    (work / "go").touch()
    assert daemon.wait("anna", "idle")["turn"]["outcome"] == "success"


@pytest.mark.slow
def test_frozen_time_does_not_count(daemon, until):
    daemon.start(config="[turns]\ntool_limit = 5\ntime_limit = 5\n")
    work = daemon.workspace()
    daemon.held("anna", work)
    began = time.time()
    daemon.ok("suspend", "anna", "--freeze")
    until(lambda: time.time() > began + 6, "time")
    (work / "go").touch()
    assert daemon.ok("resume", "anna", "--wait")["turn"]["outcome"] == "success"


@pytest.mark.slow
def test_a_lost_turn_waits_for_a_person(running, until):
    work = running.workspace()
    running.held("anna", work)
    lose(running, until)
    assert running.show("anna")["state"] == "failed"
    (work / "go").touch()
    assert running.ok("resume", "anna", "--wait")["turn"]["outcome"] == "success"


def test_an_agent_that_restores_itself_goes_on_where_it_was_lost(running, until):
    work = running.workspace()
    running.held("anna", work, "--restore", "auto")
    session = running.show("anna")["session_id"]
    lose(running, until)
    (work / "go").touch()
    (event,) = running.events("anna", "agent:restored")
    assert "going on in 1 s" in event["text"]
    agent = running.wait("anna", "idle")
    assert (agent["turn"]["number"], agent["turn"]["outcome"], agent["session_id"]) == (2, "success", session)
    (_, prompt) = running.events("anna", "user")
    assert "You were stopped in the middle of the task below" in prompt["text"]


@pytest.mark.slow
def test_an_agent_that_is_lost_too_often_waits_for_a_person(daemon, until):
    daemon.start(config='[turns]\nrestores = 1\n[agent]\nrestore = "auto"\n')
    work = daemon.workspace()
    daemon.held("anna", work)
    lose(daemon, until)
    daemon.wait("anna", "idle")
    daemon.ok("send", "anna", "/shell touch again; while :; do sleep 0.02; done")
    until((work / "again").exists, "another turn")
    lose(daemon, until)
    agent = daemon.wait("anna", "failed")
    assert (agent["turn"]["number"], agent["turn"]["outcome"]) == (3, "lost")
    assert len(daemon.events("anna", "agent:restored")) == 1


def test_a_turn_lost_with_the_daemon_is_restored_by_the_next_one(running, until):
    work = running.workspace()
    running.held("anna", work, "--restore", "auto")
    running.kill()
    kill_outer(running)
    running.start()
    until(lambda: lost(running, "anna", 1), "the loss")  # and what is left of the turn with it
    assert running.wait("anna", "idle")["turn"]["number"] == 2
    assert [turn["outcome"] for turn in running.turns("anna")] == ["lost", "success"]
