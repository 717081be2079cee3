"""Turns in cgroups of their own: a daemon in a part of a cgroup that it may divide, as systemd starts it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from substrat.core.agents import cgroup_limits
from tests.support.processes import arguments_of

ENTER = 'echo 0 >"$0"/cgroup.procs && exec "$@"'


def read(path):
    return path.read_text()


def hierarchy():
    with open("/proc/self/mountinfo") as file:
        mount = cgroup_limits.mount_point(file.read())
    return mount[0] if mount is not None and os.access(mount[0], os.W_OK) else None


@pytest.fixture
def service(tmp_path, until):
    """A service's cgroup with the daemon's in it, made by hand; with whatever controllers there are, also none."""
    root = hierarchy()
    if root is None:
        pytest.skip("there is no cgroup v2 that may be divided here")
    found = Path(root) / f"substrat-test-{os.getpid()}-{tmp_path.name}"
    (found / "daemon").mkdir(parents=True)
    yield found
    for path in sorted(found.rglob("*/"), reverse=True):
        until(lambda path=path: "populated 0" in read(path / "cgroup.events"), "the end of what is in it")
        path.rmdir()
    found.rmdir()


@pytest.fixture
def restart(service, daemon):
    """Start a daemon that divides its service's cgroup."""
    return lambda: daemon.start(prefix=("/bin/sh", "-c", ENTER, str(service / "daemon")))


@pytest.fixture
def divided(restart):
    return restart()


def groups(service):
    return sorted(path for path in (service / "agents").iterdir() if path.is_dir())


def members(path):
    return {int(pid) for pid in read(path / "cgroup.procs").split()}


def is_stopped(path):
    return "frozen 1" in read(path / "cgroup.events")


def test_a_turn_is_in_a_cgroup_of_its_own_that_is_gone_with_it(divided, service, until):
    work = divided.workspace()
    divided.held("anna", work)
    (group,) = groups(service)
    assert group.name == divided.show("anna")["turn"]["id"]
    # The held command starts a new sleep all the time, so the two lists may be of different moments.
    until(lambda: divided.sandboxed() <= members(group), "all of it in its cgroup")
    assert divided.process.pid in members(service / "daemon")
    assert not members(service)
    # What it uses is shown.
    use = divided.show("anna")["use"]
    assert set(use) == {"memory", "cpu_seconds", "processes"}
    assert use["cpu_seconds"] > 0
    assert "s of processor time" in divided.ctl("show", "anna").out
    (work / "go").touch()
    divided.wait("anna", "idle")
    until(lambda: not groups(service), "the cgroup's end")
    assert "use" not in divided.show("anna")


def test_a_cgroup_in_which_a_process_is_left_goes_with_that_process(restart, service, until):
    """Of an ended turn, and of a command of a daemon that was killed."""
    left = service / "agents" / "visit-0123"
    left.mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"]) as late, subprocess.Popen(["sleep", "1000"]) as later:
        (left / "cgroup.procs").write_text(str(late.pid))
        daemon = restart()
        work = daemon.workspace()
        daemon.held("anna", work)
        (turn,) = set(groups(service)) - {left}
        (turn / "cgroup.procs").write_text(str(later.pid))
        (work / "go").touch()
        daemon.wait("anna", "idle")
        assert set(groups(service)) == {left, turn}
        for process, stays in ((late, [turn]), (later, [])):
            process.kill()
            until(lambda stays=stays: groups(service) == stays, "the cgroup's end")


def namespace_pids(pid):
    (line,) = [line for line in read(Path(f"/proc/{pid}/status")).splitlines() if line.startswith("NSpid:")]
    return line.split()[1:]


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_frozen_turn_is_frozen_by_its_cgroup_and_what_was_stopped_stays_so(divided, service, until):
    work = divided.workspace()
    divided.held("anna", work, before="/shell sleep 30 >/dev/null 2>&1 &\n")
    (group,) = groups(service)
    (sleeper,) = [pid for pid in members(group) if arguments_of(pid) == ["sleep", "30", ""]]
    os.kill(sleeper, signal.SIGSTOP)
    divided.ok("suspend", "anna", "--freeze")
    assert is_stopped(group)
    divided.ok("resume", "anna")
    until(lambda: not is_stopped(group), "the thaw")
    assert state(sleeper) == "T"
    (work / "go").touch()
    assert divided.wait("anna", "idle")["turn"]["outcome"] == "success"


@pytest.mark.slow
def test_the_next_daemon_thaws_what_the_last_one_froze(divided, restart, service):
    work = divided.workspace()
    divided.held("anna", work)
    divided.ok("suspend", "anna", "--freeze")
    (group,) = groups(service)
    divided.kill()
    assert is_stopped(group)
    restart()
    assert is_stopped(group)
    (work / "go").touch()
    assert divided.ctl("resume", "anna", "--wait", "--timeout", "30").out == "freed\n"


@pytest.mark.slow
def test_a_daemon_started_by_hand_thaws_it_too(divided, restart, service):
    work = divided.workspace()
    divided.held("anna", work)
    divided.ok("suspend", "anna", "--freeze")
    divided.kill()
    divided.start()
    (work / "go").touch()
    assert divided.ctl("resume", "anna", "--wait", "--timeout", "30").out == "freed\n"
    divided.kill()
    restart()
    assert groups(service) == []


@pytest.mark.slow
def test_a_frozen_turn_that_is_killed_from_outside_is_lost_at_once(divided, service, until):
    divided.held("anna", divided.workspace())
    divided.ok("suspend", "anna", "--freeze")
    # All but the outer process of bubblewrap: they end, and it could not, being stopped itself.
    (first,) = [pid for pid in divided.sandboxed() if namespace_pids(pid)[1:] == ["1"]]
    os.kill(first, signal.SIGKILL)
    until(lambda: divided.show("anna")["turn"]["outcome"] is not None, "the turn's end")
    assert divided.show("anna")["state"] == "suspended"
    until(lambda: not groups(service), "the cgroup's end")


@pytest.mark.slow
def test_a_frozen_turn_whose_outer_process_is_killed_is_lost_at_once(divided, service, until):
    divided.held("anna", divided.workspace())
    divided.ok("suspend", "anna", "--freeze")
    (outer,) = [pid for pid in divided.sandboxed() if len(namespace_pids(pid)) == 1]
    os.kill(outer, signal.SIGKILL)
    until(lambda: divided.show("anna")["turn"]["outcome"] == "lost", "the turn's end")
    assert divided.show("anna")["state"] == "suspended"
    until(lambda: not groups(service), "the cgroup's end")
    assert "broke" not in divided.log


def test_a_command_in_a_sandbox_has_a_cgroup_too(divided, service, until):
    work = divided.workspace()
    divided.spawn("anna", work, "/shell grep data /proc/self/limits")
    has_controller = "memory" in read(service / "agents" / "cgroup.controllers").split()
    assert ("unlimited" in divided.shell("anna")) == has_controller, "a process has a limit where the cgroup has none"
    visit = divided.follow("exec", "anna", "--", "sh", "-c", "touch there; while [ ! -e go ]; do sleep 0.01; done")
    until((work / "there").exists, "the command")
    (group,) = groups(service)
    assert group.name.startswith("visit-")
    assert members(group)
    (work / "go").touch()
    assert visit.wait(20) == 0
    until(lambda: not groups(service), "the cgroup's end")


@pytest.mark.slow
def test_nothing_of_its_cgroup_is_to_be_seen_inside(divided, service):
    """What could move a process out, or raise a limit, are files, and the sandbox's namespace ends at its own cgroup."""
    work = divided.workspace()
    looks = (
        "/shell cat /proc/self/cgroup | grep ^0\n"
        "/shell grep -c cgroup2 /proc/self/mountinfo; ls /sys/fs/cgroup 2>&1\n"
        "/shell mount -t cgroup2 none /tmp 2>&1 || echo refused\n"
    )
    divided.held("anna", work, before=looks)
    (group,) = groups(service)
    inside = divided.shell("anna")
    assert "0::/\n" in inside
    assert group.name not in inside
    assert "No such file" in inside
    assert "refused" in inside
    (work / "go").touch()
    divided.wait("anna", "idle")


def test_what_a_killed_daemon_left_is_removed(divided, restart, service):
    (service / "agents" / "visit-1").mkdir()
    divided.held("anna", divided.workspace())
    divided.kill()
    restart()
    assert [group.name for group in groups(service)] == [divided.show("anna")["turn"]["id"]]
