"""Decides which refs of agents that are over go from the user's repository, and which stay. Pure.

An agent is over once it has ended or is removed. Its work is `head`, `wip` and `asides` of `refs/substrat/NAME/`, and its
history are `turns/N`. For example the 12 turns of `fix` go seven days after its commits have come into `main`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.workspaces.clone_pruning import counted, joined
from substrat.core.workspaces.clones import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.core.workspaces.clones import Clone

_WORK = frozenset({"base", "head", "wip", "asides"})
_TURN, _RESTORE = "turns", "before-restore"
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class LeftRefs:
    """A note about the refs of an agent that is over.

    Args:
        git_dir: the physical path of the git directory that has them.
        name: the agent's name.
        repository: the top level of the user's checkout.
        target: the branch that its work is landed in; None: it isn't known, and the one that is checked out counts.
        head: the commit of its work that was found in a branch; None: none was.
        tip: the commit of the branch that had all of it then.
        since: when that was found first, in seconds since the epoch; None: its work hasn't landed.
    """

    git_dir: str
    name: str
    repository: str
    target: str | None = None
    head: str | None = None
    tip: str | None = None
    since: float | None = None

    @classmethod
    def of(cls, clone: Clone) -> LeftRefs:
        """Return the first note about the refs of a clone's agent."""
        place = (clone.git_dir, clone.name, clone.repository)
        return cls(*place, clone.target, clone.landings.landed_head, clone.landings.landed_commit)

    @property
    def place(self) -> str:
        """Where they are: `refs/substrat/fix`."""
        return f"{PREFIX}{self.name}"


class RefsLook(NamedTuple):
    """How the refs of an agent stand to the user's branches.

    Args:
        landed: whether its work is in a branch, by its own commits or by others with the same changes.
        head: the commit of its work: `wip` where that has uncommitted files, else `head`; None: there is none.
        tip: the tip of the branch that was compared; None: there is none.
        commits: commits of its branch that are in no branch of the user's.
        files: uncommitted files.
        asides: commits on other branches of its clone and in stashes, which are in no branch of the user's.
        holding: refs of turns with files, and of states before a restore with work, that are in no branch of the user's.
    """

    landed: bool
    head: str | None
    tip: str | None
    commits: int
    files: int
    asides: int
    holding: frozenset[str]


def going(refs: Mapping[str, str], look: RefsLook, *, has_clone: bool, unlanded: bool) -> dict[str, str]:
    """Return the refs that go, with their commits; an agent's work goes last.

    Args:
        refs: all refs of an agent that is over, with their commits.
        look: how they stand to the user's branches.
        has_clone: whether its clone is recorded, so that `diff`, `merge` and a last keep need its work.
        unlanded: whether those go too whose work is in no branch.
    """
    # `diff --turn` takes a turn without a ref for one that changed nothing, so none goes that comes after one that stays.
    held = () if unlanded or not has_clone else (_parsed(ref) for ref in look.holding)
    first = min((number for kind, number in held if kind == _TURN), default=math.inf)

    def goes(ref: str) -> bool:
        kind, number = _parsed(ref)
        if kind is None or (kind in _WORK and has_clone) or (kind == _TURN and number > first):
            return False
        return unlanded or (ref not in look.holding and (look.landed or kind == _RESTORE))

    return {ref: refs[ref] for ref in sorted(refs, key=lambda ref: (_parsed(ref)[0] in _WORK, ref)) if goes(ref)}


def _parsed(ref: str) -> tuple[str | None, int]:
    """Return `turns` or `before-restore` and its number, or the name of a ref of an agent's work and 0.

    None stands for a ref that isn't the daemon's own.
    """
    kind, slash, number = ref.removeprefix(PREFIX).partition("/")[2].partition("/")
    if kind in {_TURN, _RESTORE} and number.isdecimal():
        return kind, int(number)
    return (kind if kind in _WORK and not slash else None), 0


def noted(left: LeftRefs, look: RefsLook, now: float) -> LeftRefs:
    """Return a note as it is after a look: since when its work has landed, and where."""
    if not look.landed:
        return replace(left, since=None)
    is_new = left.since is None or left.head != look.head
    return replace(left, head=look.head, tip=look.tip, since=now if is_new else left.since)


def is_due(left: LeftRefs, days: float, now: float) -> bool:
    """Say whether refs go by themselves: some days after their agent's work has landed; 0 days: never."""
    return days > 0 and left.since is not None and left.since + days * _DAY <= now


# Sentences


def prospect_text(left: LeftRefs, gone: Mapping[str, str], look: RefsLook, *, others: int) -> str:
    """Say how many refs go, and what they hold."""
    if held := _held(look, gone):
        words = f"with {joined(held)} in no branch"
    else:
        words = "its work has landed" if look.landed else "its last work stays"
    number, *stay = counted(((len(gone), "ref", "refs"), (others, "ref stays", "refs stay")))
    rest = f"; {stay[0]}, with files that are in no branch" if stay else ""
    return f"{number} in {left.place} of {left.repository}, {words}{rest}"


def removal(name: str) -> str:
    """Return the command by which a person removes the refs of an agent from his repository."""
    return f"substratctl clones prune {name} --refs"


def refusal_text(left: LeftRefs, refs: Mapping[str, str], look: RefsLook, *, has_clone: bool) -> str:
    """Say why an agent's refs stay."""
    held = _held(look, refs)
    if held and going(refs, look, has_clone=has_clone, unlanded=True):
        return (
            f"{left.place} of {left.repository} has {joined(held)} in no branch: "
            f"`substratctl clones prune {left.name} --refs --unlanded` removes its refs all the same"
        )
    return (
        f"only its last work is left in {left.place} of {left.repository}; `substratctl rm {left.name}` and `substratctl "
        f"clones prune {left.name}` come first"
    )


def _held(look: RefsLook, refs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the work in refs that is in no branch of the user's, in words."""
    has_work = not look.landed and any(_parsed(ref)[0] in _WORK for ref in refs)
    kinds = [_parsed(ref)[0] for ref in refs if ref in look.holding]
    work = (
        (look.commits, "commit", "commits"),
        (look.files, "uncommitted file", "uncommitted files"),
        (look.asides, "commit on other branches or in stashes", "commits on other branches or in stashes"),
    )
    held = (
        *(work if has_work else ()),
        (kinds.count(_TURN), "turn with files of its own", "turns with files of their own"),
        (kinds.count(_RESTORE), "state before a restore", "states before a restore"),
    )
    return counted(held) or (("work",) if has_work else ())
