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
def victim(daemon):
    """A directory in the person's home."""
    path = daemon.home / "victim"
    path.mkdir()
    return path


def test_a_landing_waits_for_an_agent_that_exchanges_directories_and_lets_none_begin(daemon, app, victim):
    daemon.start()
    files = "mkdir sub2; for i in $(seq 400); do echo x > sub2/$i; done; git add -A; git commit -qm files"
    daemon.spawn("fix", app, f"/shell {files}", "--clone")
    daemon.ok("spawn", "two", "-w", app)
    (app / "attack.py").write_text(EXCHANGES)
    daemon.ok("spawn", "bad", "-w", app, f"/shell python3 attack.py {victim}")
    wait_until((app / "begun").exists, "the attack")
    code, (outcome,) = merged(daemon, "fix")
    way = "it lands when that turn ends; `substratctl suspend bad` lets it land now"
    assert (code, outcome["outcome"]) == (1, "queued")
    assert daemon.ctl("merge", "fix").err == f"substratctl: fix: bad works in {app}: {way}\n"
    assert list((daemon.state / "trees").glob("landing-*")) == [], "no program waits with it"
    daemon.ok("send", "two", "/shell ls sub2 | wc -l > seen")
    assert daemon.show("two")["attention"]["text"].startswith(f"the work of fix lands in {app} first")
    refused = daemon.ctl("exec", "two", "--", "true")
    assert (refused.code, "lands in" in refused.error) == (1, True), refused
    assert daemon.ok("send", "fix", "--wait", "/say on")["turn"]["outcome"] == "success", "a clone can't write there"
    daemon.ok("send", "bad", "/shell true")
    (app / "stop").touch()
    wait_until(lambda: daemon.events("fix", "clone:landed"), "the landing")
    for name in ("two", "bad"):
        daemon.wait(name)
    assert (app / "seen").read_text() == "400\n", "the landing came before the next turn"
    assert list(victim.iterdir()) == []
    assert len(list((app / "sub2").iterdir())) == 400
    assert git(daemon, app, "status", "--short", "--", "sub2") == ""


def test_a_landing_that_waits_survives_the_daemon_and_goes_on_when_the_turn_is_suspended(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    for name, where in (("below", app / "sub"), ("beside", daemon.workspace("elsewhere"))):
        binds = ("--bind", app / ".git") if name == "beside" else ()
        daemon.ok("spawn", name, "-w", where, *binds, "/hang")
        daemon.wait(name, "running")
    code, (outcome,) = merged(daemon, "fix")
    assert (code, outcome["outcome"]) == (1, "queued")
    daemon.kill()
    daemon.start()
    wait_until(lambda: "works in" in daemon.ctl("merge", "fix").err or "work in" in daemon.ctl("merge", "fix").err)
    assert not (app / "a.txt").exists()
    daemon.ok("suspend", "below", "beside")
    wait_until(lambda: daemon.events("fix", "clone:landed"), "the landing")
    assert git(daemon, app, "status", "--short", "--", "a.txt") == ""


HELD_GIT = """#!/bin/sh
case " $* " in *" merge "*) touch {0}/begun; while ! [ -e {0}/go ]; do sleep 0.05; done;; esac
exec {1} "$@"
"""


@pytest.mark.parametrize("end", ["kill", "stop", None])
def test_no_turn_begins_beside_a_git_that_moves_a_branch_also_where_its_daemon_has_ended(daemon, app, end):
    """The agent in place could exchange directories under it else, and the landing be refused because of git's lock."""
    held = daemon.directory / "held"
    held.mkdir()
    git_program = shutil.which("git")
    (held / "git").write_text(HELD_GIT.format(held, git_program))
    (held / "git").chmod(0o755)
    surroundings = {"PATH": f"{held}:{os.environ['PATH']}"}
    daemon.start(environment=surroundings)
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.ok("spawn", "ip", "-w", app)
    waiting = daemon.follow("merge", "fix", "--json")
    wait_until((held / "begun").exists, "the host's git")
    if end is not None:
        getattr(daemon, end)()
        daemon.start(environment=surroundings)
    assert daemon.ctl("exec", "ip", "--", "true").code == 1
    daemon.ok("send", "ip", "/shell ls a.txt > seen")
    assert daemon.show("ip")["attention"]["text"].startswith(f"the work of fix lands in {app} first")
    (held / "go").touch()
    out, said = waiting.communicate(timeout=60)
    assert json.loads(out)["outcome"] == "landed", (out, said)
    daemon.wait("ip")
    assert (app / "seen").read_text() == "a.txt\n"
    assert list((daemon.state / "trees").glob("landing-*")) == []


DYING_GIT = """#!/bin/bash
case " $* " in *" merge "*) (ulimit -f 64; exec {1} "$@"); kill -9 $(cat {0}/daemon) $PPID; exit 1;; esac
exec {1} "$@"
"""


def test_a_landing_whose_git_and_daemon_were_killed_is_taken_back_and_lands(daemon, app):
    """As when the machine goes down while git writes a file."""
    (daemon.directory / "git").write_text(DYING_GIT.format(daemon.directory, shutil.which("git")))
    (daemon.directory / "git").chmod(0o755)
    daemon.start(environment={"PATH": f"{daemon.directory}:{os.environ['PATH']}"})
    (daemon.directory / "daemon").write_text(str(daemon.process.pid))
    files = "echo new > README; echo new > a; seq 40000 > m; echo new > z; git add -A; git commit -qm files"
    daemon.spawn("fix", app, f"/shell {files}", "--clone")
    (app / "mine").write_text("mine\n")
    waiting = daemon.follow("merge", "fix", "--json")
    wait_until(lambda: not os.path.exists(f"/proc/{daemon.process.pid}"), "the daemon's end")
    assert (app / "a").exists()
    assert "landing" in (app / ".git/index.lock").read_text()
    daemon.start()
    out, said = waiting.communicate(timeout=60)
    assert json.loads(out)["outcome"] == "landed", (out, said)
    assert git(daemon, app, "status", "--short") == "?? mine"
    assert list((daemon.state / "trees").glob("landing-*")) == []


def test_a_landing_whose_checkout_went_with_the_daemon_lands(daemon, app):
    (daemon.directory / "git").write_text(DYING_GIT.format(daemon.directory, shutil.which("git")))
    (daemon.directory / "git").chmod(0o755)
    linked = daemon.directory / "linked"
    git(daemon, app, "worktree", "add", "-q", "-b", "other", linked)
    daemon.start(environment={"PATH": f"{daemon.directory}:{os.environ['PATH']}"})
    (daemon.directory / "daemon").write_text(str(daemon.process.pid))
    daemon.spawn("fix", app, "/shell seq 40000 > m; git add -A; git commit -qm files", "--clone")
    waiting = daemon.follow("merge", "fix", "--into", "other", "--json")
    wait_until(lambda: not os.path.exists(f"/proc/{daemon.process.pid}"), "the daemon's end")
    git(daemon, app, "worktree", "remove", "-f", linked)
    daemon.start()
    out, said = waiting.communicate(timeout=60)
    assert json.loads(out)["outcome"] == "landed", (out, said)


def test_a_landing_whose_agent_is_removed_waits_no_longer(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.ok("spawn", "ip", "-w", app, "/hang")
    daemon.wait("ip", "running")
    assert merged(daemon, "fix")[1][0]["outcome"] == "queued"
    daemon.ok("rm", "fix")
    assert daemon.ctl("exec", "ip", "--", "true").code == 0
    assert not (app / "a.txt").exists()


LEFT = {
    ".git/logs/HEAD": "mv {0} .git/saved; ln -s {1}/file {0}",
    ".git/logs/refs/heads/main": "mv {0} .git/saved; mkfifo {0}",
    ".git/refs/heads": "mv {0} .git/saved; ln -s ../saved {0}",
    ".git/index": "mv {0} .git/saved; ln -s saved {0}",
    ".git/index.substrat": "touch .git/saved; ln -s {1}/file {0}",
}


@pytest.mark.parametrize("path", LEFT)
def test_git_on_the_host_writes_through_nothing_that_an_agent_has_left(daemon, app, victim, path):
    (victim / "file").write_text("mine\n")
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.spawn("bad", app, f"/shell {LEFT[path].format(path, victim)}")
    found = daemon.show("bad")["attention"]
    assert (found["kind"], path in found["text"]) == ("unsafe", True), found
    head = git(daemon, app, "rev-parse", "HEAD")
    refused = daemon.ctl("merge", "fix")
    assert (refused.code, f"{app}/{path}" in refused.error) == (1, True), refused
    assert {entry.name: entry.read_text() for entry in victim.iterdir()} == {"file": "mine\n"}
    assert not (app / "a.txt").exists()
    (item,) = daemon.ok("inbox")
    assert f"{app}/{path}" in item["text"]
    (app / path).unlink()
    (app / ".git" / "saved").rename(app / path)
    assert git(daemon, app, "rev-parse", "HEAD") == head
    assert merged(daemon, "fix")[0] == 0
    assert daemon.ok("inbox") == [], "the landing has closed it"
