"""Placeholders for missing paths: made, removed, and never behind a link."""

import pytest

from substrat.daemon.workspaces import placeholders
from substrat.daemon.workspaces.workspace_scan import scan
from substrat.errors import WorkspaceUnusable
from tests.daemon.workspaces.repositories import git


def test_what_stands_in_comes_and_goes(repository):
    missing = scan(str(repository)).missing
    assert placeholders.make_all(missing) == tuple(missing)
    assert git(repository, "status", "--porcelain") == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "with them")
    assert placeholders.make_all(missing) == tuple(missing)
    placeholders.remove_all(missing)
    placeholders.remove_all(missing)
    assert set(scan(str(repository)).missing) == set(missing)


def test_what_somebody_put_there_stays(repository):
    for name, content in ((".envrc/mine", "x"), (".git/commondir", "../other"), (".git/config.worktree", "[a]")):
        path = repository / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        placeholders.remove_all([str(path if path.parent.name == ".git" else path.parent)])
        assert path.read_text() == content


@pytest.mark.parametrize("name", [".envrc", ".git/commondir"])
def test_nothing_is_made_or_removed_behind_a_link(work, tmp_path, name):
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    (other / ".git" / "commondir").write_text(".\n")
    (other / ".envrc").mkdir()
    work.rmdir()
    work.symlink_to(other)
    placeholders.remove_all([str(work / name)])
    assert (other / name).exists()
    with pytest.raises(WorkspaceUnusable):
        placeholders.make_all([str(work / ".vscode")])
