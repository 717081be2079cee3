"""However a turn is ended, nothing of it is left: whatever it forked, detached, ignored or stopped."""

import contextlib
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


def test_when_the_answer_comes_everything_is_gone(house, until):
    house.start(agent=house.program(HANG), config=CONFIG)
    for words, state in (
        (["interrupt"], "idle"), (["suspend"], "suspended"), (["end"], "ended"), (["frozen", "end"], "ended"),
        (["adopted", "end"], "ended"),
    ):  # fmt: skip
        name = "-".join(words)
        work = house.workspace(name)
        house.ok("spawn", name, "-w", work, "x")
        until((work / "ready").exists, "the start")
        assert len(house.sandboxed()) > 6, name
        if words[0] == "frozen":
            house.ok("suspend", name, "--freeze")
        if words[0] == "adopted":
            house.kill()
            house.start()
        house.ok(words[-1], name)
        assert not house.sandboxed(), name
        agent = house.show(name)
        assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted"), name
    # And with a shutdown that suspends.
    house.ok("send", "interrupt", "x")
    work = house.directory / "interrupt"
    until(lambda: len(house.sandboxed()) > 6, "another turn")
    assert house.ctl("shutdown", "--suspend").code == 0
    assert house.process.wait(20) == 0
    assert not house.sandboxed()


def test_a_limit_too(house):
    house.start(agent=house.program(HANG), config=CONFIG)
    for limit in ("time", "silence"):
        house.ok("spawn", limit, "-w", house.workspace(limit), f"--{limit}-limit", "1.5", "x")
    for limit in ("time", "silence"):
        assert house.wait(limit, "failed")["turn"]["outcome"] == "timed_out", limit
    assert not house.sandboxed()


ENDS = """
match prompt.strip():
    case "result": finish()
    case "stays": finish(); wait_for("never")
    case "fails": sys.exit(3)
"""


def test_its_own_end_too(house):
    house.start(agent=house.program(MISCHIEF + ENDS), config=CONFIG)
    for end in ("result", "stays", "fails"):
        house.ok("spawn", end, "-w", house.workspace(end), end)
    for end in ("result", "stays", "fails"):
        assert house.wait(end, "idle", "failed")["turn"]["outcome"] == ("error" if end == "fails" else "success")
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


@pytest.mark.slow
def test_one_whose_outer_process_is_stopped(house, until):
    house.start(agent=house.program(HANG), config=CONFIG)
    for number, (verb, state, adopted, stopped) in enumerate((
        ("interrupt", "idle", False, stopped_once),
        ("interrupt", "idle", True, stopping_again_and_again),
        ("suspend", "suspended", True, stopped_once),
        ("end", "ended", False, stopping_again_and_again),
        ("end", "ended", True, stopped_once),
    )):  # fmt: skip
        name, work = f"agent-{number}", house.workspace(f"work-{number}")
        house.ok("spawn", name, "-w", work, "x")
        until((work / "ready").exists, "the start")
        if adopted:
            house.kill()
            house.start()
        with stopped(outermost(house)):
            house.ok(verb, name)
            assert not house.sandboxed(), number
        agent = house.show(name)
        assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted"), number


@pytest.mark.slow
def test_one_that_ends_by_itself_while_its_outer_process_is_stopped(house, until):
    house.start(agent=house.program("begin()\nmark('ready')\nwait_for('go')\nfinish()"), config=CONFIG)
    for number, (adopted, stopped) in enumerate((
        ("no", stopping_again_and_again),
        ("stopped before", stopped_once),
        ("stopped before", stopping_again_and_again),
        ("ended before", stopped_once),
    )):  # fmt: skip
        name, work = f"agent-{number}", house.workspace(f"work-{number}")
        house.ok("spawn", name, "-w", work, "x")
        until((work / "ready").exists, "the start")
        with stopped(outer := outermost(house)):
            if adopted != "no":
                house.kill()
            if adopted == "ended before":
                (work / "go").touch()
                until(lambda outer=outer: house.sandboxed() <= {outer}, "the end of its inner process")
            if adopted != "no":
                house.start()
            (work / "go").touch()
            assert house.wait(name)["turn"]["outcome"] == "success", number
            assert not house.sandboxed(), number


def test_a_command_of_exec_whose_outer_process_is_stopped(house, until):
    house.start(config=CONFIG)
    wait = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3"
    for number, stopped in enumerate((stopped_once, stopping_again_and_again)):
        name, work = f"agent-{number}", house.workspace(f"work-{number}")
        house.ok("spawn", name, "-w", work)
        asked = house.follow("exec", name, "--", "sh", "-c", wait)
        until((work / "ready").exists, "the command")
        with stopped(outermost(house)):
            (work / "go").touch()
            assert asked.wait(20) in {3, 1}
            until(lambda: not house.sandboxed(), "its end")
        (work / "go").unlink()
        (work / "ready").unlink()
        asked = house.follow("exec", name, "--", "sh", "-c", wait)
        until((work / "ready").exists, "the command")
        with stopped(outermost(house)):
            asked.kill()
            until(lambda: not house.sandboxed(), "its end")


@pytest.mark.slow
def test_a_daemon_killed_while_it_stops_a_turn_is_followed_by_one_that_goes_on(house, until):
    house.start(agent=house.program(HANG), config="[turns]\nstop_grace = 1.0\n")
    states = {"suspend": "suspended", "interrupt": "idle"}
    for verb in states:
        work = house.workspace(verb)
        house.ok("spawn", verb, "-w", work, "x")
        until((work / "ready").exists, "the start")
    asked = [house.follow(verb, verb) for verb in states]
    until(lambda: stopping(house) == len(states), "the requests")
    house.kill()
    assert [process.wait(20) for process in asked] == [3, 3]
    house.start()
    for verb, state in states.items():
        assert house.wait(verb, state)["turn"]["outcome"] == "interrupted"
    assert not house.sandboxed()


def stopping(house):
    with contextlib.closing(sqlite3.connect(f"file:{house.state}/substrat.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(stop) FROM turns").fetchone()[0]
