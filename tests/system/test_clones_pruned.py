"""Trees of agents that are over: kept a last time, listed, and removed only when nothing is lost by that."""

from functools import partial
from pathlib import Path

import pytest

from substrat.daemon.failpoints import KILL_AT
from tests.support.processes import arguments_of, processes
from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]

MEMBERS = [
    "agent", "id", "path", "repository", "branch", "base", "head", "ahead", "behind", "files", "unlanded",
    "kept_only_here", "bytes",
]  # fmt: skip


def on_disk(daemon):
    """The names of what lies where the trees are, without the daemon's own."""
    return {path.name for path in (daemon.state / "trees").iterdir()} - {"README", "empty", ".trash"}


@pytest.fixture
def ignoring(daemon, app):
    """A repository whose `.gitignore` names `build`."""
    (app / ".gitignore").write_text("build/\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "ignore build")
    return app


def test_rm_keeps_once_more_and_removes_a_tree_of_which_all_is_kept(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.ctl("exec", "fix", "--", "sh", "-c", "echo late > late.txt")
    before = fingerprint(app)
    said = daemon.ctl("rm", "fix")
    assert said.out == (
        f"fix  removed: its clone is removed; its work is in refs/substrat/fix of {app}, "
        f"with 1 commit and 1 uncommitted file in no branch\n"
    )
    assert git(daemon, app, "show", "refs/substrat/fix/wip:late.txt") == "late"
    assert git(daemon, app, "show", "refs/substrat/fix/head:a.txt") == "new"
    assert (on_disk(daemon), daemon.ok("clones")) == (set(), [])
    assert fingerprint(app) == before
    assert "clone:pruned" in {event["kind"] for event in daemon.ctl("events", "--since", "0", "--json").lines}


def test_rm_leaves_a_tree_with_something_that_is_only_there(daemon, ignoring):
    daemon.start()
    agent = daemon.spawn("fix", ignoring, "/shell mkdir build; echo x > build/x; git init -q in; touch in/f", "--clone")
    said = daemon.ctl("rm", "fix")
    assert "stays, because 1 file of a repository inside it and 1 ignored file are only there" in said.out
    (tree,) = daemon.ok("clones")
    assert list(tree) == MEMBERS
    assert (tree["agent"], tree["id"], tree["unlanded"]) == ("fix", agent["id"], True)
    only_here = {"nested": 1, "submodules": 0, "lfs": 0, "ignored": 1, "branches": 0, "stashes": 0, "hidden": 0}
    assert tree["kept_only_here"] == only_here
    assert tree["bytes"] > 0
    table = daemon.ctl("clones").out
    assert max(map(len, table.splitlines())) <= 80
    assert table.splitlines()[1].split()[:3] == ["fix", "removed", "~1"]


def test_a_clones_size_is_that_of_its_last_keep_until_somebody_looks_anew(daemon, app):
    daemon.start()

    def size(*words):
        (clone,) = daemon.ok("clones", *words)
        return clone["bytes"]

    daemon.spawn("fix", app, "/shell head -c 3000000 /dev/urandom > big", "--clone")
    kept = size()
    assert 3_000_000 < kept < 30_000_000
    daemon.ctl("exec", "fix", "--", "sh", "-c", "head -c 40000000 /dev/urandom > more")
    assert size() == kept
    assert (looked := size("--sizes")) > kept + 40_000_000
    daemon.stop()
    daemon.start()
    assert size() == looked
    assert "--sizes belongs to" in daemon.ctl("clones", "prune", "--sizes").error


def test_a_fresh_clones_size_is_known_and_its_index_too(daemon, app):
    for number in range(200):
        (app / f"file-{number}").write_text(f"{number}\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "many files")
    daemon.start()
    daemon.spawn("fix", app, "/shell echo x > new; git add -A; git count-objects > counted", "--clone")
    (clone,) = daemon.ok("clones")
    assert (Path(clone["path"]) / "counted").read_text().startswith("1 objects"), "no file is stored anew"
    daemon.ctl("spawn", "rest", "-w", str(app), "--clone")
    wait_until(lambda: daemon.ok("show", "rest")["clone"]["stage"] == "ready", "the clone")
    assert all(clone["bytes"] > 200 * 4096 for clone in daemon.ok("clones"))


def test_rm_of_an_agent_whose_work_cannot_be_kept_leaves_its_tree(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, f"{commit('a.txt')}; echo x > b.txt", "--clone")
    daemon.ctl("exec", "fix", "--", "sh", "-c", "echo only > only.txt; mv .git .gone")
    said = daemon.ctl("rm", "fix")
    assert (said.code, "stays, because work that couldn't be kept is only there: its .git is" in said.out) == (0, True), (
        said
    )
    assert "couldn't be kept: its .git is" in daemon.ctl("clones").out
    stays = daemon.ctl("clones", "prune", "fix", "--yes")
    assert (stays.code, "--unlanded" in stays.error) == (1, True), stays
    (tree,) = on_disk(daemon) - {f"{one}.out" for one in on_disk(daemon)}
    (daemon.state / "trees" / tree / ".gone").rename(daemon.state / "trees" / tree / ".git")
    assert daemon.ctl("clones", "prune", "fix", "--yes", "--unlanded").code == 0
    assert git(daemon, app, "show", "refs/substrat/fix/wip:only.txt") == "only"


def test_work_on_other_branches_and_in_stashes_is_said_and_kept(daemon, app):
    daemon.start()
    deeds = "git checkout -qb side; echo s > s; git add s; git commit -qm s; git checkout -q substrat/fix; echo w > w"
    daemon.spawn("fix", app, f"/shell {deeds}; git add w; git stash -q", "--clone")
    shown = daemon.show("fix")
    assert shown["clone"]["work"] == {
        "text": "1 commit on side · 1 stash", "commits": 0, "head": shown["clone"]["head"], "wip": None, "files": 0,
        "branches": [{"name": "side", "commits": 1}], "stashes": 1, "hidden": 0, "landed": True, "in": None,
        "checked": None, "unkept": None,
    }  # fmt: skip
    assert (shown["attention"]["kind"], shown["attention"]["text"]) == ("merge", "1 commit on side, 1 stash")
    assert "send fix TEXT, or accept fix" in daemon.ctl("ls").out
    assert "1 commit on side · 1 stash" in daemon.ctl("show", "fix").out
    assert daemon.ctl("clones").out.splitlines()[1].split()[2] == "&2"
    said = daemon.ctl("rm", "fix").out
    left = f"its work is in refs/substrat/fix of {app}, with 1 commit on side and 1 stash in no branch\n"
    assert said.endswith(left), said
    assert git(daemon, app, "show", "refs/substrat/fix/asides^2:s") == "s"
    assert git(daemon, app, "show", "refs/substrat/fix/asides^3:w") == "w"
    refused = daemon.ctl("spawn", "fix", "-w", app, "--clone", "hi")
    assert (refused.code, "fix" in refused.error) == (1, True), refused


def test_accepted_work_asks_for_nothing_until_there_is_more(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, "/shell echo w > w; git branch other", "--clone")
    assert daemon.show("fix")["attention"]["text"] == "1 file uncommitted"
    daemon.ok("accept", "fix")
    assert daemon.show("fix")["attention"]["kind"] == "idle"
    daemon.ok("send", "fix", "--wait", "/shell git checkout -q other; git commit -q --allow-empty -m x; git checkout -q -")
    assert daemon.show("fix")["attention"]["text"] == "1 file uncommitted, 1 commit on other"


def test_end_keeps_once_more_and_leaves_the_tree_to_prune(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.spawn("busy", app, "/say hi", "--clone")
    daemon.ctl("exec", "fix", "--", "sh", "-c", "echo late > late.txt")
    daemon.ok("end", "fix")
    assert git(daemon, app, "show", "refs/substrat/fix/wip:late.txt") == "late"
    refused = daemon.ctl("clones", "prune", "busy", "--yes")
    assert (refused.code, refused.error.endswith("`substratctl end busy` first")) == (1, True)
    usage = daemon.ctl("clones", "prune")
    assert (usage.code, "there is no terminal to ask on: --yes" in usage.error) == (2, True), usage
    stays = daemon.ctl("clones", "prune", "--yes")
    assert (stays.code, stays.out) == (0, "")
    assert "fix stays: it holds 1 commit and 1 uncommitted file: `substratctl clones prune fix --unlanded`" in stays.error
    would = daemon.ctl("clones", "prune", "--dry-run", "--unlanded")
    assert "in no branch, but in refs/substrat/fix: 1 commit and 1 uncommitted file" in would.out
    assert len(daemon.ok("clones")) == 2
    gone = daemon.ctl("clones", "prune", "--yes", "--unlanded")
    assert gone.code == 0
    said = gone.out.splitlines()[-1]
    assert [tree["agent"] for tree in daemon.ok("clones")] == ["busy"]
    assert daemon.events("fix", "clone:pruned")
    assert daemon.ok("diff", "fix", "--wip")["files"]
    daemon.ctl("rm", "fix")
    assert git(daemon, app, "for-each-ref", "refs/substrat/fix/") != ""
    command = said.removeprefix("the refs of fix stay: 'substratctl ").removesuffix("' removes them").split()
    assert daemon.ctl(*command, "--unlanded", "--yes").code == 0, said
    assert git(daemon, app, "for-each-ref", "refs/substrat/fix/") == ""


def test_landed_work_is_pruned_without_unlanded(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.ok("end", "fix")
    git(daemon, app, "merge", "-q", "refs/substrat/fix/head")
    (pruned,) = daemon.ok("clones", "prune", "--yes")
    assert (list(pruned), pruned["removed"]) == (["agent", "path", "removed", "reason"], True)
    assert git(daemon, app, "status", "--short") == ""


def test_a_tree_of_a_removed_agent_is_not_kept_over_a_newer_agents_refs(daemon, ignoring):
    daemon.start()
    daemon.spawn("fix", ignoring, "/shell mkdir build; echo x > build/x", "--clone")
    daemon.ok("rm", "fix")
    daemon.spawn("fix", ignoring, commit("b.txt"), "--clone")
    head = git(daemon, ignoring, "rev-parse", "refs/substrat/fix/head")
    gone = daemon.ctl("clones", "prune", "fix", "--yes")
    assert "fix  removed" in gone.out
    assert "the refs of fix stay" not in gone.out
    assert git(daemon, ignoring, "rev-parse", "refs/substrat/fix/head") == head
    assert [tree["id"] for tree in daemon.ok("clones")] == [daemon.show("fix")["id"]]


@pytest.mark.slow
def test_a_prune_that_a_kill_cut_short_is_finished(daemon, app):
    for number, point in enumerate(("after commit: prune intended", "after: tree removed", "before commit: tree pruned")):
        name = f"fix-{number}"
        daemon.start(environment={KILL_AT: point})
        daemon.spawn(name, app, "/say hi", "--clone")
        daemon.ok("end", name)
        assert daemon.ctl("clones", "prune", "--yes").code == 3, point
        wait_until(lambda: daemon.process.poll() is not None, f"the kill {point}")
        daemon.start()
        wait_until(partial(daemon.events, name, "clone:pruned"), f"the end of the prune {point}")
        wait_until(lambda: not list((daemon.state / "trees" / ".trash").iterdir()), "an empty trash")
        assert (on_disk(daemon), len(daemon.events(name, "clone:pruned"))) == (set(), 1), point
        daemon.stop()


def test_no_turn_begins_while_an_agent_is_being_removed(daemon, app):
    """What is sent meanwhile goes with the agent; nothing runs in a tree that is about to go."""
    daemon.start()
    # git runs it at the top of the tree.
    held = f"while [ -e hold ]; do sleep 0.02; done; cat # {app.parent.name}"
    deeds = f"printf '* filter=held\\n' > .gitattributes; echo x > y; git config filter.held.clean '{held}'"
    daemon.spawn("fix", app, f"/shell {deeds}", "--clone")
    daemon.ctl("exec", "fix", "--", "sh", "-c", "echo longer > y; touch hold")
    (tree,) = daemon.ok("clones")
    removal = daemon.follow("rm", "fix")
    # Not asked by a command, which would make the removal wait for itself, or be refused, if it came first.
    wait_until(
        lambda: any(held in "\0".join(arguments_of(pid)) for pid in processes()),
        "the removal, which keeps the work once more",
    )
    assert "being removed" in daemon.ctl("exec", "fix", "--", "true").err
    daemon.ctl("send", "fix", "/shell echo never > never.txt")
    (Path(tree["path"]) / "hold").unlink()
    removal.wait(30)
    assert daemon.ctl("show", "fix").code == 4
    assert "never.txt" not in git(daemon, app, "ls-tree", "--name-only", "refs/substrat/fix/wip")
