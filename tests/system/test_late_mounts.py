"""A sandbox that waits for its late mounts, while the daemon is killed or what moves the mounts is."""

import os
import signal

import pytest

from sandbox import bwrap, host
from tests.support.processes import arguments_of

# Stops the process that moves the mounts, once: the sandbox then waits for it.
BUBBLEWRAP = """#!/bin/sh
case "$*" in *--args*)
    if mkdir {directory}/once 2>/dev/null; then
        read mover < /proc/$$/task/$$/children
        kill -STOP $mover
        echo $mover > {directory}/mover
    fi;;
esac
exec "{bubblewrap}" "$@"
"""


@pytest.fixture
def bubblewrap(daemon):
    """A daemon that has the first process which moves mounts stopped; returns the file that its pid is noted in."""
    script, noted = daemon.directory / "bwrap", daemon.directory / "mover"
    script.write_text(BUBBLEWRAP.format(directory=daemon.directory, bubblewrap=host.find_bubblewrap().path))
    script.chmod(0o755)
    daemon.start(config=f'[sandbox]\nbwrap = "{script}"\n')
    return noted


@pytest.fixture
def mover(daemon, until, bubblewrap):
    """The pid of the stopped process that moves the mounts of a turn of `anna`, which waits for it."""
    work = daemon.workspace(git=True)
    daemon.ok("spawn", "anna", "-w", work, "/shell touch begun; touch .git/config")
    return stopped(daemon, until, bubblewrap, work)


def stopped(daemon, until, noted, work):
    """Wait for a sandbox at the gate, and return the pid of the stopped process that moves its mounts."""
    until(lambda: noted.exists() and noted.read_text(), "the process that moves the mounts")
    until(lambda: any(waits(pid) for pid in daemon.sandboxed()), "the sandbox at the gate")
    assert not (work / "begun").exists()
    return int(noted.read_text())


def waits(pid):
    """Say whether a process is a sandbox's first program at the gate."""
    return arguments_of(pid)[:3] == [*bwrap.GATE[:3]]


def test_a_turn_begins_and_ends_well_though_the_daemon_is_killed_while_its_sandbox_waits(daemon, mover):
    daemon.kill()
    daemon.start()
    assert daemon.show("anna")["state"] == "running"
    os.kill(mover, signal.SIGCONT)
    turn = daemon.wait("anna", "idle")["turn"]
    assert (turn["number"], turn["outcome"]) == (1, "success")
    assert "Read-only file system" in daemon.shell("anna")
    assert daemon.events("anna", "agent:frozen") == [], "a sandbox that waits has lost no mount"


def test_a_turn_whose_process_that_mounts_is_killed_is_tried_again(daemon, mover):
    os.kill(mover, signal.SIGKILL)
    turn = daemon.wait("anna", "idle")["turn"]
    assert (turn["number"], turn["outcome"]) == (2, "success")


def test_a_command_of_exec_whose_mounts_are_not_made_is_no_command_that_has_failed(daemon, until, bubblewrap):
    work = daemon.workspace(git=True)
    daemon.ok("spawn", "anna", "-w", work)
    command = daemon.follow("exec", "anna", "--", "touch", "begun")
    os.kill(stopped(daemon, until, bubblewrap, work), signal.SIGKILL)
    _, errors = command.communicate(timeout=20)
    assert b"the sandbox couldn't be made, and what made it has said why" in errors
    assert b"can't mount: the process that mounts has ended" in errors
    own = daemon.ctl("exec", "anna", "--", "false")
    assert (own.code, own.err) == (1, ""), "a control"


def test_a_place_of_yours_that_a_clone_lacks_is_shown_in_it(daemon):
    work = daemon.workspace("app", git=True)
    (work / ".gitignore").write_text("data\none.env\n")
    daemon.git(work, "add", "-A")
    daemon.git(work, "commit", "-qm", "ignore them")
    (work / "data" / "deep").mkdir(parents=True)
    (work / "data" / "deep" / "f").write_text("mine\n")
    (work / "one.env").write_text("A=1\n")
    daemon.start(config=f'[agent]\nbind_ro = ["{work}/one.env"]\n')
    look = "/shell cat data/deep/f one.env; echo x >> one.env; git status --short"
    daemon.ok("spawn", "fix", "-w", work, "--clone", "--bind-ro", work / "data/deep", "--wait", look)
    assert [line for line in daemon.shell("fix").splitlines() if "one.env: " not in line] == ["mine", "A=1"]
    assert (work / "one.env").read_text() == "A=1\n"
