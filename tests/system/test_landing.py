"""`diff` and `merge`: what agents changed, and how it comes into the user's branches without harming anything there."""

import json
import os
import shlex
import shutil

import pytest

from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, fingerprint, git

__all__ = ["app"]


def me(house, app):
    """Tell git who the user is."""
    git(house, app, "config", "user.name", "Me")
    git(house, app, "config", "user.email", "me@example.invalid")


def merged(house, *words):
    """Run `merge --json`; returns the exit status and the outcomes."""
    done = house.ctl("merge", *words, "--json")
    return done.code, done.json if isinstance(done.json, list) else [done.json]


HELD = "touch begun; until [ -e ~/.cache/go ]; do sleep 0.02; done"
"""A check that goes on when `go` is in the agent's cache."""


def held_check(house, name):
    """Wait until an agent's check is held; returns the file that lets it go on."""
    go = house.state / "agents" / house.show(name)["id"] / "cache" / "go"
    (begun,) = wait_until(lambda: list((house.state / "trees").glob("check-*/upper/begun")), "the check")
    begun.unlink()
    return go


def test_diff_shows_commits_and_with_wip_uncommitted_files_too(house, app):
    house.start()
    house.spawn("fix", app, f"{commit('a.txt')}; echo more >> README.md; git mv sub/part.txt moved.txt", "--clone")
    found = house.ok("diff", "fix")
    assert found["files"] == [
        {"path": "a.txt", "old_path": None, "status": "added", "added": 1, "deleted": 0, "binary": False}
    ]
    assert (found["agent"], found["added"], found["deleted"]) == ("fix", 1, 0)
    whole = house.ok("diff", "fix", "--wip")
    changed = [("modified", "README.md"), ("added", "a.txt"), ("renamed", "moved.txt")]
    assert [(file["status"], file["path"]) for file in whole["files"]] == changed
    assert "+more" in house.ctl("diff", "fix", "--wip").out
    assert house.ctl("diff", "fix", "--name-only").out == "a.txt\n"
    assert house.ctl("diff", "fix", "--stat").out == "A  a.txt  +1 -0\n1 line added, 0 deleted\n"
    # Of one turn.
    house.ok("send", "fix", "--wait", "/say nothing changes")
    house.ok("send", "fix", "--wait", "/shell echo b > b.txt")
    names = [[file["path"] for file in house.ok("diff", "fix", "--turn", str(turn))["files"]] for turn in (1, 2, 3)]
    assert names == [[path for _, path in changed], [], ["b.txt"]]
    refused = house.ctl("diff", "fix", "--turn", "9")
    assert (refused.code, "no work of turn 9" in refused.error) == (4, True)


def test_agents_in_place(house, app):
    house.start()
    assert house.ctl("spawn", "here", "-w", app).err == ""
    assert "works in the same directory as here" in house.ctl("spawn", "two", "-w", app).err
    assert house.ctl("spawn", "three", "-w", app, "--clone").err == ""
    refused = house.ctl("diff", "here")
    assert (refused.code, refused.error) == (1, "substratctl: here works in your checkout: git diff shows it")


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_that_was_renamed_leaves_a_next_step_that_works(house, app, packed):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    if packed:
        git(house, app, "pack-refs", "--all")
        assert house.show("fix")["attention"]["text"] == "1 commit to land in main"
    git(house, app, "branch", "-m", "main", "trunk")
    text = "main is gone: `substratctl merge fix --into BRANCH` lands 1 commit"
    (listed,) = house.ok("ls")
    assert (listed["attention"]["text"], house.show("fix")["attention"]["text"]) == (text, text)
    assert text in house.ctl("show", "fix").out
    assert house.ctl("merge", "fix", "--into", "trunk").code == 0
    assert (app / "a.txt").read_text() == "new\n"
    assert house.show("fix")["attention"]["kind"] == "idle"


def test_a_landing_moves_the_branch_that_is_checked_out_and_its_files(house, app):
    house.start()
    house.spawn("fix", app, f"{commit('a.txt')}; echo u > u.txt", "--clone")
    assert house.show("fix")["attention"]["text"] == "1 commit to land in main, 1 file uncommitted"
    listed = house.ctl("ls").out
    assert ("+1 ~1" in listed, "1 agent: 1 merge" in listed) == (True, True)
    assert " · 1 file uncommitted (wip " in house.ctl("show", "fix").out
    assert house.ctl("ls", "--tree").out.endswith("  +1 ~1  1 commit to land in main, 1 file uncommitted\n")
    said = house.ctl("merge", "fix")
    tip = git(house, app, "rev-parse", "main")[:12]
    assert (said.code, said.out) == (0, f"fix's work is in main at {tip}; 1 uncommitted file stays in its clone\n")
    assert (app / "a.txt").read_text() == "new\n"
    assert git(house, app, "status", "--short") == ""
    assert house.show("fix")["clone"]["landed"] is False, "its uncommitted file hasn't"
    assert house.show("fix")["clone"]["ahead"] == 0
    assert house.show("fix")["attention"]["text"] == "1 file uncommitted"
    assert [file["path"] for file in house.ok("diff", "fix")["files"]] == ["a.txt"], "what it has made is still shown"
    assert house.ctl("merge", "fix").out.startswith("main has all of fix's commits")
    assert house.events("fix", "clone:landed")


@pytest.mark.slow
def test_after_a_rebase_onto_the_target_only_the_agents_own_commits_count(house, app):
    me(house, app)
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    (app / "theirs.txt").write_text("x\n")
    git(house, app, "add", ".")
    git(house, app, "commit", "-qm", "theirs")
    house.ok("send", "fix", "--wait", "/shell git rebase -q workspace/main")
    assert house.show("fix")["clone"]["ahead"] == 1
    assert house.ctl("diff", "fix", "--name-only").out == "a.txt\n"
    assert merged(house, "fix")[0] == 0
    house.ok("send", "fix", "--wait", f"/shell {commit('b.txt')}")
    assert house.ctl("diff", "fix", "--name-only").out == "b.txt\n"


def test_a_merge_says_that_a_rebase_is_under_way_in_the_clone(house, app):
    house.start()
    mine, theirs = commit("README.md", "mine"), commit("README.md", "theirs").removeprefix("/shell ")
    clash = f"{mine}; git checkout -qb side HEAD~1; {theirs}; git rebase -q substrat/fix"
    house.spawn("fix", app, clash, "--clone")
    done = house.ctl("merge", "fix")
    assert (done.code, "a rebase is under way in " in done.err) == (0, True), done
    done = house.ctl("merge", "fix", "--json")
    assert (done.code, "a rebase is under way in " in done.err, "notes" in done.json) == (0, True, False), done


def test_merge_commits_squashes_and_fast_forwards_whatever_the_users_settings(house, app):
    me(house, app)
    for subject in ("one pack", "two packs"):
        git(house, app, "commit", "-q", "--allow-empty", "-m", subject)
        git(house, app, "repack", "-q")
    for key in ("merge.autoStash", "merge.verifySignatures", "commit.gpgsign"):
        git(house, app, "config", key, "true")
    git(house, app, "config", "merge.ff", "false")
    git(house, app, "config", "branch.main.mergeOptions", "--no-commit -s ours")
    git(house, app, "config", "gc.autoPackLimit", "1")
    git(house, app, "config", "gc.autoDetach", "false")
    house.start()
    for name in ("one", "two", "three"):
        house.ok("spawn", name, "-w", app, f"{commit(f'{name}.txt')}; {commit(f'{name}2.txt')[7:]}", "--clone")
    house.ok("wait", "one", "two", "three")
    done = house.ctl("merge", "one")
    assert (done.code, done.err) == (0, "")
    assert git(house, app, "log", "--format=%p", "-1", "main").count(" ") == 0
    refused = house.ctl("merge", "two", "--ff-only")
    assert (refused.code, "merge without --ff-only" in refused.error) == (1, True)
    done = house.ctl("merge", "two", "-m", "two is done", "--json")
    assert (done.code, "unsigned" in done.err) == (0, True)
    assert done.json["commit"] == git(house, app, "rev-parse", "main")
    assert git(house, app, "log", "--format=%an %s", "-1", "main") == "Me two is done"
    assert git(house, app, "log", "--format=%p", "-1", "main").count(" ") == 1
    assert merged(house, "three", "--squash")[0] == 0
    assert git(house, app, "log", "--format=%p %s", "-1", "main").endswith("Squash substrat/three")
    for name in ("one", "two", "three"):
        assert (app / f"{name}2.txt").exists()
    assert git(house, app, "status", "--short") == ""
    assert "packs: 2" in git(house, app, "count-objects", "-v").splitlines()


def test_a_conflict_changes_nothing_and_goes_to_the_agent_once(house, app):
    me(house, app)
    house.start()
    for name in ("one", "two"):
        house.spawn(name, app, commit("same.txt", name), "--clone")
    assert merged(house, "one")[0] == 0
    before = fingerprint(app)
    done = house.ctl("merge", "two")
    assert (done.code, "nothing was changed; two was told, and is to solve it" in done.out + done.err) == (1, True)
    assert fingerprint(app) == before
    wait_until(lambda: house.show("two")["turn"]["number"] == 2, "the agent's turn about the conflict")
    house.wait("two")
    assert "git rebase workspace/main" in house.ctl("transcript", "two").out
    assert "1 commit in conflict with main, which the agent was told" in house.show("two")["attention"]["text"]
    code, (outcome,) = merged(house, "two")
    assert (code, outcome["outcome"], outcome["files"]) == (1, "conflict", ["same.txt"])
    assert any("conflicts with main" in item["text"] for item in house.ok("inbox"))
    with house.wire() as wire:
        assert wire.answer(wire.ask("agent.merge", agents=["two"]))["error"]["code"] == -32030


OBEYED = {
    ".envrc": "echo evil > .envrc",
    ".gitattributes": "echo '* filter=x' > .gitattributes",
    "deep/.vscode/tasks.json": "mkdir -p deep/.vscode; echo {} > deep/.vscode/tasks.json",
    "link": "ln -s /etc/passwd link",
    "sub/link": "ln -s ../../x sub/link",
}


def test_files_that_the_host_would_obey_are_looked_at_first_and_anew_when_they_change(house, app):
    house.start()
    deeds = "; ".join(OBEYED.values())
    harmless = "ln -s sub/part.txt harmless"
    house.spawn("fix", app, f"/shell {deeds}; {harmless}; git add -A; git commit -qm x", "--clone")
    before = fingerprint(app)
    code, (outcome,) = merged(house, "fix")
    assert (code, outcome["outcome"], outcome["files"], outcome["protected"]) == (1, "refused", [], sorted(OBEYED))
    assert fingerprint(app) == before
    (item,) = house.ok("inbox")
    assert (item["kind"], item["options"]) == ("merge", [])
    for path in OBEYED:
        assert f"--accept {path}" in item["text"]
    command = shlex.split(item["text"].rpartition(": ")[2])
    assert command[-2:] == ["--at", outcome["head"][:12]]
    assert merged(house, "fix", "--accept", ".")[1] == [outcome], "without --at nothing is accepted but on a terminal"
    house.ok("send", "fix", "--wait", "/shell echo worse > .envrc; git commit -qam y")
    code, (again,) = merged(house, *command[2:])
    assert (code, again["protected"], again["commit"]) == (1, sorted(OBEYED), None), "it has other commits by now"
    (item,) = house.ok("inbox")
    at = f"fix's work is at {again['head'][:12]}, not at {command[-1]}: "
    assert item["text"].startswith(at), "the older item is closed"
    was = git(house, app, "rev-parse", "HEAD")
    code, (landed,) = merged(house, *shlex.split(item["text"].rpartition(": ")[2])[2:])
    assert (code, landed["was"], landed["head"]) == (0, was, again["head"])
    assert house.ok("inbox") == []
    assert (app / ".envrc").read_text() == "worse\n"
    for path in (*OBEYED, "harmless"):
        assert (app / path).is_symlink() or (app / path).exists()


def test_gits_own_sentence_when_the_checkout_refuses_and_a_removed_agents_landing(house, app):
    house.start()
    house.spawn("fix", app, f"{commit('README.md')}; {commit('a.txt')[7:]}", "--clone")
    (app / "README.md").write_text("mine, uncommitted\n")
    before = fingerprint(app)
    refused = house.ctl("merge", "fix")
    assert (refused.code, "would be overwritten" in refused.error) == (1, True), refused
    after = fingerprint(app)
    after.pop(".git/ORIG_HEAD", None)  # git notes there where it was, whatever comes of the merge
    assert after == before
    (app / "README.md").write_text("hello\n")
    (house.state / "agents" / house.show("fix")["id"] / "cache" / "stay").touch()
    check = "touch begun; while [ -e ~/.cache/stay ]; do sleep 0.02; done"
    waiting = house.follow("merge", "fix", "--check", check, "--json")
    held_check(house, "fix")
    house.ok("rm", "fix")  # and the file with it
    out, said = waiting.communicate(timeout=60)
    assert (json.loads(out)["outcome"], b"was removed meanwhile" in said) == ("refused", True)
    assert not (app / "a.txt").exists()


def test_a_person_who_waits_hears_after_a_second_what_is_being_done(house, app):
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    ours, theirs = os.openpty()
    waiting = house.follow("merge", "fix", "--check", HELD, errors=theirs)
    os.close(theirs)
    go = held_check(house, "fix")
    refused = house.ctl("restore", "fix", "--turn", "1")
    assert (refused.code, "can't be put back now: a check of fix's work runs" in refused.error) == (1, True)
    said = b""
    while b"go ]; do" not in said:
        said += os.read(ours, 4096)
    assert said.startswith(b"substratctl: fix: its landing in main is still to come, whether a command waits"), said
    assert b"its check `touch begun" in said
    go.touch()
    assert waiting.wait(60) == 0
    os.close(ours)


@pytest.mark.slow
def test_several_land_in_the_order_of_their_age_with_the_agents_gone(house, app):
    """`test_landing_kills` has ten."""
    me(house, app)
    house.start()
    names = ["a0", "a1", "a2"]
    for name in names:
        house.spawn(name, app, commit("a2.txt" if name == "a2" else "same.txt", name), "--clone")
        house.ok("end", name)
    code, outcomes = merged(house, *reversed(names))
    assert [(one["agent"], one["outcome"]) for one in outcomes] == [("a0", "landed"), ("a1", "conflict"), ("a2", "landed")]
    assert code == 1
    assert git(house, app, "status", "--short") == ""
    assert (app / "same.txt").read_text() == "a0\n"
    assert git(house, app, "fsck", "--no-dangling") == ""


def test_landings_and_the_command_that_waits_for_them_survive_the_daemon(house, app):
    """At three points; `test_killpoints` has the others."""
    me(house, app)
    points = ("after commit: landing asked", "before: branch moved", "after: branch moved")
    house.start(environment={"SUBSTRAT_KILL_AT": points[0]})
    for name in ("one", "two"):
        house.spawn(name, app, commit(f"{name}.txt"), "--clone")
    waiting = house.follow("merge", "one", "two", "--json")
    wait_until(lambda: house.process.poll() is not None, f"the daemon dies {points[0]}")
    for point in points[1:]:
        house.process = house.launch(environment={"SUBSTRAT_KILL_AT": point})
        wait_until(lambda: house.process.poll() is not None, f"the daemon dies {point}")
    house.start()
    out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert [one["outcome"] for one in json.loads(out)] == ["landed"] * 2
    wait_until(lambda: all(house.show(name)["clone"]["landed"] for name in ("one", "two")), "the agents are told")
    for name in ("one", "two"):
        assert (app / f"{name}.txt").exists()
        assert len(house.events(name, "clone:landed")) == 1
    assert git(house, app, "status", "--short") == ""


def test_a_branch_that_is_not_there_is_made_where_the_clone_began(house, app):
    """A way to a pull request; the branch that the agent was spawned at isn't made again where it is gone."""
    me(house, app)
    git(house, app, "remote", "add", "upstream", "/nowhere")
    (app / "mine.txt").write_text("mine\n")
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone", "--wip")
    git(house, app, "stash", "-q", "-u")
    (app / "later.txt").touch()
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "later")
    done = house.ctl("merge", "fix", "--into", "topic")
    assert (done.code, f"`git -C {app} push upstream topic` publishes it" in done.err) == (0, True), done
    assert git(house, app, "log", "--format=%s", "main..topic") == "Squash substrat/fix"
    assert git(house, app, "ls-tree", "--name-only", "topic").split() == ["README.md", "a.txt", "sub"]
    house.ok("send", "fix", "--wait", commit("b.txt"))
    git(house, app, "branch", "-qm", "main", "trunk")
    refused = house.ctl("merge", "fix")
    assert (refused.code, "there is no branch main in" in refused.error) == (1, True)


def test_work_that_the_user_has_squashed_by_hand_has_landed_and_later_work_lands_alone(house, app):
    me(house, app)
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    git(house, app, "merge", "-q", "--squash", "refs/substrat/fix/head")
    git(house, app, "commit", "-qm", "by hand")
    assert house.ctl("merge", "fix").out == "main has all of fix's changes already\n"
    assert (house.show("fix")["clone"]["landed"], house.show("fix")["attention"]["kind"]) == (True, "idle")
    house.ok("send", "fix", "--wait", commit("a.txt", "newer"))
    assert merged(house, "fix")[1][0]["outcome"] == "landed"
    assert git(house, app, "rev-list", "--merges", "main") == ""
    assert (app / "a.txt").read_text() == "newer\n"


def test_squashed_work_counts_as_landed_and_later_work_lands_alone(house, app):
    me(house, app)
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone")
    (app / "mine.txt").write_text("mine")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "mine")
    assert merged(house, "fix", "--squash")[0] == 0
    assert house.show("fix")["clone"]["landed"] is True
    assert house.show("fix")["attention"]["kind"] == "idle"
    assert merged(house, "fix")[1][0]["outcome"] == "nothing"
    # The same file again: without the first landing counted, the two histories would conflict in it.
    house.ok("send", "fix", "--wait", commit("a.txt", "newer"))
    assert house.show("fix")["attention"]["kind"] == "merge"
    assert merged(house, "fix")[0] == 0
    assert (app / "a.txt").read_text() == "newer\n"
    assert git(house, app, "log", "--format=%s", "-2") == "Squash substrat/fix\nSquash substrat/fix"
    git(house, app, "reset", "-q", "--hard", "HEAD~2")
    assert merged(house, "fix")[1][0]["outcome"] == "landed", "a landing that was undone doesn't count"
    assert (app / "a.txt").read_text() == "newer\n"


def test_work_in_any_branch_of_the_users_counts_as_landed(house, app):
    git(house, app, "branch", "topic")
    house.start()
    for name, where in (("fix", "--clone=topic"), ("by-hand", "--clone"), ("kept", "--clone")):
        house.spawn(name, app, commit(f"{name}.txt"), where)
    git(house, app, "branch", "mine", "refs/substrat/by-hand/head")
    git(house, app, "tag", "no-branch", "refs/substrat/kept/head")
    before = fingerprint(app)
    assert merged(house, "fix")[0] == 0
    after = fingerprint(app)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= {
        ".git/refs/heads/topic", ".git/logs/refs/heads/topic",
    }, "a branch that isn't checked out moves alone"  # fmt: skip
    assert git(house, app, "show", "topic:fix.txt") == "new"
    assert house.show("fix")["clone"]["landed"]
    wait_until(lambda: house.show("by-hand")["clone"]["landed"], "the look at the others, after the answer")
    assert not house.show("kept")["clone"]["landed"]
    assert [house.show(name)["attention"]["kind"] for name in ("fix", "kept")] == ["idle", "merge"]
    said = "kept  accepted; idle, with 1 commit that has not landed: 'merge kept' still lands it\n"
    assert house.ctl("accept", "kept").out == said
    assert house.show("kept")["attention"]["kind"] == "idle"
    assert merged(house, "fix", "--into", "main")[1][0]["outcome"] == "landed", "another branch may still have it"


def test_the_users_own_uncommitted_changes_do_not_land(house, app):
    me(house, app)
    (app / "README.md").write_text("mine, uncommitted\n")
    house.start()
    house.spawn("fix", app, commit("a.txt"), "--clone", "--wip")
    refused = house.ctl("merge", "fix")
    assert (refused.code, "commit or stash them first" in refused.error) == (1, True), refused
    git(house, app, "stash", "-q")
    assert merged(house, "fix")[0] == 0
    assert git(house, app, "show", "--stat", "--format=%s", "HEAD").startswith("Squash substrat/fix\n\n a.txt | 1 +")
    git(house, app, "stash", "pop", "-q")
    assert (app / "README.md").read_text() == "mine, uncommitted\n"


def test_files_that_the_users_git_runs_are_looked_at_first(house, app):
    git(house, app, "config", "filter.odd.clean", "tools/clean.sh")
    git(house, app, "config", "core.hooksPath", "hooks")
    house.start()
    tries = "/shell mkdir tools hooks; echo x > tools/clean.sh; echo x > hooks/post-merge; echo x > fine"
    house.spawn("fix", app, f"{tries}; git add -A; git commit -qm x", "--clone")
    code, (outcome,) = merged(house, "fix")
    assert (code, outcome["outcome"], "hooks/post-merge" in outcome["protected"]) == (1, "refused", True)
    assert "fine" not in outcome["protected"]
    accepted = [word for path in outcome["protected"] for word in ("--accept", path)]
    assert merged(house, "fix", *accepted, "--at", outcome["head"])[0] == 0
    assert (app / "hooks" / "post-merge").exists()


def test_ignored_files_of_the_users_are_never_overwritten(house, app):
    (app / ".gitignore").write_text(".env\ndata/\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "ignored")
    house.start()
    for name, deed in (("file", "echo theirs > .env; git add -f .env"), ("directory", "echo x > data; git add -f data")):
        house.ok("spawn", name, "-w", app, "--clone", f"/shell {deed}; git commit -qm x")
    house.ok("wait", "file", "directory")
    (app / ".env").write_text("my key\n")
    (app / "data").mkdir()
    (app / "data" / "rows").write_text("my rows\n")
    before = fingerprint(app)
    for name, words in (
        ("file", "would be overwritten by merge: .env"),
        ("directory", "would lose untracked files in them"),
    ):
        refused = house.ctl("merge", name)
        assert (refused.code, words in refused.error) == (1, True), refused
    after = fingerprint(app)
    after.pop(".git/ORIG_HEAD", None)
    assert after == before


HELD_GIT = """#!/bin/sh
case " $* " in *" merge "*) touch {0}/begun; while ! [ -e {0}/go ]; do sleep 0.02; done;; esac
exec {1} "$@"
"""


def test_commits_that_the_agent_makes_during_a_landing_have_not_landed(house, app):
    me(house, app)
    held = house.directory / "held"
    held.mkdir()
    (held / "git").write_text(HELD_GIT.format(held, shutil.which("git")))
    (held / "git").chmod(0o755)
    house.start(environment={"SUBSTRAT_KILL_AT": "after: branch moved", "PATH": f"{held}:{os.environ['PATH']}"})
    house.spawn("fix", app, commit("a.txt"), "--clone")
    (app / "mine.txt").write_text("mine")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "mine")
    head = git(house, app, "rev-parse", "refs/substrat/fix/head")
    waiting = house.follow("merge", "fix", "--squash", "--json")
    wait_until((held / "begun").exists, "the move")
    house.ok("send", "fix", "--wait", commit("late.txt"))
    (held / "go").touch()
    wait_until(lambda: house.process.poll() is not None, "the daemon dies")
    house.start()
    out, _ = waiting.communicate(timeout=60)
    assert (json.loads(out)["outcome"], (app / "late.txt").exists()) == ("landed", False)
    assert git(house, app, "rev-parse", "refs/substrat/fix/head^") == head
    shown = house.show("fix")
    assert (shown["clone"]["landed"], shown["attention"]["kind"]) == (False, "merge")
    assert merged(house, "fix")[1][0]["outcome"] == "landed"
    assert git(house, app, "show", "--stat", "--format=", "HEAD").split()[0] == "late.txt"
