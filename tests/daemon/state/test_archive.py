"""A turn's output in compressed blocks: every byte at its place, and a crash at any instant loses none."""

import contextlib
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrat.daemon.state import archive
from substrat.daemon.state.archive import ArchiveDamaged, Archives, compress


def output(size, seed=1):
    """Bytes that compress a little."""
    return bytes(random.Random(seed).choices(b'{"type":"assistant"}\n', k=size))


@pytest.fixture
def make(tmp_path):
    def make(content):
        path = tmp_path / "stdout"
        path.write_bytes(content)
        return path

    return make


SIZES = [0, 1, archive.BLOCK - 1, archive.BLOCK, archive.BLOCK + 1, 3 * archive.BLOCK, 3 * archive.BLOCK + 17]


@pytest.mark.parametrize("size", SIZES)
def test_archived_output_is_read_as_it_was(make, size):
    content = output(size)
    path = make(content)
    written = compress(str(path))
    assert os.listdir(path.parent) == ["stdout.z"]
    assert written == os.path.getsize(f"{path}.z")
    assert Archives().read(f"{path}.z", 0, size + 100) == content


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_part_is_where_it_was(tmp_path, data):
    path = tmp_path / "stdout.z"
    content = output(2 * archive.BLOCK + 1234)
    if not path.exists():
        (tmp_path / "stdout").write_bytes(content)
        compress(str(tmp_path / "stdout"))
    offset = data.draw(st.integers(0, len(content) + 10))
    length = data.draw(st.integers(0, len(content)))
    assert Archives().read(str(path), offset, length) == content[offset : offset + length]


def test_a_part_is_read_without_what_is_before_it(make):
    path = make(output(4 * archive.BLOCK))
    compress(str(path))
    packed = bytearray((path.parent / "stdout.z").read_bytes())
    packed[20:200] = bytes(180)  # of the first block
    (path.parent / "stdout.z").write_bytes(packed)
    archives = Archives()
    assert archives.read(f"{path}.z", 3 * archive.BLOCK, 50) == output(4 * archive.BLOCK)[3 * archive.BLOCK :][:50]
    with pytest.raises(ArchiveDamaged):
        archives.read(f"{path}.z", 0, 10)


def test_reading_on_decompresses_each_block_once(make, monkeypatch):
    path = make(output(2 * archive.BLOCK))
    compress(str(path))
    found = []
    original = archive._read_block

    def noted(*what):
        found.append(what[2])
        return original(*what)

    monkeypatch.setattr(archive, "_read_block", noted)
    archives = Archives()
    for offset in range(0, 2 * archive.BLOCK, 4096):
        archives.read(f"{path}.z", offset, 4096)
    assert found == [0, 1]


def test_another_archive_under_the_same_name_is_seen(make):
    archives = Archives()
    for content in (b"first\n" * 10, b"second"):
        path = make(content)
        compress(str(path))
        assert archives.read(f"{path}.z", 0, 1000) == content


def test_damage_anywhere_is_noticed(make):
    content = output(archive.BLOCK + 500)
    path = make(content)
    compress(str(path))
    whole = (path.parent / "stdout.z").read_bytes()
    for at in [*range(0, len(whole), len(whole) // 50), *range(len(whole) - 40, len(whole))]:
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        (path.parent / "stdout.z").write_bytes(damaged)
        with contextlib.suppress(ArchiveDamaged):
            assert Archives().read(f"{path}.z", 0, len(content)) == content
    for size in (0, 5, 12, 30, len(whole) // 2, len(whole) - 1):
        (path.parent / "stdout.z").write_bytes(whole[:size])
        with pytest.raises(ArchiveDamaged):
            Archives().read(f"{path}.z", 0, len(content))


class Died(BaseException):
    """The daemon was killed here."""


@pytest.mark.parametrize("step", ["fsync", "rename", "unlink"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_leaves_the_original_or_the_archive(make, monkeypatch, step, when):
    content = output(archive.BLOCK + 9)
    path = make(content)
    real = {name: getattr(os, name) for name in ("fsync", "rename", "unlink")}

    def dying(*arguments):
        if when == "after":
            real[step](*arguments)
        for name in real:
            monkeypatch.setattr(os, name, dead)
        raise Died

    def dead(*_arguments):
        raise Died

    monkeypatch.setattr(os, step, dying)
    with pytest.raises(Died):
        compress(str(path))
    monkeypatch.undo()
    if path.exists():
        assert path.read_bytes() == content
        compress(str(path))  # a leftover is no obstacle
    assert Archives().read(f"{path}.z", 0, len(content)) == content
    assert os.listdir(path.parent) == ["stdout.z"]


def test_no_room_leaves_the_file_as_it_was(make, monkeypatch):
    path = make(output(100))

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        compress(str(path))
    assert os.listdir(path.parent) == ["stdout"]


def test_a_link_is_not_followed(make, tmp_path):
    path = make(b"x")
    os.symlink(path, tmp_path / "link")
    with pytest.raises(OSError, match="symbolic"):
        compress(str(tmp_path / "link"))
