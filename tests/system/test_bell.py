"""`notify.command` and `doctor --bell`: who is told, once for each cause, and what a command can't do."""

import contextlib
import glob
import json
import signal
from pathlib import Path

import pytest

from substrat.daemon.failpoints import KILL_AT

RECORD = """cat >> "$HOME/bells"; echo >> "$HOME/bells"; env > "$HOME/environment\""""
ASKS = '/tool ask_operator {"question": "which way?"}'


def configured(script, *more):
    return f"[notify]\ncommand = {json.dumps(['sh', '-c', script, *more])}\n"


@pytest.fixture
def running(daemon):
    """A daemon with a configuration file, which may be changed."""
    daemon.start(config=configured("true"))
    return daemon


@pytest.fixture
def rung(running):
    """What the command was given, and whom it was about."""

    def read():
        path = running.home / "bells"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    return read


def reload(daemon, until, config):
    daemon.configure(config)
    told = daemon.log.count("configuration reloaded")
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: daemon.log.count("configuration reloaded") > told, "the reload")


def test_each_cause_rings_once_with_the_command_to_type(running, until, rung):
    reload(running, until, configured(RECORD))
    work = running.workspace()
    running.spawn("anna", work, f"/say I looked.\n{ASKS}")
    running.ok("spawn", "calm", "-w", work, "--network", "none", "--wait", "/say done")
    until(rung, "the bell")
    (first,) = rung()
    (told,) = first["agents"]
    shown = running.show("anna")
    assert first["test"] is False
    assert told == {
        "name": "anna", "id": shown["id"], "attention": shown["attention"], "last": "I looked.",
        "command": "substratctl answer anna TEXT",
    }  # fmt: skip
    assert set((running.home / "environment").read_text().splitlines()) >= {f"HOME={running.home}"}
    assert "SUBSTRAT" not in (running.home / "environment").read_text()
    running.kill()
    running.start(config=configured(RECORD))
    running.ok("answer", "anna", f"/say well\n{ASKS}")
    until(lambda: len(rung()) > 1, "the next question")
    assert len(rung()) == 2, "a restart rings nothing again"
    assert rung()[1]["agents"][0]["attention"]["since"] > told["attention"]["since"]


def test_a_frozen_turn_rings_with_the_command_that_resumes_it(running, until, rung):
    reload(running, until, configured(RECORD))
    work = running.workspace("work", git=True)
    running.held("anna", work)
    running.git(work, "config", "user.name", "Anna")
    until(rung, "the bell")
    (told,) = rung()[0]["agents"]
    assert told["command"] == "substratctl show anna, then resume anna"


def test_those_of_two_seconds_ring_together(running, until, rung):
    reload(running, until, "")
    work = running.workspace()
    for name in ("a", "b", "c"):
        running.spawn(name, work, "/exit 3")
    running.ok("spawn", "calm", "-w", work, "--network", "none")
    running.ok("suspend", "--all")
    reload(running, until, configured(RECORD))
    until(rung, "the bell")
    assert {one["name"] for one in rung()[0]["agents"]} == {"a", "b", "c"}, "nobody is told what they did themselves"


def test_a_family_rings_once_and_only_when_nobody_in_it_can_act(running, until, rung):
    work = running.workspace()
    kids = [f"/tool spawn_agent {json.dumps({'name': name, 'prompt': '/exit 3'})}" for name in ("one", "two")]
    running.spawn("lead", work, "\n".join([*kids, "/tool wait_agents {}"]))
    until(lambda: (running.show("lead")["turn"]["number"], running.show("lead")["state"]) == (2, "idle"), "the wake")
    reload(running, until, configured(RECORD))
    running.ok("spawn", "calm", "-w", work, "--network", "none", "--wait", ASKS)
    until(rung, "the bell")
    assert [one["name"] for one in rung()[0]["agents"]] == ["calm"], "the failures are the lead's"
    running.ok("suspend", "lead")
    until(lambda: len(rung()) > 1, "the bell of the children")
    (told,) = rung()[1]["agents"]
    assert (told["name"] in {"one", "two"}, told["attention"]["kind"]) == (True, "failed"), "one bell for both"
    running.ok("accept", told["name"])
    running.ok("answer", "calm", ASKS)
    until(lambda: len(rung()) > 2, "the next question")
    assert [one["name"] for bell in rung()[2:] for one in bell["agents"]] == ["calm"]


@pytest.mark.slow
def test_a_daemon_that_dies_between_the_record_and_the_command_rings_nothing_twice(daemon, until):
    work = daemon.workspace()
    for name, point in (("anna", "after commit: bell recorded"), ("bert", "before: bell rung")):
        daemon.start(config=configured(RECORD), environment={KILL_AT: point})
        daemon.ok("spawn", name, "-w", work, "--network", "none", ASKS)
        until(lambda: daemon.process.poll() is not None, f"the kill {point}")
    daemon.start(config=configured(RECORD))
    daemon.ok("spawn", "carl", "-w", work, "--network", "none", "/exit 3")
    path = daemon.home / "bells"
    until(lambda: path.exists() and path.read_text().endswith("\n"), "the bell for carl")
    (line,) = path.read_text().splitlines()
    assert [one["name"] for one in json.loads(line)["agents"]] == ["carl"]


def test_a_command_that_fails_is_an_event(running, until):
    reload(running, until, configured("echo no display >&2; exit 4"))
    running.spawn("anna", running.workspace(), ASKS)
    until(lambda: running.events("anna", "notify:failed"), "the event")
    (event,) = running.events("anna", "notify:failed")
    assert event["text"].endswith("ended with 4: no display")


@pytest.mark.slow
def test_what_a_command_that_failed_was_to_tell_is_told_when_one_succeeds(running, until, rung):
    reload(running, until, configured(f"test -e $HOME/mended || exit 4; {RECORD}"))
    work = running.workspace()
    running.spawn("anna", work, ASKS)
    until(lambda: running.events("anna", "notify:failed"), "the failure")
    (running.home / "mended").touch()
    running.spawn("bert", work, "/exit 3")
    until(lambda: len(rung()) == 2, "both bells")
    assert [one["name"] for bell in rung() for one in bell["agents"]] == ["bert", "anna"]
    reload(running, until, configured("false"))
    running.spawn("carl", work, "/exit 3")
    until(lambda: running.events("carl", "notify:failed"), "the failure")
    reload(running, until, configured(RECORD))
    until(lambda: len(rung()) == 3, "the bell of the new command")
    assert [one["name"] for one in rung()[2]["agents"]] == ["carl"]


def test_notify_test_says_what_went_wrong(running, until, rung):
    reload(running, until, "")
    done = running.ctl("doctor", "--bell")
    assert (done.code, "below [notify]" in done.error) == (1, True), done
    reload(running, until, configured(RECORD))
    assert running.ctl("doctor", "--bell").code == 0
    assert (rung()[0]["test"], rung()[0]["agents"][0]["name"]) == (True, "test")
    for script, said in (("echo '\x1b[2J no display' >&2; exit 4", "ended with 4: "), ("kill -9 $$", "ended with -9")):
        reload(running, until, configured(script))
        done = running.ctl("doctor", "--bell")
        assert (done.code, said in done.error) == (1, True), done
        assert "\x1b" not in done.err
    reload(running, until, '[notify]\ncommand = ["no-such-program"]\n')
    assert "there is no program 'no-such-program'" in running.ctl("doctor", "--bell").error


@pytest.mark.slow
def test_a_command_that_hangs_holds_nothing_up(running, until):
    reload(running, until, configured("trap '' TERM INT HUP; echo $$ > $HOME/pid; echo hangs >&2; exec sleep 1000"))
    testing = running.follow("doctor", "--bell")
    until(lambda: (running.home / "pid").exists() and (running.home / "pid").read_text().strip(), "the command")
    assert running.ctl("ls").code == 0
    _, error = testing.communicate(timeout=30)
    assert (testing.returncode, b"took longer than 10 s: hangs" in error) == (1, True), error
    group = (running.home / "pid").read_text().strip()
    until(lambda: not members(group), "the end of all it started")
    until(lambda: not Path("/proc", group).exists(), "its reaping")
    assert running.ctl("ls").code == 0


def members(group):
    """The processes of a group that haven't ended."""
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = Path(stat).read_text().rpartition(")")[2].split()[:3]
            found += [stat] if its_group == group and state not in "ZX" else []
    return found
