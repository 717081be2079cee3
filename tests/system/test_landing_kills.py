"""Ten landings in a queue, some of which conflict, with the agents gone and the daemon killed at every step of each."""

import contextlib
import itertools
import os
import shutil
import sqlite3

import pytest

from tests.support.waiting import PATIENCE, wait_until
from tests.system.test_clones import app, commit, fingerprint, git
from tests.system.test_landing import HELD_GIT, me

__all__ = ["app"]

ASKED = ("before commit: landing asked", "after commit: landing asked")
ALWAYS = ("before commit: landing decided", "after commit: landing decided")
"""The steps of a landing that conflicts; each second landing of the queue is killed at these alone."""
STEPS = (
    *(f"{when} commit: landing intended" for when in ("before", "after")),
    *(f"{when}: branch moved" for when in ("before", "after")),
    *(f"{when} commit: landing noted" for when in ("before", "after")),
    *(f"{when} commit: clone kept" for when in ("before", "after")),
    *ALWAYS,
)
NAMES = [f"a{number}" for number in range(10)]
CONFLICTING = {3: 0, 5: 2, 9: 7}
"""Landings that conflict with an earlier one; the others don't."""
OF_A_LANDING = {".git/index", ".git/ORIG_HEAD", ".git/logs/HEAD", ".git/logs/refs/heads/main", ".git/refs/heads/main"}


def ask(daemon, **asked):
    """Ask for landings, without a wait for the daemon that dies of it."""

    def is_asked():
        with contextlib.suppress(OSError, AssertionError), daemon.wire() as wire:
            wire.ask("agent.merge", **asked)
            return True
        return is_dead(daemon)

    wait_until(is_asked, "the daemon")


def is_dead(daemon):
    return daemon.process.poll() is not None


def is_settled(daemon):
    """Whether all landings are decided."""
    with contextlib.closing(sqlite3.connect(f"file:{daemon.state}/substrat.db?mode=ro", uri=True)) as db:
        found = db.execute("SELECT count(*), count(outcome) FROM landings").fetchone()
    return found == (len(NAMES), len(NAMES))


def refs(daemon, app):
    return git(daemon, app, "for-each-ref", "--format=%(refname) %(objectname)", "refs/substrat").splitlines()


def person_at_work(daemon, app):
    """Leave in the checkout all that a person may have there."""
    me(daemon, app)
    git(daemon, app, "branch", "other")
    git(daemon, app, "tag", "v1")
    (app / "sub" / "part.txt").write_text("stashed\n")
    git(daemon, app, "stash", "-q")
    (app / "README.md").write_text("mine, uncommitted\n")
    (app / "mine.txt").write_text("mine, untracked\n")
    hook = app / ".git" / "hooks" / "post-merge"
    hook.write_text(f"#!/bin/sh\ntouch {app}/hook-has-run\n")
    hook.chmod(0o755)


@pytest.mark.slow
@pytest.mark.timeout(590)
def test_ten_land_or_bounce_in_order_with_the_daemon_killed_at_every_step(daemon, app):
    daemon.start()
    for number, name in enumerate(NAMES):
        file = f"{NAMES[CONFLICTING.get(number, number)]}.txt"
        daemon.spawn(name, app, f"{commit(file, name)}; echo rest of {name} > rest.txt", "--clone")
        daemon.ok("end", name)
    person_at_work(daemon, app)
    before, kept = fingerprint(app), refs(daemon, app)
    landing = [name for number, name in enumerate(NAMES) if number not in CONFLICTING]

    daemon.kill()
    asked = {"agents": NAMES[::-1], "request": "the same", "outcomes": True}
    kills = 0
    for point in (*ASKED, *itertools.chain.from_iterable([STEPS, ALWAYS] * len(NAMES))):
        daemon.process = daemon.launch(environment={"SUBSTRAT_KILL_AT": point})
        if point in ASKED:
            ask(daemon, **asked)
        wait_until(lambda: is_dead(daemon) or is_settled(daemon), f"the kill {point}", 3 * PATIENCE)
        if not is_dead(daemon):
            break
        assert daemon.process.returncode == -9, daemon.log
        kills += 1
    assert kills >= 50
    daemon.kill()
    daemon.start(environment={"SUBSTRAT_KILL_AT": "before answer: agent.merge"})
    ask(daemon, **asked)
    wait_until(lambda: is_dead(daemon), "the kill before the answer")
    daemon.start()
    with daemon.wire() as wire:
        outcomes = wire.call("agent.merge", **asked)

    assert [one["agent"] for one in outcomes] == NAMES
    wanted = ["conflict" if number in CONFLICTING else "landed" for number in range(len(NAMES))]
    assert [one["outcome"] for one in outcomes] == wanted
    subjects = git(daemon, app, "log", "--first-parent", "--reverse", "--format=%s", "main").splitlines()[2:]
    assert subjects == ["add a0.txt", *(f"Merge substrat/{name}" for name in landing[1:])]
    for number, name in enumerate(NAMES):
        told = {kind: len(daemon.events(name, f"clone:{kind}")) for kind in ("landed", "conflict")}
        assert told == {"landed": int(name in landing), "conflict": int(number in CONFLICTING)}, name
        assert git(daemon, app, "show", f"refs/substrat/{name}/wip:rest.txt") == f"rest of {name}"
        assert git(daemon, app, "show", "-s", "--format=%s", f"refs/substrat/{name}/head").startswith("add a")
    assert sorted(item["from"] for item in daemon.ok("inbox")) == [NAMES[number] for number in CONFLICTING]
    for name in landing:
        assert (app / f"{name}.txt").read_text() == f"{name}\n"

    after = fingerprint(app)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert changed == OF_A_LANDING | {f"{name}.txt" for name in landing}
    assert refs(daemon, app) == kept
    assert git(daemon, app, "status", "--short").splitlines() == ["M README.md", "?? mine.txt"]
    assert git(daemon, app, "stash", "show", "--name-only") == "sub/part.txt"
    assert git(daemon, app, "fsck", "--no-dangling") == ""
    assert [path.name for path in (daemon.state / "trees").glob("check-*")] == []


def test_an_agent_stays_until_a_move_that_a_killed_daemon_has_begun_is_over(daemon, app):
    """Only its rows tell the next daemon whose `index.lock` there is in the person's checkout."""
    held = daemon.directory / "held"
    held.mkdir()
    (held / "git").write_text(HELD_GIT.format(held, shutil.which("git")))
    (held / "git").chmod(0o755)
    daemon.start(environment={"PATH": f"{held}:{os.environ['PATH']}"})
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    waiting = daemon.follow("merge", "fix", "--json")
    wait_until((held / "begun").exists, "the move")
    daemon.kill()
    daemon.start()
    refused = daemon.ctl("rm", "fix")
    assert (refused.code, refused.error) == (
        1, f"substratctl: fix's work is being landed in {app}: try again in a moment"
    )  # fmt: skip
    (held / "go").touch()
    waiting.communicate(timeout=60)
    assert (app / "a.txt").exists()
    assert not (app / ".git" / "index.lock").exists()
    daemon.ok("rm", "fix")
