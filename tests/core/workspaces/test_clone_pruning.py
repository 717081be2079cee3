"""What becomes of the trees of agents that are over, and how it is said."""

from dataclasses import replace

import pytest

from substrat.core.workspaces import clone_pruning
from substrat.core.workspaces.clones import Clone, Kept, OnlyHere, PastLandings

CLONE = Clone("id", "fix", "/trees/id", "/my app", "/my app/.git", "/my app", "substrat/fix")
KEPT = Kept(1, 1.0, "abc", "def")
AHEAD = replace(KEPT, ahead=2, landed=False)


@pytest.mark.parametrize(
    ("clone", "work", "only_here"),
    [
        (replace(CLONE, kept=KEPT), (), ()),
        (replace(CLONE, kept=AHEAD), ("2 commits",), ()),
        (replace(CLONE, kept=replace(AHEAD, landed=True)), (), ()),
        (replace(CLONE, kept=AHEAD, landings=PastLandings("abc")), (), ()),
        (replace(CLONE, kept=replace(KEPT, files=1)), ("1 uncommitted file",), ()),
        (replace(CLONE, kept=replace(KEPT, branches=(("x", 2),), stashes=1)), ("2 commits on x", "1 stash"), ()),
        (replace(CLONE, kept=replace(KEPT, only_here=OnlyHere(ignored=3))), (), ("3 ignored files",)),
        (
            replace(CLONE, kept=replace(KEPT, only_here=OnlyHere(1, 2, 3, 4, 5))),
            (
                "1 file of a repository inside it", "2 commits in submodules", "3 objects of git-lfs",
                "5 files that can't be read",
            ),
            (
                "1 file of a repository inside it", "2 commits in submodules", "3 objects of git-lfs",
                "5 files that can't be read", "4 ignored files",
            ),
        ),
        (replace(CLONE, kept=KEPT, unkept="no room"), ("work that couldn't be kept",), ("work that couldn't be kept",)),
    ],
)  # fmt: skip
def test_work_needs_a_word_and_what_is_only_there_keeps_a_tree(clone, work, only_here):
    found = clone_pruning.contents(clone)
    assert (found.work, found.only_here) == (work, only_here)


def test_accepted_commits_are_in_no_branch_and_need_no_word():
    clone = replace(CLONE, kept=replace(AHEAD, files=1), landings=PastLandings("abc"))
    assert clone_pruning.contents(clone).work == ("1 uncommitted file",)
    assert clone_pruning.in_no_branch(clone) == ("2 commits", "1 uncommitted file")
    assert clone_pruning.in_no_branch(replace(clone, kept=replace(AHEAD, landed=True))) == ()


def test_the_sentences_name_what_stays_and_what_goes():
    one = replace(CLONE, kept=replace(AHEAD, files=1, only_here=OnlyHere(ignored=1)))
    assert clone_pruning.removal_text(one, goes=False) == (
        "its clone /trees/id stays, because 1 ignored file is only there; `substratctl clones prune fix` removes it"
    )
    assert clone_pruning.prospect_text(one) == (
        "for good: 1 ignored file; in no branch, but in refs/substrat/fix: 2 commits and 1 uncommitted file"
    )
    assert clone_pruning.pruned_text(one) == (
        "its clone /trees/id is removed, with 1 ignored file; refs/substrat/fix of /my app stays"
    )
    has_landed = replace(CLONE, kept=KEPT)
    said = "its clone is removed; it held no work that isn't in your branches"
    assert clone_pruning.removal_text(has_landed, goes=True) == said


@pytest.mark.parametrize(
    "remedy",
    [
        "; `substratctl exec fix git status` shows how git fares there",
        ": `substratctl exec fix git repack -a -d -l -F` makes its deltas anew",
        ", or `substratctl set fix workspace=DIR` goes on where it is now",
    ],
)
def test_no_command_of_a_removed_agent_is_named(remedy):
    assert clone_pruning.unkept_text(replace(CLONE, unkept=f"move it back{remedy}")) == "move it back"
