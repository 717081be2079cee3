"""Files of a git directory by which an agent has a person's git show or run something else are told."""

HIDE = (
    "echo /new >> .git/info/exclude; touch new; : > README.md; "
    "git replace $(git rev-parse HEAD:README.md) $(git hash-object -w README.md)"
)


def test_what_hides_a_change_from_the_person_is_told_once(daemon):
    work = daemon.workspace(git=True)
    daemon.start()
    daemon.spawn("agent", work, f"/shell {HIDE}")
    shown = daemon.git(work, "status", "--short"), daemon.git(work, "diff")
    assert shown == (" M README.md\n", ""), "a control: git shows neither the file nor the change"
    (finding,) = daemon.show("agent")["findings"]
    assert finding["text"].startswith("files that programs on your host obey were changed: ")
    assert finding["difference"].split() == [f"{work}/.git/info/exclude", f"{work}/.git/refs/replace"]
    assert daemon.show("agent")["attention"]["kind"] == "unsafe"
    assert len(daemon.events("agent", "workspace:unprotected")) == 1
    daemon.ok("accept", "agent")
    daemon.ok("send", "agent", "/shell git status", "--wait")
    assert daemon.show("agent")["attention"]["kind"] == "idle"


def test_no_mark_of_a_clone_reaches_the_person(daemon):
    work = daemon.workspace(git=True)
    daemon.start()
    daemon.spawn("agent", work, f"/shell git update-index --skip-worktree README.md; {HIDE}", "--clone")
    assert daemon.git(work, "ls-files", "-v").split() == ["H", "README.md"]
    assert daemon.git(work, "for-each-ref", "refs/replace") == ""
    (work / "new").touch()
    assert daemon.git(work, "status", "--short") == "?? new\n"
    assert "findings" not in daemon.show("agent")
