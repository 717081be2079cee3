"""`tests.support.cases`: a test with many cases names each that fails, and passes only if none does."""

import inspect

import pytest

from tests.support.cases import each


def test_each_case_that_fails_is_named():
    tried = []

    @each("second", [1, 2])
    @each(("first", "word"), [(1, "a"), (2, "b")])
    def check(fixture, first, word, second):
        tried.append((fixture, first, word, second))
        assert first != second, word

    assert list(inspect.signature(check).parameters) == ["fixture"]
    with pytest.raises(AssertionError) as failure:
        check(fixture="f")
    assert tried == [("f", 1, "a", 1), ("f", 2, "b", 1), ("f", 1, "a", 2), ("f", 2, "b", 2)]
    for words in ("2 of 2 cases failed", "1, 'a': AssertionError", "2, 'b': AssertionError"):
        assert words in str(failure.value)
