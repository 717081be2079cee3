"""`restore` and `checkout`: a clone as a turn left it, and a person's working copy of an agent's commits."""

import sqlite3
from contextlib import closing

import pytest

from substrat.daemon.failpoints import KILL_AT
from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]


def tree_of(daemon):
    return next(path for path in (daemon.state / "trees").iterdir() if path.is_dir() and "." not in path.name)


@pytest.fixture
def three(daemon, app):
    """An agent with three turns: a commit and an uncommitted file, an ignored file, and changes of all."""
    (app / ".gitignore").write_text("*.tmp\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "ignore")
    daemon.start()
    daemon.spawn("fix", app, f"{commit('a.txt')}; echo one > u.txt; echo more >> README.md", "--clone")
    daemon.ok("send", "fix", "--wait", f"{commit('b.txt')}; echo keep > k.tmp; rm u.txt")
    deeds = "git rm -q a.txt; git commit -qm gone; echo two > u.txt; rm README.md; mkdir d; touch d/f"
    daemon.ok("send", "fix", "--wait", f"/shell {deeds}")
    return daemon


def test_restore_puts_commits_and_files_back_and_keeps_what_was_there_or_refuses(three, app):
    before = fingerprint(app)
    wip = git(three, app, "rev-parse", "refs/substrat/fix/wip")
    done = three.ok("restore", "fix", "--turn", "1")
    tree = tree_of(three)
    assert (tree / "a.txt").read_text() == "new\n"
    assert (tree / "u.txt").read_text() == "one\n"
    assert (tree / "README.md").read_text() == "hello\nmore\n"
    assert (tree / "k.tmp").read_text() == "keep\n"
    assert not (tree / "b.txt").exists()
    assert not (tree / "d").exists()
    assert done["kept_as"] == "refs/substrat/fix/before-restore/1"
    assert git(three, app, "rev-parse", done["kept_as"]) == wip
    head = git(three, app, "rev-parse", "refs/substrat/fix/turns/1^1")
    assert three.show("fix")["clone"]["head"] == done["head"] == head
    assert fingerprint(app) == before
    agent = three.ok("send", "fix", "--wait", "/shell git status --short --branch; git log --format=%s -1")
    assert three.shell("fix").endswith("## substrat/fix\n M README.md\n?? u.txt\nadd a.txt\n")
    told = (three.agents_directory(agent) / "turns" / "4" / "prompt").read_text()
    assert "put your workspace back to how it was at the end of turn 1" in told
    agent = three.ok("send", "fix", "--wait", "/say again")
    assert (three.agents_directory(agent) / "turns" / "5" / "prompt").read_text() == "/say again"
    assert three.ok("restore", "fix", "--turn", "3")["kept_as"] == "refs/substrat/fix/before-restore/2"
    assert (tree / "u.txt").read_text() == "two\n"
    assert three.ok("restore", "fix", "--turn", "3")["kept_as"] == "refs/substrat/fix/before-restore/3"
    # Where something would be lost, or a turn runs, it refuses.
    assert three.ctl("restore", "fix").code == 2
    missing = three.ctl("restore", "fix", "--turn", "9")
    assert (missing.code, "no work of turn 9" in missing.error) == (4, True), missing
    three.ctl("exec", "fix", "--", "sh", "-c", "rm u.txt; echo u.txt >> .gitignore; echo mine > u.txt")
    refused = three.ctl("restore", "fix", "--turn", "1")
    assert (refused.code, "u.txt, which git ignores, is in the way" in refused.error) == (1, True), refused
    assert (tree_of(three) / "u.txt").read_text() == "mine\n"
    assert three.events("fix", "clone:not-restored")
    three.ok("send", "fix", "/shell touch on; while [ ! -e go ]; do sleep 0.02; done")
    wait_until((tree_of(three) / "on").exists, "the turn")
    running = three.ctl("restore", "fix", "--turn", "1")
    assert (running.code, "`substratctl suspend fix` first" in running.error) == (1, True), running
    (tree_of(three) / "go").touch()
    three.wait("fix")
    three.ok("end", "fix")
    assert "has ended" in three.ctl("restore", "fix", "--turn", "1").error


@pytest.mark.slow
def test_restore_ends_an_unfinished_rebase_and_makes_a_missing_git_directory_anew(three, app):
    deeds = (
        "git checkout -q -- . ; git checkout -qb side HEAD~2; echo other > b.txt; git add -A; git commit -qm other; "
        "git checkout -q substrat/fix; git rebase side; touch .git/index.lock"
    )
    three.ok("send", "fix", "--wait", f"/shell {deeds}")
    assert (tree_of(three) / ".git" / "rebase-merge").exists()
    three.ok("restore", "fix", "--turn", "2")
    three.ok("send", "fix", "--wait", "/shell git status --short --branch; git log --format=%s -1; rm -rf .git; echo x > x")
    assert three.shell("fix").endswith("## substrat/fix\n M README.md\nadd b.txt\n")
    done = three.ok("restore", "fix", "--turn", "2")
    assert git(three, app, "show", f"{done['kept_as']}:x") == "x"
    three.ok("send", "fix", "--wait", "/shell git status --short --branch; git log --format=%s -1")
    assert three.shell("fix").endswith("## substrat/fix\n M README.md\nadd b.txt\n")


@pytest.mark.slow
def test_a_restore_that_a_kill_cut_short_is_finished_before_the_next_turn(daemon, app):
    """The second time as from an earlier daemon, whose rows have the turn alone."""
    for number, point in enumerate(("after commit: restore intended", "after: tree restored")):
        name = f"fix-{number}"
        daemon.start(environment={KILL_AT: point})
        daemon.spawn(name, app, "/shell echo one > u.txt", "--clone")
        daemon.ok("send", name, "--wait", "/shell echo two > u.txt; echo b > b.txt")
        assert daemon.ctl("restore", name, "--turn", "1").code == 3, point
        wait_until(lambda: daemon.process.poll() is not None, f"the kill {point}")
        if number:
            with closing(sqlite3.connect(daemon.state / "substrat.db")) as db, db:
                assert db.execute("UPDATE clones SET stage = 'ready' WHERE stage = 'restoring'").rowcount == 1
        daemon.start()
        daemon.ok("send", name, "--wait", "/shell cat u.txt; ls b.txt")
        assert daemon.shell(name).startswith("one\n"), point
        assert len(daemon.events(name, "clone:restored")) == 1, point
        assert git(daemon, app, "show", f"refs/substrat/{name}/before-restore/1:b.txt") == "b", point
        daemon.stop()


def test_checkout_is_a_worktree_of_the_users_repository(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, f"{commit('a.txt')}; echo x > u.txt", "--clone")
    (app / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch $GIT_DIR/ran\n")
    (app / ".git" / "hooks" / "post-checkout").chmod(0o755)
    copy = daemon.directory / "copy"
    said = daemon.ctl("checkout", "fix", "copy")
    assert (said.code, said.out.startswith(f"{copy} has fix's work at ")) == (0, True)
    assert ((copy / "a.txt").read_text(), (copy / "u.txt").exists()) == ("new\n", False)
    assert git(daemon, copy, "rev-parse", "HEAD") == git(daemon, app, "rev-parse", "refs/substrat/fix/head")
    assert not list((app / ".git").rglob("ran"))
    assert git(daemon, app, "status", "--short") == ""
    again = daemon.ctl("checkout", "fix", copy)
    assert (again.code, "isn't an empty directory" in again.error) == (1, True), again
    inside = daemon.ctl("checkout", "fix", daemon.state / "x")
    assert (inside.code, "the daemon's own" in inside.error) == (1, True), inside
    daemon.spawn("here", app)
    assert "where here may write" in daemon.ctl("checkout", "fix", app / "sub" / "copy").error


def test_checkout_shows_files_first_that_the_host_would_obey(daemon, app):
    daemon.start()
    deeds = "mkdir .vscode; echo {} > .vscode/tasks.json; git add -A; git commit -qm tasks"
    daemon.spawn("fix", app, f"/shell {deeds}", "--clone")
    copy = daemon.directory / "copy"
    held = daemon.ctl("checkout", "fix", copy)
    assert (held.code, "--accept .vscode/tasks.json" in held.error, copy.exists()) == (1, True, False), held
    done = daemon.ok("checkout", "fix", copy, "--accept", ".vscode")
    assert (list(done), done["protected"]) == (["agent", "path", "commit", "protected"], [])
    assert (copy / ".vscode" / "tasks.json").exists()
