"""What can't work is refused with one clear error, and nothing is half made."""

import fcntl
import json
import os
import shutil
import signal

import pytest

from tests.support.processes import descriptors


def refused(daemon, workspace, *words):
    """Spawning fails with status 1, one line on stderr, and leaves no agent, no directory and no process."""
    done = daemon.ctl("spawn", "anna", "-w", workspace, *words, "hello")
    assert (done.code, done.out) == (1, ""), done
    assert daemon.ok("ls") == []
    assert not (daemon.state / "agents").exists() or not list((daemon.state / "agents").iterdir())
    assert not (daemon.runtime / "agents").exists() or not list((daemon.runtime / "agents").iterdir())
    assert not daemon.sandboxed()
    return done.error


# The workspace


def test_what_is_no_workspace(running):
    file, link, given = running.directory / "file", running.directory / "link", running.directory / "given"
    file.write_text("x")
    link.symlink_to(running.home)
    inside = [place / "inside" for place in (running.state, running.runtime)]
    programs = [running.home / ".cursor", running.home / ".config/cursor"]
    for path in (given, *inside, *programs):
        path.mkdir(parents=True)
    places = [running.directory / "nowhere", file, running.directory, *inside, running.home, *programs]
    if os.geteuid() == 0:  # who can give a directory away
        os.chown(given, 65534, 65534)
        places.append(given)
    for path in (*places, "/", "/usr", "/etc", "/proc", "/dev", "/tmp"):
        assert str(path) in refused(running, path)
    refused(running, link)


def test_a_relative_workspace_is_refused_on_the_wire(running):
    work = running.workspace()
    with running.wire() as wire:
        assert "absolute" in wire.refuse("agent.spawn", workspace=work.name)["message"]
    assert running.ok("ls") == []


def test_a_workspace_that_vanishes_fails_the_next_turn_and_only_that(running):
    work = running.workspace()
    running.spawn("anna", work, "one")
    shutil.move(work, running.directory / "moved")
    done = running.ctl("send", "anna", "--wait", "two")
    assert done.code in {1, 5}
    assert str(work) in done.err + json.dumps(running.show("anna"))
    assert not work.exists(), "nothing is made in its place"
    shutil.move(running.directory / "moved", work)
    if running.show("anna")["state"] == "suspended":
        running.ctl("resume", "anna")
    done = running.ctl("send", "anna", "--wait", "three")
    assert (done.code, done.out.strip()) == (0, "three")


# What has to be on the machine


def test_a_bubblewrap_that_is_not_there(daemon):
    daemon.start(config='[sandbox]\nbwrap = "/nonexistent/bwrap"\n')
    assert "/nonexistent/bwrap" in refused(daemon, daemon.workspace())


def test_a_bubblewrap_that_does_not_work(daemon):
    broken = daemon.program("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n", "bwrap")
    daemon.start(config=f'[sandbox]\nbwrap = "{broken}"\n')
    work = daemon.workspace()
    done = daemon.ctl("spawn", "anna", "-w", work, "--wait", "hello")
    assert done.code in {1, 5}
    assert "bwrap" in done.error or "bubblewrap" in done.error or "namespace" in done.error
    if done.code == 1:
        assert daemon.ok("ls") == []


def test_an_agent_program_that_is_missing(daemon):
    path = daemon.directory / "program"
    daemon.start(agent=path)
    assert str(path) in refused(daemon, daemon.workspace())
    daemon.stop()
    daemon.start(environment={"SUBSTRAT_AGENT_BINARY": "", "PATH": "/usr/bin:/bin"})
    assert "cursor-agent" in refused(daemon, daemon.directory / "work")


def test_an_agent_program_that_vanishes_is_found_again(daemon):
    program = daemon.program("begin()\nfinish(prompt)\n")
    daemon.start(agent=program)
    work = daemon.workspace()
    daemon.spawn("anna", work, "one")
    program.rename(program.with_name("away"))
    done = daemon.ctl("send", "anna", "--wait", "two")
    assert done.code in {1, 5}
    assert str(program) in done.err + json.dumps(daemon.show("anna"))
    program.with_name("away").rename(program)
    done = daemon.ctl("send", "anna", "--wait", "three")
    assert (done.code, done.out.strip()[-5:]) == (0, "three")


def test_an_agent_program_whose_interpreter_is_missing(daemon):
    daemon.start(agent=daemon.program("#!/opt/nothing/python\n"))
    done = daemon.ctl("spawn", "anna", "-w", daemon.workspace(), "--wait", "hello")
    assert done.code in {1, 5}
    assert done.error


# The configuration


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[agent]\nmodle = "x"\n', "model"),
        ("[agent\n", "config.toml"),
        ("\xff", "config.toml"),
    ],
)
def test_a_configuration_with_an_error_stops_the_start(daemon, text, named):
    code, said = daemon.refused(config=text)
    assert code == 2, said
    assert named in said
    assert str(daemon.config) in said
    assert "Traceback" not in said
    assert not daemon.socket.exists()


def test_a_configuration_that_was_named_but_is_missing(daemon):
    code, said = daemon.refused(arguments=("--config", str(daemon.directory / "nowhere.toml")))
    assert code in {1, 2}
    assert "nowhere.toml" in said


def test_the_binary_may_be_configured(daemon):
    daemon.start(environment={"SUBSTRAT_AGENT_BINARY": ""}, config=f'[agent]\nbinary = "{daemon.agent}"\n')
    assert daemon.spawn("anna", daemon.workspace(), "hello")["turn"]["result"] == "hello"


def test_an_agent_runs_the_program_that_it_names_with_that_programs_model(daemon):
    config = (
        f'[programs.cursor]\nbinary = "{daemon.agent}"\nmodel = "composer-2.5"\nenv = {{CURSOR_API_KEY = "crsr_own"}}\n'
    )
    daemon.start(environment={"SUBSTRAT_AGENT_BINARY": ""}, config=config)
    work = daemon.workspace()
    agent = daemon.spawn("anna", work, "/shell printf %s $CURSOR_API_KEY > key", "--program", "cursor", "--in-place")
    assert (agent["program"], agent["model"], agent["turn"]["outcome"]) == ("cursor", "composer-2.5", "success")
    assert (work / "key").read_text() == "crsr_own"
    assert "crsr_own" not in daemon.ctl("explain", "anna").out
    refused = daemon.ctl("spawn", "bert", "-w", work, "--program", "vi")
    assert (refused.code, refused.err) == (
        2,
        "substratctl: there is no agent program 'vi': choose cursor, claude or codex\n",
    )


def test_sighup_takes_a_good_configuration_and_keeps_the_old_one_for_a_bad_one(daemon, until):
    first = daemon.program('begin()\nfinish("first")\n', "first")
    second = daemon.program('begin()\nfinish("second")\n', "second")
    daemon.start(environment={"SUBSTRAT_AGENT_BINARY": ""}, config=f'[agent]\nbinary = "{first}"\n')
    work = daemon.workspace()
    assert daemon.spawn("anna", work, "x")["turn"]["result"] == "first"

    daemon.config.write_text(f'[agent]\nbinary = "{second}"\n')
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "reload" in daemon.log, "the reload")
    assert daemon.spawn("bert", work, "x")["turn"]["result"] == "second"

    before = len(daemon.log)
    daemon.config.write_text('[agent]\nmodle = "x"\n')
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: "modle" in daemon.log[before:], "the complaint")
    assert daemon.spawn("carl", work, "x")["turn"]["result"] == "second"
    assert daemon.process.poll() is None


# The state directory


def test_a_second_daemon_on_one_state_directory_says_who_holds_it(running):
    running.spawn("anna", running.workspace())
    code, said = running.refused(arguments=("--runtime-dir", str(running.runtime / "second")))
    assert code == 1, said
    assert str(running.process.pid) in said
    assert str(running.state) in said
    assert "Traceback" not in said
    code, said = running.refused()
    assert code == 1, said
    assert running.show("anna")["state"] == "idle", "the first one goes on"


def test_a_child_of_a_dead_daemon_that_has_its_lock_yet_is_waited_for(running, until):
    """As one is for an instant that the daemon was just about to start."""
    running.kill()
    with (running.state / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running.process = running.launch()
        until(lambda: str(running.state / "lock") in descriptors(running.process.pid), "the look at the lock")
        assert running.process.poll() is None
        fcntl.flock(lock, fcntl.LOCK_UN)
        running.ready()


def test_a_state_directory_that_is_a_file(daemon):
    daemon.state.write_text("x")
    code, said = daemon.refused()
    assert code == 1, said
    assert str(daemon.state) in said
    assert "Traceback" not in said


def test_the_doors_are_the_users_own(daemon, mode):
    daemon.state.mkdir(mode=0o755)
    daemon.runtime.chmod(0o755)
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), "hello")
    assert mode(daemon.socket) == 0o600
    for path in (daemon.state, daemon.runtime):
        assert mode(path) & 0o077 == 0, path


def test_a_runtime_directory_too_deep_for_a_socket_works_or_says_so(daemon):
    deep = daemon.directory / ("d" * 90)
    deep.mkdir()
    process = daemon.launch(arguments=("--runtime-dir", str(deep)))
    environment = daemon.environment(SUBSTRAT_RUNTIME_DIR=str(deep))
    code = None
    while code is None and daemon.ctl("ls", environment=environment).code != 0:
        code = process.poll()
    if code is None:
        assert daemon.ctl("spawn", "anna", "-w", daemon.workspace(), "--wait", "hi", environment=environment).code == 0
    else:
        said = process.log.read_text()
        assert code in {1, 2}
        assert "Traceback" not in said
        assert str(deep) in said
