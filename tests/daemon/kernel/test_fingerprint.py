"""Fingerprints of files: what changes them, what has none, and swaps while they are made."""

import os
import socket

import pytest

from substrat.daemon.kernel import fingerprint, nofollow
from tests.support.cases import each


@pytest.fixture
def work(tmp_path):
    work = tmp_path / "work"
    (work / "dir" / "inner").mkdir(parents=True)
    (work / "dir" / "tasks.json").write_text("{}")
    (work / "dir" / "inner" / "x").write_text("x")
    (work / "tools").write_text("ours")
    (work / "dir" / "link").symlink_to("../tools")
    return work


def of(work, *names, **how):
    return fingerprint.of([str(work / name) for name in names or ("dir",)], (str(work),), **how)


def content(work, *names):
    return fingerprint.content_of(of(work, *names))


CHANGES = {
    "content": lambda work: (work / "dir/inner/x").write_text("y"),
    "mode": lambda work: (work / "dir/tasks.json").chmod(0o755),
    "another file": lambda work: (work / "dir/inner/new").touch(),
    "another name": lambda work: (work / "dir/inner/x").rename(work / "dir/inner/y"),
    "a directory": lambda work: (work / "dir/inner/sub").mkdir(),
    "the file behind a link": lambda work: (work / "tools").write_text("evil"),
    "a link's text": lambda work: ((work / "dir/link").unlink(), (work / "dir/link").symlink_to("./../tools")),
    "a link instead of a file": lambda work: ((work / "dir/inner/x").unlink(), (work / "dir/inner/x").symlink_to("y")),
    "gone": lambda work: (work / "dir/inner/x").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_content_shows(work, change):
    before = of(work)
    assert before is not None
    assert of(work) == before
    change(work)
    assert content(work) != fingerprint.content_of(before)


def test_what_was_changed_and_changed_back_has_the_same_content_and_another_fingerprint(work):
    before = of(work)
    (work / "dir/tasks.json").rename(work / "kept")  # so that the next one is another file, however fast this is
    (work / "dir/tasks.json").write_text("{}")
    assert content(work) == fingerprint.content_of(before)
    assert of(work) != before


def with_socket(place):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(place))


def leading_to(target):
    return lambda place: place.symlink_to(target)


ODD = (os.mkfifo, with_socket, *map(leading_to, ("odd", "/proc/self/cwd", "away/../x", "away/x", "/work/elsewhere/../x")))


@each("make", ODD)
def test_what_has_no_content_of_its_own_is_not_compared(tmp_path, make):
    place = tmp_path / "odd"
    (tmp_path / "away").exists() or (tmp_path / "away").symlink_to("/")
    make(place)
    try:
        assert of(tmp_path, "odd") is None
    finally:
        place.unlink()


@each("budget", [fingerprint.Budget(size=3), fingerprint.Budget(files=4), fingerprint.Budget(files=1)])
def test_it_is_bounded(work, budget):
    assert of(work, budget=budget) is None


def test_a_link_in_a_circle_ends(work):
    for name in ("a", "b"):
        (work / "dir" / name).symlink_to("..")
    assert of(work) is None


def test_no_link_on_the_way_is_followed(work, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    (work / "away").symlink_to(tmp_path / "secret")
    assert of(work, "away/key") is None
    before = of(work, "away")
    (tmp_path / "secret" / "key").write_text("another")
    assert of(work, "away") == before, "outside nothing is read"


SWAPS = {"fifo": os.mkfifo, "file": lambda place: place.write_text("evil"), "link": leading_to("/")}


@pytest.mark.parametrize("put", SWAPS.values(), ids=SWAPS)
def test_a_swap_after_the_look_at_its_kind_opens_nothing_else(work, monkeypatch, put):
    """The descriptor that was looked at is read; a FIFO that has its name by then is never opened."""
    before = content(work, "tools")
    open_itself = nofollow.open_itself

    def swapping(name, beneath):
        found = open_itself(name, beneath)
        if name == "tools" and not os.path.lexists(work / "kept"):
            os.rename(work / "tools", work / "kept")
            put(work / "tools")
        return found

    monkeypatch.setattr(nofollow, "open_itself", swapping)
    assert content(work, "tools") == before
    assert content(work, "tools") != before


def test_a_placeholder_counts_as_nothing(work):
    names = ("dir/.git/hooks", "dir/.git/commondir", "dir/.git/config.worktree")
    (work / "dir/.git").mkdir()
    before = of(work, *names)
    (work / "dir/.git/hooks").mkdir()
    (work / "dir/.git/commondir").write_text("./\n")
    (work / "dir/.git/config.worktree").touch()
    assert of(work, *names) == before
    (work / "dir/.git/commondir").write_text("../evil\n")
    assert content(work, *names) != fingerprint.content_of(before)


def test_a_link_to_a_git_directory_counts_with_what_git_obeys(work):
    (work / "own/objects").mkdir(parents=True)
    (work / "sub").mkdir()
    (work / "sub/.git").symlink_to("../own")
    before = of(work, "sub/.git")
    (work / "own/objects/x").write_text("a commit")
    assert of(work, "sub/.git") == before
    (work / "own/config").write_text("[core]\n\tfsmonitor = x\n")
    assert content(work, "sub/.git") != fingerprint.content_of(before)
