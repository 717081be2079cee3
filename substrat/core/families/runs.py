"""Decides how a family from a file goes on: what comes next, and how the run stands. Pure.

An example: the file has an author and a reviewer that needs author, and author is the lead. The run starts author, and when
that has succeeded reviewer as its child, whose clone so begins at author's commits. When both are at rest and have
succeeded, so has the run. If author fails, the run has failed; with `on_fail = "ask"` it waits until a person has settled
that.

A lead that needs others has its task last: it is made first, so that they are its children, and is idle until then.

With `returns_to = "author"` the reviewer's result has `agrees`. While that is false author is given the result as its next
task, and then the reviewer its own task again, until `rounds` results are there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.result_schema import unfenced
from substrat.core.families.plans import OnFail
from substrat.core.families.tasks import NEEDED, OPEN, TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from substrat.core.families.plans import Member, Plan


_MOST_NAMED = 10


class RunOutcome(StrEnum):
    """The outcome of a run that is over or waits for a person."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEEDS_YOU = "needs-you"
    OUT_OF_BUDGET = "out-of-budget"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Returned:
    """What a member has given back.

    Args:
        times: how many results.
        turn: the id of the turn whose result was the last of them.
    """

    times: int
    turn: str


@dataclass(frozen=True, slots=True)
class Run:
    """A family that was started from a file.

    Args:
        name: its family's name, which no other run has: the plan's, or with a number.
        file: the file's path.
        workspace: the directory that the family works on.
        plan: the content of the file; an agent for each line of an `each` is in it once that has run.
        by: who started it (`records.BY_OPERATOR`).
        started_at: when, in seconds since the epoch.
        agents: the ids of the agents that have their tasks, by their members' names.
        ended_at: when it was over; None: it isn't.
        outcome: how it ended; None: it hasn't.
        why: a sentence about its failure, where no agent's own says it.
        result: its result, once it is over.
        standings: how its members stood then, by name.
        returned: what its members have given back, by their names.
        root: the id of a lead that needs others, once it is made.
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
    returned: dict[str, Returned] = field(default_factory=dict, hash=False)
    root: str | None = None

    @property
    def lead(self) -> str | None:
        """The id of the lead; None: there is none, or not yet."""
        return self.root or self.agents.get(self.plan.lead or "")

    def id_of(self, member: str) -> str | None:
        """Return the id of a member's agent; None: it isn't there yet."""
        return self.lead if member == self.plan.lead else self.agents.get(member)

    @property
    def ids(self) -> list[str]:
        """The ids of its agents, the lead's first."""
        return list(dict.fromkeys(one for one in (self.lead, *self.agents.values()) if one is not None))


class Standing(StrEnum):
    """How an agent of a run stands."""

    WORKING = "working"
    SUCCEEDED = "succeeded"
    """Also one that has failed where its `on_fail` lets the others go on."""
    FAILED = "failed"
    NEEDS_YOU = "needs-you"
    """It asks, waits for one that asks, was suspended, or failed with `on_fail = "ask"`: only a person lets it go on."""
    OUT_OF_BUDGET = "out-of-budget"


class Step(StrEnum):
    """What a run does next with one of its members."""

    LIST = "list"
    """Its `each` is run, and the agents take its place that there are to be."""
    MAKE = "make"
    """It is made, without a task: the lead that needs others."""
    START = "start"
    """It is started."""
    RETURN = "return"
    """Its result is given to the member that it returns to."""
    ASK_AGAIN = "ask again"
    """It is given its task again, because that member has done what the result said."""


class Stand(NamedTuple):
    """How a run's members stand, and its file's tasks.

    Args:
        standings: each member that was started, or can't be, after `with_rounds`.
        disagreeing: those whose result has `agrees` false, each with the id of its turn.
        tasks: the state of each task of the file, by id; empty before the lead is there.
    """

    standings: Mapping[str, Standing]
    disagreeing: Mapping[str, str]
    tasks: Mapping[str, TaskState] = {}


class Next(NamedTuple):
    """The next step of a run."""

    step: Step
    member: Member


class End(NamedTuple):
    """The run is over."""

    outcome: RunOutcome
    why: str | None = None


def next_step(run: Run, stand: Stand, now: float) -> Next | End | None:
    """Decide the next step of a run that isn't over; None: it waits for its agents.

    Args:
        run: the run.
        stand: how its members and tasks stand.
        now: the time, in seconds since the epoch.
    """
    plan, (standings, disagreeing, found) = run.plan, stand
    outcome = outcome_of(run, standings)
    if outcome is RunOutcome.FAILED:
        return End(outcome, _disagreement(run, disagreeing))
    if outcome is RunOutcome.SUCCEEDED:
        return End(RunOutcome.FAILED, _left(found)) if any(state in OPEN for state in found.values()) else End(outcome)
    if plan.timeout is not None and now >= run.started_at + plan.timeout:
        return End(RunOutcome.TIMEOUT, f"it wasn't done after {plan.timeout:g} s, so its agents were suspended")
    if Standing.FAILED in standings.values():
        return None
    if (unlisted := next((member for member in plan.members if member.each is not None), None)) is not None:
        return Next(Step.LIST, unlisted)
    for member in plan.members:
        turn = disagreeing.get(member.name)
        if turn is not None and standings.get(member.returns_to or "") is Standing.SUCCEEDED:
            if _is_returned(run, member, turn):
                return Next(Step.ASK_AGAIN, member)
            if not _is_last(run, member, turn):
                return Next(Step.RETURN, member)
    if plan.is_lead_last and run.root is None:
        return Next(Step.MAKE, next(member for member in plan.members if member.name == plan.lead))
    done = {name for name, standing in standings.items() if standing is Standing.SUCCEEDED}
    done |= {f"{NEEDED}{name}" for name, state in found.items() if state is TaskState.SUCCEEDED}
    left = [member for member in plan.members if member.name not in run.agents]
    free = (member for member in left if plan.lead in {None, member.name} or run.lead is not None)
    if (first := next((member for member in free if done.issuperset(member.needs)), None)) is not None:
        return Next(Step.START, first)
    if left and found and outcome is None and Standing.WORKING not in standings.values():
        return End(RunOutcome.FAILED, _left(found))
    return None


def _left(found: Mapping[str, TaskState]) -> str:
    """Say which tasks are left where agents don't work any more."""
    names = [name for name, state in found.items() if state is not TaskState.SUCCEEDED]
    those = f"{', '.join(names[:_MOST_NAMED])}{', …' if len(names) > _MOST_NAMED else ''}"
    return f"its agents work no more, and these tasks haven't succeeded: {those}"


def agrees(words: str) -> bool:
    """Say whether `agrees` is true in a result; what follows the JSON, such as a list of files, doesn't count."""
    try:
        found, _ = json.JSONDecoder().raw_decode(unfenced(words).lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("agrees") is True


def with_rounds(run: Run, standings: Mapping[str, Standing], disagreeing: Mapping[str, str]) -> dict[str, Standing]:
    """Return how members stand, given which of those that have succeeded don't agree.

    Such a one works for as long as the member does that its result is given to, and fails with the last round. Where
    another member has failed no result is given back any more.
    """
    found, open_ones = dict(standings), dict[str, str]()
    for member in run.plan.members:
        turn, author = disagreeing.get(member.name), member.returns_to
        if turn is not None and _is_last(run, member, turn):
            found[member.name] = standing_of(met=False, on_fail=member.on_fail, is_accepted=False)
        elif turn is not None and author is not None:
            open_ones[member.name] = author
    has_failed = Standing.FAILED in found.values()
    for name in open_ones:
        author = open_ones[name]
        while author in open_ones:  # who judges may be judged too
            author = open_ones[author]
        standing = found.get(author, Standing.FAILED)
        found[name] = Standing.WORKING if standing is Standing.SUCCEEDED and not has_failed else standing
    return found


def _is_returned(run: Run, member: Member, turn: str) -> bool:
    returned = run.returned.get(member.name)
    return returned is not None and returned.turn == turn


def _is_last(run: Run, member: Member, turn: str) -> bool:
    times = run.returned[member.name].times if member.name in run.returned else 0
    return times >= member.rounds - 1 and not _is_returned(run, member, turn)


def _disagreement(run: Run, disagreeing: Mapping[str, str]) -> str | None:
    last = (one for one in run.plan.members if one.name in disagreeing and _is_last(run, one, disagreeing[one.name]))
    member = next(last, None)
    return f"{run.name}.{member.name} doesn't agree after {member.rounds} rounds" if member is not None else None


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
