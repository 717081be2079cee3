"""The verdict about a protected path whose mount has gone: every case of before, now and known content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.workspaces.protection import ABSENT, UNKNOWN, CopiedFile, Copy, Treatment, decide

EMPTY = Copy("directory")


def file(data, mode=0o644):
    return Copy("file", {"": CopiedFile(mode, data)})


def directory(**files):
    return Copy("directory", {name: CopiedFile(0o644, data) for name, data in files.items()})


def judged(before, now, *, is_known=False, is_git_config=False, placeholder=EMPTY):
    return decide(before, now, is_known=is_known, is_git_config=is_git_config, placeholder=placeholder)


CONFIG = b"[core]\n\tbare = false\n"
CASES = {
    "the same file": (file(b"a"), file(b"a"), Treatment.AGAIN),
    "another mode": (file(b"a"), file(b"a", 0o600), Treatment.AGAIN),
    "no longer executable": (file(b"a", 0o755), file(b"a"), Treatment.AGAIN),
    "made executable": (file(b"a"), file(b"a", 0o755), Treatment.REACHED),
    "a hook made executable": (
        directory(a=b"1"),
        Copy("directory", {"a": CopiedFile(0o744, b"1")}),
        Treatment.REACHED,
    ),
    "another content": (file(b"a"), file(b"b"), Treatment.REACHED),
    "gone": (file(b"a"), ABSENT, Treatment.PLACEHOLDER),
    "a directory instead": (file(b"a"), EMPTY, Treatment.REACHED),
    "never there": (ABSENT, ABSENT, Treatment.PLACEHOLDER),
    "the placeholder": (ABSENT, EMPTY, Treatment.PLACEHOLDER),
    "more than the placeholder": (ABSENT, Copy("directory", {}, ("x",)), Treatment.REACHED),
    "made": (ABSENT, file(b"x"), Treatment.REACHED),
    "fewer hooks": (directory(a=b"1", b=b"2"), directory(a=b"1"), Treatment.AGAIN),
    "another hook": (directory(a=b"1"), directory(a=b"2"), Treatment.REACHED),
    "one hook more": (directory(a=b"1"), directory(a=b"1", b=b"2"), Treatment.REACHED),
    "too large": (file(b"a"), UNKNOWN, Treatment.REACHED),
    "was too large": (UNKNOWN, file(b"a"), Treatment.REACHED),
}


@pytest.mark.parametrize(("before", "now", "expected"), CASES.values(), ids=CASES)
def test_the_contents_count(before, now, expected):
    assert judged(before, now) is expected


def test_what_the_repository_had_before_the_turn_is_the_persons():
    assert judged(file(b"a"), file(b"b"), is_known=True) is Treatment.AGAIN
    assert judged(file(b"a"), UNKNOWN, is_known=True) is Treatment.REACHED


@pytest.mark.parametrize("before", [ABSENT, file(CONFIG)])
def test_gits_configuration_is_judged_by_what_it_says(before):
    harmless, evil = file(CONFIG + b"[user]\n\tname = A\n"), file(CONFIG + b"[core]\n\tfsmonitor = evil\n")
    empty = file(b"")
    assert judged(before, harmless, is_git_config=True, placeholder=empty) is Treatment.AGAIN
    assert judged(before, evil, is_git_config=True, placeholder=empty) is Treatment.REACHED
    assert judged(before, harmless, placeholder=empty) is Treatment.REACHED


contents = st.dictionaries(st.sampled_from("abc"), st.binary(max_size=2), max_size=3)


@given(contents, contents)
def test_a_directory_with_anything_new_in_it_is_never_taken_for_the_persons(before, now):
    verdict = judged(directory(**before), directory(**now))
    assert (verdict is Treatment.REACHED) == bool(now.items() - before.items())
