"""`suspend --freeze` stops each process of a turn in memory until `resume`, whatever happens to the daemon meanwhile."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from sandbox import host
from substrat.daemon import failpoints


@pytest.fixture
def running(shared):
    """One daemon for all of these tests."""
    return shared


def stopped(pid):
    """Say whether a process has ended, or executes nothing until SIGCONT.

    A shell that waits for its child's exec (vfork(2)) is in state D, and a signal has to wait. With SIGSTOP pending such a
    shell counts as stopped, because the kernel stops it before it executes anything.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True  # the process has ended
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    pending = int(fields["ShdPnd"], 16) >> (signal.SIGSTOP - 1) & 1
    return fields["State"][0] in "TtZX" or (fields["State"][0] == "D" and bool(pending))


def check_frozen(daemon):
    processes = daemon.sandboxed()
    inner = [pid for pid in processes if is_inside(pid)]
    assert inner
    assert all(stopped(pid) for pid in inner)
    return inner


def is_inside(pid):
    """Say whether a process is in its sandbox's pid namespace; bubblewrap's outer process isn't, and isn't stopped."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True  # the process has ended, so it isn't the outer one, which lasts as long as the sandbox
    (line,) = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return len(line.split()) > 2


BUSY = (
    "/shell setsid sh -c 'while :; do sleep 0.01; done' >/dev/null 2>&1 & (while :; do (true &); done) >/dev/null 2>&1 &\n"
)


def test_freezing_stops_everything_and_resuming_lets_it_go_on(running, until):
    work = running.workspace()
    before = running.held("anna", work, before=BUSY)
    agent = running.ok("suspend", "anna", "--freeze")
    assert (agent["state"], agent["turn"]["outcome"]) == ("suspended", None)
    assert len(check_frozen(running)) > 4
    (work / "go").touch()
    done = running.ctl("resume", "anna", "--wait", "--timeout", "30")
    assert (done.code, done.out) == (0, "freed\n")
    after = running.show("anna")
    assert (after["turn"]["number"], after["turn"]["id"]) == (1, before["turn"]["id"])
    kinds = [event["kind"] for event in running.events("anna")]
    assert kinds.count("turn:started") == 1
    assert [kind for kind in kinds if kind.startswith("agent:")] == ["agent:spawned", "agent:frozen", "agent:resumed"]


def test_a_frozen_turn_stays_frozen_when_the_daemon_is_killed(running):
    work = running.workspace()
    running.held("anna", work, before=BUSY)
    running.ok("suspend", "anna", "--freeze")
    before = check_frozen(running)
    running.kill()
    assert check_frozen(running) == before
    running.start()
    assert running.show("anna")["state"] == "suspended"
    assert check_frozen(running) == before
    (work / "go").touch()
    assert running.ctl("resume", "anna", "--wait", "--timeout", "30").out == "freed\n"


def test_a_turn_that_somebody_let_go_on_is_frozen_again_by_the_next_daemon(running, until):
    """A daemon that dies while it freezes a turn leaves some of the turn's processes running."""
    running.held("anna", running.workspace())
    running.ok("suspend", "anna", "--freeze")
    processes = check_frozen(running)
    running.kill()
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    running.start()
    # All processes are looked for anew: the turn's shell has started others, perhaps with pids of those that have ended.
    until(lambda: all(stopped(pid) for pid in running.sandboxed() if is_inside(pid)), "freezing")


def test_a_turn_goes_on_that_was_resumed_just_before_its_daemon_was_killed(daemon):
    daemon.start(environment={failpoints.KILL_AT: "after commit: agent resumed"})
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.ok("suspend", "anna", "--freeze")
    with daemon.wire() as wire:
        wire.ask("agent.resume", agent="anna")
        daemon.process.wait(20)
    (work / "go").touch()
    daemon.start()
    assert daemon.wait("anna", "idle")["turn"]["result"] == "freed"


@pytest.mark.slow
def test_what_waits_for_a_stopped_child_counts_as_stopped(running):
    """A parent waits for its child's exec in state D (vfork(2)); while the child is stopped, the parent stays in D."""
    breeder = "from subprocess import run; [run(['true']) for _ in iter(int, 1)]"
    before = f'/shell for i in 1 2 3; do python3 -c "{breeder}" >/dev/null 2>&1 & done\n'
    running.held("anna", running.workspace(), before=before)
    for _ in range(10):
        running.ok("suspend", "anna", "--freeze")
        running.ok("resume", "anna")


def test_a_frozen_turn_can_be_stopped_for_good(running, until):
    work = running.workspace()
    for verb, state in (("suspend", "suspended"), ("end", "ended"), ("interrupt", "idle")):
        running.held(verb, work, before=BUSY)
        running.ok("suspend", verb, "--freeze")
        running.ok(verb, verb)
        agent = running.show(verb)
        assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["exit_code"]) == (state, "interrupted", 130)
        until(lambda: not running.sandboxed(), "the end of its processes")


def test_a_suspended_turn_goes_on_after_a_freeze_and_a_suspend(running):
    work = running.workspace()
    running.held("anna", work)
    running.ok("suspend", "anna", "--freeze")
    running.ok("suspend", "anna")
    (work / "go").touch()
    agents = running.ok("resume", "anna", "--wait", "--timeout", "30")
    assert agents["turn"]["number"] == 2


def test_what_has_no_turn_is_only_suspended(running):
    running.spawn("anna", running.workspace(), "/say hi")
    assert running.ok("suspend", "anna", "--freeze")["state"] == "suspended"
    assert running.ok("suspend", "anna", "--freeze")["state"] == "suspended"
    assert running.events("anna", "agent:frozen") == []


def test_a_frozen_agent_gives_its_slot_to_another_and_cannot_be_removed(daemon):
    daemon.start(config="[turns]\nmax_running = 1\n")
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.ok("suspend", "anna", "--freeze")
    assert daemon.spawn("bert", daemon.workspace("other"), "/say hi")["turn"]["outcome"] == "success"
    refused = daemon.ctl("rm", "anna")
    assert refused.code == 1
    assert "is frozen" in refused.error
    assert daemon.ctl("shutdown", "--suspend").code == 0
    assert daemon.process.wait(20) == 0
    assert not daemon.sandboxed()


def test_a_shutdown_ends_a_frozen_turn_and_leaves_its_agent_to_its_name(running):
    for name in ("anna", "bert"):
        running.held(name, running.workspace(name))
    running.ok("suspend", "anna", "--freeze")
    assert running.ctl("shutdown", "--suspend").code == 0
    assert running.process.wait(20) == 0
    assert not running.sandboxed()
    running.start()
    done = running.ctl("resume", "--all")
    assert (done.out, done.error) == ("1 agent resumed\n", "substratctl: suspended by name, and left so: anna")
    anna = running.show("anna")
    assert (anna["state"], anna["turn"]["outcome"]) == ("suspended", "interrupted")


def test_mail_waits_for_a_frozen_agent(running):
    work = running.workspace()
    running.held("anna", work)
    running.ok("suspend", "anna", "--freeze")
    running.spawn("bert", running.workspace("other"), '/tool send_message {"to": "anna", "text": "/say got it"}')
    assert running.show("anna")["unread"] == 0, "it starts no turn"
    running.ok("send", "anna", "more")
    assert running.show("anna")["unread"] == 1
    (work / "go").touch()
    running.ok("resume", "anna")
    agent = running.wait("anna", "idle")
    assert agent["turn"]["number"] == 2
    assert "got it" in agent["turn"]["result"]


def test_a_frozen_turn_that_is_killed_from_outside_leaves_its_agent_suspended(running, until):
    running.held("anna", running.workspace())
    running.ok("suspend", "anna", "--freeze")
    for pid in running.sandboxed():
        if not is_inside(pid):
            os.kill(pid, signal.SIGKILL)
    until(lambda: running.show("anna")["turn"]["outcome"] == "lost", "the loss")
    assert running.show("anna")["state"] == "suspended"


BUBBLEWRAP = """#!/bin/sh
# Stops itself when a file says so: while it tries what can be made here, or instead of starting a turn's sandbox.
case "$*" in
    *--unshare-pid*/bin/true) which=probe;;
    *--args*) which=sandbox;;
    *) which=none;;
esac
if [ -e {directory}/stop-$which ]; then
    echo $$ > {directory}/stopped
    kill -STOP $$
fi
exec "{bubblewrap}" "$@"
"""


def runs(command_line, script):
    """Whether a process executes a script, by the name of its file in /proc."""
    try:
        return command_line.read_bytes().split(b"\0")[1:2] == [os.fsencode(script)]
    except OSError:
        return False  # it is gone


@pytest.fixture
def stopping(daemon, until):
    """A daemon whose bubblewrap stops itself when it is told to, and an agent; returns what tells it to and its pid."""
    found = host.find_bubblewrap()
    bubblewrap, pid = daemon.directory / "bwrap", daemon.directory / "stopped"
    bubblewrap.write_text(BUBBLEWRAP.format(directory=daemon.directory, bubblewrap=found.path))
    bubblewrap.chmod(0o755)
    daemon.start(config=f'[sandbox]\nbwrap = "{bubblewrap}"\n[turns]\nstop_grace = 0.2\n')
    daemon.spawn("anna", daemon.workspace(), None, "--network", "filtered")
    yield lambda which: (daemon.directory / f"stop-{which}").touch(), pid
    for path in daemon.directory.glob("stop-*"):
        path.unlink()  # the daemon may try again as soon as the first is killed

    def none_stays():
        found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if runs(path, bubblewrap)]
        for stayed in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stayed, signal.SIGKILL)
        return not found

    until(none_stays, "the end of all that stopped themselves")


@pytest.mark.slow
def test_a_sandbox_that_has_not_begun_cannot_be_frozen_and_says_so(daemon, stopping, until):
    """And the failure leaves alone what was asked of an agent meanwhile."""
    stop, pid = stopping
    stop("sandbox")
    daemon.spawn("bert", daemon.directory / "work", None, "--network", "filtered")
    with daemon.wire() as wire:
        numbers = {}
        for name in ("anna", "bert"):
            pid.unlink(missing_ok=True)
            daemon.ok("send", name, "/say hi")
            until(lambda: pid.exists() and pid.read_text(), "bubblewrap")
            numbers[name] = wire.ask("agent.suspend", agent=name, freeze=True)
            until(lambda name=name: daemon.events(name, "agent:frozen"), "the freeze")
        assert daemon.ok("suspend", "bert")["turn"]["outcome"] == "interrupted"
        message = wire.answer(numbers["anna"])["error"]["message"]
    assert "has no process yet that could be frozen" in message
    assert "faster" not in message
    assert daemon.show("bert")["state"] == "suspended"
    assert daemon.events("anna", "agent:resumed")
    assert not daemon.events("bert", "agent:resumed")


def test_a_probe_that_somebody_has_stopped_ends_with_its_turn(daemon, stopping, until):
    stop, pid = stopping
    stop("probe")
    for verb in ("end", "interrupt", "suspend"):
        pid.unlink(missing_ok=True)
        daemon.ok("spawn", verb, "-w", daemon.directory / "work", "--network", "filtered", "/say hi")
        until(lambda: pid.exists() and pid.read_text(), "the probe")
        assert daemon.ctl(verb, verb).code == 0
        assert not Path("/proc", pid.read_text().strip()).exists(), verb
