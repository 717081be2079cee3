"""Copies of protected files: taken, put back as new files, compared with a repository's objects."""

import mmap
import os
import subprocess
import time

import pytest

from substrat.core.workspaces.protection import ABSENT, UNKNOWN, Copy
from substrat.daemon.workspaces import copies


@pytest.fixture
def work(tmp_path):
    path = tmp_path.resolve() / "work"
    path.mkdir()
    return path


def tree(path):
    return {str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_a_directory_comes_back_as_it_was(work, tmp_path):
    hooks = work / "hooks"
    (hooks / "deep").mkdir(parents=True)
    (hooks / "pre-commit").write_text("run\n")
    (hooks / "pre-commit").chmod(0o755)
    (hooks / "deep" / "more").write_bytes(b"\xff\0")
    before, copy = tree(hooks), copies.take(str(hooks))
    assert copies.decode(copies.encode({str(hooks): copy})) == {str(hooks): copy}
    (hooks / "pre-commit").write_text("evil\n")
    (hooks / "added").write_text("evil\n")
    copies.put(str(hooks), copy)
    assert tree(hooks) == before
    assert os.access(hooks / "pre-commit", os.X_OK)
    assert os.listdir(work) == ["hooks"]


def test_what_was_opened_before_does_not_reach_what_is_put_back(work):
    path = work / "config"
    path.write_text("ours\n")
    copy = copies.take(str(path))
    with path.open("a") as kept, path.open("a") as second:
        copies.put(str(path), copy)
        kept.write("evil\n")
        second.write("evil\n")
    assert path.read_text() == "ours\n"


@pytest.mark.parametrize("kind", ["link", "fifo", "directory of links", "large", "deep", "many"])
def test_what_cannot_be_copied_is_unknown(work, kind):
    path = work / "thing"
    match kind:
        case "link":
            path.symlink_to("/etc/passwd")
        case "fifo":
            os.mkfifo(path)
        case "directory of links":
            path.mkdir()
            (path / "x").symlink_to("/etc/passwd")
        case "large":
            path.write_bytes(bytes(2 << 20))
        case "deep":
            (path / "/".join("d" * 12)).mkdir(parents=True)
        case "many":
            path.mkdir()
            for number in range(400):
                (path / str(number)).touch()
    assert copies.take(str(path)) == UNKNOWN


def test_nothing_is_followed_on_the_way(work, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (work / "sub").symlink_to(tmp_path / "elsewhere")
    assert copies.take(str(work / "sub" / "x")) in [UNKNOWN, ABSENT]
    with pytest.raises(OSError, match="link"):
        copies.put(str(work / "sub" / "x"), Copy("directory"))
    assert os.listdir(tmp_path / "elsewhere") == []


def test_an_absent_file_is_put_back_by_removing_what_is_there(work):
    (work / "x").write_text("evil")
    copies.put(str(work / "x"), ABSENT)
    copies.put(str(work / "x"), ABSENT)
    assert os.listdir(work) == []


def test_what_is_moved_aside_is_kept(work, tmp_path):
    (work / "x").write_text("evil")
    copies.move_aside(str(work / "x"), str(tmp_path / "aside"))
    assert (tmp_path / "aside").read_text() == "evil"
    assert os.listdir(work) == []


def test_a_difference_names_files_and_lines(work):
    (work / "hooks").mkdir()
    before = copies.take(str(work / "hooks"))
    (work / "hooks" / "pre-commit").write_text("evil\n")
    text = copies.difference("hooks", before, copies.take(str(work / "hooks")))
    assert "+++ hooks/pre-commit" in text
    assert "+evil" in text
    assert copies.difference("hooks", before, before) == ""


def test_what_a_repository_had_before_a_moment_is_known(work):
    def git(*arguments):
        subprocess.run(
            ["git", "-C", work, "-c", "user.name=a", "-c", "user.email=b", *arguments], check=True, capture_output=True
        )

    git("init", "-q")
    (work / "old").write_text("old\n")
    (work / "packed").write_text("packed\n")
    git("add", "packed")
    git("commit", "-q", "-m", "x")
    git("gc", "-q")
    git("add", "old")
    objects = str(work / ".git/objects")
    newest = max(one.stat().st_ctime for one in (work / ".git/objects").rglob("*"))
    later, earlier = copies.Objects(objects, newest + 1), copies.Objects(objects, newest - 1000)
    for name in ("old", "packed"):
        assert later.hold(copies.take(str(work / name)))
        assert not earlier.hold(copies.take(str(work / name)))
    (work / "new").write_text("new\n")
    assert not later.hold(copies.take(str(work / "new")))
    assert not later.hold(ABSENT)
    # A time that somebody sets back is not believed.
    git("add", "new")
    for path in (work / ".git/objects").rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))
    assert not copies.Objects(objects, newest).hold(copies.take(str(work / "new")))


def test_what_somebody_can_still_write_to_is_not_settled(work):
    path = work / "config"
    path.write_text("put there")
    copy = copies.take(str(path))
    assert copies.is_settled(str(path), copy)
    with path.open("rb"):
        assert copies.is_settled(str(path), copy), "a reader harms nothing"
    with path.open("r+b") as writer:
        assert not copies.is_settled(str(path), copy)
        mapped = mmap.mmap(writer.fileno(), 0)
    assert not copies.is_settled(str(path), copy), "a mapping outlives its descriptor"
    mapped.close()
    assert copies.is_settled(str(path), copy)
    path.write_text("changed")
    assert not copies.is_settled(str(path), copy)
    path.unlink()
    assert not copies.is_settled(str(path), copy)


def test_a_directory_is_settled_when_each_file_in_it_is(work):
    (work / "hooks").mkdir()
    (work / "hooks" / "one").write_text("1")
    copy = copies.take(str(work / "hooks"))
    assert copies.is_settled(str(work / "hooks"), copy)
    with (work / "hooks" / "one").open("ab"):
        assert not copies.is_settled(str(work / "hooks"), copy)
    (work / "hooks" / "two").write_text("2")
    assert not copies.is_settled(str(work / "hooks"), copy)


@pytest.mark.slow
def test_many_packs_are_not_searched_for_ever(tmp_path, work, monkeypatch):
    (tmp_path / "pack").mkdir()
    for number in range(5000):
        (tmp_path / "pack" / f"pack-{number}.idx").touch()
    (work / "file").write_text("x")
    monkeypatch.setattr(copies, "_in_index", lambda *_: pytest.fail("it began to search"))
    assert not copies.Objects(str(tmp_path), time.time() + 10).hold(copies.take(str(work / "file")))
