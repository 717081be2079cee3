"""Scans of workspaces, placeholders for missing paths, and where a `.git` file may lead."""

import contextlib
import os
import pwd
import resource
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import host
from substrat.daemon.kernel import nofollow
from substrat.daemon.sandboxes import gitlink, oneshot, placeholders, protected_paths
from substrat.daemon.sandboxes.git import Git
from substrat.daemon.sandboxes.protected_paths import ProtectedPaths
from substrat.daemon.sandboxes.scan_record import Bounds
from substrat.daemon.sandboxes.workspace_scan import scan
from substrat.daemon.state.layout import TurnDir
from substrat.errors import DescriptorsUsedUp, WorkspaceUnusable


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
    seen = scan(str(work), **how)
    return {
        name: {os.path.relpath(path, work) for path in getattr(seen, name)} for name in ("pinned", "read_only", "missing")
    } | {"notes": seen.notes}


def test_an_empty_workspace(work):
    seen = found(work)
    assert {".cursor", ".vscode", ".envrc"} <= seen["missing"]
    assert (seen["pinned"], seen["read_only"], seen["notes"]) == (set(), set(), ())
    assert seen["missing"].isdisjoint({".husky", ".bashrc", ".profile"})


def test_what_a_shell_runs_is_refused_in_a_home(work, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_dir=str(work)))
    assert {".bashrc", ".profile", ".zshrc"} <= found(work)["missing"]


def test_a_repository_cannot_be_renamed_and_its_configuration_not_changed(repository):
    seen = found(repository)
    assert {".git", ".git/info"} <= seen["pinned"]
    assert {".git/config", ".git/hooks"} <= seen["read_only"]
    assert {".git/commondir", ".git/config.worktree"} <= seen["missing"]


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


def test_submodules_and_linked_worktrees(repository, tmp_path):
    git(repository, "init", "-q", tmp_path / "other")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "--quiet", "add", "--name", "deep/mod", tmp_path / "other", "mod")
    git(repository, "worktree", "add", "-q", tmp_path / "linked")
    seen = found(repository)
    module = ".git/modules/deep/mod"
    assert {".git/modules", ".git/modules/deep", module} <= seen["pinned"]
    assert {f"{module}/config", "mod/.git", ".git/worktrees"} <= seen["read_only"]
    assert ".git/worktrees/linked" not in seen["pinned"], "it lies outside of the workspace"
    assert f"{module}/commondir" in seen["missing"]


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
    for bounds in (Bounds(entries=5), Bounds(mounts=10), Bounds(seconds=-1), Bounds(depth=0)):
        (note,) = scan(str(work), bounds=bounds).notes
        assert "too much" in note
    (work / "node_modules" / "x" / ".git").mkdir(parents=True)
    assert not any("node_modules" in path for path in found(work)["pinned"])


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


def test_a_worktree_in_the_workspace_works_and_is_protected(repository):
    git(repository, "worktree", "add", "-q", repository / "inner")
    seen = found(repository)
    assert ".git/worktrees" in seen["read_only"]
    assert ".git/worktrees/inner" in seen["pinned"]
    assert {".git/worktrees/inner/commondir", ".git/worktrees/inner/gitdir", "inner/.git"} <= seen["read_only"]
    assert ".git/worktrees/inner/config.worktree" in seen["missing"]


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
    seen = scan(str(repository), bounds=Bounds(seconds=60.0))
    assert len(seen.mounts) < 300
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
        "mise.local.toml",
        "r/.Rprofile",
    ],
)
def test_what_other_programs_run_unasked_is_protected_where_it_exists(work, path):
    (work / path).parent.mkdir(parents=True, exist_ok=True)
    (work / path).touch()
    assert path in found(work)["read_only"]


def test_what_holds_a_protected_name_cannot_be_renamed(work):
    (work / "a" / "b" / ".vscode").mkdir(parents=True)
    (work / "c" / "d").mkdir(parents=True)
    (work / "c" / ".envrc").touch()
    assert found(work)["pinned"] == {"a", "a/b", "c"}


# Where git is led to


def named(repository, *paths):
    """Put nested repositories into the index, as `git add` does."""
    for path in paths:
        git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{path}")


def test_a_nested_repository_that_the_index_names_is_found_where_the_walk_does_not_enter(repository):
    git(repository, "init", "-q", repository / "node_modules" / "p")
    git(repository, "init", "-q", repository / "node_modules" / "p" / "node_modules" / "q")
    git(repository, "init", "-q", repository / "node_modules" / "other")
    named(repository, "node_modules/p", "gone")
    named(repository / "node_modules" / "p", "node_modules/q")
    seen = found(repository)
    assert {"node_modules", "node_modules/p", "node_modules/p/.git", "node_modules/p/node_modules/q"} <= seen["pinned"]
    assert {"node_modules/p/.git/config", "node_modules/p/node_modules/q/.git/config"} <= seen["read_only"]
    assert not any("other" in path for path in seen["pinned"])
    assert seen["notes"] == ()


@pytest.mark.parametrize("how", ["split", "sha256", "version 4"])
def test_every_kind_of_index_is_read(work, how):
    git(work, "init", "-q", *(["--object-format", "sha256"] if how == "sha256" else []))
    git(work, "init", "-q", work / "node_modules" / "p")
    digits = "1" * (64 if how == "sha256" else 40)
    git(work, "update-index", "--add", "--cacheinfo", f"160000,{digits},node_modules/p")
    if how != "sha256":
        git(work, "update-index", *(["--split-index"] if how == "split" else ["--index-version", "4"]))
    assert "node_modules/p/.git/config" in found(work)["read_only"]


def a_link_into_what_is_not_entered(nested, store):
    os.rename(nested / ".git", store)
    (nested / ".git").symlink_to(store)


def a_link_by_another_link(nested, store):
    os.rename(nested / ".git", store)
    store.with_name("way").symlink_to(store.parent)
    (nested / ".git").symlink_to(store.with_name("way") / "store")


def a_file(nested, store):
    os.rename(nested / ".git", store)
    (nested / ".git").write_text("gitdir: ../node_modules/store\n")


def split(nested, store):
    own = nested.with_name("own")
    own.mkdir()
    os.rename(nested / ".git", store)
    os.rename(store / "HEAD", own / "HEAD")
    (own / "commondir").write_text("../node_modules/store\n")
    (nested / ".git").write_text("gitdir: ../own\n")


@pytest.mark.parametrize(
    "lead", [a_link_into_what_is_not_entered, a_link_by_another_link, a_file, split], ids=lambda kind: kind.__name__
)
def test_where_git_is_led_to_is_protected(repository, lead):
    nested, store = repository / "sub", repository / "node_modules" / "store"
    git(repository, "init", "-q", nested)
    store.parent.mkdir()
    before = scan(str(repository))
    lead(nested, store)
    seen = found(repository)
    # A control: git goes there.
    assert (nested / git(nested, "rev-parse", "--git-common-dir").strip()).resolve() == store
    assert {"sub", "node_modules", "node_modules/store"} <= seen["pinned"]
    assert {"node_modules/store/config"} <= seen["read_only"]
    assert f"{store}" in protected_paths.changes(before, scan(str(repository)))
    if lead is split:
        assert {"own/commondir"} <= seen["read_only"]
    else:
        assert "node_modules/store/commondir" in seen["missing"]


def test_a_directory_that_is_joined_to_another_is_a_repository_too(repository):
    """In it git takes it for a bare one."""
    git(repository, "init", "-q", "--bare", repository / "whole")
    (repository / "part").mkdir()
    (repository / "node_modules").mkdir()
    os.rename(repository / "whole", repository / "node_modules" / "whole")
    os.rename(repository / "node_modules" / "whole" / "HEAD", repository / "part" / "HEAD")
    (repository / "part" / "commondir").write_text(f"{repository}/node_modules/whole\n")
    seen = found(repository)
    assert {"part/commondir", "node_modules/whole/config"} <= seen["read_only"]


def test_what_a_link_in_the_index_leads_to_is_protected(repository):
    """Git enters it: that the directory has become a link counts as a change only."""
    git(repository, "init", "-q", repository / "node_modules" / "p")
    named(repository, "sub")
    (repository / "sub").symlink_to("node_modules/p")
    seen = found(repository)
    assert "node_modules/p/.git/config" in seen["read_only"]
    assert seen["notes"] == (f"links can't be protected: {repository}/sub",)


def test_nothing_outside_is_looked_at_because_an_index_or_a_link_names_it(repository, tmp_path):
    for name in ("a", "b", "c"):
        git(repository, "init", "-q", tmp_path / name)
        (repository / name).mkdir()
    (repository / "b" / ".git").symlink_to(tmp_path / "b" / ".git")
    (repository / "c" / ".git").write_text(f"gitdir: {tmp_path}/c/.git\n")
    named(repository, "link")
    (repository / "link").symlink_to(tmp_path / "a")
    assert not [path for path in scan(str(repository)).mounts if not path.startswith(f"{repository}/")]


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


def test_how_much_of_indexes_is_looked_at_is_bounded(repository):
    index = repository / ".git" / "index"
    named(repository, *(f"n{number}" for number in range(20)))
    note = f"not all of this can be read, so nested repositories that it names may be unprotected: {index}"
    assert scan(str(repository)).notes == ()
    assert scan(str(repository), bounds=Bounds(gitlinks=19)).notes == (note,)
    assert scan(str(repository), bounds=Bounds(index_bytes=500)).notes == (note,)
    for number in range(40):
        git(repository, "init", "-q", repository / "node_modules" / f"r{number}")
        named(repository, f"node_modules/r{number}")
    seen = scan(str(repository))
    assert len(seen.mounts) < 350
    assert any("too much" in note for note in seen.notes)
    os.rename(index, repository / "index")
    index.symlink_to("../index")
    assert scan(str(repository)).notes == (note,)


def test_links_without_an_end_and_odd_names_are_no_error(repository):
    (repository / "l0").symlink_to("l0")
    for number in range(1, 1500):
        (repository / f"l{number}").symlink_to(f"l{number - 1}")
    for number, text in enumerate(
        [b"gitdir: ../l1499", b"gitdir: a\0b", b"gitdir: ", b"gitdir: \xff", b"gitdir: ..", b"x"]
    ):
        (repository / f"d{number}").mkdir()
        (repository / f"d{number}" / ".git").write_bytes(text)
    (repository / "e").mkdir()
    (repository / "e" / ".git").symlink_to("../l1499")
    named(repository, "l1499")
    seen = found(repository)
    assert {f"d{number}/.git" for number in range(6)} <= seen["read_only"]


@pytest.mark.parametrize(
    "name", ["modules", "worktrees", "info", "hooks", "commondir", "HEAD", "modules/x", "index", "config"]
)
@pytest.mark.parametrize("kind", ["fifo", "file"])
@pytest.mark.parametrize("where", [".git", "sub/.git"])
def test_what_is_no_directory_or_no_file_is_no_error(repository, where, name, kind):
    git(repository, "init", "-q", repository / "sub")
    place = repository / where / name
    shutil.rmtree(place, ignore_errors=True)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    (os.mkfifo if kind == "fifo" else Path.touch)(place)
    seen = found(repository)
    if name in {"modules", "worktrees", "info", "hooks", "commondir", "config"}:
        assert f"{where}/{name}" in seen["read_only"]
    assert "sub/.git" in seen["pinned"]
    assert f"{where}/worktrees" in seen["missing"] | seen["read_only"]


def test_a_guard_survives_the_daemon(repository):
    seen = scan(str(repository))
    assert protected_paths.decode(protected_paths.encode(seen)) == seen
    assert protected_paths.decode(b"{") is None
    assert protected_paths.decode(None) is None
    assert protected_paths.decode(protected_paths.encode(ProtectedPaths(read_only=("/w/\udcff",)))) == ProtectedPaths(
        read_only=("/w/?",)
    )


# Where a .git file leads


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
    """Its configuration is as hostile as it can be; any program that it names leaves a mark."""

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
    seen = scan(str(repository))
    placeholders.make_all(seen.missing)
    before = config.read_bytes()
    await Git({}).forget_size(bubblewrap, str(repository), ".cursor/mcp.json", seen)
    assert not (repository / ".git" / "MARK").exists()
    assert config.read_bytes() == before
    # The control: git on the host runs the program, which doesn't answer, so git fails.
    with contextlib.suppress(subprocess.CalledProcessError):
        git(repository, "status")
    assert (repository / ".git" / "MARK").exists()


@pytest.fixture
def remembered(repository, monkeypatch):
    """A repository with a tracked `mcp.json`, its protected paths, and the helpers that were run for it."""
    (repository / ".cursor").mkdir()
    (repository / ".cursor" / "mcp.json").write_text("{}")
    git(repository, "add", ".")
    runs, run = [], oneshot.run

    async def counted(*arguments):
        runs.append(arguments)
        return await run(*arguments)

    monkeypatch.setattr(oneshot, "run", counted)
    return repository, scan(str(repository)), runs


def a_fifo(path):
    path.unlink()
    os.mkfifo(path)


def a_link_to_a_fifo(path):
    os.mkfifo(path.with_name("elsewhere"))
    path.unlink()
    path.symlink_to("elsewhere")


def a_directory(path):
    path.unlink()
    path.mkdir()


def too_large(path):
    os.truncate(path, 65 << 20)


@pytest.mark.parametrize("name", ["index", "HEAD"])
@pytest.mark.parametrize(
    "spoil", [a_fifo, a_link_to_a_fifo, a_directory, too_large, os.unlink], ids=lambda kind: kind.__name__
)
async def test_git_is_not_asked_where_the_index_or_head_is_no_file_of_bearable_size(remembered, spoil, name):
    repository, seen, runs = remembered
    spoil(repository / ".git" / name)
    await Git({}).forget_size(host.Bubblewrap("/nonexistent", (0, 8, 0)), str(repository), ".cursor/mcp.json", seen)
    assert runs == []


@pytest.mark.parametrize("name", ["packed-refs", "objects/info/alternates"])
async def test_git_that_is_held_up_elsewhere_is_not_waited_for_long(remembered, monkeypatch, name):
    repository, seen, runs = remembered
    bubblewrap = host.find_bubblewrap()
    if bubblewrap is None or host.sandbox_obstacle(bubblewrap) is not None:
        pytest.skip("no sandbox can be made here")
    monkeypatch.setattr("substrat.daemon.sandboxes.git._INDEX_PATIENCE_S", 0.3)
    place = repository / ".git" / name
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    os.mkfifo(place)
    placeholders.make_all(seen.missing)
    await Git({}).forget_size(bubblewrap, str(repository), ".cursor/mcp.json", seen)
    assert [run[-1] for run in runs] == [0.3]


def a_link(path):
    os.symlink("/etc/passwd", path)


def nothing(_):
    pass


@pytest.mark.parametrize("kind", [os.mkdir, os.mkfifo, a_link, nothing], ids=lambda kind: kind.__name__)
def test_nothing_that_is_no_file_leaves_a_descriptor_open(tmp_path, kind):
    before = os.listdir("/proc/self/fd")
    kind(tmp_path / "thing")
    place = TurnDir(str(tmp_path))
    kind(place.protected)
    kind(place.network_mode)
    assert nofollow.read_small(str(tmp_path / "thing"), 100) is None
    assert not place.read_protected()
    assert place.read_network_mode() is None
    assert os.listdir("/proc/self/fd") == before


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


def test_what_configurations_name_is_looked_up_to_a_bound(repository):
    """An agent's own nested repositories count, so their number and size are its to choose."""
    settings = "[alias]\n" + "".join(f"\ta{number} = !./p{number}\n" for number in range(600))
    (repository / ".git" / "config").write_text(settings)
    seen = scan(str(repository))
    assert len(seen.unprotectable) <= 512
    assert any(".git/config" in note for note in seen.notes if note.startswith("too much"))


def test_a_program_named_from_the_worktrees_top_is_protected(repository):
    (repository / "tools").mkdir()
    (repository / "tools" / "monitor").write_text("")
    for value in ("$(git rev-parse --show-toplevel)/tools/monitor", "$PWD/tools/monitor"):
        git(repository, "config", "core.fsmonitor", value)
        assert "tools/monitor" in found(repository)["read_only"]


def settings_told(repository, text):
    with open(repository / ".git" / "config", "a") as file:
        file.write(text)
    return [name for name, _ in scan(str(repository)).unprotectable]


TOLD = {
    "a module": ('[filter "n"]\n\tclean = python3 -m nbstripout\n', "filter.n.clean"),
    "beside a script": ('[filter "x"]\n\tclean = python3 tools/clean.py\n', "filter.x.clean"),
    "not there": ('[difftool "meld"]\n\tpath = tools/meld\n', "difftool.meld.path"),
    "a value": ("[something]\n\tnew = tools/new\n", "something.new"),
    "nested": ("[filter \"x\"]\n\tclean = sh -c 'tools/new %f'\n", "filter.x.clean"),
}


@pytest.mark.parametrize(("text", "name"), TOLD.values(), ids=TOLD)
def test_what_git_would_run_of_the_workspace_is_told(repository, text, name):
    (repository / "tools").mkdir()
    (repository / "tools" / "clean.py").write_text("import json\n")
    assert settings_told(repository, text) == [name]


def test_a_program_of_a_setting_that_no_table_names_is_read_only(repository):
    (repository / "tools").mkdir()
    (repository / "tools" / "meld").write_text("#!/bin/sh\n")
    text = '[difftool "meld"]\n\tpath = tools/meld\n[lfs "customtransfer.x"]\n\tpath = tools/meld\n'
    assert settings_told(repository, text) == []
    assert str(repository / "tools" / "meld") in scan(str(repository)).read_only


ORDINARY = """
[remote "origin"]
	url = https://example.invalid/a/b.git
	fetch = +refs/heads/*:refs/remotes/origin/*
	gh-resolved = base
	promisor = true
	partialclonefilter = blob:none
[branch "feature/x"]
	remote = origin
	merge = refs/heads/feature/x
	base = origin/main
[user]
	name = A B
	email = a@b.invalid
	signingkey = ~/.ssh/id.pub
[gpg]
	format = ssh
[gpg "ssh"]
	allowedSignersFile = ~/.ssh/allowed_signers
[commit]
	template = .github/template
[filter "lfs"]
	clean = git-lfs clean -- %f
	smudge = git-lfs smudge -- %f
	process = git-lfs filter-process
	required = true
[lfs "https://example.invalid/a/b.git/info/lfs"]
	access = basic
[lfs]
	url = https://example.invalid/lfs
[submodule "vendor/lib"]
	url = ../lib.git
	active = true
[core]
	sshCommand = ssh -i ~/.ssh/work -o IdentitiesOnly=yes
	excludesFile = ~/.gitignore
	pager = delta --dark
	worktree = ../../../vendor/lib
[credential "https://example.invalid"]
	helper = !/usr/bin/gh auth git-credential
	useHttpPath = true
[url "git@example.invalid:"]
	insteadOf = https://example.invalid/
[gitflow "prefix"]
	feature = feature/
[merge]
	tool = vimdiff
[difftool "vscode"]
	cmd = code --wait --diff $LOCAL $REMOTE
[mergetool "x"]
	path = C:/Program Files/Meld/meld.exe
[merge "mergiraf"]
	driver = mergiraf merge --git %O %A %B -s %S -x %X -y %Y -p %P
[diff "jupyternotebook"]
	command = git-nbdiffdriver diff
[diff "golang"]
	xfuncname = "^[ \\t]*(func|type)/x"
[svn-remote "svn"]
	fetch = trunk:refs/remotes/origin/trunk
[alias]
	lg = log --graph
	root = !git rev-parse --show-toplevel
	fix = !sed s/a/b/ x
[http]
	proxy = http://127.0.0.1:3128
[extensions]
	worktreeConfig = true
"""


def test_an_ordinary_configuration_gives_no_alarm(repository):
    assert settings_told(repository, ORDINARY) == []


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
