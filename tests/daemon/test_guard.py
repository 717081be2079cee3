"""What is found to protect in a workspace, what stands in for what is missing, and where a `.git` file may lead."""

import contextlib
import os
import subprocess

import pytest

from sandbox import host
from substrat.daemon import gitlink, guard, nofollow, standins
from substrat.daemon.git import Git
from substrat.daemon.guard import Bounds, Guard
from substrat.errors import WorkspaceUnusable


def git(path, *arguments):
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "protocol.file.allow=always")
    environment = {"HOME": str(path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", path, *identity, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


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


def found(work, **how):
    """What was found, with paths from the workspace."""
    seen = guard.look(str(work), **how)
    return {
        name: {os.path.relpath(path, work) for path in getattr(seen, name)} for name in ("kept", "closed", "missing")
    } | {"notes": seen.notes}


def test_an_empty_workspace(work):
    seen = found(work)
    assert {".cursor", ".vscode", ".envrc", ".bashrc"} <= seen["missing"]
    assert (seen["kept"], seen["closed"], seen["notes"]) == (set(), set(), ())
    assert ".husky" not in seen["missing"]


def test_a_repository_cannot_be_renamed_and_its_configuration_not_changed(repository):
    seen = found(repository)
    assert {".git", ".git/info"} <= seen["kept"]
    assert {".git/config", ".git/hooks"} <= seen["closed"]
    assert {".git/commondir", ".git/config.worktree"} <= seen["missing"]


def test_nested_repositories_and_files(work):
    (work / "a" / "b").mkdir(parents=True)
    git(work / "a" / "b", "init", "-q")
    (work / "a" / ".vscode").mkdir()
    (work / "c").mkdir()
    git(work / "c", "init", "-q", "--bare")
    seen = found(work)
    assert {"a", "a/b", "a/b/.git", "c"} <= seen["kept"]
    assert {"a/.vscode", "a/b/.git/config", "c/config"} <= seen["closed"]
    assert "a/b/.git/commondir" in seen["missing"]
    assert "a/.idea" not in seen["missing"]


def test_submodules_and_linked_worktrees(repository, tmp_path):
    git(repository, "init", "-q", tmp_path / "other")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "--quiet", "add", "--name", "deep/mod", tmp_path / "other", "mod")
    git(repository, "worktree", "add", "-q", tmp_path / "linked")
    seen = found(repository)
    module = ".git/modules/deep/mod"
    assert {".git/modules", ".git/modules/deep", module, ".git/worktrees", ".git/worktrees/linked"} <= seen["kept"]
    assert {f"{module}/config", "mod/.git", ".git/worktrees/linked/commondir"} <= seen["closed"]
    assert f"{module}/commondir" in seen["missing"]


@pytest.mark.parametrize("name", [".vscode", ".envrc", ".git", ".git/hooks", ".git/config"])
def test_a_link_at_the_top_is_refused(work, tmp_path, name):
    if "/" in name:
        (work / ".git").mkdir()
    (work / name).symlink_to(tmp_path)
    with pytest.raises(WorkspaceUnusable, match=name):
        guard.look(str(work))


def test_a_link_further_down_is_told_and_not_followed(work, tmp_path):
    (work / "a").mkdir()
    (work / "a" / ".git").symlink_to(tmp_path)
    (work / "loop").symlink_to(work)
    git(work, "init", "-q", tmp_path / "elsewhere")
    (work / "away").symlink_to(tmp_path / "elsewhere")
    seen = found(work)
    assert seen["notes"] == (f"links can't be protected: {work}/a/.git",)
    assert not any(path.startswith("away") for path in seen["kept"] | seen["closed"])


def test_the_walk_is_bounded(work):
    for number in range(30):
        git(work, "init", "-q", work / f"r{number}")
    for bounds in (Bounds(entries=5), Bounds(mounts=10), Bounds(seconds=-1), Bounds(depth=0)):
        (note,) = guard.look(str(work), bounds=bounds).notes
        assert "too much" in note
    (work / "node_modules" / "x" / ".git").mkdir(parents=True)
    assert not any("node_modules" in path for path in found(work)["kept"])


def test_what_stands_in_comes_and_goes(repository):
    missing = guard.look(str(repository)).missing
    assert all(standins.make(path) for path in missing)
    assert git(repository, "status", "--porcelain") == ""
    git(repository, "commit", "-q", "--allow-empty", "-m", "with them")
    assert all(standins.make(path) for path in missing)
    for path in missing:
        standins.remove(path)
        standins.remove(path)
    assert set(guard.look(str(repository)).missing) == set(missing)


def test_what_somebody_put_there_stays(repository):
    for name, content in ((".envrc/mine", "x"), (".git/commondir", "../other"), (".git/config.worktree", "[a]")):
        path = repository / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        standins.remove(str(path if path.parent.name == ".git" else path.parent))
        assert path.read_text() == content


@pytest.mark.parametrize("name", [".envrc", ".git/commondir"])
def test_nothing_is_made_or_removed_behind_a_link(work, tmp_path, name):
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    (other / ".git" / "commondir").write_text(".\n")
    (other / ".envrc").mkdir()
    work.rmdir()
    work.symlink_to(other)
    standins.remove(str(work / name))
    assert (other / name).exists()
    with pytest.raises(WorkspaceUnusable):
        standins.make(str(work / ".vscode"))


def test_news_are_what_is_new_or_another(repository):
    before = guard.look(str(repository))
    for path in before.missing:
        standins.make(path)
    assert guard.news(before, guard.look(str(repository))) is None
    git(repository, "init", "-q", repository / "new")
    (repository / "sub").mkdir()
    (repository / "sub" / ".envrc").touch()
    os.replace(repository / ".git" / "config", repository / "kept")
    (repository / ".git" / "config").write_text("[core]\n")
    said = guard.news(before, guard.look(str(repository)))
    for name in ("new/.git", "sub/.envrc", ".git/config"):
        assert f"{repository}/{name}" in said
    assert "new/.git/config" not in said


def test_a_guard_survives_the_daemon(repository):
    seen = guard.look(str(repository))
    assert guard.decode(guard.encode(seen)) == seen
    assert guard.decode(b"{") is None
    assert guard.decode(None) is None
    assert guard.decode(guard.encode(Guard(closed=("/w/\udcff",)))) == Guard(closed=("/w/?",))


# Where a .git file leads


@pytest.fixture
def linked(repository, tmp_path):
    path = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", path)
    return path


def test_a_linked_worktrees_repository_is_believed(repository, linked):
    common, own = f"{repository}/.git", f"{repository}/.git/worktrees/linked"
    assert gitlink.link_of(str(linked), ()) == (common, own)
    seen = guard.look(str(linked), (common,), (own,))
    assert f"{common}/worktrees" in seen.closed
    assert {f"{linked}/.git", f"{common}/config", f"{own}/commondir"} <= set(seen.closed)


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
    shared, own, refused = guard.shared_with(str(mine), ())
    assert (shared, own) == ((), ())
    assert "isn't shown" in refused


def test_it_leads_nowhere_that_is_closed(repository, linked):
    with pytest.raises(WorkspaceUnusable, match="would open"):
        gitlink.link_of(str(linked), (f"{repository}",))


# Opening


def test_nothing_is_followed_and_nothing_blocks(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dir").mkdir()
    (tmp_path / "way").symlink_to("dir")
    (tmp_path / "dir" / "inner").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    assert nofollow.read_small(str(tmp_path / "file"), 4) == b"text"
    assert nofollow.read_small(str(tmp_path / "file"), 3) is None
    for name in ("link", "fifo", "dir", "gone", "way/inner", "/dev/zero"):
        assert nofollow.read_small(os.path.join(tmp_path, name), 100) is None
    with pytest.raises(OSError, match="link"):
        nofollow.open_path(str(tmp_path / "way" / "inner"))
    with pytest.raises(OSError, match="upwards"):
        nofollow.open_path(f"{tmp_path}/../x")


async def test_git_on_an_errand_executes_nothing_that_a_repository_names(repository):
    """Its configuration is as hostile as it can be; what it would run leaves a mark."""

    bubblewrap = host.find_bubblewrap()
    if bubblewrap is None or host.sandbox_obstacle(bubblewrap) is not None:
        pytest.skip("no sandbox can be made here")
    (repository / ".cursor").mkdir()
    (repository / ".cursor" / "mcp.json").write_text("{}")
    git(repository, "add", ".")
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    evil = repository / ".git" / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {repository}/.git/MARK\n")
    evil.chmod(0o755)
    for name in ("post-index-change", "fsmonitor-watchman"):
        (repository / ".git" / "hooks" / name).symlink_to(evil)
    keys = ("core.fsmonitor", "core.sshCommand", "core.pager", "filter.evil.clean", "filter.evil.process",
            "diff.evil.textconv", "credential.helper", "core.alternateRefsCommand")  # fmt: skip
    config = repository / ".git" / "config"
    for key in keys:
        git(repository, "config", key, str(evil))
    (repository / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    git(repository, "config", "include.path", "more")
    seen = guard.look(str(repository))
    for path in seen.missing:
        standins.make(path)
    before = config.read_bytes()
    await Git({}).forget_size(bubblewrap, str(repository), ".cursor/mcp.json", seen)
    assert not (repository / ".git" / "MARK").exists()
    assert config.read_bytes() == before
    # The control: git on the host would have; what it is told to run doesn't answer, so it fails then.
    with contextlib.suppress(subprocess.CalledProcessError):
        git(repository, "status")
    assert (repository / ".git" / "MARK").exists()
