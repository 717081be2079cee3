"""Records of agents' private clones, and the names of their refs in the user's repository. Pure.

An agent may work in a clone of its own instead of in the user's checkout. The clone's directory is called its tree. The
work in it is kept in the user's repository under `refs/substrat/NAME/`, for example `refs/substrat/fix-login/head`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

PREFIX = "refs/substrat/"
"""The refs that the daemon writes in the user's repository; it writes no others, except where a landing was asked for."""
OBJECTS_IN_SANDBOX = "/run/substrat/objects"
"""Where a sandbox shows the objects that a clone borrows: `/run/substrat/objects/0`, `/run/substrat/objects/1` …"""
MODULES_IN_SANDBOX = "/run/substrat/modules"
"""Where a sandbox shows the objects of submodules that a clone borrows: those of `.git/modules/lib` are in
`/run/substrat/modules/modules/lib/objects`."""

_MAX_REF = 200
"""Bytes of a branch's name: git makes a file of it, and file names end at 255 bytes, the suffix `.lock` included."""
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
"""Characters and sequences that no ref may hold (git-check-ref-format(1))."""


class Stage(StrEnum):
    """How far a clone has come."""

    WANTED = "wanted"
    """It is to be made, unless its agent has ended."""
    MADE = "made"
    """It is there, and its set-up is to be run, unless its agent has ended."""
    READY = "ready"
    """Turns can run in it."""
    RESTORING = "restoring"
    """It is being put back to the end of the turn in `restoring`."""
    FAILED = "failed"
    """It couldn't be made or set up; `error` says why."""
    PRUNING = "pruning"
    """Its tree is being removed, for good."""
    PRUNED = "pruned"
    """Its tree is gone; its kept work is in the user's repository."""


@dataclass(frozen=True, slots=True)
class OnlyHere:
    """How much a tree holds that no bundle takes along.

    Args:
        nested: files in repositories inside the tree.
        submodules: commits in submodules that their remotes may not have.
        lfs: objects of git-lfs that aren't among the user's.
        ignored: files that git ignores.
        unreadable: files that git can't read.
    """

    nested: int = 0
    submodules: int = 0
    lfs: int = 0
    ignored: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """The work in a clone as of its last keep.

    Args:
        turn: the number of the last kept turn; 0 before the first.
        time: when it was kept, in seconds since the epoch.
        head: the commit of the clone's HEAD; None: it has no commit yet.
        wip: a commit of the files that weren't committed; its only parent is `head`.
        asides: a commit of the work that isn't HEAD's; its parents are `wip` and the commits of branches and stashes.
        branches: the branches, besides HEAD's, with commits of their own, each with how many.
        stashes: how many stashes there are.
        ahead: commits of head that neither the base nor a branch of the user's has.
        behind: commits of the target branch that head doesn't have.
        files: uncommitted files.
        hidden: those of them that the agent's own `git status` doesn't show.
        landed: whether head is in a branch of the user's, by its own commits or by others with the same changes.
        only_here: what isn't kept.
        loose: whether no turn's ref has it: it was kept between the ends of turns.
        size: bytes on disk that the tree took then, when it was made, or when `clones` looked last; None: it isn't known.
    """

    turn: int = 0
    time: float = 0.0
    head: str | None = None
    wip: str | None = None
    asides: str | None = None
    branches: tuple[tuple[str, int], ...] = ()
    stashes: int = 0
    ahead: int = 0
    behind: int = 0
    files: int = 0
    hidden: int = 0
    landed: bool = True
    only_here: OnlyHere = OnlyHere()
    loose: bool = False
    size: int | None = None

    @property
    def last(self) -> str | None:
        """The commit that has all of it among its ancestors."""
        return self.asides or self.wip or self.head


@dataclass(frozen=True, slots=True)
class PastLandings:
    """What has come of a clone's landings; None in each place: nothing yet.

    Args:
        accepted: the commit whose work a person has accepted without landing it: the head, or all of it (`Kept.last`).
        bounced: the head whose conflict, or failed check, the agent was told of.
        landed_head: the head that landed last as one commit, which has none of its commits among its ancestors.
        landed_commit: that commit.
        failed_head: the head whose check failed last, merged with the branch.
        failed_line: what that check said last, or why it couldn't run.
    """

    accepted: str | None = None
    bounced: str | None = None
    landed_head: str | None = None
    landed_commit: str | None = None
    failed_head: str | None = None
    failed_line: str | None = None


@dataclass(frozen=True, slots=True)
class Clone:
    """An agent's private clone.

    Args:
        agent: the agent's id; the tree is named after it.
        name: the agent's name, after which the refs are named; it stays when the agent is removed.
        tree: the directory that it lies in.
        repository: the physical path of the top level of the user's checkout; in the sandbox the tree stands there.
        git_dir: the physical path of the git directory that all worktrees of the user's repository share.
        workspace: the agent's workspace, the top level or a directory below it.
        branch: the clone's branch, for example `substrat/fix-login`.
        target: the branch that its work is landed in; None: HEAD was detached at the spawn.
        base: the commit that it starts at; None before it is made, and for a repository without commits.
        stage: how far it has come.
        error: why it failed; None unless it did.
        with_wip: whether the user's uncommitted changes were taken along, as a marked first commit, which is the base.
        source: the id of the parent whose head it starts at; None: it starts at a commit of the user's.
        kept: the work in it as of its last keep.
        landings: what has come of its landings.
        former_name: the name before a renaming whose refs are still to be deleted.
        unkept: why the last keep failed; None: it didn't.
        restoring: the turn to whose end it is being put back; None: it isn't.
        notice: words for the agent's next prompt; None: there are none.
        notice_turn: the number of the turn that has got them; None: they wait.
        is_strange: whether it began at a commit that was in no branch or tag of the user's: its files set nothing up.
        held_by: the id of the nearest ancestor whose kept head had `held_head`, or all its changes; None: none had.
        held_head: the head of which that holds.
    """

    agent: str
    name: str
    tree: str
    repository: str
    git_dir: str
    workspace: str
    branch: str
    target: str | None = None
    base: str | None = None
    stage: Stage = Stage.WANTED
    error: str | None = None
    with_wip: bool = False
    source: str | None = None
    kept: Kept = Kept()
    landings: PastLandings = PastLandings()
    former_name: str | None = None
    unkept: str | None = None
    restoring: int | None = None
    notice: str | None = None
    notice_turn: int | None = None
    is_strange: bool = False
    held_by: str | None = None
    held_head: str | None = None

    def ref(self, name: str) -> str:
        """Return one of its refs in the user's repository: `ref("head")` is `refs/substrat/fix-login/head`."""
        return f"{PREFIX}{self.name}/{name}"

    def turn_ref(self, turn: int) -> str:
        """Return the ref of the work at the end of a turn, `refs/substrat/fix-login/turns/3`: that turn's `wip`."""
        return self.ref(f"turns/{turn}")

    @property
    def is_unlanded(self) -> bool:
        """Whether it holds commits that are neither in a branch of the user's nor accepted."""
        return (
            self.kept.ahead > 0 and not self.kept.landed and self.landings.accepted not in {self.kept.head, self.kept.last}
        )

    @property
    def holder(self) -> str | None:
        """The id of the ancestor that has its commits and is to land them, None if it is to land them itself."""
        return self.held_by if self.kept.head is not None and self.held_head == self.kept.head else None

    @property
    def has_more(self) -> bool:
        """Whether it holds work, not accepted, that no landing takes along: files, other branches, stashes."""
        kept = self.kept
        return bool(kept.files or kept.branches or kept.stashes) and self.landings.accepted != kept.last


def ref_problem(name: str) -> str | None:
    """Say why a name can't be a branch or a part of a ref (git-check-ref-format(1)); None when it can.

    For example `fix.lock` can't, because git's own lock files end so.
    """
    parts = name.split("/")
    if not name or len(name.encode("utf-8", "replace")) > _MAX_REF:
        return f"it must have 1 to {_MAX_REF} bytes"
    if _FORBIDDEN.search(name):
        return "it has a character or a sequence that git forbids in refs, such as a space, `..`, `~` or `:`"
    if name.startswith("-") or name == "@":
        return "git takes it for an option" if name.startswith("-") else "git takes it for HEAD"
    if any(part.startswith(".") or part.endswith((".", ".lock")) or not part for part in parts):
        return "no part of it may begin with a dot or end with `.` or `.lock`"
    return None
