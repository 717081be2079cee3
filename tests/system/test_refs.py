"""Refs of agents that are over, in real sandboxes: listed, deleted when asked, and by themselves."""

import contextlib
import shlex
import sqlite3
from pathlib import Path

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]


def refs(daemon, app, name):
    """The refs of an agent, without their common beginning."""
    place = f"refs/substrat/{name}/"
    return {ref.removeprefix(place) for ref in git(daemon, app, "for-each-ref", "--format=%(refname)", place).split()}


def landed(daemon):
    """The agents whose work is noted as landed."""
    with contextlib.closing(sqlite3.connect(f"file:{daemon.state}/substrat.db?mode=ro", uri=True)) as db:
        return {name for (name,) in db.execute("SELECT name FROM left_refs WHERE since NOT NULL")}


def test_prune_deletes_the_refs_of_agents_that_are_over_and_have_landed(daemon, app):
    daemon.start()
    for name in ("fix", "open", "busy"):
        daemon.spawn(name, app, commit(f"{name}.txt"), "--clone")
    daemon.ok("send", "fix", "--wait", commit("two.txt"))
    for name in ("fix", "open"):
        daemon.ok("end", name)
    git(daemon, app, "merge", "-q", "refs/substrat/fix/head")
    before = fingerprint(app)
    would = daemon.ctl("clones", "prune", "--refs", "--dry-run")
    assert would.out == f"fix  would go: 2 refs in refs/substrat/fix of {app}, its work has landed\n"
    stays = f"open stays: refs/substrat/open of {app} has 1 commit in no branch: `substratctl clones prune open --refs"
    assert stays in would.error
    assert refs(daemon, app, "fix") == {"base", "head", "wip", "turns/1", "turns/2"}
    usage = daemon.ctl("clones", "prune", "--refs")
    assert (usage.code, "--dry-run says what would go" in usage.error) == (2, True), usage
    gone = daemon.ok("clones", "prune", "--refs", "--yes")
    assert {one["agent"]: (one["path"], one["removed"], one["refs"]) for one in gone} == {
        "fix": (str(app), True, 2), "open": (str(app), False, 0),
    }  # fmt: skip
    assert refs(daemon, app, "fix") == {"base", "head", "wip"}, "`diff` shows it"
    assert daemon.ok("diff", "fix")["files"]
    assert len(daemon.ok("clones")) == 3, "no clone goes"
    refused = daemon.ctl("clones", "prune", "busy", "--refs", "--yes")
    assert (refused.code, refused.error.endswith("`substratctl end busy` first")) == (1, True)
    assert daemon.ctl("clones", "prune", "nobody", "--refs", "--yes").code == 4
    last = daemon.ctl("clones", "prune", "fix", "--refs", "--yes")
    assert (last.code, "only its last work is left" in last.error) == (1, True), last

    for name in ("fix", "open"):
        daemon.ok("rm", name)
    daemon.ctl("clones", "prune", "--refs", "--yes")
    assert (refs(daemon, app, "fix"), refs(daemon, app, "open")) == (set(), {"base", "head", "wip", "turns/1"})
    all_of_it = daemon.ctl("clones", "prune", "open", "--refs", "--yes", "--unlanded")
    assert all_of_it.out == f"open  removed: 4 refs in refs/substrat/open of {app}, with 1 commit in no branch\n"
    assert refs(daemon, app, "open") == set()
    assert {"head", "wip", "turns/1"} <= refs(daemon, app, "busy")
    assert "there are no refs of an agent" in daemon.ctl("clones", "prune", "--refs", "--yes").error
    assert fingerprint(app) == before


def test_a_new_agent_of_the_same_name_keeps_its_refs(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    git(daemon, app, "merge", "-q", "refs/substrat/fix/head")
    daemon.ok("rm", "fix")
    daemon.spawn("fix", app, commit("b.txt"), "--clone")
    git(daemon, app, "merge", "-q", "refs/substrat/fix/head")
    assert "no refs" in daemon.ctl("clones", "prune", "--refs", "--yes").error
    assert {"base", "head", "wip", "turns/1"} <= refs(daemon, app, "fix")


def test_refs_go_by_themselves_some_days_after_their_work_has_landed(daemon, app):
    daemon.start()
    for name in ("fix", "open", "ended", "busy"):
        daemon.spawn(name, app, commit(f"{name}.txt"), "--clone")
    git(daemon, app, "merge", "-q", "refs/substrat/fix/head")
    git(daemon, app, "merge", "-q", "-m", "x", "refs/substrat/ended/head")
    git(daemon, app, "merge", "-q", "-m", "x", "refs/substrat/busy/head")
    daemon.ok("end", "ended")
    for name in ("fix", "open"):
        daemon.ok("rm", name)
    for ref in ("head", "wip", "turns/1"):  # of an agent of which nothing is recorded
        git(daemon, app, "update-ref", f"refs/substrat/past/{ref}", "main")
    daemon.stop()
    daemon.start()
    wait_until(lambda: landed(daemon) == {"fix", "ended", "past"}, "the notes of a first look")
    assert refs(daemon, app, "fix") == {"base", "head", "wip", "turns/1"}, "seven days haven't passed"
    daemon.stop()
    daemon.configure("[clone]\nforget_days = 0.000001\n")
    daemon.start()
    wait_until(lambda: not (refs(daemon, app, "fix") | refs(daemon, app, "past")), "the refs of removed agents")
    wait_until(lambda: refs(daemon, app, "ended") == {"base", "head", "wip"}, "the turns of an ended one")
    assert {"head", "wip", "turns/1"} <= refs(daemon, app, "open")
    assert {"head", "wip", "turns/1"} <= refs(daemon, app, "busy")


def test_git_is_quiet_about_refs_as_the_documents_say(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, f"{commit('a.txt')}; echo x > b.txt", "--clone")
    mirror = daemon.workspace("mirror")
    git(daemon, mirror, "init", "-q", "--bare")
    git(daemon, app, "remote", "add", "backup", str(mirror))
    named = ("-c", "log.initialDecorationSet=all", "log", "--all", "--oneline", "--decorate")
    assert "refs/substrat/fix/turns/1) Uncommitted files" in git(daemon, app, *named)
    lines = (Path(__file__).parents[2] / "docs" / "daily.md").read_text().splitlines()
    typed = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(("git config", "git log --exclude"))]
    settings = [words for words in typed if words[0] == "config"]
    assert len(settings) == 4
    for words in settings:
        git(daemon, app, *words)
    assert "refs/substrat" not in git(daemon, app, *named)
    (log,) = (words for words in typed if words[0] == "log")
    assert "Uncommitted files" not in git(daemon, app, *log)
    git(daemon, app, "push", "-q", "--mirror", "backup")
    assert git(daemon, mirror, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert "refs/substrat" not in git(daemon, app, "ls-remote", ".")
    daemon.ok("send", "fix", "--wait", commit("c.txt"))
    daemon.ok("merge", "fix")
    assert (app / "c.txt").read_text() == "new\n", "agents' work is kept and landed all the same"
