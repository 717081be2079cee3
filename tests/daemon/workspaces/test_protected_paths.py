"""Protected paths as a value: compared, described, written down and read again."""

import os

from substrat.daemon.workspaces import placeholders, protected_paths
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from substrat.daemon.workspaces.workspace_scan import scan
from tests.daemon.workspaces.repositories import git


def test_news_are_what_is_new_or_another(repository):
    before = scan(str(repository))
    placeholders.make_all(before.missing)
    assert protected_paths.changes(before, scan(str(repository))) == []
    git(repository, "init", "-q", repository / "new")
    (repository / "sub").mkdir()
    (repository / "sub" / ".envrc").touch()
    os.replace(repository / ".git" / "config", repository / "kept")
    (repository / ".git" / "config").write_text("[core]\n")
    found = protected_paths.changes(before, scan(str(repository)))
    assert found == [f"{repository}/{name}" for name in (".git/config", "new/.git", "sub/.envrc")]
    assert all(path in protected_paths.describe_changes(found) for path in found)


def test_links_that_appear_or_are_made_anew_are_news(repository):
    (repository / "sub").mkdir()
    before = scan(str(repository))
    links = [repository / "sub" / name for name in (".vscode", ".envrc", ".git")]
    for link in links:
        link.symlink_to("../other")
    first = scan(str(repository))
    assert protected_paths.changes(before, first) == sorted(map(str, links))
    assert protected_paths.changes(first, scan(str(repository))) == []
    for _ in range(3):
        links[0].unlink()
        links[0].symlink_to("../elsewhere")
        assert protected_paths.changes(first, scan(str(repository))) == [str(links[0])]


def test_a_guard_survives_the_daemon(repository):
    seen = scan(str(repository))
    assert protected_paths.decode(protected_paths.encode(seen)) == seen
    assert protected_paths.decode(b"{") is None
    assert protected_paths.decode(None) is None
    assert protected_paths.decode(protected_paths.encode(ProtectedPaths(read_only=("/w/\udcff",)))) == ProtectedPaths(
        read_only=("/w/?",)
    )
