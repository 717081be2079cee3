"""However a turn is ended, nothing of it is left: whatever it forked, detached, ignored or stopped."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager, nullcontext

import pytest

from tests.support.processes import link

CONFIG = "[turns]\nstop_grace = 0.2\nresult_grace = 0.2\n"

# Every child but the detached ones is in a process group of its own, as cursor-agent's shells are.
MISCHIEF = """
def child(act):
    if os.fork() == 0:
        try:
            act()
            while True:
                signal.pause()
        finally:
            os._exit(1)


def deaf():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def detached():
    os.setsid()
    if os.fork():
        os._exit(0)
    deaf()
    for descriptor in range(3):
        os.close(descriptor)
    mark("detached")


def own_group():
    os.setpgid(0, 0)
    deaf()
    mark("own-group")


def stopped():
    mark("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)


def breeding():
    deaf()
    mark("breeding")
    while True:
        if os.fork() == 0:
            time.sleep(0.05)
            os._exit(0)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.002)


def traced():
    subprocess.Popen(["sh", "-c", "trap '' INT TERM; while :; do sleep 1; done"], start_new_session=True)
    mark("shell")


begin()
for act in (detached, own_group, stopped, breeding, traced):
    child(act)
for name in ("detached", "own-group", "stopped", "breeding", "shell"):
    wait_for(name)
deaf()
"""
HANG = MISCHIEF + "mark('ready')\nwhile True:\n    signal.pause()\n"


def start(house, until, source=HANG, config=CONFIG):
    house.start(agent=house.program(source), config=config)
    work = house.workspace()
    house.ok("spawn", "anna", "-w", work, "x")
    return work


@pytest.mark.parametrize(("verb", "state"), [("interrupt", "idle"), ("suspend", "suspended"), ("end", "ended")])
def test_when_the_answer_comes_everything_is_gone(house, until, verb, state):
    work = start(house, until)
    until((work / "ready").exists, "the start")
    assert len(house.sandboxed()) > 6
    house.ok(verb, "anna")
    assert not house.sandboxed()
    agent = house.show("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted")


def test_a_frozen_turn_too(house, until):
    work = start(house, until)
    until((work / "ready").exists, "the start")
    house.ok("suspend", "anna", "--freeze")
    house.ok("end", "anna")
    assert not house.sandboxed()


@pytest.mark.parametrize("limit", ["time_limit", "silence_limit"])
def test_a_limit_too(house, until, limit):
    start(house, until, config=f"{CONFIG}{limit} = 1.5\n")
    assert house.wait("anna", "failed")["turn"]["outcome"] == "timed_out"
    assert not house.sandboxed()


@pytest.mark.parametrize("last", ["finish()", "finish(); mark('ready')\nwhile True:\n    signal.pause()", "sys.exit(3)"])
def test_its_own_end_too(house, until, last):
    start(house, until, MISCHIEF + last)
    house.wait("anna", "idle", "failed")
    assert not house.sandboxed()


def test_a_shutdown_that_suspends_too(house, until):
    work = start(house, until)
    until((work / "ready").exists, "the start")
    assert house.ctl("shutdown", "--suspend").code == 0
    assert house.daemon.wait(20) == 0
    assert not house.sandboxed()


def test_an_adopted_turn_too(house, until):
    work = start(house, until)
    until((work / "ready").exists, "the start")
    house.kill()
    house.start(agent=house.agent)
    house.ok("end", "anna")
    assert not house.sandboxed()


def outermost(house):
    """Bubblewrap's outer process: the one that isn't in the sandbox's pid namespace."""
    own = os.readlink("/proc/self/ns/pid")
    (found,) = [pid for pid in house.sandboxed() if link(f"/proc/{pid}/ns/pid") == own]
    return found


@contextmanager
def stopping_again_and_again(pid):
    """Stop a process, and again whenever it goes on, until it is gone."""
    script = "import os, sys\nwhile True: os.kill(int(sys.argv[1]), 19)"
    os.kill(pid, signal.SIGSTOP)
    storm = subprocess.Popen([sys.executable, "-I", "-S", "-c", script, str(pid)], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        storm.kill()
        storm.wait()


def stopped_once(pid):
    os.kill(pid, signal.SIGSTOP)
    return nullcontext()


@pytest.mark.parametrize(
    ("verb", "state", "adopted", "stopped"),
    [
        ("interrupt", "idle", False, stopped_once),
        ("interrupt", "idle", True, stopping_again_and_again),
        ("suspend", "suspended", True, stopped_once),
        ("end", "ended", False, stopping_again_and_again),
        ("end", "ended", True, stopped_once),
    ],
)
def test_one_whose_outer_process_is_stopped(house, until, verb, state, adopted, stopped):
    work = start(house, until)
    until((work / "ready").exists, "the start")
    if adopted:
        house.kill()
        house.start(agent=house.agent)
    with stopped(outermost(house)):
        house.ok(verb, "anna")
        assert not house.sandboxed()
    agent = house.show("anna")
    assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted")


@pytest.mark.parametrize("stopped", [stopped_once, stopping_again_and_again])
@pytest.mark.parametrize("adopted", ["no", "stopped before", "ended before"])
def test_one_that_ends_by_itself_while_its_outer_process_is_stopped(house, until, adopted, stopped):
    house.start(agent=house.program("begin()\nmark('ready')\nwait_for('go')\nfinish()"), config=CONFIG)
    work = house.workspace()
    house.ok("spawn", "anna", "-w", work, "x")
    until((work / "ready").exists, "the start")
    with stopped(outer := outermost(house)):
        if adopted != "no":
            house.kill()
        if adopted == "ended before":
            (work / "go").touch()
            until(lambda: house.sandboxed() <= {outer}, "the end of its inner process")
        if adopted != "no":
            house.start(agent=house.agent)
        (work / "go").touch()
        assert house.wait("anna")["turn"]["outcome"] == "success"
        assert not house.sandboxed()


@pytest.mark.parametrize("stopped", [stopped_once, stopping_again_and_again])
def test_a_command_of_exec_whose_outer_process_is_stopped(house, until, stopped):
    work = house.start(config=CONFIG).workspace()
    house.ok("spawn", "anna", "-w", work)
    asked = house.follow("exec", "anna", "--", "sh", "-c", "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3")
    until((work / "ready").exists, "the command")
    with stopped(outermost(house)):
        (work / "go").touch()
        assert asked.wait(20) in {3, 1}
        until(lambda: not house.sandboxed(), "its end")
    (work / "go").unlink()
    (work / "ready").unlink()
    asked = house.follow("exec", "anna", "--", "sh", "-c", "touch ready; while [ ! -e go ]; do sleep 0.02; done")
    until((work / "ready").exists, "the command")
    with stopped(outermost(house)):
        asked.kill()
        until(lambda: not house.sandboxed(), "its end")


@pytest.mark.parametrize("first", ["suspend", "interrupt"])
def test_a_daemon_killed_while_it_stops_a_turn_is_followed_by_one_that_goes_on(house, until, first):
    work = start(house, until, config="[turns]\nstop_grace = 1.0\n")
    until((work / "ready").exists, "the start")
    asked = house.follow(first, "anna")
    until(lambda: stopping(house), "the request")
    house.kill()
    assert asked.wait(20) == 3
    house.start(agent=house.agent)
    state = {"suspend": "suspended", "interrupt": "idle"}[first]
    assert house.wait("anna", state)["turn"]["outcome"] == "interrupted"
    assert not house.sandboxed()


def stopping(house):
    with sqlite3.connect(f"file:{house.state}/substrat.db?mode=ro", uri=True) as db:
        return db.execute("SELECT stop FROM turns").fetchone()[0] is not None
