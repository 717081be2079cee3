"""How an agent's head stands to the branch that its work is to land in, and what a merge of the two has to do. Pure.

`SCRIPT` asks git for it, in one look. For example a branch that has moved since the agent began, and has none of its work:
`begin` is its tip, nothing is `has_…`, and `way` is `MERGE`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.workspaces import branch_holders
from substrat.core.workspaces.landing import LandingMode

if TYPE_CHECKING:
    from substrat.core.workspaces.branch_holders import Holder
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.landing import Landing

AS_IS, MERGE, ONE = "as-is", "merge", "one"
"""The branch takes the head itself, a commit with both as its parents, or one commit of all changes."""

# `standing BRANCH START HEAD LANDED_HEAD LANDED_COMMIT BASE INTENDED` prints what `parse` reads. `-` stands for nothing. A
# commit that isn't there is in no other. `by_content` is a function that says whether a branch has a head's changes, given
# both and where they parted. A commit is within another where the two parted at it. Names and holders are listed meanwhile.
SCRIPT = f"""\
commit() {{ git rev-parse --quiet --verify --end-of-options "$1^{{commit}}" || echo -; }}
within() {{
    [ "$1" != - ] && [ "$2" != - ] || {{ echo -; return; }}
    git merge-base --is-ancestor "$1" "$2" 2>/dev/null
    case $? in 0) echo yes;; 1|128) echo -;; *) exit 3;; esac
}}
standing() {{
    tip=$(commit "refs/heads/$1"); begin=$tip
    [ "$tip" != - ] || begin=$(commit "$2")
    {{
        for one in "$begin" "$3"
        do [ "$one" = - ] || git ls-tree -z --name-only "$one" || exit 3
        done
        printf '\\0'
        {branch_holders.SCRIPT}
    }} >/tmp/around &
    around=$!
    parted=$(git merge-base "$begin" "$3" 2>/dev/null)
    case $? in 0) ;; 1|128) parted=-;; *) exit 3;; esac
    echo "$tip"; echo "$begin"
    within "$7" "$begin"
    if [ "$parted" = "$3" ]; then echo yes; else echo -; fi
    within "$5" "$begin"; within "$4" "$begin"; within "$4" "$3"; within "$6" "$3"
    if [ "$parted" != - ] && [ "$parted" = "$begin" ]; then echo yes; else echo -; fi
    if [ "$tip" != - ] && [ "$parted" != - ] && [ "$parted" != "$3" ] && by_content "$tip" "$3" "$parted"
    then echo yes
    else echo -
    fi
    wait "$around" && cat /tmp/around || exit 3
}}
"""
_FACTS = 10


class Standing(NamedTuple):
    """How a head stands to a branch.

    Args:
        tip: the branch's commit; None: there is no such branch yet.
        begin: its tip, or the commit at which the new branch begins; None: that isn't known either.
        names: the names at the top of both commits.
        holders: the working trees that hold the branch.
        has_intended: whether the branch has the commit that an earlier daemon meant to move it to.
        has_head: whether it has the head.
        has_landed_commit: whether it has the commit that an earlier head landed as.
        has_landed_head: whether it has that head itself.
        extends_landed: whether the head has that earlier head among its ancestors.
        extends_base: whether the head has the user's uncommitted changes that the clone began with.
        extends_begin: whether the head has `begin`.
        has_content: whether the branch has all changes of the head, by other commits; not asked where it has the head.
    """

    tip: str | None
    begin: str | None
    names: frozenset[str]
    holders: tuple[Holder, ...]
    has_intended: bool
    has_head: bool
    has_landed_commit: bool
    has_landed_head: bool
    extends_landed: bool
    extends_base: bool
    extends_begin: bool
    has_content: bool

    def has_work(self, clone: Clone, head: str) -> bool:
        """Say whether the branch has a head, as its commits or as the one commit that it landed as."""
        return self.has_head or (head == clone.landings.landed_head and self.has_landed_commit)

    def start(self, clone: Clone) -> str | None:
        """Return the commit from which on an agent's work lands as one commit; None: all that the branch lacks lands.

        It is the head that has landed as one commit before, or the commit of the user's own uncommitted changes: what came
        before it must not land once more, or at all.
        """
        if clone.landings.landed_head is not None and self.has_landed_commit and not self.has_landed_head:
            return clone.landings.landed_head if self.extends_landed else None
        return clone.base if clone.with_wip and self.extends_base else None

    def lands_tree(self, clone: Clone) -> bool:
        """Say whether the files after the landing are those of the head itself, however it lands."""
        return self.extends_begin and self.start(clone) is None

    def way(self, landing: Landing, start: str | None) -> str:
        """Return how the branch takes the work."""
        if self.begin is None or (start is None and landing.mode is not LandingMode.SQUASH and self.extends_begin):
            return AS_IS
        return ONE if landing.mode is LandingMode.SQUASH or start is not None else MERGE


def words(clone: Clone, landing: Landing, head: str) -> tuple[str, ...]:
    """Return the arguments of `standing`.

    A branch that isn't there yet is made where the clone began; before that stand the user's uncommitted changes.
    """
    start = f"{clone.base}^" if clone.with_wip and clone.base is not None else clone.base
    base = clone.base if clone.with_wip else None  # only then `Standing.start` asks for it
    asked = (landing.target, start, head, clone.landings.landed_head, clone.landings.landed_commit, base, landing.intended)
    return tuple(word or "-" for word in asked)


def parse(output: bytes, branch: str, git_dir: str) -> Standing:
    """Read what `standing` has printed; raises `ValueError` if it isn't whole."""
    *lines, rest = output.split(b"\n", _FACTS)
    if len(lines) != _FACTS:
        raise ValueError(output[:200])
    tip, begin = (None if line == b"-" else line.decode("ascii") for line in lines[:2])
    listed, _, holders = rest.partition(b"\0\0") if not rest.startswith(b"\0") else (b"", b"", rest[1:])
    names = frozenset(os.fsdecode(listed).split("\0"))
    held = branch_holders.parse(holders, branch, git_dir)
    return Standing(tip, begin, names, held, *(line == b"yes" for line in lines[2:]))
