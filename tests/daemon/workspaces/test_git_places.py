"""Where a repository has its parts, and the commit that HEAD is at, read without git."""

import os

import pytest

from substrat.daemon.workspaces.git_places import Borrowing, borrows_too_much, head, objects
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


@pytest.mark.parametrize(("number", "is_too_much"), [(31, False), (40, True)])
def test_objects_of_many_repositories_are_borrowed_as_far_as_there_is_room_for_mounts(
    repository, tmp_path, number, is_too_much
):
    common, lent = f"{repository}/.git", []
    for one in range(number):
        other = tmp_path / f"other{one}"
        git(tmp_path, "init", "-q", "--bare", str(other))
        lent.append(f"{other}/objects")
    (repository / ".git" / "objects" / "info" / "alternates").write_text("".join(f"{path}\n" for path in lent))
    assert objects(common, Borrowing(())) == (f"{common}/objects", *lent[:31])
    assert borrows_too_much(common, Borrowing(())) is is_too_much
