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


def test_when_the_answer_comes_everything_is_gone(daemon, until):
    daemon.start(agent=daemon.program(HANG), config=CONFIG)
    for words, state in (
        (["interrupt"], "idle"), (["suspend"], "suspended"), (["end"], "ended"), (["frozen", "end"], "ended"),
        (["adopted", "end"], "ended"),
    ):  # fmt: skip
        name = "-".join(words)
        work = daemon.workspace(name)
        daemon.ok("spawn", name, "-w", work, "x")
        until((work / "ready").exists, "the start")
        assert len(daemon.sandboxed()) > 6, name
        if words[0] == "frozen":
            daemon.ok("suspend", name, "--freeze")
        if words[0] == "adopted":
            daemon.kill()
            daemon.start()
        daemon.ok(words[-1], name)
        assert not daemon.sandboxed(), name
        agent = daemon.show(name)
        assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted"), name
    # And with a shutdown that suspends.
    daemon.ok("send", "interrupt", "x")
    work = daemon.directory / "interrupt"
    until(lambda: len(daemon.sandboxed()) > 6, "another turn")
    assert daemon.ctl("shutdown", "--suspend").code == 0
    assert daemon.process.wait(20) == 0
    assert not daemon.sandboxed()


def test_a_limit_too(daemon):
    daemon.start(agent=daemon.program(HANG), config=CONFIG)
    for limit in ("time", "silence"):
        daemon.ok("spawn", limit, "-w", daemon.workspace(limit), f"--{limit}-limit", "1.5", "x")
    for limit in ("time", "silence"):
        assert daemon.wait(limit, "failed")["turn"]["outcome"] == "timed_out", limit
    assert not daemon.sandboxed()


ENDS = """
match prompt.strip():
    case "result": finish()
    case "stays": finish(); wait_for("never")
    case "fails": sys.exit(3)
"""


def test_its_own_end_too(daemon):
    daemon.start(agent=daemon.program(MISCHIEF + ENDS), config=CONFIG)
    for end in ("result", "stays", "fails"):
        daemon.ok("spawn", end, "-w", daemon.workspace(end), end)
    for end in ("result", "stays", "fails"):
        assert daemon.wait(end, "idle", "failed")["turn"]["outcome"] == ("error" if end == "fails" else "success")
    assert not daemon.sandboxed()


def outermost(daemon):
    """Bubblewrap's outer process: the one that isn't in the sandbox's pid namespace."""
    own = os.readlink("/proc/self/ns/pid")
    (found,) = [pid for pid in daemon.sandboxed() if link(f"/proc/{pid}/ns/pid") == own]
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
def test_one_whose_outer_process_is_stopped(daemon, until):
    daemon.start(agent=daemon.program(HANG), config=CONFIG)
    for number, (verb, state, adopted, stopped) in enumerate((
        ("interrupt", "idle", False, stopped_once),
        ("interrupt", "idle", True, stopping_again_and_again),
        ("suspend", "suspended", True, stopped_once),
        ("end", "ended", False, stopping_again_and_again),
        ("end", "ended", True, stopped_once),
    )):  # fmt: skip
        name, work = f"agent-{number}", daemon.workspace(f"work-{number}")
        daemon.ok("spawn", name, "-w", work, "x")
        until((work / "ready").exists, "the start")
        if adopted:
            daemon.kill()
            daemon.start()
        with stopped(outermost(daemon)):
            daemon.ok(verb, name)
            assert not daemon.sandboxed(), number
        agent = daemon.show(name)
        assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted"), number


@pytest.mark.slow
def test_one_that_ends_by_itself_while_its_outer_process_is_stopped(daemon, until):
    daemon.start(agent=daemon.program("begin()\nmark('ready')\nwait_for('go')\nfinish()"), config=CONFIG)
    for number, (adopted, stopped) in enumerate((
        ("no", stopping_again_and_again),
        ("stopped before", stopped_once),
        ("stopped before", stopping_again_and_again),
        ("ended before", stopped_once),
    )):  # fmt: skip
        name, work = f"agent-{number}", daemon.workspace(f"work-{number}")
        daemon.ok("spawn", name, "-w", work, "x")
        until((work / "ready").exists, "the start")
        with stopped(outer := outermost(daemon)):
            if adopted != "no":
                daemon.kill()
            if adopted == "ended before":
                (work / "go").touch()
                until(lambda outer=outer: daemon.sandboxed() <= {outer}, "the end of its inner process")
            if adopted != "no":
                daemon.start()
            (work / "go").touch()
            assert daemon.wait(name)["turn"]["outcome"] == "success", number
            assert not daemon.sandboxed(), number


def test_a_command_of_exec_whose_outer_process_is_stopped(daemon, until):
    daemon.start(config=CONFIG)
    wait = "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3"
    for number, stopped in enumerate((stopped_once, stopping_again_and_again)):
        name, work = f"agent-{number}", daemon.workspace(f"work-{number}")
        daemon.ok("spawn", name, "-w", work)
        asked = daemon.follow("exec", name, "--", "sh", "-c", wait)
        until((work / "ready").exists, "the command")
        with stopped(outermost(daemon)):
            (work / "go").touch()
            assert asked.wait(20) in {3, 1}
            until(lambda: not daemon.sandboxed(), "its end")
        (work / "go").unlink()
        (work / "ready").unlink()
        asked = daemon.follow("exec", name, "--", "sh", "-c", wait)
        until((work / "ready").exists, "the command")
        with stopped(outermost(daemon)):
            asked.kill()
            until(lambda: not daemon.sandboxed(), "its end")


@pytest.mark.slow
def test_a_daemon_killed_while_it_stops_a_turn_is_followed_by_one_that_goes_on(daemon, until):
    daemon.start(agent=daemon.program(HANG), config="[turns]\nstop_grace = 1.0\n")
    states = {"suspend": "suspended", "interrupt": "idle"}
    for verb in states:
        work = daemon.workspace(verb)
        daemon.ok("spawn", verb, "-w", work, "x")
        until((work / "ready").exists, "the start")
    asked = [daemon.follow(verb, verb) for verb in states]
    until(lambda: stopping(daemon) == len(states), "the requests")
    daemon.kill()
    assert [process.wait(20) for process in asked] == [3, 3]
    daemon.start()
    for verb, state in states.items():
        assert daemon.wait(verb, state)["turn"]["outcome"] == "interrupted"
    assert not daemon.sandboxed()


def stopping(daemon):
    with contextlib.closing(sqlite3.connect(f"file:{daemon.state}/substrat.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(stop) FROM turns").fetchone()[0]
