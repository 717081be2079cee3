"""`merge --check`: when a check may run, and in which room."""

import signal

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit
from tests.system.test_landing import HELD, held_check

__all__ = ["app"]


def test_a_check_runs_in_the_place_of_a_turn_and_its_agents_own_next_turn_waits_for_neither(house, app):
    house.start(config="[turns]\nmax_running = 1\n")
    house.spawn("fix", app, commit("a.txt"), "--clone")
    work = house.workspace()
    house.held("anna", work)
    queued = house.ctl("merge", "fix", "--check", HELD)
    assert "its check waits: 1 turn runs, as many as may at once (turns.max_running)" in queued.err, queued
    house.ok("send", "fix", "/say on")
    house.ok("spawn", "bob", "-w", work, "/say hello")
    (work / "go").touch()
    go = held_check(house, "fix")
    house.ok("spawn", "zoe", "-w", work, "/say hello")
    assert {place["agent"]: place["reason"] for place in house.ok("queue")} == {
        "bob": "place 1 in the queue: 1 check runs, as many as may at once (turns.max_running)",
        "zoe": "place 2 in the queue: 1 check runs, as many as may at once (turns.max_running)",
        "fix": "a check of fix's work runs",
    }
    go.touch()
    wait_until(lambda: {agent["state"] for agent in house.ok("ls")} == {"idle"}, "their turns")
    wait_until((app / "a.txt").exists, "the landing")


def test_a_check_is_ended_when_the_disk_is_nearly_full_and_leaves_nothing(house, app):
    house.start(config="")
    house.spawn("fix", app, commit("a.txt"), "--clone")
    waiting = house.follow("merge", "fix", "--check", HELD)
    held_check(house, "fix")
    house.config.write_text(f"[disk]\nfree = {1 << 60}\n")
    house.daemon.send_signal(signal.SIGHUP)
    _, said = waiting.communicate(timeout=60)
    assert b"the check of fix's work was ended: " in said
    assert b"MiB are free at" in said
    assert waiting.returncode == 1
    assert not (app / "a.txt").exists()
    assert house.events("fix", "clone:check-failed") == []
    assert wait_until(lambda: list((house.state / "trees").glob("check-*")) == [])
