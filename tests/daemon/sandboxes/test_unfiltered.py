"""The commit that HEAD is at, read without git."""

import os

from substrat.daemon.sandboxes.unfiltered import head
from tests.daemon.sandboxes.repositories import git


def test_where_head_is(repository):
    place = str(repository / ".git")
    at = git(repository, "rev-parse", "HEAD").strip()
    assert head(place) == at
    git(repository, "pack-refs", "--all")
    assert head(place) == at
    git(repository, "checkout", "-q", "--detach")
    assert head(place) == at


def test_what_is_no_head(repository):
    for text in ("ref: refs/heads/none", "ref: ../../x", "ref: /etc/passwd", "nothing", ""):
        (repository / ".git" / "HEAD").write_text(text)
        assert head(str(repository / ".git")) is None
    (repository / ".git" / "HEAD").unlink()
    os.mkfifo(repository / ".git" / "HEAD")
    assert head(str(repository / ".git")) is None
