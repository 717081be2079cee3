"""Private clones in real sandboxes: where agents work, the work that is kept, the user's repository that stays as it is."""

import hashlib
from pathlib import Path

import pytest


def git(daemon, where, *arguments):
    return daemon.git(where, *arguments).strip()


def fingerprint(top):
    """Everything of a checkout and its git directory, byte for byte, but objects and the refs of agents."""
    found = {}
    for path in sorted(Path(top).rglob("*")):
        name = str(path.relative_to(top))
        if path.is_file() and not name.startswith((".git/objects/", ".git/refs/substrat/")):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture
def app(daemon):
    """A repository with two commits and a directory below its top."""
    work = daemon.workspace("app", git=True)
    (work / "sub").mkdir()
    (work / "sub" / "part.txt").write_text("part\n")
    git(daemon, work, "add", "-A")
    git(daemon, work, "commit", "-qm", "a part")
    return work


def commit(name, text="new"):
    return f"/shell echo {text} > {name}; git add {name}; git commit -qm 'add {name}'"


def test_a_turn_works_in_its_clone_at_the_users_path_and_its_work_is_kept(daemon, app):
    daemon.start()
    before = fingerprint(app)
    daemon.ok("spawn", "fix", "-w", app, "--clone", "--wait", f"{commit('a.txt')}; echo more > b.txt; pwd")
    assert daemon.shell("fix") == f"{app}\n"
    found = daemon.show("fix")["clone"]
    head, wip = git(daemon, app, "rev-parse", "refs/substrat/fix/head", "refs/substrat/fix/wip").split()
    assert found.pop("work")["text"] == f"+1 commit, {head[:7]} · 1 file uncommitted (wip {wip[:7]}) · not landed"
    assert found == {
        "branch": "substrat/fix", "base": git(daemon, app, "rev-parse", "HEAD"), "head": head, "ahead": 1, "behind": 0,
        "files": 1, "landed": False, "stage": "ready",
    }  # fmt: skip
    assert git(daemon, app, "show", "refs/substrat/fix/turns/1:b.txt") == "more"
    assert git(daemon, app, "rev-parse", "refs/substrat/fix/wip^1") == head
    assert fingerprint(app) == before
    assert git(daemon, app, "status", "--short") == ""
    kinds = [event["kind"] for event in daemon.events("fix")]
    assert kinds.index("clone:kept") < kinds.index("turn:ended")


@pytest.mark.parametrize("stage", ["git add -A", "git commit -qam nothing"], ids=["add", "commit"])
def test_the_first_add_in_a_new_clone_writes_no_object_that_the_repository_has(daemon, app, stage):
    for number in range(50):
        (app / f"{number}.txt").write_text(f"{number}\n")
    (app / "link").symlink_to("README.md")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "files")
    daemon.start()
    daemon.spawn("fix", app, f"/shell {stage}; find .git/objects -type f -path '*/??/*' | wc -l", "--clone")
    assert daemon.shell("fix").splitlines()[-1] == "0"


def test_a_new_clone_has_all_refs_in_one_file(daemon, app):
    git(daemon, app, "tag", "-am", "one", "v1")
    git(daemon, app, "tag", "-am", "a tag of a tag", "v2", "v1")
    git(daemon, app, "branch", "topic/a")
    daemon.start()
    look = "git show-ref -d | grep -v refs/heads; git describe; find .git/refs -type f; git tag mine; git tag -d v1"
    daemon.spawn("fix", app, f"/shell {look}", "--clone")
    shown = [line for line in git(daemon, app, "show-ref", "-d").splitlines() if "refs/substrat/" not in line]
    expected = [line.replace("refs/heads/", "refs/remotes/workspace/") for line in shown]
    said = daemon.shell("fix").splitlines()
    assert said == [*expected, git(daemon, app, "describe"), ".git/refs/heads/substrat/fix", said[-1]]
    assert said[-1].startswith("Deleted tag 'v1'")
    assert "v1" in git(daemon, app, "tag")


def test_spawn_says_where_the_agent_works(daemon, app):
    daemon.start()
    base = git(daemon, app, "rev-parse", "--short=12", "HEAD")
    said = daemon.ctl("spawn", "fix", "-w", app, "--clone").out
    how = "'diff fix' shows its work, 'merge fix' takes it"
    assert said.endswith(f" in a clone of {app}, branch substrat/fix at {base}: {how}\n")
    asks = '/tool ask_operator {"question": "which?"}'
    for name, prompt, code in (("silent", "/shell true", 0), ("asking", asks, 6), ("broken", "/exit 3", 5)):
        waited = daemon.ctl("spawn", name, "-w", app, "--clone", "--wait", prompt)
        assert waited.code == code
        assert f"{name} works in a clone of {app}" in waited.err.splitlines()[0], waited
        assert f"'diff {name}' shows its work, 'merge {name}' takes it" in waited.err.splitlines()[0], waited
    assert daemon.ctl("spawn", "here", "-w", app).out.endswith(f" in {app}\n")
    assert daemon.show("here")["clone"] is None


def test_nothing_else_of_the_users_repository_is_in_reach(daemon, app):
    daemon.start()
    secret = git(daemon, app, "config", "user.name")
    tries = (
        "git rev-parse --git-common-dir; cat .git/config | grep -c name; touch /run/substrat/objects/0/x; "
        "rm -rf /run/substrat/objects/0/pack; git update-ref refs/heads/main $(git commit-tree -m x HEAD^{tree}); "
        "ls /run/substrat/objects; mv sub/.. /tmp/gone"
    )
    daemon.spawn("fix", app, f"/shell {tries}", "--clone")
    assert secret
    said = daemon.shell("fix").splitlines()
    assert said[0] == ".git"
    assert not list((app / ".git" / "objects").glob("x"))
    assert git(daemon, app, "fsck", "--no-dangling") == ""
    assert git(daemon, app, "log", "--format=%s", "main").splitlines()[0] == "a part"


def test_a_workspace_below_the_top_level_and_one_that_is_replaced_by_a_link(daemon, app):
    daemon.start()
    daemon.spawn("fix", app / "sub", f"/shell pwd; ls; git rev-parse --show-toplevel; ls ..\n{commit('a.txt')}", "--clone")
    assert daemon.shell("fix").split() == [f"{app}/sub", "part.txt", str(app), *sorted(["README.md", "sub"])]
    assert git(daemon, app, "show", "--stat", "--format=", "refs/substrat/fix/head").startswith("sub/a.txt")
    tree = next(path for path in (daemon.state / "trees").iterdir() if path.is_dir() and "." not in path.name)
    (tree / "sub").rename(tree / "was")
    (tree / "sub").symlink_to("/etc")
    daemon.ctl("send", "fix", "--wait", "/say on")
    assert "something else than a directory" in daemon.show("fix")["turn"]["error"]


def test_the_users_newest_branches_are_there_at_each_turns_start(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, "/say hi", "--clone")
    git(daemon, app, "branch", "later")
    (app / "mine.txt").write_text("mine\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "mine")
    daemon.ok(
        "send", "fix", "--wait", "/shell git log -1 --format=%s workspace/main; git branch -r; git rebase -q workspace/main"
    )
    assert daemon.shell("fix").split()[0] == "mine"
    assert "workspace/later" in daemon.shell("fix")
    assert daemon.show("fix")["clone"]["head"] == git(daemon, app, "rev-parse", "main")


def test_a_repository_that_becomes_shallow_and_whole_again_is_so_in_its_clones(daemon, app):
    work = daemon.directory / "work"
    git(daemon, app, "clone", "-q", f"file://{app}", str(work))
    daemon.start()
    other = "git init -q /tmp/o; for n in 1 2; do git -C /tmp/o commit -qm $n --allow-empty; done"
    fetched = "git fetch -q --depth 1 file:///tmp/o HEAD:theirs"
    daemon.spawn("fix", work, f"{commit('a.txt')}; {other}; {fetched}", "--clone")
    git(daemon, work, "fetch", "-q", "--depth", "1")
    git(daemon, work, "reflog", "expire", "--all", "--expire=now")
    git(daemon, work, "gc", "-q", "--prune=now")
    look = "/shell git log --format=%s; git log --format=%s theirs; git blame -s README.md | cut -c 1; git fsck"
    daemon.ok("send", "fix", "--wait", look)
    assert daemon.shell("fix").split("\n") == ["add a.txt", "a part", "2", "^", ""]
    assert git(daemon, work, "rev-list", "--count", "refs/substrat/fix/head") == "2"
    git(daemon, work, "fetch", "-q", "--unshallow")
    daemon.ok("send", "fix", "--wait", look)
    assert daemon.shell("fix").split("\n")[4:] == ["add a.txt", "a part", "first", "2", "^", ""]


def test_uncommitted_changes_are_taken_along_as_a_marked_first_commit(daemon, app):
    (app / "sub" / "part.txt").write_text("changed\n")
    (app / "new.txt").write_text("new\n")
    daemon.start()
    before = fingerprint(app)
    daemon.spawn("fix", app, "/shell cat sub/part.txt new.txt; git status --short", "--clone", "--wip")
    assert daemon.shell("fix") == "changed\nnew\n"
    assert fingerprint(app) == before
    found = daemon.show("fix")["clone"]
    assert found["base"] == found["head"] != git(daemon, app, "rev-parse", "HEAD")
    assert found["ahead"] == 0
    assert (
        git(daemon, app, "log", "-1", "--format=%an %s", found["head"])
        == "Substrat Uncommitted changes of the user's checkout"
    )


def test_wishes_that_cannot_be_are_refused(daemon, app):
    plain, bare = daemon.workspace("plain"), daemon.workspace("bare.git")
    git(daemon, bare, "init", "-q", "--bare")
    daemon.start()
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
        refused = daemon.ctl("spawn", name, "-w", where, *words)
        assert (refused.code, sentence in refused.error) == (code, True), refused
    assert daemon.ctl("ls", "--json").json == []


def test_a_branch_that_exists_is_worked_on(daemon, app):
    git(daemon, app, "branch", "topic", "HEAD~1")
    daemon.start()
    daemon.spawn("fix", app, "/shell git log -1 --format=%s; git branch --show-current", "--clone=topic")
    assert daemon.shell("fix").splitlines()[1] == "topic"
    assert daemon.show("fix")["clone"]["base"] == git(daemon, app, "rev-parse", "topic")


def test_a_repository_without_commits(daemon):
    empty = daemon.workspace("empty")
    git(daemon, empty, "init", "-q", "-b", "main")
    daemon.start()
    daemon.spawn("fix", empty, commit("a.txt"), "--clone")
    found = daemon.show("fix")["clone"]
    assert (found["base"], found["ahead"]) == (None, 1)
    assert git(daemon, empty, "show", "refs/substrat/fix/head:a.txt") == "new"


FORMS = ("shallow", "sha256", "linked", "borrowing", "detached", "broken-ref", "submodule")


def of_form(daemon, app, form):
    """Make a repository of a form out of another."""
    work = daemon.directory / form
    match form:
        case "shallow":
            git(daemon, app, "clone", "-q", "--depth", "1", f"file://{app}", str(work))
        case "sha256":
            work.mkdir()
            git(daemon, work, "init", "-q", "--object-format=sha256", "-b", "main")
            git(daemon, work, "commit", "-qm", "first", "--allow-empty")
        case "linked":
            git(daemon, app, "worktree", "add", "-q", "-b", "linked", str(work))
        case "borrowing":
            git(daemon, app, "clone", "-q", "--shared", str(app), str(work))
        case "detached":
            git(daemon, app, "clone", "-q", str(app), str(work))
            git(daemon, work, "checkout", "-q", "--detach")
        case "submodule":
            git(daemon, app, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", app, "other")
            work = app / "other"
        case "broken-ref":
            git(daemon, app, "clone", "-q", str(app), str(work))
            (work / ".git" / "refs" / "heads" / "broken").write_text("12" * 20 + "\n")
    return work


@pytest.mark.slow
def test_repositories_of_other_forms(daemon, app):
    daemon.start()
    for form in FORMS:
        work = of_form(daemon, app, form)
        daemon.spawn(form, work, commit("a.txt"), "--clone")
        assert daemon.show(form)["clone"]["ahead"] == 1, daemon.events(form)
        assert git(daemon, work, "show", f"refs/substrat/{form}/head:a.txt") == "new", form


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
def test_a_hostile_clone_reaches_nothing_and_its_turn_ends(daemon, app):
    daemon.start()
    before = fingerprint(app)
    for number, deed in enumerate(HOSTILE):
        daemon.ok("spawn", f"a{number}", "-w", app, f"/shell {deed}", "--clone")
    for number, deed in enumerate(HOSTILE):
        assert daemon.wait(f"a{number}")["turn"]["outcome"] == "success", deed
    assert fingerprint(app) == before
    assert git(daemon, app, "fsck", "--no-dangling") == ""
    for number in range(len(HOSTILE)):
        daemon.ok("send", f"a{number}", "/say still here")
    for number, deed in enumerate(HOSTILE):
        turn = daemon.wait(f"a{number}")["turn"]
        assert (turn["number"], turn["result"]) == (2, "still here"), deed


def test_a_clone_that_cannot_be_made_fails_its_agent_until_it_is_resumed(daemon, app):
    trees = daemon.directory / "trees"
    trees.write_text("in the way")
    daemon.start(config=f'[worktree]\ndir = "{trees}"\n')  # the old name of the section
    assert "[worktree] is called [clone] now: rename it" in daemon.log
    failed = daemon.ctl("spawn", "fix", "-w", app, "--clone", "--wait", "/say hi")
    assert failed.code == 5, failed
    agent = daemon.show("fix")
    assert (agent["state"], agent["attention"]["kind"]) == ("failed", "failed")
    trees.unlink()
    daemon.ok("resume", "fix", "--wait")
    assert daemon.show("fix")["turn"]["outcome"] == "success"
    assert len(list(trees.iterdir())) >= 1


@pytest.mark.parametrize("below", ["", "sub/"], ids=["at the top", "below"])
def test_a_tracked_cursor_directory_changes_in_commits_and_is_in_nobodys_way(daemon, app, below):
    rules = app / below / ".cursor" / "rules"
    rules.mkdir(parents=True)
    for name in ("old", "gone"):
        (rules / f"{name}.mdc").write_text(f"{name}\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "rules")
    daemon.start()
    daemon.ok("spawn", "fix", "-w", app / below, "--clone", "--wait", f"{commit('a.txt')}; git status --porcelain")
    assert daemon.shell("fix") == "", "nothing of the generated files is a change"
    (rules / "old.mdc").write_text("other\n")
    (rules / "new.mdc").write_text("new\n")
    git(daemon, app, "rm", "-q", f"{below}.cursor/rules/gone.mdc")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "other rules")
    merges = "/shell git merge -q --no-edit workspace/main && git status --porcelain; git add -f .cursor"
    daemon.ok("send", "fix", "--wait", merges)
    assert "outside of your sparse-checkout" in daemon.shell("fix")
    found = daemon.show("fix")
    assert (found["clone"]["files"], found["clone"]["behind"], found["clone"]["ahead"]) == (0, 0, 2)
    assert daemon.ctl("merge", "fix").code == 0
    assert git(daemon, app, "status", "--porcelain") == ""
    assert git(daemon, app, "ls-files", f"{below}.cursor").splitlines() == [
        f"{below}.cursor/rules/new.mdc", f"{below}.cursor/rules/old.mdc",
    ]  # fmt: skip
