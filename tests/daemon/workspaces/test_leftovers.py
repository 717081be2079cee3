"""A lock of git's is removed only where nothing that runs can hold it."""

import os
import subprocess
from pathlib import Path

import pytest

from substrat.daemon.kernel import procfs
from substrat.daemon.workspaces import leftovers
from tests.support.waiting import wait_until

WAITING = ("cat-file", "--batch")


@pytest.fixture
def repository(tmp_path):
    top = tmp_path / "work"
    for place in (top, tmp_path / "other"):
        subprocess.run(["git", "init", "-q", place], check=True)
    (top / ".git/index.lock").touch()
    return top


def remove(top):
    found = leftovers.read([f"{top}/.git"])
    lock = f"{top}/.git/index.lock"
    return leftovers.remove(lock, found[lock], str(top))


@pytest.mark.parametrize(
    ("where", "command", "is_removed"),
    [
        ("other", ("git", *WAITING), True),
        ("work", ("git", *WAITING), False),
        (".", ("git", "-C", "work", *WAITING), False),
        (".", ("git", "--git-dir=work/.git", *WAITING), False),
        ("other", ("env", "GIT_DIR=../work/.git", "git", *WAITING), False),
        ("work", ("sh", "-c", "exec 9<.git/index.lock; read line"), False),
        ("work", ("sh", "-c", "read line"), True),
    ],
)
def test_a_git_that_may_be_in_the_repository_keeps_it(repository, where, command, is_removed):
    held = subprocess.Popen(command, cwd=repository.parent / where, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        name = "git" if "git" in command else "sh"
        wait_until(lambda: Path(f"/proc/{held.pid}/comm").read_text() == f"{name}\n", "its start")
        if "exec 9" in command[-1]:
            wait_until(lambda: os.path.exists(f"/proc/{held.pid}/fd/9"), "its descriptor")
        if not is_removed:
            assert not remove(repository)
            held.communicate()
        # Other gits of this machine may count for a moment, for example another test's that sees all directories.
        wait_until(lambda: remove(repository), "the lock's removal")
    finally:
        held.communicate()


def test_a_git_that_ends_while_it_is_looked_at_holds_nothing(repository, monkeypatch):
    where = str(repository), f"{repository}/.git"
    mounts = procfs.mounts
    with subprocess.Popen(("unshare", "-Urm", "git", *WAITING), cwd=repository, stdin=subprocess.PIPE) as held:

        def mounts_of_one_that_ends(pid):
            if pid == held.pid:
                held.kill()
                held.wait()
            return mounts(pid)

        wait_until(lambda: Path(f"/proc/{held.pid}/comm").read_text() == "git\n", "its start")
        assert leftovers._may_hold(f"/proc/{held.pid}", where, f"{where[1]}/index.lock"), "the control"
        monkeypatch.setattr(procfs, "mounts", mounts_of_one_that_ends)
        assert not leftovers._may_hold(f"/proc/{held.pid}", where, f"{where[1]}/index.lock")


def test_odd_locks_stay(repository, tmp_path):
    lock = repository / ".git/index.lock"

    def is_refused(inode):
        try:
            assert not leftovers.remove(str(lock), inode, str(repository))
        except FileExistsError:
            return True
        return False  # another git of this machine counted for a moment

    lock.unlink()
    lock.mkdir()
    wait_until(lambda: is_refused(lock.lstat().st_ino), "the refusal of a directory")
    lock.rmdir()
    lock.symlink_to(tmp_path / "other")
    wait_until(lambda: is_refused(lock.lstat().st_ino), "the refusal of a link")
    (tmp_path / "link").symlink_to(repository / ".git")
    assert leftovers.read([str(tmp_path / "link"), str(tmp_path / "missing"), str(lock)]) == {}
    found = leftovers.read([f"{repository}/.git"])
    lock.rename(tmp_path / "kept")
    lock.touch()
    wait_until(lambda: is_refused(found[str(lock)]), "the refusal of another file")
    assert lock.exists()
