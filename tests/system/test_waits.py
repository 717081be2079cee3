"""Agents that wait for others, through real sandboxes: one turn for all results, and `wait` and `--wait` that heed it."""

import json

import pytest

from substrat.daemon.failpoints import KILL_AT

HOLD = "/shell while [ ! -e {mark} ]; do sleep 0.02; done\n/say {words}"


def lead(work, names, note="done"):
    """A lead's script: children that hold until their file is there, and a wait for all of them."""
    children = [json.dumps({"name": name, "prompt": HOLD.format(mark=name, words=f"result of {name}")}) for name in names]
    wait = json.dumps({"note": f"{note}\n/say merged"})
    return "\n".join([*(f"/tool spawn_agent {child}" for child in children), f"/tool wait_agents {wait}"])


def spawn(daemon, work, names):
    daemon.ok("spawn", "lead", "-w", work, "--prompt-file", "-", stdin=lead(work, names).encode())


def test_a_lead_is_woken_once_and_wait_and_dash_dash_wait_end_with_that_turn(running, until):
    work = running.workspace()
    names = ["a", "b", "c"]
    spawn(running, work, names)
    until(lambda: running.show("lead")["state"] == "idle", "the lead's first turn")
    shown = running.show("lead")
    assert (shown["waits"], shown["attention"]["kind"], shown["attention"]["text"]) == (1, "waiting", "waits for a, b, c")
    (wait,) = running.waits()
    assert (wait["agent"], wait["names"], wait["mode"], wait["done"]) == ("lead", names, "all", [])
    assert "waits for a, b, c: 0 of 3 finished\n" in running.ctl("ls", "--tree", "lead").out
    assert running.ctl("wait", "lead", "--timeout", "0.3").code == 124, "it isn't done"
    assert running.ctl("wait", "lead", "--until", "idle", "--timeout", "5").code == 0
    (work / "a").touch()
    until(lambda: running.waits()[0]["done"] == ["a"], "the first child")
    running.kill()
    running.start()
    for name in names[1:]:
        (work / name).touch()
    assert running.ctl("wait", "lead").code == 0
    done = running.show("lead")
    assert (done["turn"]["number"], done["waits"], done["unread"]) == (2, 0, 0)
    prompt = running.events("lead", "user")[-1]["text"]
    assert all(f"> result of {name}" in prompt for name in names)
    with running.wire() as wire:
        after = wire.call("agent.wait_message", agent="lead")
    assert (after["turn"]["number"], "merged" in after["turn"]["result"]) == (2, True), after
    assert running.waits() == []


def test_send_and_wait_prints_the_result_of_the_turn_after_the_wait(running):
    work = running.workspace()
    for name in ("a", "b"):
        (work / name).touch()
    running.spawn("lead", work)
    done = running.ctl("send", "lead", "--wait", "--prompt-file", "-", stdin=lead(work, ["a", "b"]).encode())
    assert (done.code, "merged" in done.out) == (0, True), done


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before commit: turn accounted for#2", "after commit: turn accounted for#2"])
def test_a_daemon_killed_around_the_childs_last_turn_wakes_the_parent_once(daemon, until, point):
    daemon.start(environment={KILL_AT: point})
    work = daemon.workspace()
    spawn(daemon, work, ["kid"])
    until(lambda: daemon.show("lead")["state"] == "idle", "the lead's first turn")
    (work / "kid").touch()
    until(lambda: daemon.process.poll() is not None, "the kill")
    daemon.start()
    assert daemon.ctl("wait", "lead").code == 0
    assert daemon.show("lead")["turn"]["number"] == 2
    assert "> result of kid" in daemon.events("lead", "user")[-1]["text"]
    assert len(daemon.events("lead", "wait:woke")) == 1
