"""Trees of agents that are over: kept a last time, listed, and removed only when nothing is lost by that."""

import contextlib
from functools import partial
from pathlib import Path

import pytest

from substrat.daemon.failpoints import KILL_AT
from tests.support.processes import processes
from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]

MEMBERS = [
    "agent", "id", "path", "repository", "branch", "base", "head", "ahead", "behind", "files", "unlanded",
    "kept_only_here", "bytes",
]  # fmt: skip


def on_disk(house):
    """The names of what lies where the trees are, without the daemon's own."""
    return {path.name for path in (house.state / "trees").iterdir()} - {"README", "empty", ".trash"}


@pytest.fixture
def ignoring(house, app):
    """A repository whose `.gitignore` names `build`."""
    (app / ".gitignore").write_text("build/\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "ignore build")
    return app


def test_rm_keeps_once_more_and_removes_a_tree_of_which_all_is_kept(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    house.ctl("exec", "fix", "--", "sh", "-c", "echo late > late.txt")
    before = fingerprint(app)
    said = house.ctl("rm", "fix")
    assert said.out == (
        f"fix  removed: its clone is removed; its work is in refs/substrat/fix of {app}, "
        f"with 1 commit and 1 uncommitted file in no branch\n"
    )
    assert git(house, app, "show", "refs/substrat/fix/wip:late.txt") == "late"
    assert git(house, app, "show", "refs/substrat/fix/head:a.txt") == "new"
    assert (on_disk(house), house.ok("clones")) == (set(), [])
    assert fingerprint(app) == before
    assert "clone:pruned" in {event["kind"] for event in house.ctl("events", "--since", "0", "--json").lines}


def test_rm_leaves_a_tree_with_something_that_is_only_there(house, ignoring):
    house.start()
    agent = house.spawn("fix", ignoring, "/shell mkdir build; echo x > build/x; git init -q in; touch in/f", "--clone")
    said = house.ctl("rm", "fix")
    assert "stays, because 1 file of a repository inside it and 1 ignored file are only there" in said.out
    (tree,) = house.ok("clones")
    assert list(tree) == MEMBERS
    assert (tree["agent"], tree["id"], tree["unlanded"]) == ("fix", agent["id"], True)
    only_here = {"nested": 1, "submodules": 0, "lfs": 0, "ignored": 1, "branches": 0, "stashes": 0, "hidden": 0}
    assert tree["kept_only_here"] == only_here
    assert tree["bytes"] > 0
    table = house.ctl("clones").out
    assert max(map(len, table.splitlines())) <= 80
    assert table.splitlines()[1].split()[:3] == ["fix", "removed", "~1"]


def test_rm_of_an_agent_whose_work_cannot_be_kept_leaves_its_tree(house, app):
    house.start()
    house.spawn("fix", app, f"{commit('a.txt')}; echo x > b.txt", "--clone")
    house.ctl("exec", "fix", "--", "sh", "-c", "echo only > only.txt; mv .git .gone")
    said = house.ctl("rm", "fix")
    assert (said.code, "stays, because work that couldn't be kept is only there: its .git is" in said.out) == (0, True)
    assert "couldn't be kept: its .git is" in house.ctl("clones").out
    stays = house.ctl("clones", "prune", "fix", "--yes")
    assert (stays.code, "--unlanded" in stays.error) == (1, True)
    (tree,) = on_disk(house) - {f"{one}.out" for one in on_disk(house)}
    (house.state / "trees" / tree / ".gone").rename(house.state / "trees" / tree / ".git")
    assert house.ctl("clones", "prune", "fix", "--yes", "--unlanded").code == 0
    assert git(house, app, "show", "refs/substrat/fix/wip:only.txt") == "only"


def test_work_on_other_branches_and_in_stashes_is_said_and_kept(house, app):
    house.start()
    deeds = "git checkout -qb side; echo s > s; git add s; git commit -qm s; git checkout -q substrat/fix; echo w > w"
    house.spawn("fix", app, f"/shell {deeds}; git add w; git stash -q", "--clone")
    shown = house.show("fix")
    assert shown["clone"]["work"] == {
        "text": "1 commit on side · 1 stash", "commits": 0, "head": shown["clone"]["head"], "wip": None, "files": 0,
        "branches": [{"name": "side", "commits": 1}], "stashes": 1, "hidden": 0, "landed": True, "in": None, "unkept": None,
    }  # fmt: skip
    assert (shown["attention"]["kind"], shown["attention"]["text"]) == ("merge", "1 commit on side, 1 stash")
    assert "send fix TEXT, or accept fix" in house.ctl("ls").out
    assert "1 commit on side · 1 stash" in house.ctl("show", "fix").out
    assert house.ctl("clones").out.splitlines()[1].split()[2] == "&2"
    said = house.ctl("rm", "fix").out
    left = f"its work is in refs/substrat/fix of {app}, with 1 commit on side and 1 stash in no branch\n"
    assert said.endswith(left), said
    assert git(house, app, "show", "refs/substrat/fix/asides^2:s") == "s"
    assert git(house, app, "show", "refs/substrat/fix/asides^3:w") == "w"
    refused = house.ctl("spawn", "fix", "-w", app, "--clone", "hi")
    assert (refused.code, "fix" in refused.error) == (1, True)


def test_accepted_work_asks_for_nothing_until_there_is_more(house, app):
    house.start()
    house.spawn("fix", app, "/shell echo w > w; git branch other", "--clone")
    assert house.show("fix")["attention"]["text"] == "1 file uncommitted"
    house.ok("accept", "fix")
    assert house.show("fix")["attention"]["kind"] == "idle"
    house.ok("send", "fix", "--wait", "/shell git checkout -q other; git commit -q --allow-empty -m x; git checkout -q -")
    assert house.show("fix")["attention"]["text"] == "1 file uncommitted, 1 commit on other"


def test_end_keeps_once_more_and_leaves_the_tree_to_prune(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    house.spawn("busy", app, "/say hi", "--clone")
    house.ctl("exec", "fix", "--", "sh", "-c", "echo late > late.txt")
    house.ok("end", "fix")
    assert git(house, app, "show", "refs/substrat/fix/wip:late.txt") == "late"
    refused = house.ctl("clones", "prune", "busy", "--yes")
    assert (refused.code, refused.error.endswith("`substratctl end busy` first")) == (1, True)
    usage = house.ctl("clones", "prune")
    assert (usage.code, "there is no terminal to ask on: --yes" in usage.error) == (2, True)
    stays = house.ctl("clones", "prune", "--yes")
    assert (stays.code, stays.out) == (0, "")
    assert "fix stays: it holds 1 commit and 1 uncommitted file: `substratctl clones prune fix --unlanded`" in stays.error
    would = house.ctl("clones", "prune", "--dry-run", "--unlanded")
    assert "in no branch, but in refs/substrat/fix: 1 commit and 1 uncommitted file" in would.out
    assert len(house.ok("clones")) == 2
    gone = house.ctl("clones", "prune", "--yes", "--unlanded")
    assert gone.code == 0
    said = gone.out.splitlines()[-1]
    assert [tree["agent"] for tree in house.ok("clones")] == ["busy"]
    assert house.events("fix", "clone:pruned")
    assert house.ok("diff", "fix", "--wip")["files"]
    house.ctl("rm", "fix")
    assert git(house, app, "for-each-ref", "refs/substrat/fix/") != ""
    command = said.removeprefix("the refs of fix stay: 'substratctl ").removesuffix("' removes them").split()
    assert house.ctl(*command, "--unlanded", "--yes").code == 0, said
    assert git(house, app, "for-each-ref", "refs/substrat/fix/") == ""


def test_landed_work_is_pruned_without_unlanded(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    house.ok("end", "fix")
    git(house, app, "merge", "-q", "refs/substrat/fix/head")
    (pruned,) = house.ok("clones", "prune", "--yes")
    assert (list(pruned), pruned["removed"]) == (["agent", "path", "removed", "reason"], True)
    assert git(house, app, "status", "--short") == ""


def test_a_tree_of_a_removed_agent_is_not_kept_over_a_newer_agents_refs(house, ignoring):
    house.start()
    house.spawn("fix", ignoring, "/shell mkdir build; echo x > build/x", "--clone")
    house.ok("rm", "fix")
    house.spawn("fix", ignoring, commit("b.txt"), "--clone")
    head = git(house, ignoring, "rev-parse", "refs/substrat/fix/head")
    gone = house.ctl("clones", "prune", "fix", "--yes")
    assert "fix  removed" in gone.out
    assert "the refs of fix stay" not in gone.out
    assert git(house, ignoring, "rev-parse", "refs/substrat/fix/head") == head
    assert [tree["id"] for tree in house.ok("clones")] == [house.show("fix")["id"]]


@pytest.mark.slow
def test_a_prune_that_a_kill_cut_short_is_finished(house, app):
    for number, point in enumerate(("after commit: prune intended", "after: tree removed", "before commit: tree pruned")):
        name = f"fix-{number}"
        house.start(environment={KILL_AT: point})
        house.spawn(name, app, "/say hi", "--clone")
        house.ok("end", name)
        assert house.ctl("clones", "prune", "--yes").code == 3, point
        wait_until(lambda: house.process.poll() is not None, f"the kill {point}")
        house.start()
        wait_until(partial(house.events, name, "clone:pruned"), f"the end of the prune {point}")
        wait_until(lambda: not list((house.state / "trees" / ".trash").iterdir()), "an empty trash")
        assert (on_disk(house), len(house.events(name, "clone:pruned"))) == (set(), 1), point
        house.stop()


def command(pid):
    """Return the command line of a process, empty once it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def test_no_turn_begins_while_an_agent_is_being_removed(house, app):
    """What is sent meanwhile goes with the agent; nothing runs in a tree that is about to go."""
    house.start()
    # git runs it at the top of the tree.
    held = f"while [ -e hold ]; do sleep 0.02; done; cat # {app.parent.name}"
    deeds = f"printf '* filter=held\\n' > .gitattributes; echo x > y; git config filter.held.clean '{held}'"
    house.spawn("fix", app, f"/shell {deeds}", "--clone")
    house.ctl("exec", "fix", "--", "sh", "-c", "echo longer > y; touch hold")
    (tree,) = house.ok("clones")
    removal = house.follow("rm", "fix")
    # Not asked by a command, which would make the removal wait for itself, or be refused, if it came first.
    wait_until(lambda: any(held in command(pid) for pid in processes()), "the removal, which keeps the work once more")
    assert "being removed" in house.ctl("exec", "fix", "--", "true").err
    house.ctl("send", "fix", "/shell echo never > never.txt")
    (Path(tree["path"]) / "hold").unlink()
    removal.wait(30)
    assert house.ctl("show", "fix").code == 4
    assert "never.txt" not in git(house, app, "ls-tree", "--name-only", "refs/substrat/fix/wip")
