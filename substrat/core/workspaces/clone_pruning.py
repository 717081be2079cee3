"""Decides which trees of agents whose turns are over are removed, which stay, and why. Pure.

A tree may hold more than was kept of it in the user's repository: ignored files, commits in submodules, all of its work
where keeping failed. For example a tree with 3 ignored files stays when its agent is removed, until `clones prune`.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.workspaces import work

if TYPE_CHECKING:
    from substrat.core.workspaces.clones import Clone

_OF_AGENT = re.compile(r"(?:[;:]|, or) `substratctl ")
"""How the remedy begins for an agent that is there, behind the reason why its work couldn't be kept."""


class Contents(NamedTuple):
    """The contents of a tree that go with it or that are in no branch of the user's, in words such as `2 commits`.

    Args:
        unlanded: work that is kept in the user's repository, in no branch of his.
        lost: work that is nowhere else.
        ignored: files that git ignores, which are nowhere else.
    """

    unlanded: tuple[str, ...]
    lost: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def work(self) -> tuple[str, ...]:
        """All that a person must say `--unlanded` for."""
        return (*self.unlanded, *self.lost)

    @property
    def only_here(self) -> tuple[str, ...]:
        """All that is nowhere else."""
        return (*self.lost, *self.ignored)


def contents(clone: Clone) -> Contents:
    """Return the contents of a clone's tree, as of its last keep."""
    rest = clone.kept.only_here
    lost = (
        (rest.nested, "file of a repository inside it", "files of repositories inside it"),
        (rest.submodules, "commit in a submodule", "commits in submodules"),
        (rest.lfs, "object of git-lfs", "objects of git-lfs"),
        (rest.unreadable, "file that can't be read", "files that can't be read"),
    )
    failed = () if clone.unkept is None else ("work that couldn't be kept",)
    ignored = ((rest.ignored, "ignored file", "ignored files"),)
    return Contents(in_no_branch(clone, accepted=False), (*failed, *counted(lost)), counted(ignored))


def in_no_branch(clone: Clone, *, accepted: bool = True) -> tuple[str, ...]:
    """Return the work that is in no branch of the user's, in words.

    Args:
        clone: the clone.
        accepted: whether commits count which a person has accepted as they are.
    """
    kept = clone.kept
    counts = not kept.landed if accepted else clone.is_unlanded
    commits = (kept.ahead if counts else 0, "commit", "commits")
    return (
        *counted((commits, (kept.files, "uncommitted file", "uncommitted files"))),
        *(f"{number} {'commit' if number == 1 else 'commits'} on {name}" for name, number in kept.branches),
        *counted(((kept.stashes, "stash", "stashes"),)),
    )


def counted(found: tuple[tuple[int, str, str], ...]) -> tuple[str, ...]:
    """Return numbers of things in words, such as `2 commits`, without those of which there are none."""
    return tuple(f"{number} {one if number == 1 else many}" for number, one, many in found if number)


def unkept_text(clone: Clone) -> str | None:
    """Say why a clone's work couldn't be kept, with no command that needs its agent, which may be removed; None: it was."""
    if clone.unkept is None or clone.kept.wip is None:
        return clone.unkept and _OF_AGENT.split(clone.unkept)[0]
    return (
        f"{_OF_AGENT.split(clone.unkept)[0]}; `git -C {shlex.quote(clone.repository)} log -p "
        f"{shlex.quote(clone.ref('wip'))}` shows what was kept"
    )


def removal_text(clone: Clone, *, goes: bool) -> str:
    """Say whether the clone of an agent that was removed is gone too, and why it stays."""
    found = contents(clone)
    if not goes:
        why = f": {unkept_text(clone)}" if clone.unkept is not None else ""
        return (
            f"its clone {clone.tree} stays, because {joined(found.only_here)} {_are(found.only_here)} only there{why}; "
            f"`substratctl clones prune {clone.name}` removes it"
        )
    if not work.describe(clone):
        return "its clone is removed; it held no work that isn't in your branches"
    rest = f", with {joined(found.unlanded)} in no branch" if found.unlanded else ""
    kept = f"; its work is in {clone.ref('')[:-1]} of {clone.repository}{rest}" if clone.kept.wip is not None else ""
    return f"its clone is removed{kept}"


def pruned_text(clone: Clone) -> str:
    """Say that a clone was removed, and which work went with it."""
    found = contents(clone)
    lost = f", with {joined(found.only_here)}" if found.only_here else ""
    kept = f"; {clone.ref('')[:-1]} of {clone.repository} stays" if clone.kept.wip is not None else ""
    return f"its clone {clone.tree} is removed{lost}{kept}"


def prospect_text(clone: Clone) -> str:
    """Say which work goes if a clone is removed, and which is kept."""
    found = contents(clone)
    lost = f"for good: {joined(found.only_here)}" if found.only_here else "nothing that isn't in your repository"
    why = f" ({unkept_text(clone)})" if clone.unkept is not None else ""
    kept = f"; in no branch, but in {clone.ref('')[:-1]}: {joined(found.unlanded)}" if found.unlanded else ""
    return f"{lost}{why}{kept}"


def refusal_text(clone: Clone) -> str:
    """Say why a clone stays that holds work."""
    work = joined(contents(clone).work)
    return f"it holds {work}: `substratctl clones prune {clone.name} --unlanded` removes it all the same"


def restored_notice(turn: int) -> str:
    """Return the words that stand before the next prompt of an agent whose clone was put back to a turn."""
    return (
        f"From Substrat: a person has put your workspace back to how it was at the end of turn {turn}. Its branch is at "
        f"that turn's last commit, and its files are those of that moment; files that git ignores are as they were. "
        f"Later work of yours is no longer there, so look at the files before you rely on your memory of them."
    )


def joined(words: tuple[str, ...]) -> str:
    """Join words as in a sentence: `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _are(words: tuple[str, ...]) -> str:
    return "is" if len(words) == 1 and words[0].startswith(("1 ", "work")) else "are"
