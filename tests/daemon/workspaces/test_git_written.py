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


def obstacle(git_dir, branch=BRANCH):
    return git_written.obstacle(str(git_dir), str(git_dir), branch)


FILES = ("index", "HEAD", "ORIG_HEAD", "logs/HEAD", "packed-refs", f"refs/heads/{BRANCH}", f"logs/refs/heads/{BRANCH}")
DIRECTORIES = ("logs", "refs", "refs/heads", "refs/heads/feature", "logs/refs", "logs/refs/heads/feature")


def test_a_repository_as_git_leaves_it_has_nothing_odd(git_dir):
    assert obstacle(git_dir) is None
    assert obstacle(git_dir, "no/such") == f"{git_dir}/HEAD names another branch than no/such"


def test_links_fifos_and_second_names_are_found_at_each_place(git_dir):
    for name in (*FILES, *DIRECTORIES):
        path = git_dir / name
        ways = (link_away,) if name in DIRECTORIES else (fifo, second_name, link_away)
        for way in ways:
            if name not in DIRECTORIES and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            before = path.read_bytes() if path.is_file() else None
            way(path)
            assert f" through {path}, which is no plain file" in (obstacle(git_dir) or ""), way
            if way is link_away:
                path.unlink()
                (git_dir / f"{name}.moved").rename(path)
            elif way is second_name:
                (git_dir / f"{name}.other").unlink()
            else:
                path.unlink()
                path.write_bytes(before or b"")
    assert obstacle(git_dir) is None


def test_what_git_would_fail_at_in_the_middle_is_found_before(git_dir):
    for name in FILES:
        lock = git_dir / f"{name}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        for make in (lock.touch, lambda lock=lock: os.mkfifo(lock), lambda lock=lock: lock.symlink_to("nowhere")):
            make()
            assert (
                obstacle(git_dir) == f"{lock} is there: a git works there, or one that was killed left it; then remove it"
            )
            lock.unlink()
    log = git_dir / "logs" / "refs" / "heads" / BRANCH
    log.unlink()
    log.mkdir()
    assert f" through {log}, " in obstacle(git_dir)


def test_a_ref_that_leads_to_another_is_found(git_dir):
    """git writes the logs of all refs on the way, one of which may be a link."""
    heads = git_dir / "refs" / "heads"
    (git_dir / "HEAD").write_text("ref: refs/heads/x\n")
    (heads / "x").write_text(f"ref: refs/heads/{BRANCH}\n")
    assert "HEAD names another branch" in obstacle(git_dir)
    opened = os.open(git_dir, os.O_PATH)
    assert git_written.odd_here(opened) == ["refs/heads/x"]
    os.close(opened)
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{BRANCH}\n")
    (heads / BRANCH).parent.mkdir(exist_ok=True)
    (heads / BRANCH).write_text("ref: refs/heads/x\n")
    assert "leads to another branch" in obstacle(git_dir)


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
    assert f" through {own}/index, " in git_written.obstacle(str(own), str(git_dir), "other")
