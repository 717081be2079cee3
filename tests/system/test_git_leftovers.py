"""A turn is killed in the middle of git's work: it is named, and a lock that nothing holds is removed."""

import os
import subprocess

EDITED = "/shell GIT_EDITOR='touch editing; sleep 1000; :' git commit -qa --allow-empty"
CLASH = "echo theirs > README.md; git commit -qam theirs; git rebase -q side"


def commit(daemon, work):
    (work / "mine").write_text("x")
    daemon.git(work, "add", "mine")
    daemon.git(work, "commit", "-q", "-m", "mine")


def test_a_lock_of_a_git_that_was_killed_with_its_turn_is_removed(daemon, until):
    daemon.start()
    for verb, again in (("interrupt", "send"), ("suspend", "resume")):
        work = daemon.workspace(verb, git=True)
        daemon.ok("spawn", verb, "-w", work, EDITED)
        until((work / "editing").exists, "the editor")
        assert (work / ".git/index.lock").exists()
        daemon.ok(verb, verb)
        (event,) = daemon.events(verb, "workspace:unlocked")
        assert str(work / ".git/index.lock") in event["text"]
        assert "unfinished" not in daemon.show(verb)
        commit(daemon, work)
        done = daemon.ok(again, verb, "/shell git commit -q --allow-empty -m more", "--wait")
        assert done["turn"]["outcome"] == "success"
        assert daemon.git(work, "log", "--format=%s").split() == ["more", "mine", "first"]


def test_a_lock_of_a_clone_is_removed_too(daemon, until):
    daemon.start()
    work = daemon.workspace(git=True)
    daemon.ok("spawn", "anna", "-w", work, "--clone", "/shell touch .git/index.lock\n/say x", "--wait")
    assert len(daemon.events("anna", "workspace:unlocked")) == 1


def test_a_lock_that_a_persons_git_may_hold_is_only_told(daemon, until):
    daemon.start()
    work = daemon.workspace(git=True)
    daemon.held("anna", work)
    identity = ("-c", "user.name=a", "-c", "user.email=b")
    person = subprocess.Popen(
        ["git", *identity, "commit", "-a", "--allow-empty"], cwd=work, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=daemon.environment(GIT_EDITOR="touch editing; read line; false"),
    )  # fmt: skip
    until((work / "editing").exists, "the editor")
    lock = work / ".git/index.lock"
    assert lock.exists()
    (work / "go").touch()
    daemon.wait("anna", "idle")
    assert lock.exists()
    assert daemon.events("anna", "workspace:unlocked") == []
    (told,) = daemon.show("anna")["unfinished"]
    assert f"{lock} keeps git from writing" in told
    assert str(lock) in daemon.ctl("show", "anna").out
    person.communicate(b"enough\n")
    assert "unfinished" not in daemon.show("anna")


def test_a_lock_from_before_the_turn_and_an_odd_one_stay(daemon):
    daemon.start()
    work = daemon.workspace(git=True)
    (work / ".git/index.lock").touch()
    daemon.spawn("anna", work, "/shell mkdir .git/HEAD.lock; ln -s /etc/passwd .git/packed-refs.lock")
    assert daemon.events("anna", "workspace:unlocked") == []
    assert len(daemon.show("anna")["unfinished"]) == 3
    assert all(os.path.lexists(work / ".git" / name) for name in ("index.lock", "HEAD.lock", "packed-refs.lock"))


def test_a_rebase_under_way_is_named_and_never_given_up(daemon):
    daemon.start()
    work = daemon.workspace(git=True)
    daemon.git(work, "checkout", "-q", "-b", "side")
    (work / "README.md").write_text("ours\n")
    daemon.git(work, "commit", "-qam", "ours")
    daemon.git(work, "checkout", "-q", "main")
    daemon.spawn("anna", work, f"/shell {CLASH}")
    assert (work / ".git/rebase-merge").is_dir()
    (told,) = daemon.show("anna")["unfinished"]
    assert told.startswith(f"a rebase is under way in {work}/.git")
    daemon.ok("send", "anna", "/say go on", "--wait")
    prompt = daemon.events("anna", "user")[-1]["text"]
    assert told in prompt
    assert prompt.endswith("/say go on")
    assert (work / ".git/rebase-merge").is_dir()
    daemon.git(work, "rebase", "--abort")
    assert "unfinished" not in daemon.show("anna")
    daemon.ok("send", "anna", "/say done", "--wait")
    assert daemon.events("anna", "user")[-1]["text"].strip() == "/say done"


def test_a_lock_that_another_agents_git_holds_stays_until_that_one_ends(daemon, until):
    daemon.start()
    work = daemon.workspace(git=True)
    daemon.held("anna", work)
    daemon.ok("spawn", "bert", "-w", work, EDITED)
    until((work / "editing").exists, "the editor")
    (work / "go").touch()
    daemon.wait("anna", "idle")
    assert (work / ".git/index.lock").exists()
    assert daemon.events("anna", "workspace:unlocked") == []
    daemon.ok("suspend", "bert", "--freeze")
    assert any("index.lock" in one for one in daemon.show("bert")["unfinished"])
    daemon.ok("end", "bert")
    assert len(daemon.events("bert", "workspace:unlocked")) == 1
    assert not (work / ".git/index.lock").exists()
