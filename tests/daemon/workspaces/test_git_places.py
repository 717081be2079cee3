"""The commit that HEAD is at, read without git."""

import os

from substrat.daemon.workspaces.git_places import head
from tests.daemon.workspaces.repositories import git


def test_where_head_is(repository):
    place = str(repository / ".git")
    at = git(repository, "rev-parse", "HEAD").strip()
    assert head(place, place) == at
    git(repository, "pack-refs", "--all")
    assert head(place, place) == at
    git(repository, "checkout", "-q", "--detach")
    assert head(place, place) == at


def test_where_the_head_of_a_linked_worktree_is(repository):
    place = str(repository / ".git")
    git(repository, "commit", "-q", "--allow-empty", "-m", "more")
    git(repository, "worktree", "add", "-q", "-b", "side", "../tree", "HEAD~1")
    assert head(f"{place}/worktrees/tree", place) == git(repository, "rev-parse", "side").strip() != head(place, place)


def test_what_is_no_head(repository):
    place = str(repository / ".git")
    for text in ("ref: refs/heads/none", "ref: ../../x", "ref: /etc/passwd", "nothing", ""):
        (repository / ".git" / "HEAD").write_text(text)
        assert head(place, place) is None
    (repository / ".git" / "HEAD").unlink()
    os.mkfifo(repository / ".git" / "HEAD")
    assert head(place, place) is None
