"""Private clones in real sandboxes: where agents work, the work that is kept, the user's repository that stays as it is."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.waiting import wait_until


def git(house, where, *arguments):
    return house.git(where, *arguments).strip()


def fingerprint(top):
    """Everything of a checkout and its git directory, byte for byte, but objects and the refs of agents."""
    found = {}
    for path in sorted(Path(top).rglob("*")):
        name = str(path.relative_to(top))
        if path.is_file() and not name.startswith((".git/objects/", ".git/refs/substrat/")):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture
def app(house):
    """A repository with two commits and a directory below its top."""
    work = house.workspace("app", git=True)
    (work / "sub").mkdir()
    (work / "sub" / "part.txt").write_text("part\n")
    git(house, work, "add", "-A")
    git(house, work, "commit", "-qm", "a part")
    return work


def commit(name, text="new"):
    return f"/shell echo {text} > {name}; git add {name}; git commit -qm 'add {name}'"


def test_a_turn_works_in_its_clone_at_the_users_path_and_its_work_is_kept(house, app):
    house.start()
    before = fingerprint(app)
    house.ok("spawn", "fix", "-w", app, "--clone", "--wait", f"{commit('a.txt')}; echo more > b.txt; pwd")
    assert house.shell("fix") == f"{app}\n"
    found = house.show("fix")["clone"]
    head, wip = git(house, app, "rev-parse", "refs/substrat/fix/head", "refs/substrat/fix/wip").split()
    assert found.pop("work")["text"] == f"+1 commit, {head[:7]} · 1 file uncommitted (wip {wip[:7]}) · not landed"
    assert found == {
        "branch": "substrat/fix", "base": git(house, app, "rev-parse", "HEAD"), "head": head, "ahead": 1, "behind": 0,
        "files": 1, "landed": False, "stage": "ready",
    }  # fmt: skip
    assert git(house, app, "show", "refs/substrat/fix/turns/1:b.txt") == "more"
    assert git(house, app, "rev-parse", "refs/substrat/fix/wip^1") == head
    assert fingerprint(app) == before
    assert git(house, app, "status", "--short") == ""
    kinds = [event["kind"] for event in house.events("fix")]
    assert kinds.index("clone:kept") < kinds.index("turn:ended")


@pytest.mark.parametrize("stage", ["git add -A", "git commit -qam nothing"], ids=["add", "commit"])
def test_the_first_add_in_a_new_clone_writes_no_object_that_the_repository_has(house, app, stage):
    for number in range(50):
        (app / f"{number}.txt").write_text(f"{number}\n")
    (app / "link").symlink_to("README.md")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "files")
    house.start()
    house.spawn("fix", app, f"/shell {stage}; find .git/objects -type f -path '*/??/*' | wc -l", "--clone")
    assert house.shell("fix").splitlines()[-1] == "0"


def test_a_new_clone_has_all_refs_in_one_file(house, app):
    git(house, app, "tag", "-am", "one", "v1")
    git(house, app, "tag", "-am", "a tag of a tag", "v2", "v1")
    git(house, app, "branch", "topic/a")
    house.start()
    look = "git show-ref -d | grep -v refs/heads; git describe; find .git/refs -type f; git tag mine; git tag -d v1"
    house.spawn("fix", app, f"/shell {look}", "--clone")
    shown = [line for line in git(house, app, "show-ref", "-d").splitlines() if "refs/substrat/" not in line]
    expected = [line.replace("refs/heads/", "refs/remotes/workspace/") for line in shown]
    said = house.shell("fix").splitlines()
    assert said == [*expected, git(house, app, "describe"), ".git/refs/heads/substrat/fix", said[-1]]
    assert said[-1].startswith("Deleted tag 'v1'")
    assert "v1" in git(house, app, "tag")


def test_spawn_says_where_the_agent_works(house, app):
    house.start()
    base = git(house, app, "rev-parse", "--short=12", "HEAD")
    said = house.ctl("spawn", "fix", "-w", app, "--clone").out
    how = "'diff fix' shows its work, 'merge fix' takes it"
    assert said.endswith(f" in a clone of {app}, branch substrat/fix at {base}: {how}\n")
    asks = '/tool ask_operator {"question": "which?"}'
    for name, prompt, code in (("silent", "/shell true", 0), ("asking", asks, 6), ("broken", "/exit 3", 5)):
        waited = house.ctl("spawn", name, "-w", app, "--clone", "--wait", prompt)
        assert waited.code == code
        assert f"{name} works in a clone of {app}" in waited.err.splitlines()[0], waited
        assert f"'diff {name}' shows its work, 'merge {name}' takes it" in waited.err.splitlines()[0], waited
    assert house.ctl("spawn", "here", "-w", app).out.endswith(f" in {app}\n")
    assert house.show("here")["clone"] is None


def test_nothing_else_of_the_users_repository_is_in_reach(house, app):
    house.start()
    secret = git(house, app, "config", "user.name")
    tries = (
        "git rev-parse --git-common-dir; cat .git/config | grep -c name; touch /run/substrat/objects/0/x; "
        "rm -rf /run/substrat/objects/0/pack; git update-ref refs/heads/main $(git commit-tree -m x HEAD^{tree}); "
        "ls /run/substrat/objects; mv sub/.. /tmp/gone"
    )
    house.spawn("fix", app, f"/shell {tries}", "--clone")
    assert secret
    said = house.shell("fix").splitlines()
    assert said[0] == ".git"
    assert not list((app / ".git" / "objects").glob("x"))
    assert git(house, app, "fsck", "--no-dangling") == ""
    assert git(house, app, "log", "--format=%s", "main").splitlines()[0] == "a part"


def test_a_workspace_below_the_top_level_and_one_that_is_replaced_by_a_link(house, app):
    house.start()
    house.spawn("fix", app / "sub", f"/shell pwd; ls; git rev-parse --show-toplevel; ls ..\n{commit('a.txt')}", "--clone")
    assert house.shell("fix").split() == [f"{app}/sub", "part.txt", str(app), *sorted(["README.md", "sub"])]
    assert git(house, app, "show", "--stat", "--format=", "refs/substrat/fix/head").startswith("sub/a.txt")
    tree = next(path for path in (house.state / "trees").iterdir() if path.is_dir() and "." not in path.name)
    (tree / "sub").rename(tree / "was")
    (tree / "sub").symlink_to("/etc")
    house.ctl("send", "fix", "--wait", "/say on")
    assert "something else than a directory" in house.show("fix")["turn"]["error"]


def test_the_users_newest_branches_are_there_at_each_turns_start(house, app):
    house.start()
    house.spawn("fix", app, "/say hi", "--clone")
    git(house, app, "branch", "later")
    (app / "mine.txt").write_text("mine\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "mine")
    house.ok(
        "send", "fix", "--wait", "/shell git log -1 --format=%s workspace/main; git branch -r; git rebase -q workspace/main"
    )
    assert house.shell("fix").split()[0] == "mine"
    assert "workspace/later" in house.shell("fix")
    assert house.show("fix")["clone"]["head"] == git(house, app, "rev-parse", "main")


def test_a_repository_that_becomes_shallow_and_whole_again_is_so_in_its_clones(house, app):
    work = house.directory / "work"
    git(house, app, "clone", "-q", f"file://{app}", str(work))
    house.start()
    other = "git init -q /tmp/o; for n in 1 2; do git -C /tmp/o commit -qm $n --allow-empty; done"
    fetched = "git fetch -q --depth 1 file:///tmp/o HEAD:theirs"
    house.spawn("fix", work, f"{commit('a.txt')}; {other}; {fetched}", "--clone")
    git(house, work, "fetch", "-q", "--depth", "1")
    git(house, work, "reflog", "expire", "--all", "--expire=now")
    git(house, work, "gc", "-q", "--prune=now")
    look = "/shell git log --format=%s; git log --format=%s theirs; git blame -s README.md | cut -c 1; git fsck"
    house.ok("send", "fix", "--wait", look)
    assert house.shell("fix").split("\n") == ["add a.txt", "a part", "2", "^", ""]
    assert git(house, work, "rev-list", "--count", "refs/substrat/fix/head") == "2"
    git(house, work, "fetch", "-q", "--unshallow")
    house.ok("send", "fix", "--wait", look)
    assert house.shell("fix").split("\n")[4:] == ["add a.txt", "a part", "first", "2", "^", ""]


def test_uncommitted_changes_are_taken_along_as_a_marked_first_commit(house, app):
    (app / "sub" / "part.txt").write_text("changed\n")
    (app / "new.txt").write_text("new\n")
    house.start()
    before = fingerprint(app)
    house.spawn("fix", app, "/shell cat sub/part.txt new.txt; git status --short", "--clone", "--wip")
    assert house.shell("fix") == "changed\nnew\n"
    assert fingerprint(app) == before
    found = house.show("fix")["clone"]
    assert found["base"] == found["head"] != git(house, app, "rev-parse", "HEAD")
    assert found["ahead"] == 0
    assert (
        git(house, app, "log", "-1", "--format=%an %s", found["head"])
        == "Substrat Uncommitted changes of the user's checkout"
    )


def test_wishes_that_cannot_be_are_refused(house, app):
    plain, bare = house.workspace("plain"), house.workspace("bare.git")
    git(house, bare, "init", "-q", "--bare")
    house.start()
    for name, where, words, code, sentence in (
        ("fix", app, ("--base", "main", "--in-place"), 2, "--in-place and --base contradict each other"),
        ("fix", app, ("--wip", "--in-place"), 2, "--in-place and --wip contradict each other"),
        ("fix", app, ("--clone", "--in-place"), 2, "contradict each other"),
        ("fix", app, ("--clone", "--base", "nosuch"), 2, "'nosuch' is no commit"),
        ("fix", app, ("--clone=a..b",), 2, "'a..b' can't be a branch"),
        ("fix", app, ("--clone=main", "--base", "main"), 2, "the branch main exists"),
        ("a.lock", app, ("--clone",), 2, "end with `.` or `.lock`"),
        ("fix", plain, ("--wip",), 1, "is in no git repository"),
        ("fix", bare, ("--clone",), 1, "is a bare repository"),
    ):
        refused = house.ctl("spawn", name, "-w", where, *words)
        assert (refused.code, sentence in refused.error) == (code, True), refused
    assert house.ctl("ls", "--json").json == []


def test_a_branch_that_exists_is_worked_on(house, app):
    git(house, app, "branch", "topic", "HEAD~1")
    house.start()
    house.spawn("fix", app, "/shell git log -1 --format=%s; git branch --show-current", "--clone=topic")
    assert house.shell("fix").splitlines()[1] == "topic"
    assert house.show("fix")["clone"]["base"] == git(house, app, "rev-parse", "topic")


def test_a_repository_without_commits(house):
    empty = house.workspace("empty")
    git(house, empty, "init", "-q", "-b", "main")
    house.start()
    house.spawn("fix", empty, commit("a.txt"), "--clone")
    found = house.show("fix")["clone"]
    assert (found["base"], found["ahead"]) == (None, 1)
    assert git(house, empty, "show", "refs/substrat/fix/head:a.txt") == "new"


FORMS = ("shallow", "sha256", "linked", "borrowing", "detached", "broken-ref", "submodule")


def of_form(house, app, form):
    """Make a repository of a form out of another."""
    work = house.directory / form
    match form:
        case "shallow":
            git(house, app, "clone", "-q", "--depth", "1", f"file://{app}", str(work))
        case "sha256":
            work.mkdir()
            git(house, work, "init", "-q", "--object-format=sha256", "-b", "main")
            git(house, work, "commit", "-qm", "first", "--allow-empty")
        case "linked":
            git(house, app, "worktree", "add", "-q", "-b", "linked", str(work))
        case "borrowing":
            git(house, app, "clone", "-q", "--shared", str(app), str(work))
        case "detached":
            git(house, app, "clone", "-q", str(app), str(work))
            git(house, work, "checkout", "-q", "--detach")
        case "submodule":
            git(house, app, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", app, "other")
            work = app / "other"
        case "broken-ref":
            git(house, app, "clone", "-q", str(app), str(work))
            (work / ".git" / "refs" / "heads" / "broken").write_text("12" * 20 + "\n")
    return work


@pytest.mark.slow
def test_repositories_of_other_forms(house, app):
    house.start()
    for form in FORMS:
        work = of_form(house, app, form)
        house.spawn(form, work, commit("a.txt"), "--clone")
        assert house.show(form)["clone"]["ahead"] == 1, house.events(form)
        assert git(house, work, "show", f"refs/substrat/{form}/head:a.txt") == "new", form


def test_agents_work_at_once_in_one_repository(house, app):
    """`test_clones_killed` has ten."""
    house.start()
    before, names = fingerprint(app), ("a", "b", "c", "d")
    for name in names:
        house.ok("spawn", name, "-w", app, "--clone", commit("same.txt", f"from {name}"))
    house.ok("wait", *names)
    for name in names:
        assert git(house, app, "show", f"refs/substrat/{name}/head:same.txt") == f"from {name}"
    assert fingerprint(app) == before
    assert git(house, app, "fsck", "--no-dangling") == ""


HOSTILE = (
    "rm -rf .git",
    "mv .git x; ln -s x .git",
    "mv .git x; echo gitdir: x > .git",
    "echo /etc > .git/objects/info/alternates",
    "printf '[core]\\n\\tfsmonitor = touch /tmp/ran; false\\n\\thooksPath = .\\n' >> .git/config",
    "rm .git/index; mkfifo .git/index",
    "echo 'ref: refs/heads/../../x' > .git/HEAD",
    "printf '* filter=evil\\n' > .gitattributes; git config filter.evil.clean 'touch /tmp/ran; cat'; echo x > y",
)


@pytest.mark.slow
def test_a_hostile_clone_reaches_nothing_and_its_turn_ends(house, app):
    house.start()
    before = fingerprint(app)
    for number, deed in enumerate(HOSTILE):
        house.ok("spawn", f"a{number}", "-w", app, f"/shell {deed}", "--clone")
    for number, deed in enumerate(HOSTILE):
        assert house.wait(f"a{number}")["turn"]["outcome"] == "success", deed
    assert fingerprint(app) == before
    assert git(house, app, "fsck", "--no-dangling") == ""
    for number in range(len(HOSTILE)):
        house.ok("send", f"a{number}", "/say still here")
    for number, deed in enumerate(HOSTILE):
        turn = house.wait(f"a{number}")["turn"]
        assert (turn["number"], turn["result"]) == (2, "still here"), deed


def test_a_clone_that_cannot_be_made_fails_its_agent_until_it_is_resumed(house, app):
    trees = house.directory / "trees"
    trees.write_text("in the way")
    house.start(config=f'[worktree]\ndir = "{trees}"\n')  # the old name of the section
    assert "[worktree] is called [clone] now: rename it" in house.log
    failed = house.ctl("spawn", "fix", "-w", app, "--clone", "--wait", "/say hi")
    assert failed.code == 5, failed
    agent = house.show("fix")
    assert (agent["state"], agent["attention"]["kind"]) == ("failed", "failed")
    trees.unlink()
    house.ok("resume", "fix", "--wait")
    assert house.show("fix")["turn"]["outcome"] == "success"
    assert len(list(trees.iterdir())) >= 1


def test_the_daemon_may_die_while_the_clone_is_made_and_while_work_is_kept(house, app):
    """At three points, one after another; `test_killpoints` has the others."""
    before = fingerprint(app)
    points = ("before commit: clone made", "after: bundle made", "after: bundle imported")
    house.start(environment={"SUBSTRAT_KILL_AT": points[0]})
    house.ok("spawn", "fix", "-w", app, "--clone", f"{commit('a.txt')}; echo u > u.txt")
    wait_until(lambda: house.process.poll() is not None, f"the daemon dies {points[0]}")
    for point in points[1:]:
        house.process = house.launch(environment={"SUBSTRAT_KILL_AT": point})
        wait_until(lambda: house.process.poll() is not None, f"the daemon dies {point}")
    house.start()
    house.ctl("wait", "fix")
    assert house.show("fix")["clone"]["ahead"] == 1, json.dumps(house.events("fix"), indent=1)
    assert git(house, app, "show", "refs/substrat/fix/wip:u.txt") == "u"
    assert git(house, app, "show", "refs/substrat/fix/head:a.txt") == "new"
    assert fingerprint(app) == before
    assert git(house, app, "fsck", "--no-dangling") == ""


@pytest.mark.parametrize("below", ["", "sub/"], ids=["at the top", "below"])
def test_a_tracked_cursor_directory_changes_in_commits_and_is_in_nobodys_way(house, app, below):
    rules = app / below / ".cursor" / "rules"
    rules.mkdir(parents=True)
    for name in ("old", "gone"):
        (rules / f"{name}.mdc").write_text(f"{name}\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "rules")
    house.start()
    house.ok("spawn", "fix", "-w", app / below, "--clone", "--wait", f"{commit('a.txt')}; git status --porcelain")
    assert house.shell("fix") == "", "nothing of the generated files is a change"
    (rules / "old.mdc").write_text("other\n")
    (rules / "new.mdc").write_text("new\n")
    git(house, app, "rm", "-q", f"{below}.cursor/rules/gone.mdc")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "other rules")
    merges = "/shell git merge -q --no-edit workspace/main && git status --porcelain; git add -f .cursor"
    house.ok("send", "fix", "--wait", merges)
    assert "outside of your sparse-checkout" in house.shell("fix")
    found = house.show("fix")
    assert (found["clone"]["files"], found["clone"]["behind"], found["clone"]["ahead"]) == (0, 0, 2)
    assert house.ctl("merge", "fix").code == 0
    assert git(house, app, "status", "--porcelain") == ""
    assert git(house, app, "ls-files", f"{below}.cursor").splitlines() == [
        f"{below}.cursor/rules/new.mdc", f"{below}.cursor/rules/old.mdc",
    ]  # fmt: skip
