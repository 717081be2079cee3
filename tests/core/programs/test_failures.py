"""Which failures of a launch pass by themselves."""

import pytest

from substrat.core.programs import failures


@pytest.mark.parametrize("words", [
    "bwrap: Race condition binding dirfd: Invalid argument",
    "bwrap: Can't find source path /proc/self/fd/9: No such file or directory",
    "bwrap: Can't get type of source /work/inner: No such file or directory",
    "bwrap: Can't create file contents for /usr/bin/su: No such file or directory",
    "substrat: can't mount /work/inner: Too many levels of symbolic links",
])  # fmt: skip
def test_a_sandbox_whose_files_changed_while_it_was_being_made_is_tried_again(words):
    found = failures.sandbox_failed(words)
    assert (found.name, found.passes) == ("replaced-at-start", True)


@pytest.mark.parametrize("words", [
    "bwrap: Can't find source path /etc/passwd: No such file or directory",
    "substrat: can't start /usr/bin/bwrap: No such file or directory",
])  # fmt: skip
def test_any_other_that_cannot_be_made_is_not(words):
    assert not failures.sandbox_failed(words).passes
