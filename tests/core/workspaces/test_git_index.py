"""The nested repositories that an index names: compared with git itself, and with damaged indexes."""

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.workspaces.git_index import IndexEntries, read


@pytest.fixture
def git(tmp_path):
    """Runs git in a repository with many files and three gitlinks, one of them far down."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*arguments, data=None):
        command = ["git", "-C", tmp_path, "-c", "user.name=T", "-c", "user.email=t@example.invalid", *arguments]
        return subprocess.run(command, env=environment, input=data, capture_output=True, check=True).stdout

    return run


def filled(git, form="sha1"):
    git("init", "-q", "--object-format", form)
    digits = 40 if form == "sha1" else 64
    blob = git("hash-object", "-w", "--stdin", data=b"x").decode().strip()
    lines = [f"100644 {blob}\tdir/file{number:03}" for number in range(200)]
    lines += [f"160000 {'1' * digits}\t{path}" for path in ("dir/file100sub", "sub", f"{'deep/' * 400}x", "z\u00e9 y")]
    git("update-index", "--add", "--index-info", data="\n".join(lines).encode() + b"\n")


NAMED = (f"{'deep/' * 400}x".encode(), b"dir/file100sub", b"sub", "z\u00e9 y".encode())


@pytest.mark.parametrize("form", ["sha1", "sha256"])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_what_git_wrote(git, tmp_path, version, form):
    filled(git, form)
    git("update-index", "--index-version", str(version))
    if version == 3:
        (tmp_path / "later").write_text("")
        git("add", "--intent-to-add", "later")
    data = (tmp_path / ".git" / "index").read_bytes()
    assert data[7] == version
    assert read(data, 10, 20 if form == "sha1" else 32) == IndexEntries(NAMED)


def test_no_more_than_asked_for(git, tmp_path):
    filled(git)
    data = (tmp_path / ".git" / "index").read_bytes()
    assert read(data, 2) == IndexEntries(NAMED[:2], None, is_all=False)
    assert read(data, 4).is_all


def test_an_index_that_changes_another_one_says_so(git, tmp_path):
    filled(git)
    git("update-index", "--split-index")
    git("update-index", "--add", "--cacheinfo", f"160000,{'2' * 40},more")
    git("update-index", "--cacheinfo", f"160000,{'3' * 40},sub")
    found = read((tmp_path / ".git" / "index").read_bytes(), 10)
    assert b"more" in found.paths
    (base,) = [path for path in (tmp_path / ".git").iterdir() if path.name.startswith("sharedindex.")]
    assert base.name == f"sharedindex.{found.base}"
    assert read(base.read_bytes(), 10).paths == NAMED


@pytest.mark.parametrize("form", ["sha1", "sha256"])
@pytest.mark.parametrize("version", [2, 4])
def test_files_that_are_marked(git, tmp_path, version, form):
    filled(git, form)
    git("update-index", "--index-version", str(version))
    git("update-index", "--skip-worktree", "dir/file003", "dir/file004")
    git("update-index", "--assume-unchanged", "dir/file004", "dir/file199")
    found = read((tmp_path / ".git" / "index").read_bytes(), 2, 20 if form == "sha1" else 32)
    assert found.marked == (
        b"skip-worktree dir/file003", b"skip-worktree dir/file004", b"assume-unchanged dir/file004",
        b"assume-unchanged dir/file199",
    )  # fmt: skip
    assert found.is_whole


def test_an_index_that_is_not_read_to_its_end_says_so():
    """After a name that no file can have git reads on."""
    entry = bytes(24) + b"\0\0\x81\xa4" + bytes(12 + 20) + b"\x0f\xff\0"
    data = b"DIRC" + (4).to_bytes(4) + (2).to_bytes(4) + entry + b"a" * 5000 + bytes(1) + entry + b"b" + bytes(1)
    assert not read(data, 3).is_whole
    assert read(data.replace(b"a" * 5000, b"a" * 4000), 3).is_whole


def test_git_looks_at_the_modes_kind_alone(git, tmp_path):
    filled(git)
    data = (tmp_path / ".git" / "index").read_bytes()
    odd = data.replace(b"\0\0\xe0\0", b"\x01\x02\xef\xff")
    assert odd != data
    assert read(odd, 10).paths == NAMED


@given(st.binary(max_size=400), st.sampled_from([2, 3, 4]), st.integers(0, 2**32 - 1), st.sampled_from([20, 32]))
def test_garbage_says_something_or_nothing(rest, version, count, digest):
    found = read(b"DIRC" + version.to_bytes(4) + count.to_bytes(4) + rest, 3, digest)
    assert len(found.paths) <= 3
    assert all(mark.startswith((b"skip-worktree ", b"assume-unchanged ")) for mark in found.marked)
    assert all(path and b"\0" not in path for path in found.paths)
    assert read(rest, 3, digest).paths == ()


@settings(max_examples=200)
@given(st.data())
def test_a_changed_byte_or_a_cut_is_no_error(data):
    entry = bytes(24) + b"\0\0\xe0\0" + bytes(12 + 20) + b"\0\3sub" + bytes(7)
    whole = bytearray(b"DIRC\0\0\0\2\0\0\0\2" + entry + entry + b"link\0\0\0\x14" + b"\1" * 20 + bytes(20))
    assert read(bytes(whole), 9) == IndexEntries((b"sub", b"sub"), "01" * 20)
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(whole[: data.draw(st.integers(0, len(whole)))]), 9)


def test_names_that_grow_with_each_entry_are_cut():
    """Else an agent's index of 8 MB would have gigabytes copied."""
    entry = bytes(24) + b"\0\0\xe0\0" + bytes(12 + 20) + b"\0\1" + b"\0a\0"
    found = read(b"DIRC" + (4).to_bytes(4) + (5000).to_bytes(4) + entry * 5000, 5000)
    assert [len(path) for path in found.paths] == [min(number, 4096) for number in range(1, 5001)]
