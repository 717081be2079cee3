"""Submodules and LFS files in private clones: filled from the user's own repositories, without a network, and not lost."""

import os
import shutil

import pytest

from tests.support import git_lfs
from tests.system.test_clones import app, git

__all__ = ["app"]

FILE = ("-c", "protocol.file.allow=always")


def repository(daemon, name, files):
    """A repository with one commit."""
    work = daemon.workspace(name, git=True)
    for path, text in files.items():
        (work / path).write_text(text)
    git(daemon, work, "add", "-A")
    git(daemon, work, "commit", "-qm", f"files of {name}")
    return work


@pytest.fixture
def nested(daemon, app):
    """`app` with the submodule `libs/json`, in which there is the submodule `inner`."""
    inner, lib = repository(daemon, "inner", {"deep.txt": "deep\n"}), repository(daemon, "lib", {"lib.txt": "lib\n"})
    git(daemon, lib, *FILE, "submodule", "--quiet", "add", str(inner), "inner")
    git(daemon, lib, "commit", "-qm", "inner")
    git(daemon, app, *FILE, "submodule", "--quiet", "add", str(lib), "libs/json")
    git(daemon, app, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    git(daemon, app, "commit", "-qm", "libs/json")
    return app


def test_submodules_are_there_at_the_commits_of_the_base_without_a_network(daemon, nested):
    git(
        daemon, nested / "libs" / "json", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x", "--allow-empty"
    )
    daemon.start()
    look = (
        "cat libs/json/lib.txt libs/json/inner/deep.txt; git status --short; git submodule update --init --recursive; "
        "git submodule status --recursive | cut -c 1"
    )
    daemon.spawn("fix", nested, f"/shell {look}", "--clone", "--network", "none")
    assert daemon.shell("fix") == "lib\ndeep\n \n \n"
    assert "x" in git(daemon, nested / "libs" / "json", "log", "-1", "--format=%s")


COMMIT = (
    "cd libs/json; git checkout -q -b mine; echo new > new.txt; git add .; git commit -qm 'in the submodule'; cd ../..; "
    "git add libs/json; git commit -qm 'the submodule moves'"
)


def test_a_submodules_commit_is_handed_over_as_a_bundle_and_the_superprojects_lands(daemon, nested):
    daemon.start()
    daemon.spawn("fix", nested, f"/shell {COMMIT}", "--clone", "--network", "none")
    head = git(daemon, nested, "rev-parse", "refs/substrat/fix/head:libs/json")
    bundle = daemon.directory / "json.bundle"
    line = ("exec", "fix", "--", "git", "-C", "libs/json", "bundle", "create", "-", "mine", "--not", "--remotes")
    bundle.write_bytes(daemon.follow(*line).communicate()[0])
    git(daemon, nested / "libs" / "json", "-c", "transfer.fsckObjects=true", "fetch", "-q", str(bundle), "mine:mine")
    at = git(daemon, nested, "rev-parse", "refs/substrat/fix/head")
    daemon.ok("merge", "fix", "--accept", "libs/json", "--at", at)
    git(daemon, nested, "submodule", "--quiet", "update")
    assert git(daemon, nested / "libs" / "json", "rev-parse", "HEAD") == head
    assert (nested / "libs" / "json" / "new.txt").read_text() == "new\n"
    # The person's branches are known in the clone at the next turn's start, so nothing is only there.
    daemon.ok("send", "fix", "--wait", "/say done")
    assert "its clone is removed" in daemon.ctl("rm", "fix").out


LEFT = (
    "git -C libs/json checkout -q --detach; git -C libs/json branch -qD mine; git switch -qc other HEAD~1; "
    "git submodule --quiet update"
)


@pytest.mark.parametrize(
    ("deeds", "told"),
    [
        (COMMIT, "1 commit in a submodule"),
        ("echo x > libs/json/inner/new.txt", "files of repositories inside it"),
        (f"{COMMIT}; git rm -qf libs/json; git commit -qm 'without it'", "1 commit in a submodule"),
        ("cd libs/json; echo x >> lib.txt; git stash -q", "commits in submodules"),
        (f"{COMMIT}; {LEFT}", "1 commit in a submodule"),
        (
            "cd libs/json; echo x > x; mkdir -p {0}; echo x > {0}/exclude".format("../../.git/modules/libs/json/info"),
            "ignored file",
        ),
    ],
)
def test_rm_leaves_a_clone_in_whose_submodules_something_is_that_is_nowhere_else(daemon, nested, deeds, told):
    daemon.start()
    daemon.spawn("fix", nested, f"/shell {deeds}", "--clone", "--network", "none")
    said = daemon.ctl("rm", "fix")
    assert "stays, because" in said.out + said.err, said
    assert told in said.out + said.err, said


def test_a_clone_whose_submodules_are_as_they_were_goes(daemon, nested):
    daemon.start()
    daemon.spawn("fix", nested, "/shell ls", "--clone", "--network", "none")
    assert "its clone is removed" in daemon.ctl("rm", "fix").out


def lacking(nested, words):
    return f"begins in a clone in which {words} help later clones".replace("PATH", str(nested))


def test_a_spawn_says_which_submodules_are_empty(daemon, nested):
    daemon.start()
    assert "notes" not in daemon.ok("spawn", "whole", "-w", nested, "--clone")
    git(daemon, nested / "libs" / "json", "submodule", "--quiet", "deinit", "-f", "inner")
    git(daemon, nested, *FILE, "submodule", "--quiet", "add", str(nested.parent / "inner"), "second")
    git(daemon, nested, "commit", "-qm", "second")
    (nested / ".git" / "modules" / "second").rename(daemon.home / "second")
    (nested / ".git" / "modules" / "second").symlink_to(daemon.home / "second")
    said = daemon.ok("spawn", "fix", "-w", nested, "--clone")["notes"]
    link = "PATH/.git/modules/second is a link, which isn't followed"
    remedy = "`git -C PATH submodule update --init --recursive`"
    assert said == [lacking(nested, f"2 submodules are empty ({link}): {remedy}")]
    daemon.ok("send", "fix", "--wait", "/shell ls -A second libs/json/inner")
    assert daemon.shell("fix") == "libs/json/inner:\n\nsecond:\n"


@pytest.mark.parametrize("filters", [git_lfs.INSTALLED, git_lfs.FILTERS])
def test_lfs_files_are_whole_where_the_user_has_their_objects(daemon, nested, filters):
    tools = daemon.directory / "tools"
    git_lfs.install(tools)
    lib, modules = nested / "libs" / "json", nested / ".git" / "modules"
    for top, common in ((lib, modules / "libs" / "json"), (nested, nested / ".git")):
        git_lfs.store(common, b"large\n")
        (top / ".gitattributes").write_text("*.bin filter=lfs -text\n")
        (top / "a.bin").write_text(git_lfs.pointer(b"large\n"))
        (top / "b.bin").write_text(git_lfs.pointer(b"far\n"))
        git(daemon, top, "add", "-A")
        git(daemon, top, "commit", "-qm", "lfs")
    for key, value in filters.items():
        git(daemon, nested, "config", key, value)
    daemon.start(config=f'[agent]\npath = ["{tools}"]\n', environment={"PATH": f"{tools}:{os.environ['PATH']}"})
    said = daemon.ok("spawn", "fix", "-w", nested, "--clone", "--network", "none")["notes"]
    assert said == [lacking(nested, "2 LFS files are pointers: `git -C PATH lfs pull`")]
    look = "cat a.bin libs/json/a.bin b.bin; git status --short; git -C libs/json status --short"
    daemon.ok("send", "fix", "--wait", f"/shell {look}")
    assert daemon.shell("fix") == "large\nlarge\n" + git_lfs.pointer(b"far\n")
    assert "its clone is removed" in daemon.ctl("rm", "fix").out


@pytest.mark.skipif(shutil.which("git-lfs") is not None, reason="sandboxes have this machine's git-lfs")
def test_lfs_files_are_pointers_without_git_lfs_in_the_sandbox(daemon, nested):
    git_lfs.store(nested / ".git", b"large\n")
    (nested / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (nested / "a.bin").write_text(git_lfs.pointer(b"large\n"))
    git(daemon, nested, "add", "-A")
    git(daemon, nested, "commit", "-qm", "lfs")
    daemon.start()
    said = daemon.ctl("spawn", "fix", "-w", nested, "--clone").err
    assert lacking(nested, "1 LFS file is a pointer: `git -C PATH lfs pull`") in said


def test_a_clone_of_a_linked_worktree_has_its_submodules(daemon, nested):
    linked = daemon.directory / "linked"
    git(daemon, nested, "worktree", "add", "-q", str(linked))
    git(daemon, linked, *FILE, "submodule", "--quiet", "update", "--init", "--recursive")
    (linked / "libs" / "json" / "lib.txt").write_text("newer\n")
    git(daemon, linked / "libs" / "json", "commit", "-qam", "newer")
    git(daemon, linked, "commit", "-qam", "newer")
    daemon.start()
    said = daemon.ok("spawn", "fix", "-w", linked, "--clone", "--network", "none")
    daemon.ok("send", "fix", "--wait", "/shell cat libs/json/lib.txt libs/json/inner/deep.txt; git status --short")
    assert (daemon.shell("fix"), said.get("notes")) == ("newer\ndeep\n", None)


def test_commits_of_the_users_that_come_later_and_a_check_find_their_submodules(daemon, nested):
    daemon.start()
    daemon.spawn("fix", nested, "/say hi", "--clone", "--network", "none")
    lib = nested / "libs" / "json"
    (lib / "lib.txt").write_text("newer\n")
    git(daemon, lib, "commit", "-qam", "newer")
    git(daemon, nested, "commit", "-qam", "newer")
    daemon.ok(
        "send", "fix", "--wait", "/shell git rebase -q workspace/main; git submodule update -q; cat libs/json/lib.txt"
    )
    assert daemon.shell("fix") == "newer\n"
    daemon.ok("send", "fix", "--wait", "/shell echo x > x; git add x; git commit -qm x")
    done = daemon.ctl("merge", "fix", "--check", "grep -q newer libs/json/lib.txt && git -C libs/json log -1")
    assert done.code == 0, done
