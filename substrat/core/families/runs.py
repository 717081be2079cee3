"""Decides how a family from a file goes on: which agent starts next, and how the run stands. Pure.

An example: the file has an author and a reviewer that needs author, and author is the lead. The run starts author, and when
that has succeeded reviewer as its child, whose clone so begins at author's commits. When both are at rest and have
succeeded, so has the run. If author fails, the run has failed; with `on_fail = "ask"` it waits until a person has settled
that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.families.plans import OnFail, ordered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from substrat.core.families.plans import Member, Plan


class RunOutcome(StrEnum):
    """The outcome of a run that is over or waits for a person."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEEDS_YOU = "needs-you"
    OUT_OF_BUDGET = "out-of-budget"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Run:
    """A family that was started from a file.

    Args:
        name: its family's name, which no other run has: the plan's, or with a number.
        file: the file's path.
        workspace: the directory that the family works on.
        plan: the content of the file, with all variables filled in.
        by: who started it (`records.BY_OPERATOR`).
        started_at: when, in seconds since the epoch.
        agents: the ids of the agents that were started, by their members' names.
        ended_at: when it was over; None: it isn't.
        outcome: how it ended; None: it hasn't.
        why: a sentence about its failure, where no agent's own says it.
        result: its result, once it is over.
        standings: how its members stood then, by name.
    """

    name: str
    file: str
    workspace: str
    plan: Plan
    by: str
    started_at: float
    agents: dict[str, str] = field(default_factory=dict, hash=False)
    ended_at: float | None = None
    outcome: RunOutcome | None = None
    why: str | None = None
    result: str = ""
    standings: dict[str, str] = field(default_factory=dict, hash=False)


class Standing(StrEnum):
    """How an agent of a run stands."""

    WORKING = "working"
    SUCCEEDED = "succeeded"
    """Also one that has failed where its `on_fail` lets the others go on."""
    FAILED = "failed"
    NEEDS_YOU = "needs-you"
    """It asks, waits for one that asks, was suspended, or failed with `on_fail = "ask"`: only a person lets it go on."""
    OUT_OF_BUDGET = "out-of-budget"


class Start(NamedTuple):
    """A member is to be started."""

    member: Member


class End(NamedTuple):
    """The run is over."""

    outcome: RunOutcome
    why: str | None = None


def next_step(run: Run, standings: Mapping[str, Standing], now: float) -> Start | End | None:
    """Decide the next step of a run that isn't over; None: it waits for its agents.

    Args:
        run: the run.
        standings: how the members stand whose agents were started.
        now: the time, in seconds since the epoch.
    """
    plan, outcome = run.plan, outcome_of(run, standings)
    if outcome in {RunOutcome.SUCCEEDED, RunOutcome.FAILED}:
        return End(outcome)
    if plan.timeout is not None and now >= run.started_at + plan.timeout:
        return End(RunOutcome.TIMEOUT, f"it wasn't done after {plan.timeout:g} s, so its agents were suspended")
    if Standing.FAILED not in standings.values():
        done = {name for name, standing in standings.items() if standing is Standing.SUCCEEDED}
        left = (member for member in ordered(plan) if member.name not in run.agents)
        ready = (
            member for member in left if done.issuperset(member.needs) and plan.lead in {None, member.name, *run.agents}
        )
        if (member := next(ready, None)) is not None:
            return Start(member)
    return None


def standing_of(met: bool | None, on_fail: OnFail, *, is_accepted: bool) -> Standing:
    """Return how an agent at rest stands.

    Args:
        met: whether it has succeeded; None: that isn't decided, because a person has suspended or interrupted it.
        on_fail: the effect of its failure.
        is_accepted: whether a person has accepted its failure.
    """
    if met is None:
        return Standing.NEEDS_YOU
    if met or on_fail is OnFail.CONTINUE:
        return Standing.SUCCEEDED
    if on_fail is OnFail.ASK:
        return Standing.SUCCEEDED if is_accepted else Standing.NEEDS_YOU
    return Standing.FAILED


def outcome_of(run: Run, standings: Mapping[str, Standing]) -> RunOutcome | None:
    """Return how a run stands; None: it goes on by itself."""
    found = set(standings.values())
    if Standing.WORKING in found:
        return None
    if Standing.FAILED in found:
        return RunOutcome.FAILED
    if Standing.NEEDS_YOU in found:
        return RunOutcome.NEEDS_YOU
    if Standing.OUT_OF_BUDGET in found:
        return RunOutcome.OUT_OF_BUDGET
    return RunOutcome.SUCCEEDED if len(standings) == len(run.plan.members) else None


def name_after(wanted: str, taken: Collection[str]) -> str:
    """Return a run's name: the family's, or with the first number that is free: `review`, `review-2`.

    Args:
        wanted: the family's name.
        taken: the names that are taken, in small letters: capitals don't tell names apart.
    """
    number = 2
    found = wanted
    while found.lower() in taken:
        found, number = f"{wanted}-{number}", number + 1
    return found
