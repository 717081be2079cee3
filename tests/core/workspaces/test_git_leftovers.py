"""The words about git's unfinished work, and which locks are a turn's own."""

import shlex

from substrat.core.workspaces import git_leftovers
from tests.support.cases import each


@each("name", git_leftovers.NAMES)
def test_each_is_named_with_its_place(name):
    path = f"/w/a $(b)'s/.git/{name}"
    (sentence,) = git_leftovers.sentences([path])
    assert "/w/a $(b)'s/.git" in sentence
    assert sentence in git_leftovers.notice(["/w/.git/index.lock", path])
    assert (f"`rm {shlex.quote(path)}`" in sentence) == name.endswith(".lock")


@each(
    ("before", "after", "expected"),
    [
        ({}, {"/g/index.lock": 1, "/g/packed-refs.lock": 2, "/g/rebase-merge": 3}, ("/g/index.lock",)),
        ({"/g/index.lock": 1}, {"/g/index.lock": 1}, ()),
        ({"/g/index.lock": 1}, {"/g/index.lock": 2}, ("/g/index.lock",)),
        ({"/g/index.lock": 1}, {}, ()),
    ],
)
def test_a_lock_is_the_turns_own_if_it_was_made_in_it(before, after, expected):
    assert git_leftovers.new_locks(before, after) == expected
