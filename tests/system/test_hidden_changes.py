"""Files of a git directory by which an agent has a person's git show or run something else are told."""

HIDE = (
    "echo /new >> .git/info/exclude; touch new; : > README.md; "
    "git replace $(git rev-parse HEAD:README.md) $(git hash-object -w README.md)"
)


def test_what_hides_a_change_from_the_person_is_told_once(house):
    work = house.workspace(git=True)
    house.start()
    house.spawn("agent", work, f"/shell {HIDE}")
    shown = house.git(work, "status", "--short"), house.git(work, "diff")
    assert shown == (" M README.md\n", ""), "a control: git shows neither the file nor the change"
    (finding,) = house.show("agent")["findings"]
    assert finding["text"].startswith("files that programs on your host obey were changed: ")
    assert finding["difference"].split() == [f"{work}/.git/info/exclude", f"{work}/.git/refs/replace"]
    assert house.show("agent")["attention"]["kind"] == "unsafe"
    assert len(house.events("agent", "workspace:unprotected")) == 1
    house.ok("accept", "agent")
    house.ok("send", "agent", "/shell git status", "--wait")
    assert house.show("agent")["attention"]["kind"] == "idle"


def test_no_mark_of_a_clone_reaches_the_person(house):
    work = house.workspace(git=True)
    house.start()
    house.spawn("agent", work, f"/shell git update-index --skip-worktree README.md; {HIDE}", "--clone")
    assert house.git(work, "ls-files", "-v").split() == ["H", "README.md"]
    assert house.git(work, "for-each-ref", "refs/replace") == ""
    (work / "new").touch()
    assert house.git(work, "status", "--short") == "?? new\n"
    assert "findings" not in house.show("agent")
