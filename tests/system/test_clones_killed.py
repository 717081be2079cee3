"""Ten agents at work at once in one repository, while the daemon is killed at every step of making, keeping and pruning."""

import json
from pathlib import Path

import pytest

from substrat.daemon.failpoints import KILL_AT
from tests.support.waiting import wait_until
from tests.system.test_clones import fingerprint

MAKING = [
    *(f"{when}: {act}" for act in ("tree made", "base noted", "clone set up") for when in ("before", "after")),
    *(f"{when} commit: {change}" for change in ("clone made", "clone set up") for when in ("before", "after")),
]
KEEPING = [
    *(f"{when}: {act}#5" for act in ("bundle made", "bundle imported") for when in ("before", "after")),
    *(f"{when} commit: clone kept#5" for when in ("before", "after")),
]
PRUNING = [
    *(f"{when}: tree removed" for when in ("before", "after")),
    *(f"{when} commit: {change}" for change in ("prune intended", "tree pruned") for when in ("before", "after")),
]
NAMES = [f"a{number}" for number in range(10)]
WORK = (
    "/shell while [ ! -e go ]; do sleep 0.02; done; rm go; echo {text} > same.txt; git add same.txt; "
    "git commit -qm {text}; echo {text} > wip.txt"
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_agents_lose_nothing_and_the_repository_stays_as_it_is(daemon):
    app = daemon.workspace("app", git=True)
    (app / ".cursor").mkdir()
    (app / ".cursor" / "worktrees.json").write_text(json.dumps({"setup-worktree": ["true"]}))
    (app / ".gitignore").write_text("go\n")
    daemon.git(app, "add", "-A")
    daemon.git(app, "commit", "-qm", "set up")
    (app / "README.md").write_text("changed, and staged\n")
    daemon.git(app, "add", "README.md")
    (app / "README.md").write_text("changed once more\n")
    before, refs = fingerprint(app), foreign_refs(daemon, app)
    daemon.config.write_text("[clone]\nturns = 1\n")  # each keep deletes a ref

    for name, point in zip(NAMES, MAKING, strict=True):
        daemon.start(environment={KILL_AT: point})
        daemon.ctl("spawn", name, "-w", app, "--clone", WORK.format(text=f"{name}-made"))
        dies(daemon, point)
        daemon.start()
        if daemon.ctl("show", name).code:
            daemon.ok("spawn", name, "-w", app, "--clone", WORK.format(text=f"{name}-made"))
        waits_for(daemon, name, "running")
        daemon.stop()
    daemon.start()
    let_go(daemon)
    check(daemon, app, "made")
    for number, point in enumerate(KEEPING):
        daemon.stop()
        daemon.start(environment={KILL_AT: point})
        for name in NAMES:
            daemon.ok("send", name, WORK.format(text=f"{name}-{number}"))
        let_go(daemon)
        dies(daemon, point)
        daemon.start()
        check(daemon, app, str(number))
    daemon.ok("end", *NAMES)
    for point in PRUNING:
        daemon.stop()
        daemon.start(environment={KILL_AT: point})
        assert daemon.ctl("clones", "prune", "--yes", "--unlanded").code == 3, point
        dies(daemon, point)
        daemon.start()
    daemon.ok("clones", "prune", "--yes", "--unlanded")
    wait_until(lambda: daemon.ok("clones") == [], "the end of the trees")
    assert [len(daemon.events(name, "clone:pruned")) for name in NAMES] == [1] * 10
    assert_kept(daemon, app, str(len(KEEPING) - 1))
    assert (fingerprint(app), foreign_refs(daemon, app)) == (before, refs)
    assert daemon.git(app, "fsck", "--no-dangling") == ""
    assert not (app / ".git" / "packed-refs.lock").exists()


def foreign_refs(daemon, app):
    listed = daemon.git(app, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return [line for line in listed if not line.startswith("refs/substrat/")]


def dies(daemon, point):
    wait_until(lambda: daemon.process.poll() is not None, f"the daemon's death {point}")


def waits_for(daemon, name, state):
    wait_until(lambda: daemon.show(name)["state"] == state, f"{name} being {state}", 60)


def let_go(daemon):
    """Free all turns at once."""
    for tree in daemon.ok("clones"):
        Path(tree["path"], "go").touch()


def check(daemon, app, text):
    for name in NAMES:
        waits_for(daemon, name, "idle")
    assert_kept(daemon, app, text)


def assert_kept(daemon, app, text):
    for name in NAMES:
        said = daemon.git(app, "show", f"refs/substrat/{name}/head:same.txt", f"refs/substrat/{name}/wip:wip.txt")
        assert said.split() == [f"{name}-{text}"] * 2, (
            name,
            text,
            daemon.shell(name),
            [event["text"] for event in daemon.events(name)][-12:],
        )
