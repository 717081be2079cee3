"""Where a `.git` file leads: believed if it leads back."""

import pytest

from substrat.daemon.workspaces import gitlink, protected_paths
from substrat.daemon.workspaces.workspace_scan import scan
from substrat.errors import WorkspaceUnusable
from tests.daemon.workspaces.repositories import git


@pytest.fixture
def linked(repository, tmp_path):
    path = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", path)
    return path


def test_a_linked_worktrees_repository_is_believed(repository, linked):
    common, own = f"{repository}/.git", f"{repository}/.git/worktrees/linked"
    assert gitlink.link_of(str(linked), ()) == (common, own)
    seen = scan(str(linked), (common,), (own,))
    assert f"{common}/worktrees" in seen.read_only
    assert {f"{linked}/.git", f"{common}/config", f"{own}/commondir"} <= set(seen.read_only)


def test_a_submodules_repository_is_believed(repository, tmp_path):
    git(repository, "init", "-q", tmp_path / "other")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "--quiet", "add", tmp_path / "other", "mod")
    assert gitlink.link_of(f"{repository}/mod", ()) == (f"{repository}/.git/modules/mod",) * 2


@pytest.mark.parametrize("to", ["repository", "worktree", "nowhere", "link"])
def test_a_git_file_that_an_agent_made_is_not(repository, linked, tmp_path, to):
    """It leads to somebody else's repository, which doesn't lead back."""
    mine = tmp_path / "mine"
    mine.mkdir()
    target = {"repository": f"{repository}/.git", "worktree": f"{repository}/.git/worktrees/linked", "nowhere": "/nowhere"}
    if to == "link":
        (mine / ".git").symlink_to(linked / ".git")
        assert gitlink.link_of(str(mine), ()) is None
        return
    (mine / ".git").write_text(f"gitdir: {target[to]}\n")
    shared, own, refused = protected_paths.shared_with(str(mine), ())
    assert (shared, own) == ((), ())
    assert "isn't shown" in refused


def test_it_leads_nowhere_that_is_closed(repository, linked):
    with pytest.raises(WorkspaceUnusable, match="would open"):
        gitlink.link_of(str(linked), (f"{repository}",))
