"""Agents in place that wait for the host's git: a landing must reach nothing but the checkout, and hide nothing.

git follows a link that is put in a directory's place while it writes (the way of CVE-2021-21300), and writes through links
that stand in its own directory.
"""

import json
import os
import shutil

import pytest

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, git
from tests.system.test_landing import merged

__all__ = ["app"]

EXCHANGES = """
import ctypes, os, sys
exchange = lambda: ctypes.CDLL(None).renameat2(-100, b"sub2", -100, b"link", 2)
os.mkdir("sub2")
os.symlink(sys.argv[1], "link")
open("begun", "w").close()
while not os.path.exists("stop"):
    exchange()
if os.path.islink("sub2"):
    exchange()
os.remove("link")
"""


@pytest.fixture
def victim(house):
    """A directory in the person's home."""
    path = house.home / "victim"
    path.mkdir()
    return path


def test_a_landing_waits_for_an_agent_that_exchanges_directories_and_lets_none_begin(house, app, victim):
    house.start()
    files = "mkdir sub2; for i in $(seq 400); do echo x > sub2/$i; done; git add -A; git commit -qm files"
    house.spawn("fix", app, f"/shell {files}", "--clone")
    house.ok("spawn", "two", "-w", app)
    (app / "attack.py").write_text(EXCHANGES)
    house.ok("spawn", "bad", "-w", app, f"/shell python3 attack.py {victim}")
    wait_until((app / "begun").exists, "the attack")
    code, (outcome,) = merged(house, "fix")
    way = "it lands when that turn ends; `substratctl suspend bad` lets it land now"
    assert (code, outcome["outcome"]) == (1, "queued")
    assert house.ctl("merge", "fix").err == f"substratctl: fix: bad works in {app}: {way}\n"
    assert list((house.state / "trees").glob("landing-*")) == [], "no program waits with it"
    house.ok("send", "two", "/shell ls sub2 | wc -l > seen")
    assert house.show("two")["attention"]["text"].startswith(f"the work of fix lands in {app} first")
    refused = house.ctl("exec", "two", "--", "true")
    assert (refused.code, "lands in" in refused.error) == (1, True), refused
    assert house.ok("send", "fix", "--wait", "/say on")["turn"]["outcome"] == "success", "a clone can't write there"
    house.ok("send", "bad", "/shell true")
    (app / "stop").touch()
    wait_until(lambda: house.events("fix", "clone:landed"), "the landing")
    for name in ("two", "bad"):
        house.wait(name)
    assert (app / "seen").read_text() == "400\n", "the landing came before the next turn"
    assert list(victim.iterdir()) == []
    assert len(list((app / "sub2").iterdir())) == 400
    assert git(house, app, "status", "--short", "--", "sub2") == ""


def test_a_landing_that_waits_survives_the_daemon_and_goes_on_when_the_turn_is_suspended(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    for name, where in (("below", app / "sub"), ("beside", house.workspace("elsewhere"))):
        binds = ("--bind", app / ".git") if name == "beside" else ()
        house.ok("spawn", name, "-w", where, *binds, "/hang")
        house.wait(name, "running")
    code, (outcome,) = merged(house, "fix")
    assert (code, outcome["outcome"]) == (1, "queued")
    house.kill()
    house.start()
    wait_until(lambda: "works in" in house.ctl("merge", "fix").err or "work in" in house.ctl("merge", "fix").err)
    assert not (app / "a.txt").exists()
    house.ok("suspend", "below", "beside")
    wait_until(lambda: house.events("fix", "clone:landed"), "the landing")
    assert git(house, app, "status", "--short", "--", "a.txt") == ""


HELD_GIT = """#!/bin/sh
case " $* " in *" merge "*) touch {0}/begun; while ! [ -e {0}/go ]; do sleep 0.05; done;; esac
exec {1} "$@"
"""


@pytest.mark.parametrize("end", ["kill", "stop", None])
def test_no_turn_begins_beside_a_git_that_moves_a_branch_also_where_its_daemon_has_ended(house, app, end):
    """The agent in place could exchange directories under it else, and the landing be refused because of git's lock."""
    held = house.directory / "held"
    held.mkdir()
    git_program = shutil.which("git")
    (held / "git").write_text(HELD_GIT.format(held, git_program))
    (held / "git").chmod(0o755)
    surroundings = {"PATH": f"{held}:{os.environ['PATH']}"}
    house.start(environment=surroundings)
    house.spawn("fix", app, commit("a.txt"), "--clone")
    house.ok("spawn", "ip", "-w", app)
    waiting = house.follow("merge", "fix", "--json")
    wait_until((held / "begun").exists, "the host's git")
    if end is not None:
        getattr(house, end)()
        house.start(environment=surroundings)
    assert house.ctl("exec", "ip", "--", "true").code == 1
    house.ok("send", "ip", "/shell ls a.txt > seen")
    assert house.show("ip")["attention"]["text"].startswith(f"the work of fix lands in {app} first")
    (held / "go").touch()
    out, said = waiting.communicate(timeout=60)
    assert json.loads(out)["outcome"] == "landed", (out, said)
    house.wait("ip")
    assert (app / "seen").read_text() == "a.txt\n"
    assert list((house.state / "trees").glob("landing-*")) == []


DYING_GIT = """#!/bin/bash
case " $* " in *" merge "*) (ulimit -f 64; exec {1} "$@"); kill -9 $(cat {0}/daemon) $PPID; exit 1;; esac
exec {1} "$@"
"""


def test_a_landing_whose_git_and_daemon_were_killed_is_taken_back_and_lands(house, app):
    """As when the machine goes down while git writes a file."""
    (house.directory / "git").write_text(DYING_GIT.format(house.directory, shutil.which("git")))
    (house.directory / "git").chmod(0o755)
    house.start(environment={"PATH": f"{house.directory}:{os.environ['PATH']}"})
    (house.directory / "daemon").write_text(str(house.process.pid))
    files = "echo new > README; echo new > a; seq 40000 > m; echo new > z; git add -A; git commit -qm files"
    house.spawn("fix", app, f"/shell {files}", "--clone")
    (app / "mine").write_text("mine\n")
    waiting = house.follow("merge", "fix", "--json")
    wait_until(lambda: not os.path.exists(f"/proc/{house.process.pid}"), "the daemon's end")
    assert (app / "a").exists()
    assert "landing" in (app / ".git/index.lock").read_text()
    house.start()
    out, said = waiting.communicate(timeout=60)
    assert json.loads(out)["outcome"] == "landed", (out, said)
    assert git(house, app, "status", "--short") == "?? mine"
    assert list((house.state / "trees").glob("landing-*")) == []


def test_a_landing_whose_checkout_went_with_the_daemon_lands(house, app):
    (house.directory / "git").write_text(DYING_GIT.format(house.directory, shutil.which("git")))
    (house.directory / "git").chmod(0o755)
    linked = house.directory / "linked"
    git(house, app, "worktree", "add", "-q", "-b", "other", linked)
    house.start(environment={"PATH": f"{house.directory}:{os.environ['PATH']}"})
    (house.directory / "daemon").write_text(str(house.process.pid))
    house.spawn("fix", app, "/shell seq 40000 > m; git add -A; git commit -qm files", "--clone")
    waiting = house.follow("merge", "fix", "--into", "other", "--json")
    wait_until(lambda: not os.path.exists(f"/proc/{house.process.pid}"), "the daemon's end")
    git(house, app, "worktree", "remove", "-f", linked)
    house.start()
    out, said = waiting.communicate(timeout=60)
    assert json.loads(out)["outcome"] == "landed", (out, said)


def test_a_landing_whose_agent_is_removed_waits_no_longer(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    house.ok("spawn", "ip", "-w", app, "/hang")
    house.wait("ip", "running")
    assert merged(house, "fix")[1][0]["outcome"] == "queued"
    house.ok("rm", "fix")
    assert house.ctl("exec", "ip", "--", "true").code == 0
    assert not (app / "a.txt").exists()


LEFT = {
    ".git/logs/HEAD": "mv {0} .git/saved; ln -s {1}/file {0}",
    ".git/logs/refs/heads/main": "mv {0} .git/saved; mkfifo {0}",
    ".git/refs/heads": "mv {0} .git/saved; ln -s ../saved {0}",
    ".git/index": "mv {0} .git/saved; ln -s saved {0}",
    ".git/index.substrat": "touch .git/saved; ln -s {1}/file {0}",
}


@pytest.mark.parametrize("path", LEFT)
def test_git_on_the_host_writes_through_nothing_that_an_agent_has_left(house, app, victim, path):
    (victim / "file").write_text("mine\n")
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    house.spawn("bad", app, f"/shell {LEFT[path].format(path, victim)}")
    found = house.show("bad")["attention"]
    assert (found["kind"], path in found["text"]) == ("unsafe", True), found
    head = git(house, app, "rev-parse", "HEAD")
    refused = house.ctl("merge", "fix")
    assert (refused.code, f"{app}/{path}" in refused.error) == (1, True), refused
    assert {entry.name: entry.read_text() for entry in victim.iterdir()} == {"file": "mine\n"}
    assert not (app / "a.txt").exists()
    (item,) = house.ok("inbox")
    assert f"{app}/{path}" in item["text"]
    (app / path).unlink()
    (app / ".git" / "saved").rename(app / path)
    assert git(house, app, "rev-parse", "HEAD") == head
    assert merged(house, "fix")[0] == 0
    assert house.ok("inbox") == [], "the landing has closed it"
