"""Which changes of the files that hide something are told, and how."""

from substrat.core.workspaces import git_hiding
from tests.support.cases import each

CASES = {
    "a mark": ("/w/.git/index", ["skip-worktree a"], ["skip-worktree a", "skip-worktree b"], "+skip-worktree b\n"),
    "a mark that went": ("/w/.git/index", ["skip-worktree a"], [], None),
    "a rule": ("/w/.git/info/exclude", ["a"], ["a", "b"], "+b\n"),
    "an exception that went": ("/w/.git/info/exclude", ["a", "!b"], ["a"], "-!b\n"),
    "another object": ("/w/.git/refs/replace", ["1 by 2"], ["1 by 3"], "+1 by 3\n-1 by 2\n"),
    "an exception that comes earlier": ("/w/.git/info/exclude", ["*", "!b"], ["!b", "*"], "another order\n"),
    "another order of marks": (
        "/w/.git/index",
        ["skip-worktree a", "skip-worktree b"],
        ["skip-worktree b", "skip-worktree a"],
        None,
    ),
    "the same": ("/w/.git/info/exclude", ["a", "b"], ["a", "b"], None),
}


@each(("path", "before", "after", "lines"), CASES.values())
def test_what_hides_more_is_told(path, before, after, lines):
    found = list(git_hiding.changes({path: tuple(before)}, {path: tuple(after)}))
    assert [(one, difference) for one, _, difference in found] == ([(path, lines)] if lines else [])


def test_a_sentence_is_as_short_as_a_person_reads():
    ((_, text, difference),) = git_hiding.changes(
        {}, {"/w/.git/index": tuple(f"skip-worktree {'x' * 999}{n}" for n in range(50))}
    )
    assert len(text) < 700
    assert text.endswith(" and 47 more")
    assert len(difference.splitlines()) == 50


def test_lines_that_are_too_much_are_counted_and_told_apart():
    many = [f"{'x' * 1000}{number}" for number in range(1000)]
    found = git_hiding.bounded(many)
    assert len("".join(found)) < 200_000
    assert found[-1].startswith("and ")
    assert found != git_hiding.bounded([*many[:-1], "y"])


def test_the_rules_of_a_file_and_packed_refs():
    assert git_hiding.rules(b"# none\n\n  \n*.o\r\n!a # b\n\xff\n") == ("*.o", "!a # b", "\ufffd")
    packed = b"# pack-refs with: peeled\n" + b"1" * 40 + b" refs/heads/main\n" + b"2" * 40 + b" refs/replace/" + b"3" * 40
    assert git_hiding.packed(packed + b"\n^" + b"4" * 40) == {"3" * 40: "2" * 40}
