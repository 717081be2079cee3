"""`diff` and `merge`: what agents changed, and how it comes into the user's branches without harming anything there."""

import json
import os
import shlex
import shutil

import pytest

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]


def me(daemon, app):
    """Tell git who the user is."""
    git(daemon, app, "config", "user.name", "Me")
    git(daemon, app, "config", "user.email", "me@example.invalid")


def merged(daemon, *words):
    """Run `merge --json`; returns the exit status and the outcomes."""
    done = daemon.ctl("merge", *words, "--json")
    return done.code, done.json if isinstance(done.json, list) else [done.json]


HELD = "touch begun; until [ -e ~/.cache/go ]; do sleep 0.02; done"
"""A check that goes on when `go` is in the agent's cache."""


def held_check(daemon, name):
    """Wait until an agent's check is held; returns the file that lets it go on."""
    go = daemon.state / "agents" / daemon.show(name)["id"] / "cache" / "go"
    (begun,) = wait_until(lambda: list((daemon.state / "trees").glob("check-*/upper/begun")), "the check")
    begun.unlink()
    return go


def test_diff_shows_commits_and_with_wip_uncommitted_files_too(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, f"{commit('a.txt')}; echo more >> README.md; git mv sub/part.txt moved.txt", "--clone")
    found = daemon.ok("diff", "fix")
    assert found["files"] == [
        {"path": "a.txt", "old_path": None, "status": "added", "added": 1, "deleted": 0, "binary": False}
    ]
    assert (found["agent"], found["added"], found["deleted"]) == ("fix", 1, 0)
    whole = daemon.ok("diff", "fix", "--wip")
    changed = [("modified", "README.md"), ("added", "a.txt"), ("renamed", "moved.txt")]
    assert [(file["status"], file["path"]) for file in whole["files"]] == changed
    assert "+more" in daemon.ctl("diff", "fix", "--wip").out
    assert daemon.ctl("diff", "fix", "--name-only").out == "a.txt\n"
    assert daemon.ctl("diff", "fix", "--stat").out == "A  a.txt  +1 -0\n1 line added, 0 deleted\n"
    # Of one turn.
    daemon.ok("send", "fix", "--wait", "/say nothing changes")
    daemon.ok("send", "fix", "--wait", "/shell echo b > b.txt")
    names = [[file["path"] for file in daemon.ok("diff", "fix", "--turn", str(turn))["files"]] for turn in (1, 2, 3)]
    assert names == [[path for _, path in changed], [], ["b.txt"]]
    refused = daemon.ctl("diff", "fix", "--turn", "9")
    assert (refused.code, "no work of turn 9" in refused.error) == (4, True), refused


def test_agents_in_place(daemon, app):
    daemon.start()
    assert daemon.ctl("spawn", "here", "-w", app).err == ""
    assert "works in the same directory as here" in daemon.ctl("spawn", "two", "-w", app).err
    assert daemon.ctl("spawn", "three", "-w", app, "--clone").err == ""
    refused = daemon.ctl("diff", "here")
    assert (refused.code, refused.error) == (1, "substratctl: here works in your checkout: git diff shows it")


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_that_was_renamed_leaves_a_next_step_that_works(daemon, app, packed):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    if packed:
        git(daemon, app, "pack-refs", "--all")
        assert daemon.show("fix")["attention"]["text"] == "1 commit to land in main"
    git(daemon, app, "branch", "-m", "main", "trunk")
    text = "main is gone: `substratctl merge fix --into BRANCH` lands 1 commit"
    (listed,) = daemon.ok("ls")
    assert (listed["attention"]["text"], daemon.show("fix")["attention"]["text"]) == (text, text)
    assert text in daemon.ctl("show", "fix").out
    assert daemon.ctl("merge", "fix", "--into", "trunk").code == 0
    assert (app / "a.txt").read_text() == "new\n"
    assert daemon.show("fix")["attention"]["kind"] == "idle"
    assert "nothing that isn't landed" in daemon.ctl("show", "fix").out


def test_a_landing_moves_the_branch_that_is_checked_out_and_its_files(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, f"{commit('a.txt')}; echo u > u.txt", "--clone")
    assert daemon.show("fix")["attention"]["text"] == "1 commit to land in main, 1 file uncommitted"
    listed = daemon.ctl("ls").out
    assert ("+1 ~1" in listed, "1 agent: 1 merge" in listed) == (True, True), listed
    assert " · 1 file uncommitted (wip " in daemon.ctl("show", "fix").out
    assert daemon.ctl("ls", "--tree").out.endswith("  +1 ~1  1 commit to land in main, 1 file uncommitted\n")
    said = daemon.ctl("merge", "fix")
    tip = git(daemon, app, "rev-parse", "main")[:12]
    assert (said.code, said.out) == (0, f"fix's work is in main at {tip}; 1 uncommitted file stays in its clone\n")
    assert (app / "a.txt").read_text() == "new\n"
    assert git(daemon, app, "status", "--short") == ""
    assert daemon.show("fix")["clone"]["landed"] is False, "its uncommitted file hasn't"
    assert daemon.show("fix")["clone"]["ahead"] == 0
    assert daemon.show("fix")["attention"]["text"] == "1 file uncommitted"
    assert [file["path"] for file in daemon.ok("diff", "fix")["files"]] == ["a.txt"], "what it has made is still shown"
    assert daemon.ctl("merge", "fix").out.startswith("main has all of fix's commits")
    assert daemon.events("fix", "clone:landed")


@pytest.mark.slow
def test_after_a_rebase_onto_the_target_only_the_agents_own_commits_count(daemon, app):
    me(daemon, app)
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    (app / "theirs.txt").write_text("x\n")
    git(daemon, app, "add", ".")
    git(daemon, app, "commit", "-qm", "theirs")
    daemon.ok("send", "fix", "--wait", "/shell git rebase -q workspace/main")
    assert daemon.show("fix")["clone"]["ahead"] == 1
    assert daemon.ctl("diff", "fix", "--name-only").out == "a.txt\n"
    assert merged(daemon, "fix")[0] == 0
    daemon.ok("send", "fix", "--wait", f"/shell {commit('b.txt')}")
    assert daemon.ctl("diff", "fix", "--name-only").out == "b.txt\n"


def test_a_merge_says_that_a_rebase_is_under_way_in_the_clone(daemon, app):
    daemon.start()
    mine, theirs = commit("README.md", "mine"), commit("README.md", "theirs").removeprefix("/shell ")
    clash = f"{mine}; git checkout -qb side HEAD~1; {theirs}; git rebase -q substrat/fix"
    daemon.spawn("fix", app, clash, "--clone")
    done = daemon.ctl("merge", "fix")
    assert (done.code, "a rebase is under way in " in done.err) == (0, True), done
    done = daemon.ctl("merge", "fix", "--json")
    assert (done.code, "a rebase is under way in " in done.err, "notes" in done.json) == (0, True, False), done


def test_merge_commits_squashes_and_fast_forwards_whatever_the_users_settings(daemon, app):
    me(daemon, app)
    for subject in ("one pack", "two packs"):
        git(daemon, app, "commit", "-q", "--allow-empty", "-m", subject)
        git(daemon, app, "repack", "-q")
    for key in ("merge.autoStash", "merge.verifySignatures", "commit.gpgsign"):
        git(daemon, app, "config", key, "true")
    git(daemon, app, "config", "merge.ff", "false")
    git(daemon, app, "config", "branch.main.mergeOptions", "--no-commit -s ours")
    git(daemon, app, "config", "gc.autoPackLimit", "1")
    git(daemon, app, "config", "gc.autoDetach", "false")
    daemon.start()
    for name in ("one", "two", "three"):
        daemon.ok("spawn", name, "-w", app, f"{commit(f'{name}.txt')}; {commit(f'{name}2.txt')[7:]}", "--clone")
    daemon.ok("wait", "one", "two", "three")
    done = daemon.ctl("merge", "one")
    assert (done.code, done.err) == (0, "")
    assert git(daemon, app, "log", "--format=%p", "-1", "main").count(" ") == 0
    refused = daemon.ctl("merge", "two", "--ff-only")
    assert (refused.code, "merge without --ff-only" in refused.error) == (1, True), refused
    done = daemon.ctl("merge", "two", "-m", "two is done", "--json")
    assert (done.code, "unsigned" in done.err) == (0, True), done
    assert done.json["commit"] == git(daemon, app, "rev-parse", "main")
    assert git(daemon, app, "log", "--format=%an %s", "-1", "main") == "Me two is done"
    assert git(daemon, app, "log", "--format=%p", "-1", "main").count(" ") == 1
    assert merged(daemon, "three", "--squash")[0] == 0
    assert git(daemon, app, "log", "--format=%p %s", "-1", "main").endswith("Squash substrat/three")
    for name in ("one", "two", "three"):
        assert (app / f"{name}2.txt").exists()
    assert git(daemon, app, "status", "--short") == ""
    assert "packs: 2" in git(daemon, app, "count-objects", "-v").splitlines()


def test_a_conflict_changes_nothing_and_goes_to_the_agent_once(daemon, app):
    me(daemon, app)
    daemon.start()
    for name in ("one", "two"):
        daemon.spawn(name, app, commit("same.txt", name), "--clone")
    assert merged(daemon, "one")[0] == 0
    before = fingerprint(app)
    done = daemon.ctl("merge", "two")
    assert (done.code, "nothing was changed; two was told, and is to solve it" in done.out + done.err) == (1, True), done
    assert fingerprint(app) == before
    wait_until(lambda: daemon.show("two")["turn"]["number"] == 2, "the agent's turn about the conflict")
    daemon.wait("two")
    assert "git rebase workspace/main" in daemon.ctl("transcript", "two").out
    assert "1 commit in conflict with main, which the agent was told" in daemon.show("two")["attention"]["text"]
    code, (outcome,) = merged(daemon, "two")
    assert (code, outcome["outcome"], outcome["files"]) == (1, "conflict", ["same.txt"])
    assert any("conflicts with main" in item["text"] for item in daemon.ok("inbox"))
    with daemon.wire() as wire:
        assert wire.answer(wire.ask("agent.merge", agents=["two"]))["error"]["code"] == -32030


OBEYED = {
    ".envrc": "echo evil > .envrc",
    ".gitattributes": "echo '* filter=x' > .gitattributes",
    "deep/.vscode/tasks.json": "mkdir -p deep/.vscode; echo {} > deep/.vscode/tasks.json",
    "link": "ln -s /etc/passwd link",
    "sub/link": "ln -s ../../x sub/link",
}


def test_files_that_the_host_would_obey_are_looked_at_first_and_anew_when_they_change(daemon, app):
    daemon.start()
    deeds = "; ".join(OBEYED.values())
    harmless = "ln -s sub/part.txt harmless"
    daemon.spawn("fix", app, f"/shell {deeds}; {harmless}; git add -A; git commit -qm x", "--clone")
    before = fingerprint(app)
    code, (outcome,) = merged(daemon, "fix")
    assert (code, outcome["outcome"], outcome["files"], outcome["protected"]) == (1, "refused", [], sorted(OBEYED))
    assert fingerprint(app) == before
    (item,) = daemon.ok("inbox")
    assert (item["kind"], item["options"]) == ("merge", [])
    for path in OBEYED:
        assert f"--accept {path}" in item["text"]
    command = shlex.split(item["text"].rpartition(": ")[2])
    assert command[-2:] == ["--at", outcome["head"][:12]]
    assert merged(daemon, "fix", "--accept", ".")[1] == [outcome], "without --at nothing is accepted but on a terminal"
    daemon.ok("send", "fix", "--wait", "/shell echo worse > .envrc; git commit -qam y")
    code, (again,) = merged(daemon, *command[2:])
    assert (code, again["protected"], again["commit"]) == (1, sorted(OBEYED), None), "it has other commits by now"
    (item,) = daemon.ok("inbox")
    at = f"fix's work is at {again['head'][:12]}, not at {command[-1]}: "
    assert item["text"].startswith(at), "the older item is closed"
    was = git(daemon, app, "rev-parse", "HEAD")
    code, (landed,) = merged(daemon, *shlex.split(item["text"].rpartition(": ")[2])[2:])
    assert (code, landed["was"], landed["head"]) == (0, was, again["head"])
    assert daemon.ok("inbox") == []
    assert (app / ".envrc").read_text() == "worse\n"
    for path in (*OBEYED, "harmless"):
        assert (app / path).is_symlink() or (app / path).exists()


def test_gits_own_sentence_when_the_checkout_refuses_and_a_removed_agents_landing(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, f"{commit('README.md')}; {commit('a.txt')[7:]}", "--clone")
    (app / "README.md").write_text("mine, uncommitted\n")
    before = fingerprint(app)
    refused = daemon.ctl("merge", "fix")
    assert (refused.code, "would be overwritten" in refused.error) == (1, True), refused
    after = fingerprint(app)
    after.pop(".git/ORIG_HEAD", None)  # git notes there where it was, whatever comes of the merge
    assert after == before
    (app / "README.md").write_text("hello\n")
    (daemon.state / "agents" / daemon.show("fix")["id"] / "cache" / "stay").touch()
    check = "touch begun; while [ -e ~/.cache/stay ]; do sleep 0.02; done"
    waiting = daemon.follow("merge", "fix", "--check", check, "--json")
    held_check(daemon, "fix")
    daemon.ok("rm", "fix")  # and the file with it
    out, said = waiting.communicate(timeout=60)
    assert (json.loads(out)["outcome"], b"was removed meanwhile" in said) == ("refused", True), said
    assert not (app / "a.txt").exists()


def test_a_person_who_waits_hears_after_a_second_what_is_being_done(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    ours, theirs = os.openpty()
    waiting = daemon.follow("merge", "fix", "--check", HELD, errors=theirs)
    os.close(theirs)
    go = held_check(daemon, "fix")
    refused = daemon.ctl("restore", "fix", "--turn", "1")
    assert (refused.code, "can't be put back now: a check of fix's work runs" in refused.error) == (1, True), refused
    said = b""
    while b"go ]; do" not in said:
        said += os.read(ours, 4096)
    assert said.startswith(b"substratctl: fix: its landing in main is still to come, whether a command waits"), said
    assert b"its check `touch begun" in said
    go.touch()
    assert waiting.wait(60) == 0
    os.close(ours)


def test_a_branch_that_is_not_there_is_made_where_the_clone_began(daemon, app):
    """A way to a pull request; the branch that the agent was spawned at isn't made again where it is gone."""
    me(daemon, app)
    git(daemon, app, "remote", "add", "upstream", "/nowhere")
    (app / "mine.txt").write_text("mine\n")
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone", "--wip")
    git(daemon, app, "stash", "-q", "-u")
    (app / "later.txt").touch()
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "later")
    done = daemon.ctl("merge", "fix", "--into", "topic")
    assert (done.code, f"`git -C {app} push upstream topic` publishes it" in done.err) == (0, True), done
    assert git(daemon, app, "log", "--format=%s", "main..topic") == "Squash substrat/fix"
    assert git(daemon, app, "ls-tree", "--name-only", "topic").split() == ["README.md", "a.txt", "sub"]
    daemon.ok("send", "fix", "--wait", commit("b.txt"))
    git(daemon, app, "branch", "-qm", "main", "trunk")
    refused = daemon.ctl("merge", "fix")
    assert (refused.code, "there is no branch main in" in refused.error) == (1, True), refused


def test_work_that_the_user_has_squashed_by_hand_has_landed_and_later_work_lands_alone(daemon, app):
    me(daemon, app)
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    git(daemon, app, "merge", "-q", "--squash", "refs/substrat/fix/head")
    git(daemon, app, "commit", "-qm", "by hand")
    assert daemon.ctl("merge", "fix").out == "main has all of fix's changes already\n"
    assert (daemon.show("fix")["clone"]["landed"], daemon.show("fix")["attention"]["kind"]) == (True, "idle")
    daemon.ok("send", "fix", "--wait", commit("a.txt", "newer"))
    assert merged(daemon, "fix")[1][0]["outcome"] == "landed"
    assert git(daemon, app, "rev-list", "--merges", "main") == ""
    assert (app / "a.txt").read_text() == "newer\n"


def test_squashed_work_counts_as_landed_and_later_work_lands_alone(daemon, app):
    me(daemon, app)
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    (app / "mine.txt").write_text("mine")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "mine")
    assert merged(daemon, "fix", "--squash")[0] == 0
    assert daemon.show("fix")["clone"]["landed"] is True
    assert daemon.show("fix")["attention"]["kind"] == "idle"
    assert merged(daemon, "fix")[1][0]["outcome"] == "nothing"
    # The same file again: without the first landing counted, the two histories would conflict in it.
    daemon.ok("send", "fix", "--wait", commit("a.txt", "newer"))
    assert daemon.show("fix")["attention"]["kind"] == "merge"
    assert merged(daemon, "fix")[0] == 0
    assert (app / "a.txt").read_text() == "newer\n"
    assert git(daemon, app, "log", "--format=%s", "-2") == "Squash substrat/fix\nSquash substrat/fix"
    git(daemon, app, "reset", "-q", "--hard", "HEAD~2")
    assert merged(daemon, "fix")[1][0]["outcome"] == "landed", "a landing that was undone doesn't count"
    assert (app / "a.txt").read_text() == "newer\n"


def test_work_in_any_branch_of_the_users_counts_as_landed(daemon, app):
    git(daemon, app, "branch", "topic")
    daemon.start()
    for name, where in (("fix", "--clone=topic"), ("by-hand", "--clone"), ("kept", "--clone")):
        daemon.spawn(name, app, commit(f"{name}.txt"), where)
    git(daemon, app, "branch", "mine", "refs/substrat/by-hand/head")
    git(daemon, app, "tag", "no-branch", "refs/substrat/kept/head")
    before = fingerprint(app)
    assert merged(daemon, "fix")[0] == 0
    after = fingerprint(app)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= {
        ".git/refs/heads/topic", ".git/logs/refs/heads/topic",
    }, "a branch that isn't checked out moves alone"  # fmt: skip
    assert git(daemon, app, "show", "topic:fix.txt") == "new"
    assert daemon.show("fix")["clone"]["landed"]
    wait_until(lambda: daemon.show("by-hand")["clone"]["landed"], "the look at the others, after the answer")
    assert not daemon.show("kept")["clone"]["landed"]
    assert [daemon.show(name)["attention"]["kind"] for name in ("fix", "kept")] == ["idle", "merge"]
    said = "kept  accepted; idle, with 1 commit that has not landed: 'merge kept' still lands it\n"
    assert daemon.ctl("accept", "kept").out == said
    assert daemon.show("kept")["attention"]["kind"] == "idle"
    assert merged(daemon, "fix", "--into", "main")[1][0]["outcome"] == "landed", "another branch may still have it"


def test_the_users_own_uncommitted_changes_do_not_land(daemon, app):
    me(daemon, app)
    (app / "README.md").write_text("mine, uncommitted\n")
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone", "--wip")
    refused = daemon.ctl("merge", "fix")
    assert (refused.code, "commit or stash them first" in refused.error) == (1, True), refused
    git(daemon, app, "stash", "-q")
    assert merged(daemon, "fix")[0] == 0
    assert git(daemon, app, "show", "--stat", "--format=%s", "HEAD").startswith("Squash substrat/fix\n\n a.txt | 1 +")
    git(daemon, app, "stash", "pop", "-q")
    assert (app / "README.md").read_text() == "mine, uncommitted\n"


def test_files_that_the_users_git_runs_are_looked_at_first(daemon, app):
    git(daemon, app, "config", "filter.odd.clean", "tools/clean.sh")
    git(daemon, app, "config", "core.hooksPath", "hooks")
    daemon.start()
    tries = "/shell mkdir tools hooks; echo x > tools/clean.sh; echo x > hooks/post-merge; echo x > fine"
    daemon.spawn("fix", app, f"{tries}; git add -A; git commit -qm x", "--clone")
    code, (outcome,) = merged(daemon, "fix")
    assert (code, outcome["outcome"], "hooks/post-merge" in outcome["protected"]) == (1, "refused", True), outcome
    assert "fine" not in outcome["protected"]
    accepted = [word for path in outcome["protected"] for word in ("--accept", path)]
    assert merged(daemon, "fix", *accepted, "--at", outcome["head"])[0] == 0
    assert (app / "hooks" / "post-merge").exists()


HELD_GIT = """#!/bin/sh
case " $* " in *" merge "*) touch {0}/begun; while ! [ -e {0}/go ]; do sleep 0.02; done;; esac
exec {1} "$@"
"""


def test_commits_that_the_agent_makes_during_a_landing_have_not_landed(daemon, app):
    me(daemon, app)
    held = daemon.directory / "held"
    held.mkdir()
    (held / "git").write_text(HELD_GIT.format(held, shutil.which("git")))
    (held / "git").chmod(0o755)
    daemon.start(environment={"SUBSTRAT_KILL_AT": "after: branch moved", "PATH": f"{held}:{os.environ['PATH']}"})
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    (app / "mine.txt").write_text("mine")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "mine")
    head = git(daemon, app, "rev-parse", "refs/substrat/fix/head")
    waiting = daemon.follow("merge", "fix", "--squash", "--json")
    wait_until((held / "begun").exists, "the move")
    daemon.ok("send", "fix", "--wait", commit("late.txt"))
    (held / "go").touch()
    wait_until(lambda: daemon.process.poll() is not None, "the daemon dies")
    daemon.start()
    out, _ = waiting.communicate(timeout=60)
    assert (json.loads(out)["outcome"], (app / "late.txt").exists()) == ("landed", False)
    assert git(daemon, app, "rev-parse", "refs/substrat/fix/head^") == head
    shown = daemon.show("fix")
    assert (shown["clone"]["landed"], shown["attention"]["kind"]) == (False, "merge")
    assert merged(daemon, "fix")[1][0]["outcome"] == "landed"
    assert git(daemon, app, "show", "--stat", "--format=", "HEAD").split()[0] == "late.txt"
