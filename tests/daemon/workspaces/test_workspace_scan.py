"""Scans of workspaces: nested files and directories, links, bounds, and modes that keep the owner out."""

import contextlib
import os
import pwd
import resource
from types import SimpleNamespace

import pytest

from substrat.daemon.workspaces.scan_record import Bounds
from substrat.daemon.workspaces.workspace_scan import scan
from substrat.errors import DescriptorsUsedUp, WorkspaceUnusable
from tests.daemon.workspaces.repositories import found, git


def test_an_empty_workspace(work):
    seen = found(work)
    assert {".cursor", ".vscode", ".envrc"} <= seen["missing"]
    assert (seen["pinned"], seen["read_only"], seen["notes"]) == (set(), set(), ())
    assert seen["missing"].isdisjoint({".husky", ".bashrc", ".profile"})


def test_what_a_shell_runs_is_refused_in_a_home(work, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_dir=str(work)))
    assert {".bashrc", ".profile", ".zshrc"} <= found(work)["missing"]


def test_nested_repositories_and_files(work):
    (work / "a" / "b").mkdir(parents=True)
    git(work / "a" / "b", "init", "-q")
    (work / "a" / ".vscode").mkdir()
    (work / "c").mkdir()
    git(work / "c", "init", "-q", "--bare")
    seen = found(work)
    assert {"a", "a/b", "a/b/.git", "c"} <= seen["pinned"]
    assert {"a/.vscode", "a/b/.git/config", "c/config"} <= seen["read_only"]
    assert "a/b/.git/commondir" in seen["missing"]
    assert "a/.idea" not in seen["missing"]


@pytest.mark.parametrize("name", [".vscode", ".envrc", ".git", ".git/hooks", ".git/config"])
def test_a_link_at_the_top_is_refused(work, tmp_path, name):
    if "/" in name:
        (work / ".git").mkdir()
    (work / name).symlink_to(tmp_path)
    with pytest.raises(WorkspaceUnusable, match=name):
        scan(str(work))


def test_a_link_further_down_is_told_and_not_followed(work, tmp_path):
    (work / "a").mkdir()
    (work / "a" / ".git").symlink_to(tmp_path)
    (work / "loop").symlink_to(work)
    git(work, "init", "-q", tmp_path / "elsewhere")
    (work / "away").symlink_to(tmp_path / "elsewhere")
    seen = found(work)
    assert seen["notes"] == (f"links can't be protected: {work}/a/.git",)
    assert not any(path.startswith("away") for path in seen["pinned"] | seen["read_only"])


def test_the_walk_is_bounded(work):
    for number in range(30):
        git(work, "init", "-q", work / f"r{number}")
    for bounds in (Bounds(entries=5), Bounds(git_mounts=10), Bounds(seconds=-1), Bounds(depth=0)):
        (note,) = scan(str(work), bounds=bounds).notes
        assert "too much" in note


def test_among_packages_repositories_alone_are_protected(work):
    package = work / "node_modules" / "x"
    git(work, "init", "-q", package / "inner")
    (package / ".envrc").touch()
    seen = found(work)
    assert "node_modules/x/inner/.git/config" in seen["read_only"]
    assert not any(path.endswith(".envrc") for path in seen["read_only"])


def test_packages_that_lie_elsewhere_are_no_obstacle(work):
    (work / "node_modules").symlink_to(work.parent)
    assert found(work)["notes"] == ()


def test_another_agents_workspace_in_this_one_is_protected_like_its_top(work):
    inner = work / "a" / "b"
    inner.mkdir(parents=True)
    seen = scan(str(work), further=(str(inner),))
    assert {str(inner), str(work / "a")} <= set(seen.pinned)
    assert {f"{inner}/.cursor", f"{inner}/.envrc"} <= set(seen.missing)


def test_everything_that_an_agent_can_make_many_of_is_bounded(repository):
    for number in range(300):
        (repository / f"w{number}").mkdir()
        (repository / f"w{number}" / ".envrc").touch()
        entry = repository / ".git" / "worktrees" / f"w{number}"
        entry.mkdir(parents=True)
        (entry / "gitdir").write_text(f"{repository}/w{number}/.git\n")
        (entry / "commondir").write_text("../..\n")
    seen = scan(str(repository), bounds=Bounds(seconds=60.0, mounts=120))
    assert len(seen.mounts) < 200
    assert any("too much" in note for note in seen.notes)


def test_capitals_count_as_small_letters(work):
    (work / ".Envrc").touch()
    (work / "sub.code-workspace").touch()
    git(work, "init", "-q", work / "x")
    (work / "x" / ".git").rename(work / "x" / ".GIT")
    seen = found(work)
    assert {".Envrc", "sub.code-workspace", "x/.GIT/config"} <= seen["read_only"]


@pytest.mark.parametrize(
    "path",
    [
        ".hg/hgrc",
        ".vim/coc-settings.json",
        ".config/lefthook.toml",
        ".lefthook-local.jsonc",
        ".mise.prod.local.toml",
        "r/.sl/config",
        ".clinerules/hooks/PreToolUse",
        "r/.Rprofile",
    ],
)
def test_what_other_programs_run_unasked_is_protected_where_it_exists(work, path):
    (work / path).parent.mkdir(parents=True, exist_ok=True)
    (work / path).touch()
    assert {path, path.partition("/")[0]} & found(work)["read_only"]


def test_more_names_at_the_top_than_can_be_protected_are_refused(work):
    for number in range(200):
        (work / f"x{number}.code-workspace").touch()
    assert len(found(work)["read_only"]) == 200
    (work / "mise.prod.toml").touch()
    with pytest.raises(WorkspaceUnusable, match=r"201 files like 'mise.prod.toml', .* at most 200 can be protected"):
        scan(str(work))


def test_what_holds_a_protected_name_cannot_be_renamed(work):
    (work / "a" / "b" / ".vscode").mkdir(parents=True)
    (work / "c" / "d").mkdir(parents=True)
    (work / "c" / ".envrc").touch()
    assert found(work)["pinned"] == {"a", "a/b", "c"}


def test_what_cannot_be_opened_for_want_of_descriptors_is_not_taken_for_missing(repository):
    """Otherwise it would go unprotected."""
    nested = repository / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    seen = scan(str(repository))
    gaps: list[int] = []
    while not gaps or gaps[-1] < highest:
        gaps.append(os.dup(0))
    highest = gaps[-1]
    refused = 0
    try:
        for room in range(1, 12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + room, limits[1]))
            try:
                found = scan(str(repository))
            except DescriptorsUsedUp:
                refused += 1
            else:
                assert found == seen
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for gap in gaps:
            os.close(gap)
    assert refused


@contextlib.contextmanager
def mode(path, bits):
    """Give a directory a mode for a while; skipped for root, whom no mode keeps out."""
    before = path.stat().st_mode
    path.chmod(bits)
    try:
        if os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            pytest.skip("no mode keeps this user out")
        yield
    finally:
        path.chmod(before)


@pytest.mark.parametrize("bits", [0o000, 0o311, 0o555])
@pytest.mark.parametrize("name", [".git", ".git/info"])
def test_a_git_directory_that_its_owner_is_kept_out_of_is_refused(repository, name, bits):
    """Nothing could be seen or made in it, and the agent would give it another mode during the turn."""
    (repository / name).mkdir(exist_ok=True)
    with mode(repository / name, bits), pytest.raises(WorkspaceUnusable, match=rf"chmod u\+rwx {repository / name}`"):
        scan(str(repository))


def test_a_directory_further_down_that_its_owner_is_kept_out_of_is_told(work):
    for name in ("a", "b/.git", "c/.git/modules/x"):
        (work / name).mkdir(parents=True)
    with mode(work / "a", 0o000), mode(work / "b/.git", 0o000), mode(work / "c/.git/modules/x", 0o000):
        (note,) = scan(str(work)).notes
    assert note.startswith("can't be looked at, so not all of it is protected")
    assert all(f"{work}/{name}" in note for name in ("a", "b/.git", "c/.git"))
