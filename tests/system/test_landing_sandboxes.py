"""The sandboxes of a landing, which are as many however many clones the repository has."""

import os
import shutil
from collections import Counter

import pytest

from sandbox import host
from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, git
from tests.system.test_landing import me, merged

__all__ = ["app"]

NOTING = """#!/bin/sh
cd {0}
case "$*" in
*--version*|*--help*) ;;
*'while [ $# -ge 5 ]'*)
    echo look >>started
    while [ -e hold ]; do sleep 0.02; done;;
*'%(objectname) refs/substrat/'*) echo sweep >>started;;
*) echo other >>started;;
esac
exec {1} "$@"
"""
"""Notes each sandbox; one in which clones are looked at waits while there is a file `hold`. A sweep looks at refs of agents
that are over, whenever that is due."""


class Noted:
    """A daemon whose sandboxes are noted, and a repository with a clone.

    Args:
        daemon: the daemon's.
        app: the repository.
    """

    def __init__(self, daemon, app):
        self.daemon, self.app, self.directory = daemon, app, daemon.directory / "tools"
        me(daemon, app)
        found = host.find_bubblewrap()
        assert found is not None
        self.directory.mkdir()
        (self.directory / "bwrap").write_text(NOTING.format(self.directory, found.path))
        (self.directory / "bwrap").chmod(0o755)
        daemon.start(environment={"PATH": f"{self.directory}:{os.environ['PATH']}"})
        self.spawn("one")

    def spawn(self, *names):
        for name in names:
            self.daemon.ok("spawn", name, "-w", self.app, commit(f"{name}.txt"), "--clone")
        self.daemon.ok("wait", *names)

    def started(self):
        found = Counter((self.directory / "started").read_text().split())
        del found["sweep"]
        return found

    def land(self, name):
        """Land an agent's work after a commit of the person's, until clones are looked at once more after the answer."""
        (self.app / "mine.txt").write_text(name)
        git(self.daemon, self.app, "add", "-A")
        git(self.daemon, self.app, "commit", "-qm", "mine")
        (self.directory / "started").write_text("")
        assert merged(self.daemon, name)[1][0]["outcome"] == "landed"
        wait_until(lambda: self.started()["look"] == 1, "the look at the other clones, after the answer")

    def behind(self, name):
        return self.daemon.show(name)["clone"]["behind"]


@pytest.fixture
def noted(daemon, app):
    return Noted(daemon, app)


def test_a_landing_starts_as_many_sandboxes_whatever_clones_there_are(noted):
    noted.land("one")
    alone = noted.started()
    assert alone.total() == 3, "how the two stand, their merge, and after the answer a look at clones"
    noted.spawn("two", "three", "four", "five")
    noted.land("five")
    assert noted.started() == alone
    wait_until(lambda: [noted.behind(name) for name in ("two", "three", "four")] == [3, 3, 3], "the look's end")


def test_a_landing_waits_for_no_look_at_other_clones(noted):
    noted.spawn("two", "three")
    (noted.directory / "hold").touch()
    noted.land("one")
    assert noted.behind("three") == 0
    noted.land("two")
    (noted.directory / "hold").unlink()
    wait_until(lambda: noted.behind("three") == 6, "the look's end")


def test_git_runs_on_the_host_to_move_a_branch_or_to_make_a_working_copy_and_for_nothing_else(daemon, app):
    """Sandboxes have a PATH of their own, in which this git isn't."""
    me(daemon, app)
    tools, real = daemon.directory / "tools", shutil.which("git")
    tools.mkdir()
    (tools / "git").write_text(f'#!/bin/sh\necho "$*" >>{tools}/host\nexec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    daemon.start(environment={"PATH": f"{tools}:{os.environ['PATH']}"})
    (app / "mine.txt").write_text("mine\n")
    for name in ("one", "two"):
        daemon.ok("spawn", name, "-w", app, "--clone", "--wip", "--wait", commit(f"{name}.txt"))
    daemon.ok("send", "one", "--wait", f"/shell git branch x; {commit('more.txt').removeprefix('/shell ')}")
    daemon.ok("diff", "one", "--wip")
    daemon.ok("clones")
    assert not (tools / "host").exists()
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "mine")
    assert merged(daemon, "one")[1][0]["outcome"] == "landed"
    daemon.ok("checkout", "two", daemon.directory / "copy")
    verbs = [line.split()[2] for line in (tools / "host").read_text().splitlines()]
    asks, writes = (
        {"config", "status", "diff-tree"},
        {"merge", "reset", "worktree"},
    )
    assert set(verbs) == asks | writes
    assert verbs.count("merge") == 1
