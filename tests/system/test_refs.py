"""Refs of agents that are over, in real sandboxes: listed, deleted when asked, and by themselves."""

import contextlib
import shlex
import sqlite3
from pathlib import Path

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]


def refs(house, app, name):
    """The refs of an agent, without their common beginning."""
    place = f"refs/substrat/{name}/"
    return {ref.removeprefix(place) for ref in git(house, app, "for-each-ref", "--format=%(refname)", place).split()}


def landed(house):
    """The agents whose work is noted as landed."""
    with contextlib.closing(sqlite3.connect(f"file:{house.state}/substrat.db?mode=ro", uri=True)) as db:
        return {name for (name,) in db.execute("SELECT name FROM left_refs WHERE since NOT NULL")}


def test_prune_deletes_the_refs_of_agents_that_are_over_and_have_landed(house, app):
    house.start()
    for name in ("fix", "open", "busy"):
        house.spawn(name, app, commit(f"{name}.txt"), "--clone")
    house.ok("send", "fix", "--wait", commit("two.txt"))
    for name in ("fix", "open"):
        house.ok("end", name)
    git(house, app, "merge", "-q", "refs/substrat/fix/head")
    before = fingerprint(app)
    would = house.ctl("clones", "prune", "--refs", "--dry-run")
    assert would.out == f"fix  would go: 2 refs in refs/substrat/fix of {app}, its work has landed\n"
    stays = f"open stays: refs/substrat/open of {app} has 1 commit in no branch: `substratctl clones prune open --refs"
    assert stays in would.error
    assert refs(house, app, "fix") == {"base", "head", "wip", "turns/1", "turns/2"}
    usage = house.ctl("clones", "prune", "--refs")
    assert (usage.code, "--dry-run says what would go" in usage.error) == (2, True)
    gone = house.ok("clones", "prune", "--refs", "--yes")
    assert {one["agent"]: (one["path"], one["removed"], one["refs"]) for one in gone} == {
        "fix": (str(app), True, 2), "open": (str(app), False, 0),
    }  # fmt: skip
    assert refs(house, app, "fix") == {"base", "head", "wip"}, "`diff` shows it"
    assert house.ok("diff", "fix")["files"]
    assert len(house.ok("clones")) == 3, "no clone goes"
    refused = house.ctl("clones", "prune", "busy", "--refs", "--yes")
    assert (refused.code, refused.error.endswith("`substratctl end busy` first")) == (1, True)
    assert house.ctl("clones", "prune", "nobody", "--refs", "--yes").code == 4
    last = house.ctl("clones", "prune", "fix", "--refs", "--yes")
    assert (last.code, "only its last work is left" in last.error) == (1, True)

    for name in ("fix", "open"):
        house.ok("rm", name)
    house.ctl("clones", "prune", "--refs", "--yes")
    assert (refs(house, app, "fix"), refs(house, app, "open")) == (set(), {"base", "head", "wip", "turns/1"})
    all_of_it = house.ctl("clones", "prune", "open", "--refs", "--yes", "--unlanded")
    assert all_of_it.out == f"open  removed: 4 refs in refs/substrat/open of {app}, with 1 commit in no branch\n"
    assert refs(house, app, "open") == set()
    assert {"head", "wip", "turns/1"} <= refs(house, app, "busy")
    assert "there are no refs of an agent" in house.ctl("clones", "prune", "--refs", "--yes").error
    assert fingerprint(app) == before


def test_a_new_agent_of_the_same_name_keeps_its_refs(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    git(house, app, "merge", "-q", "refs/substrat/fix/head")
    house.ok("rm", "fix")
    house.spawn("fix", app, commit("b.txt"), "--clone")
    git(house, app, "merge", "-q", "refs/substrat/fix/head")
    assert "no refs" in house.ctl("clones", "prune", "--refs", "--yes").error
    assert {"base", "head", "wip", "turns/1"} <= refs(house, app, "fix")


def test_refs_go_by_themselves_some_days_after_their_work_has_landed(house, app):
    house.start()
    for name in ("fix", "open", "ended", "busy"):
        house.spawn(name, app, commit(f"{name}.txt"), "--clone")
    git(house, app, "merge", "-q", "refs/substrat/fix/head")
    git(house, app, "merge", "-q", "-m", "x", "refs/substrat/ended/head")
    git(house, app, "merge", "-q", "-m", "x", "refs/substrat/busy/head")
    house.ok("end", "ended")
    for name in ("fix", "open"):
        house.ok("rm", name)
    for ref in ("head", "wip", "turns/1"):  # of an agent of which nothing is recorded
        git(house, app, "update-ref", f"refs/substrat/past/{ref}", "main")
    house.stop()
    house.start()
    wait_until(lambda: landed(house) == {"fix", "ended", "past"}, "the notes of a first look")
    assert refs(house, app, "fix") == {"base", "head", "wip", "turns/1"}, "seven days haven't passed"
    house.stop()
    house.configure("[clone]\nforget_days = 0.000001\n")
    house.start()
    wait_until(lambda: not (refs(house, app, "fix") | refs(house, app, "past")), "the refs of removed agents")
    wait_until(lambda: refs(house, app, "ended") == {"base", "head", "wip"}, "the turns of an ended one")
    assert {"head", "wip", "turns/1"} <= refs(house, app, "open")
    assert {"head", "wip", "turns/1"} <= refs(house, app, "busy")


def test_git_is_quiet_about_refs_as_the_documents_say(house, app):
    house.start()
    house.spawn("fix", app, f"{commit('a.txt')}; echo x > b.txt", "--clone")
    mirror = house.workspace("mirror")
    git(house, mirror, "init", "-q", "--bare")
    git(house, app, "remote", "add", "backup", str(mirror))
    named = ("-c", "log.initialDecorationSet=all", "log", "--all", "--oneline", "--decorate")
    assert "refs/substrat/fix/turns/1) Uncommitted files" in git(house, app, *named)
    lines = (Path(__file__).parents[2] / "docs" / "daily.md").read_text().splitlines()
    typed = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(("git config", "git log --exclude"))]
    settings = [words for words in typed if words[0] == "config"]
    assert len(settings) == 4
    for words in settings:
        git(house, app, *words)
    assert "refs/substrat" not in git(house, app, *named)
    (log,) = (words for words in typed if words[0] == "log")
    assert "Uncommitted files" not in git(house, app, *log)
    git(house, app, "push", "-q", "--mirror", "backup")
    assert git(house, mirror, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert "refs/substrat" not in git(house, app, "ls-remote", ".")
    house.ok("send", "fix", "--wait", commit("c.txt"))
    house.ok("merge", "fix")
    assert (app / "c.txt").read_text() == "new\n", "agents' work is kept and landed all the same"
