"""Scans of the nested repositories to which `.git` files, links and indexes lead git."""

import os

import pytest

from substrat.daemon.workspaces import protected_paths
from substrat.daemon.workspaces.scan_record import Bounds
from substrat.daemon.workspaces.workspace_scan import scan
from tests.daemon.workspaces.repositories import found, git, named


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
    seen = scan(str(repository), bounds=Bounds(writable=4, git_mounts=20))
    assert len(seen.mounts) < 150
    assert any("too much" in note for note in seen.notes)
    os.rename(index, repository / "index")
    index.symlink_to("../index")
    assert note in scan(str(repository)).notes


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
