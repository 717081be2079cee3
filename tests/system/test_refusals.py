"""What can't work is refused with one clear error, and nothing is half made."""

import fcntl
import json
import os
import shutil
import signal

import pytest

from tests.support.processes import descriptors


def refused(house, workspace, *words):
    """Spawning fails with status 1, one line on stderr, and leaves no agent, no directory and no process."""
    done = house.ctl("spawn", "anna", "-w", workspace, *words, "hello")
    assert (done.code, done.out) == (1, ""), done
    assert house.ok("ls") == []
    assert not (house.state / "agents").exists() or not list((house.state / "agents").iterdir())
    assert not (house.runtime / "agents").exists() or not list((house.runtime / "agents").iterdir())
    assert not house.sandboxed()
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


def test_a_bubblewrap_that_is_not_there(house):
    house.start(config='[sandbox]\nbwrap = "/nonexistent/bwrap"\n')
    assert "/nonexistent/bwrap" in refused(house, house.workspace())


def test_a_bubblewrap_that_does_not_work(house):
    broken = house.program("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n", "bwrap")
    house.start(config=f'[sandbox]\nbwrap = "{broken}"\n')
    work = house.workspace()
    done = house.ctl("spawn", "anna", "-w", work, "--wait", "hello")
    assert done.code in {1, 5}
    assert "bwrap" in done.error or "bubblewrap" in done.error or "namespace" in done.error
    if done.code == 1:
        assert house.ok("ls") == []


def test_an_agent_program_that_is_missing(house):
    path = house.directory / "program"
    house.start(agent=path)
    assert str(path) in refused(house, house.workspace())


def test_an_agent_program_that_is_nowhere_in_the_path(house):
    house.start(environment={"SUBSTRAT_AGENT_BINARY": "", "PATH": "/usr/bin:/bin"})
    assert "cursor-agent" in refused(house, house.workspace())


def test_an_agent_program_that_vanishes_is_found_again(house):
    program = house.program("begin()\nfinish(prompt)\n")
    house.start(agent=program)
    work = house.workspace()
    house.spawn("anna", work, "one")
    program.rename(program.with_name("away"))
    done = house.ctl("send", "anna", "--wait", "two")
    assert done.code in {1, 5}
    assert str(program) in done.err + json.dumps(house.show("anna"))
    program.with_name("away").rename(program)
    done = house.ctl("send", "anna", "--wait", "three")
    assert (done.code, done.out.strip()[-5:]) == (0, "three")


def test_an_agent_program_whose_interpreter_is_missing(house):
    house.start(agent=house.program("#!/opt/nothing/python\n"))
    done = house.ctl("spawn", "anna", "-w", house.workspace(), "--wait", "hello")
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
def test_a_configuration_with_an_error_stops_the_start(house, text, named):
    code, said = house.refused(config=text)
    assert code == 2, said
    assert named in said
    assert str(house.config) in said
    assert "Traceback" not in said
    assert not house.socket.exists()


def test_a_configuration_that_was_named_but_is_missing(house):
    code, said = house.refused(arguments=("--config", str(house.directory / "nowhere.toml")))
    assert code in {1, 2}
    assert "nowhere.toml" in said


def test_the_binary_may_be_configured(house):
    house.start(environment={"SUBSTRAT_AGENT_BINARY": ""}, config=f'[agent]\nbinary = "{house.agent}"\n')
    assert house.spawn("anna", house.workspace(), "hello")["turn"]["result"] == "hello"


def test_an_agent_runs_the_program_that_it_names_with_that_programs_model(house):
    config = f'[programs.cursor]\nbinary = "{house.agent}"\nmodel = "composer-2.5"\nenv = {{CURSOR_API_KEY = "crsr_own"}}\n'
    house.start(environment={"SUBSTRAT_AGENT_BINARY": ""}, config=config)
    work = house.workspace()
    agent = house.spawn("anna", work, "/shell printf %s $CURSOR_API_KEY > key", "--program", "cursor", "--in-place")
    assert (agent["program"], agent["model"], agent["turn"]["outcome"]) == ("cursor", "composer-2.5", "success")
    assert (work / "key").read_text() == "crsr_own"
    assert "crsr_own" not in house.ctl("explain", "anna").out
    refused = house.ctl("spawn", "bert", "-w", work, "--program", "vi")
    assert (refused.code, refused.err) == (
        2,
        "substratctl: there is no agent program 'vi': choose cursor, claude or codex\n",
    )


def test_sighup_takes_a_good_configuration_and_keeps_the_old_one_for_a_bad_one(house, until):
    first = house.program('begin()\nfinish("first")\n', "first")
    second = house.program('begin()\nfinish("second")\n', "second")
    house.start(environment={"SUBSTRAT_AGENT_BINARY": ""}, config=f'[agent]\nbinary = "{first}"\n')
    work = house.workspace()
    assert house.spawn("anna", work, "x")["turn"]["result"] == "first"

    house.config.write_text(f'[agent]\nbinary = "{second}"\n')
    house.process.send_signal(signal.SIGHUP)
    until(lambda: "reload" in house.log, "the reload")
    assert house.spawn("bert", work, "x")["turn"]["result"] == "second"

    before = len(house.log)
    house.config.write_text('[agent]\nmodle = "x"\n')
    house.process.send_signal(signal.SIGHUP)
    until(lambda: "modle" in house.log[before:], "the complaint")
    assert house.spawn("carl", work, "x")["turn"]["result"] == "second"
    assert house.process.poll() is None


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


def test_a_state_directory_that_is_a_file(house):
    house.state.write_text("x")
    code, said = house.refused()
    assert code == 1, said
    assert str(house.state) in said
    assert "Traceback" not in said


def test_the_doors_are_the_users_own(house, mode):
    house.state.mkdir(mode=0o755)
    house.runtime.chmod(0o755)
    house.start()
    house.spawn("anna", house.workspace(), "hello")
    assert mode(house.socket) == 0o600
    for path in (house.state, house.runtime):
        assert mode(path) & 0o077 == 0, path


def test_a_runtime_directory_too_deep_for_a_socket_works_or_says_so(house):
    deep = house.directory / ("d" * 90)
    deep.mkdir()
    process = house.launch(arguments=("--runtime-dir", str(deep)))
    environment = house.environment(SUBSTRAT_RUNTIME_DIR=str(deep))
    code = None
    while code is None and house.ctl("ls", environment=environment).code != 0:
        code = process.poll()
    if code is None:
        assert house.ctl("spawn", "anna", "-w", house.workspace(), "--wait", "hi", environment=environment).code == 0
    else:
        said = process.log.read_text()
        assert code in {1, 2}
        assert "Traceback" not in said
        assert str(deep) in said
