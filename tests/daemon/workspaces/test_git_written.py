"""The look at the files that git on the host writes when a branch moves."""

import os
import subprocess

import pytest

from substrat.daemon.workspaces import git_written

BRANCH = "feature/login"


@pytest.fixture
def git_dir(tmp_path):
    """A git directory in which the branch has a log."""
    subprocess.run(["git", "init", "-q", "-b", BRANCH, tmp_path], check=True)
    who = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
    subprocess.run(["git", "-C", tmp_path, *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run(["git", "-C", tmp_path, "pack-refs"], check=True)
    return tmp_path / ".git"


def link_away(path):
    path.rename(f"{path}.moved")
    path.symlink_to(f"{path}.moved")


def second_name(path):
    os.link(path, f"{path}.other")


def fifo(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


FILES = ("index", "HEAD", "ORIG_HEAD", "logs/HEAD", "packed-refs", f"refs/heads/{BRANCH}", f"logs/refs/heads/{BRANCH}")
DIRECTORIES = ("logs", "refs", "refs/heads", "refs/heads/feature", "logs/refs", "logs/refs/heads/feature")


def test_a_repository_as_git_leaves_it_has_nothing_odd(git_dir):
    assert git_written.odd(str(git_dir), str(git_dir), BRANCH) == []
    assert git_written.odd(str(git_dir), str(git_dir), "no/such/branch") == []


def test_links_fifos_and_second_names_are_found_at_each_place(git_dir):
    for name in (*FILES, *DIRECTORIES, *(f"{name}.lock" for name in FILES)):
        path = git_dir / name
        ways = (link_away,) if name in DIRECTORIES else (fifo, second_name, link_away)
        for way in ways:
            if name not in DIRECTORIES and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            before = path.read_bytes() if path.is_file() else None
            way(path)
            assert git_written.odd(str(git_dir), str(git_dir), BRANCH) == [str(path)], way
            if way is link_away:
                path.unlink()
                (git_dir / f"{name}.moved").rename(path)
            elif way is second_name:
                (git_dir / f"{name}.other").unlink()
            else:
                path.unlink()
                path.write_bytes(before or b"")
    assert git_written.odd(str(git_dir), str(git_dir), BRANCH) == []


@pytest.mark.parametrize("head", [b"ref: refs/heads/a\0b\n", b"ref: refs/heads/" + b"x" * 300, b"ref: refs/heads/../../x"])
def test_a_head_that_no_git_writes_is_no_branch(git_dir, head):
    (git_dir / "HEAD").write_bytes(head)
    second_name(git_dir / "index") if (git_dir / "index").exists() else fifo(git_dir / "index")
    opened = os.open(git_dir, os.O_PATH)
    assert git_written.odd_here(opened) == ["index"]
    os.close(opened)


def test_the_parts_of_a_linked_worktree_are_looked_at_where_they_lie(git_dir, tmp_path):
    subprocess.run(["git", "-C", tmp_path, "worktree", "add", "-q", "-b", "other", tmp_path / "linked"], check=True)
    own = git_dir / "worktrees" / "linked"
    link_away(own / "index")
    link_away(git_dir / "index")
    assert git_written.odd(str(own), str(git_dir), "other") == [str(own / "index")]
