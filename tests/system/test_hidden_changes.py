"""Marks in a git directory that keep a person's `git status` and `git diff` from showing changes are told."""

BLOB = "$(git hash-object -w --stdin </dev/null)"
WAYS = {
    "skip-worktree": ("git update-index --skip-worktree README.md; rm README.md", "index", "skip-worktree README.md"),
    "assume-unchanged": (
        "git update-index --assume-unchanged README.md; rm README.md", "index", "assume-unchanged README.md",
    ),
    "in the form that abbreviates names": (
        "git update-index --index-version 4; git update-index --skip-worktree README.md; rm README.md", "index",
        "skip-worktree README.md",
    ),
    "in a shared index": (
        "git update-index --skip-worktree README.md; git update-index --split-index; rm README.md", "index",
        "skip-worktree README.md",
    ),
    "exclude": ("echo '/new' >> .git/info/exclude; touch new", "info/exclude", "+/new"),
    "a replaced object": (
        f"git replace $(git rev-parse HEAD:README.md) {BLOB}; : > README.md", "refs/replace", " by e69de29bb2d1",
    ),
    "a packed replaced object": (
        f"git replace $(git rev-parse HEAD:README.md) {BLOB}; git pack-refs --all; : > README.md", "refs/replace",
        " by e69de29bb2d1",
    ),
}  # fmt: skip


def test_what_hides_a_change_from_the_person_is_told_once(house):
    house.start()
    for number, (way, (script, _, _)) in enumerate(WAYS.items()):
        house.ok("spawn", f"agent-{number}", "-w", house.workspace(way, git=True), f"/shell {script}")
    for number, (way, (_, path, line)) in enumerate(WAYS.items()):
        name, work = f"agent-{number}", house.directory / way
        shown = house.wait(name)
        assert house.git(work, "diff") == "", f"a control: git shows nothing of {way}"
        assert path == "refs/replace" or house.git(work, "status", "--short") == ""
        (finding,) = house.show(name)["findings"]
        assert finding["path"] == str(work / ".git" / path), way
        assert line in finding["text"], way
        assert line in finding["difference"], way
        assert shown["attention"]["kind"] == "unsafe", way
        (told,) = house.events(name, "workspace:hidden")
        assert finding["path"] in told["text"], way
        assert not house.events(name, "workspace:unprotected"), way
        house.ok("accept", name)
        house.ok("send", name, "/shell git status")
    for number, way in enumerate(WAYS):
        agent = house.wait(f"agent-{number}")
        assert (agent["turn"]["number"], agent["attention"]["kind"]) == (2, "idle"), way


def test_marks_of_the_persons_own_are_nothing_new(house):
    work = house.workspace(git=True)
    house.git(work, "update-index", "--skip-worktree", "README.md")
    (work / ".git" / "info" / "exclude").write_text("# mine\n*.o\n")
    house.start()
    house.spawn("agent", work, "/shell touch a.o b; git add b; git -c user.name=a -c user.email=b commit -qm b")
    assert house.show("agent")["attention"]["kind"] == "idle"


def test_no_mark_of_a_clone_reaches_the_person(house):
    work = house.workspace(git=True)
    house.start()
    script = "; ".join(script for script, _, _ in WAYS.values())
    house.spawn("agent", work, f"/shell {script}", "--clone")
    assert house.git(work, "ls-files", "-v").split() == ["H", "README.md"]
    assert house.git(work, "for-each-ref", "refs/replace") == ""
    (work / "new").touch()
    assert house.git(work, "status", "--short") == "?? new\n"
    assert "findings" not in house.show("agent")


def test_what_cannot_be_looked_at_is_told_too(house):
    work = house.workspace(git=True)
    house.start()
    house.spawn("agent", work, "/shell rm -f .git/info/exclude; mkfifo .git/info/exclude; ln -s ../../x .git/refs/replace")
    paths = {finding["path"] for finding in house.show("agent")["findings"]}
    assert paths == {str(work / ".git" / name) for name in ("info/exclude", "refs/replace")}
