"""Protected files replaced by new ones: what a person writes at that moment isn't lost."""

import errno
import os

import pytest

from substrat.core.workspaces.protection import ABSENT, CopiedFile, Copy
from substrat.daemon.kernel import renaming
from substrat.daemon.workspaces import copies
from substrat.daemon.workspaces.replacing import replace, set_aside

PLACEHOLDER = Copy("directory")


@pytest.fixture
def place(tmp_path):
    return tmp_path.resolve() / "place"


def test_a_file_as_it_was_judged_is_replaced_by_a_new_one(place):
    place.write_text("ours\n")
    judged = copies.take(str(place))
    with place.open("a") as kept:
        assert replace(str(place), judged, judged)
        kept.write("evil\n")
    assert place.read_text() == "ours\n"
    assert os.listdir(place.parent) == ["place"]


def test_a_file_that_was_written_since_it_was_judged_stays(place):
    place.write_text("ours\n")
    judged = copies.take(str(place))
    place.write_text("newer\n")
    inode = place.stat().st_ino
    assert not replace(str(place), judged, judged)
    assert (place.read_text(), place.stat().st_ino) == ("newer\n", inode)
    assert os.listdir(place.parent) == ["place"]


def test_a_directory_that_was_made_or_filled_since_stays(place):
    assert replace(str(place), ABSENT, PLACEHOLDER)
    place.rmdir()
    place.mkdir()
    (place / "mine").touch()
    for judged in (ABSENT, PLACEHOLDER):
        assert not replace(str(place), judged, PLACEHOLDER)
        assert os.listdir(place) == ["mine"]
    assert os.listdir(place.parent) == ["place"]


def test_a_file_that_is_gone_is_not_made_anew(place):
    place.write_text("ours\n")
    judged = copies.take(str(place))
    place.unlink()
    assert not replace(str(place), judged, judged)
    assert os.listdir(place.parent) == []


def test_the_newest_of_several_stays(place, monkeypatch):
    """A person's first file comes after the last look, the second while the first is being put back."""
    place.write_text("ours\n")
    judged = copies.take(str(place))
    exchange, coming = renaming.exchange, ["first\n", "second\n"]

    def be_overtaken(*arguments):
        if coming:
            (place.parent / "new").write_text(coming.pop(0))
            os.replace(place.parent / "new", place)
        exchange(*arguments)

    monkeypatch.setattr(renaming, "exchange", be_overtaken)
    assert not replace(str(place), judged, judged)
    assert place.read_text() == "second\n"
    assert os.listdir(place.parent) == ["place"]


def test_a_file_system_without_such_renames_is_no_error(place, monkeypatch):
    def cannot(*_):
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(renaming, "exchange", cannot)
    place.write_text("ours\n")
    judged = copies.take(str(place))
    inode = place.stat().st_ino
    assert replace(str(place), judged, judged)
    assert place.stat().st_ino != inode


BEFORE = Copy("file", {"": CopiedFile(0o644, b"before\n")})


@pytest.mark.parametrize(("before", "left"), [(BEFORE, "before\n"), (ABSENT, None)], ids=["a copy", "nothing"])
def test_a_file_is_set_aside_and_what_was_there_before_put_back(place, before, left):
    place.write_text("changed\n")
    set_aside(str(place), before, str(place.parent / "aside"))
    assert (place.parent / "aside").read_text() == "changed\n"
    assert (place.read_text() if left else None) == left
    assert set(os.listdir(place.parent)) == ({"aside", "place"} if left else {"aside"})


def test_a_file_that_has_gone_is_put_back(place):
    set_aside(str(place), BEFORE, str(place.parent / "aside"))
    assert place.read_text() == "before\n"
    assert os.listdir(place.parent) == ["place"]


@pytest.mark.parametrize("before", [BEFORE, ABSENT], ids=["a copy", "nothing"])
def test_what_a_person_writes_while_a_file_is_set_aside_stays(place, before, monkeypatch):
    place.write_text("changed\n")
    move = copies.move_aside

    def be_overtaken(path, target):
        move(path, target)
        (place.parent / "new").write_text("newest\n")
        os.replace(place.parent / "new", place)

    monkeypatch.setattr(copies, "move_aside", be_overtaken)
    set_aside(str(place), before, str(place.parent / "aside"))
    assert place.read_text() == "newest\n"
    assert (place.parent / "aside").read_text() == "changed\n"
    assert set(os.listdir(place.parent)) == {"aside", "place"}


def test_a_file_that_cannot_be_moved_stays(place):
    place.write_text("changed\n")
    with pytest.raises(FileNotFoundError):
        set_aside(str(place), BEFORE, str(place.parent / "nowhere" / "aside"))
    assert place.read_text() == "changed\n"
    assert os.listdir(place.parent) == ["place"]


def test_a_file_is_set_aside_where_no_names_can_be_exchanged(place, monkeypatch):
    def cannot(*_):
        raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(renaming, "exchange", cannot)
    place.write_text("changed\n")
    set_aside(str(place), BEFORE, str(place.parent / "aside"))
    assert place.read_text() == "before\n"
    assert {one.name: one.read_text() for one in place.parent.iterdir()} == {"place": "before\n", "aside": "changed\n"}
