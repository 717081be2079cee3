"""`keep_clone` on clones in which git doesn't look at everything: it keeps all files, and counts what it can't keep."""

import os
import time

import pytest

from tests.inside.clones import Clone
from tests.support.waiting import wait_until


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


def test_files_below_a_gitlink_without_a_repository_are_kept_in_its_place(clone):
    first = clone.keep()
    assert (first.files, first.paths) == (0, {".gitignore", "a", "b", "lib"})
    assert clone.is_known()
    (clone.tree / "lib" / "parser.py").write_text("work\n")
    assert not clone.is_known(), "a clone with an empty submodule is looked at again"
    found = clone.keep()
    assert (found.files, found.paths) == (1, {".gitignore", "a", "b", "lib/parser.py"})
    assert clone.git("show", f"{found.wip}:lib/parser.py") == "work\n"
    assert clone.git("status", "--porcelain") == "", "the agent's own index is as it was"
    (clone.tree / "lib" / "parser.py").unlink()
    (clone.tree / "lib" / "x.tmp").touch()
    again = clone.keep()
    assert (again.files, again.ignored, again.paths) == (0, 1, first.paths)


def test_work_that_is_not_heads_is_seen_named_and_kept(clone):
    clone.keep()
    clone.git("branch", "merged")
    assert clone.keep().branches == ()
    head = clone.git("rev-parse", "HEAD").strip()
    clone.git("commit", "-q", "--allow-empty", "-m", "two")
    clone.git("branch", "topic")
    clone.git("reset", "-q", "--hard", head)
    assert not clone.is_known(), "a commit that only another branch has is looked at"
    found = clone.keep()
    assert (found.head, found.branches, found.stashes) == (head, (("topic", 1),), 0)
    assert clone.is_known()
    (clone.tree / "a").write_text("stashed\n")
    clone.git("stash", "-q")
    clone.git("worktree", "add", "-q", "--detach", "nested")
    clone.git("commit", "-q", "--allow-empty", "-m", "three", at=clone.tree / "nested")
    assert not clone.is_known()
    found = clone.keep()
    assert (found.branches, found.stashes) == ((("topic", 1), ("HEAD of nested", 1)), 1)
    parents = clone.git("rev-parse", f"{found.asides}^@").split()
    assert parents[0] == found.wip
    assert clone.git("rev-parse", "stash@{0}").strip() in parents
    assert clone.git("rev-parse", "topic").strip() in parents
    assert clone.git("show", "-s", "--format=%b", found.asides).split("\n")[:3] == [
        "branch topic", "branch HEAD of nested", "stash 0",
    ]  # fmt: skip
    clone.git("stash", "drop", "-q")
    clone.git("branch", "-D", "topic")
    clone.git("worktree", "remove", "--force", "nested")
    found = clone.keep()
    assert (found.branches, found.stashes, found.asides) == ((), 0, None)


def test_a_rebase_onto_the_users_branch_packs_nothing_of_it(clone):
    clone.keep()
    clone.write("theirs", "new\n")
    clone.git("add", "theirs")
    clone.git("commit", "-qm", "the user's")
    clone.git("update-ref", "refs/remotes/workspace/main", "HEAD")
    clone.git("commit", "-q", "--allow-empty", "-m", "the agent's")
    clone.keep()
    objects = int.from_bytes((clone.out / "pack").read_bytes()[8:12], "big")
    assert objects == 2, "its commit, and that of its files"


def test_what_gits_own_status_hides_is_counted(clone):
    clone.keep()
    clone.git("update-index", "--skip-worktree", "a")
    (clone.tree / "a").write_text("edited\n")
    (clone.tree / "b").write_text("edited\n")
    (clone.tree / "lib" / "parser.py").write_text("work\n")
    found = clone.keep()
    assert (found.files, found.hidden) == (3, 2)


@pytest.mark.parametrize("hide", ["skip-worktree", "assume-unchanged", "both"])
def test_files_with_a_mark_are_kept(clone, hide):
    clone.keep()
    for mark in ("skip-worktree", "assume-unchanged") if hide == "both" else (hide,):
        clone.git("update-index", f"--{mark}", "a", "b")
    (clone.tree / "a").write_text("edited\n")
    found = clone.keep()
    assert (found.files, clone.git("show", f"{found.wip}:a")) == (1, "edited\n")
    (clone.tree / "b").unlink()
    found = clone.keep()
    # A file that a sparse checkout leaves out isn't there either: git counts it as unchanged, and so does this.
    assert (found.files, "b" in found.paths) == (1, True), found
    (clone.tree / "b").write_text("later\n")
    assert not clone.is_known()
    assert clone.git("show", f"{clone.keep().wip}:b") == "later\n"


@pytest.mark.parametrize("setting", ["core.trustctime=false", "core.checkStat=minimal", "core.ignoreStat=true"])
def test_a_setting_of_the_clone_hides_no_change(clone, setting):
    clone.git("config", *setting.split("="))
    long_ago = 10**18  # a file as young as the index is compared byte for byte
    os.utime(clone.tree / "a", ns=(long_ago, long_ago))
    clone.git("add", "a")
    clone.keep()
    changed_at = int((clone.tree / "a").stat().st_ctime)
    wait_until(lambda: int(time.time()) > changed_at, "the second, which is all that git stores of a time, is over")
    (clone.tree / "a").write_text("A\n")
    os.utime(clone.tree / "a", ns=(long_ago, long_ago))
    assert not clone.is_known()
    found = clone.keep()
    assert (found.files, clone.git("show", f"{found.wip}:a")) == (1, "A\n")


def test_repositories_at_gitlinks_are_counted_however_deep_they_lie(clone):
    inner = clone.tree / "inner"
    deep = inner / "deep"
    for place in (inner, deep):
        clone.git("init", "-q", str(place))
        clone.git("commit", "-q", "--allow-empty", "-m", "only here", at=place)
    clone.git("add", "deep", at=inner)
    (inner / "hidden").write_text("x\n")
    clone.git("add", "hidden", at=inner)
    clone.git("commit", "-qm", "two", at=inner)
    clone.git("update-index", "--skip-worktree", "hidden", at=inner)
    clone.git("add", "inner")
    clone.git("commit", "-qm", "no .gitmodules")
    assert (clone.keep().submodules, clone.keep().nested) == (3, 1)
    (inner / "file").touch()
    clone.git("stash", "-qu", at=inner)
    (deep / "file").touch()
    found = clone.keep()
    assert (found.submodules, found.nested) == (6, 3)


def test_a_false_git_file_in_a_submodule_hides_nothing(clone):
    (clone.tree / "lib" / ".git").touch()
    (clone.tree / "lib" / "work").write_text("work\n")
    found = clone.keep()
    assert (found.files, "lib/work" in found.paths) == (1, True), found
