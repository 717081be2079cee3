"""What tests of sandboxes share: a workspace, and one that is a git repository."""

import pytest

from tests.daemon.sandboxes.repositories import git


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def repository(work):
    git(work, "init", "-q", "-b", "main")
    git(work, "commit", "-q", "--allow-empty", "-m", "first")
    (work / ".git" / "hooks").mkdir(exist_ok=True)
    return work
