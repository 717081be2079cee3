"""Scans of the nested repositories to which `.git` files and links lead git."""

import os

import pytest

from substrat.daemon.workspaces import protected_paths
from substrat.daemon.workspaces.workspace_scan import scan
from tests.daemon.workspaces.repositories import found, git


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


def test_nothing_outside_is_looked_at_because_a_link_or_a_file_leads_there(repository, tmp_path):
    for name in ("b", "c"):
        git(repository, "init", "-q", tmp_path / name)
        (repository / name).mkdir()
    (repository / "b" / ".git").symlink_to(tmp_path / "b" / ".git")
    (repository / "c" / ".git").write_text(f"gitdir: {tmp_path}/c/.git\n")
    assert not [path for path in scan(str(repository)).mounts if not path.startswith(f"{repository}/")]


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
    seen = found(repository)
    assert {f"d{number}/.git" for number in range(6)} <= seen["read_only"]
