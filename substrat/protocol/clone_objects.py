"""The protocol's objects of private clones and landings as types, for checkers; `objects` has all others.

`docs/protocol.md` has each member's meaning. Answers may have more members than these, in newer versions too.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class _KeptBase(TypedDict):
    """The members of all objects of private clones, as of the last keep."""

    branch: str
    base: str | None
    head: str | None
    ahead: int
    behind: int
    files: int


class BranchWorkObject(TypedDict):
    """A branch of a clone, besides the one that is checked out there, with commits of its own."""

    name: str
    commits: int


_WorkBase = TypedDict("_WorkBase", {"in": str | None})


class WorkObject(_WorkBase):
    """The work in an agent's private clone, as of its last keep."""

    text: str
    commits: int
    head: str | None
    wip: str | None
    files: int
    branches: list[BranchWorkObject]
    stashes: int
    hidden: int
    landed: bool
    checked: str | None
    unkept: str | None


class CloneObject(_KeptBase):
    """An agent's private clone, as of its last keep."""

    landed: bool
    stage: str
    work: WorkObject | None


class SetupObject(TypedDict):
    """The output of the commands that set an agent's clone up."""

    agent: str
    text: str | None


class ChangedFileObject(TypedDict):
    """A file that differs between two commits."""

    path: str
    old_path: str | None
    status: Literal["added", "deleted", "modified", "renamed", "copied", "type-changed"]
    added: int
    deleted: int
    binary: bool


DiffObject = TypedDict(
    "DiffObject",
    {
        "agent": str, "from": str, "to": str, "files": list[ChangedFileObject], "added": int, "deleted": int,
        "text": str | None, "cut": int,
    },
)  # fmt: skip
"""The work in an agent's clone beside its base."""


class LandingObject(TypedDict):
    """The outcome of landing an agent's commits."""

    agent: str
    into: str
    outcome: Literal["landed", "nothing", "conflict", "held", "refused", "queued"]
    commit: str | None
    files: list[str]
    text: str
    head: str | None
    was: str | None
    notes: list[str]


class RestoredObject(TypedDict):
    """An agent's clone after it was put back to a turn."""

    agent: str
    turn: int
    head: str | None
    wip: str
    kept_as: str | None


class CheckoutObject(TypedDict):
    """A working copy of the commits of an agent's clone."""

    agent: str
    outcome: Literal["made", "held"]
    path: str
    commit: str
    files: list[str]
    text: str


class OnlyHereObject(TypedDict):
    """How many things of a clone are nowhere else."""

    nested: int
    submodules: int
    lfs: int
    ignored: int
    branches: int
    stashes: int
    hidden: int


class StoredCloneObject(_KeptBase):
    """A private clone that is on disk."""

    agent: str
    id: str
    path: str
    repository: str
    unlanded: bool
    kept_only_here: OnlyHereObject
    bytes: int | None
    state: str
    work: list[str]
    only_here: list[str]
    not_kept: str | None


class PrunedCloneObject(TypedDict):
    """What became of a private clone that was on disk."""

    agent: str
    id: str
    path: str
    outcome: Literal["pruned", "would-go", "stays"]
    text: str
    refs: str | None


class PrunedRefsObject(TypedDict):
    """What became of the refs of an agent in a repository."""

    agent: str
    id: str | None
    path: str
    outcome: Literal["pruned", "would-go", "stays"]
    text: str
    refs: int
