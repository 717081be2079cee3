"""What a new clone lacks of a checkout, in words."""

import pytest

from substrat.core.workspaces import clone_lacks
from substrat.core.workspaces.clone_lacks import Lacking


def test_git_is_read_and_half_of_its_words_are_refused():
    said = b"yes\x001234\x00 M a b\x00?? new/\x00!! .venv/\x00!! x.log\x00"
    assert clone_lacks.parse(said) == Lacking(brings=True, size=1234, uncommitted=2, ignored=(".venv", "x.log"))
    assert clone_lacks.parse(b"\x000\x00") == Lacking(brings=False, size=0, uncommitted=0, ignored=())
    with pytest.raises(ValueError, match="unpack"):
        clone_lacks.parse(b"yes")


def test_names_are_printable_and_few_and_those_at_the_top_come_first():
    (note,) = Lacking(brings=False, size=0, uncommitted=0, ignored=("a/b/c", "a/b", "\x1bx", "y", "z")).notes(
        with_wip=False
    )
    assert note.startswith("is without ?x, y, z and 2 more, which git ignores")


def test_a_tenth_of_the_free_disk_is_not_too_much():
    one = Lacking(brings=False, size=100, uncommitted=1, ignored=())
    assert (one.is_too_large(1000), one.is_too_large(999)) == (False, True)
    assert one.notes(with_wip=False) == ("is without 1 uncommitted file of yours (`--wip` takes it along)",)
    assert one.notes(with_wip=True) == ()
