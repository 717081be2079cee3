"""The objects of families' runs and tasks, as types: a part of `objects`."""

from __future__ import annotations

from typing import Literal, TypedDict

from substrat.protocol.objects import State  # noqa: TC001 - clients look it up


class RunAgentObject(TypedDict):
    """An agent of a run."""

    name: str
    agent: str | None
    state: State | None
    outcome: Literal["working", "succeeded", "failed", "needs-you", "out-of-budget"] | None
    text: str


class ListedRunObject(TypedDict):
    """A family that was started from a file, without its result."""

    family: str
    file: str
    started_at: str
    ended_at: str | None
    outcome: Literal["succeeded", "failed", "needs-you", "out-of-budget", "timeout"] | None
    why: str | None
    agents: list[RunAgentObject]


class RunObject(ListedRunObject):
    """A family that was started from a file."""

    result: str


class ShownRunObject(RunObject):
    """A run, with the digest of its object."""

    seen: str


class TaskObject(TypedDict):
    """A task of a family."""

    number: int
    family: str | None
    id: str
    title: str
    description: str
    state: Literal["blocked", "ready", "claimed", "succeeded", "failed", "skipped"]
    label: str | None
    needs: list[str]
    claimed_by: str | None
    attempts: int
    max_attempts: int
    status: Literal["succeeded", "failed", "skipped"] | None
    result: str
    created_at: str
    finished_at: str | None
