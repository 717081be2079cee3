"""The working trees that hold a branch, from what git and its files say."""

from substrat.core.workspaces.branch_holders import Holder, parse

LISTED = (
    b"worktree /r/.git\0HEAD 1\0branch refs/heads/other\0\0"
    b"worktree /w 1\0HEAD 2\0branch refs/heads/main\0locked a disk\0prunable x\0\0"
    b"worktree /w2\0HEAD 2\0detached\0locked\0\0worktree /w3\0HEAD 3\0branch refs/heads/main\0\0"
)


def test_each_that_has_a_branch_checked_out_or_that_something_is_under_way_in():
    states = b"rebase-merge/head-name\0\0BISECT_START\0/w 4/.git\n\0"
    assert parse(b"end\0" + LISTED, "main", "/r/.git") == (
        Holder("/w 1", "checked out", is_locked=True), Holder("/w3", "checked out"),
    )  # fmt: skip
    assert parse(states + b"end\0" + LISTED, "other", "/r/.git") == (
        Holder("/r/.git", "a rebase"), Holder("/w 4", "a bisect"), Holder("/r/.git", "checked out"),
    )  # fmt: skip
    assert parse(b"end\0" + LISTED, "no", "/r/.git") == ()
