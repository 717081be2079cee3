"""Decides on waits: when one is over, which circle it would close, and the words that wake its agent. Pure.

A wait is a record of the daemon, not a call that blocks. An agent registers it with `wait_agents`, ends its turn and is
woken once. Messages that tell the end of a turn of an awaited agent belong to the wait and start no turn. An example: anna
waits for `a` and `b`; `a` finishes and nothing happens; `b` finishes and anna's next turn begins with both results.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import excerpts
from substrat.core.agents.lifecycle import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from substrat.core.agents.records import Agent

_LEAST_RESULT = 256
"""Bytes that each result has at least when many share a wake: enough for a sentence or two."""


class WaitMode(StrEnum):
    """What ends a wait: how many of the awaited agents must have finished."""

    ALL = "all"
    ANY = "any"
    TASK = "task"
    """It ends with a task for the agent that waits (`families/tasks.py`)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of an agent for others.

    Args:
        id: its number.
        agent: the id of the agent that waits.
        members: the ids of the agents that it waits for.
        names: their names when it was registered.
        mode: whether it ends with the first of them or with all.
        created_at: seconds since the epoch.
        deadline: when it ends in any case, in seconds since the epoch.
        note: words that come back with the wake.
        reports: the numbers of the inbox items that belong to it: each tells the end of a turn of a member.
        wake: the number of the inbox item that wakes the agent, until a turn delivers that; None while the wait is open.
        label: the label that the task must have for which it waits; None: any.
    """

    id: int
    agent: str
    members: tuple[str, ...]
    names: tuple[str, ...]
    mode: WaitMode
    created_at: float
    deadline: float | None = None
    note: str | None = None
    reports: tuple[int, ...] = ()
    wake: int | None = None
    label: str | None = None

    @property
    def awaited(self) -> tuple[str, ...]:
        """What it waits for, in words: the agents' names, or `a task`."""
        if self.mode is not WaitMode.TASK:
            return self.names
        return (f"a task labelled {self.label}" if self.label is not None else "a task",)

    @property
    def is_open(self) -> bool:
        """Whether the agent isn't woken yet."""
        return self.wake is None


def is_finished(agent: Agent | None, *, has_open_wait: bool, asks: bool) -> bool:
    """Say whether an agent goes on by itself no more; one that was removed (None) doesn't.

    A failed agent has finished though messages may wait for it: those that let it work again have done so.

    Args:
        agent: the agent.
        has_open_wait: whether it waits for others.
        asks: whether it has asked the operator something that isn't answered: its work isn't done then.
    """
    if agent is None or agent.phase == Phase.ENDED:
        return True
    return agent.phase in {Phase.IDLE, Phase.FAILED} and not has_open_wait and not asks


def is_held(agent: Agent | None, *, has_open_wait: bool, asks: bool) -> bool:
    """Say whether an agent that hasn't finished goes on only when a person acts; the arguments are as for `is_finished`.

    One that was suspended with all others isn't held: it goes on with those who wait for it.
    """
    if agent is None:
        return False
    if agent.phase in {Phase.SUSPENDED, Phase.FROZEN}:
        return not agent.together
    return agent.phase in {Phase.IDLE, Phase.FAILED} and asks and not has_open_wait


def is_satisfied(mode: WaitMode, members: Sequence[str], finished: Collection[str], held: Collection[str] = ()) -> bool:
    """Say whether a wait for agents is over: members have finished, and those that a person holds keep no result back."""
    if mode is WaitMode.TASK:
        return False
    if mode is WaitMode.ANY:
        return any(member in finished for member in members)
    return bool(finished) and len(finished) + len(held) == len(members)


class Ending(Enum):
    """The ways in which a wait ends."""

    GONE = auto()
    """Its agent works no more, so it is told nothing."""
    TIMED_OUT = auto()
    SATISFIED = auto()


def ending(
    wait: Wait, agent: Agent | None, finished: Collection[str], now: float, held: Collection[str] = ()
) -> Ending | None:
    """Return how an open wait ends; None: it goes on.

    Args:
        wait: the wait.
        agent: the agent that waits; None: it was removed.
        finished: those of its members that have finished.
        now: the time, in seconds since the epoch.
        held: those of its members that go on only when a person acts.
    """
    if agent is None or agent.phase in {Phase.ENDING, Phase.ENDED}:
        return Ending.GONE
    if wait.deadline is not None and wait.deadline <= now:
        return Ending.TIMED_OUT
    return Ending.SATISFIED if is_satisfied(wait.mode, wait.members, finished, held) else None


def circle(waiter: str, members: Iterable[str], waits_for: Callable[[str], Iterable[str]]) -> tuple[str, ...] | None:
    """Return the shortest circle that a new wait would close, over any number of agents; None when it closes none.

    Args:
        waiter: the agent that is about to wait.
        members: the agents that it would wait for.
        waits_for: returns the agents that an agent waits for already.

    Returns:
        The agents' ids in order, the waiter first and last: `(anna, bert, carl, anna)`.
    """
    paths: list[tuple[str, ...]] = [(waiter, member) for member in members]
    seen = {path[-1] for path in paths}
    for path in paths:  # it grows while it is walked
        if path[-1] == waiter:
            return path
        for following in waits_for(path[-1]):
            if following == waiter:
                return (*path, waiter)
            if following not in seen:
                seen.add(following)
                paths.append((*path, following))
    return None


def told_circle(names: Sequence[str]) -> str:
    """Name a circle: `anna would wait for bert, who waits for carl, who waits for anna`."""
    first, second, *others = names
    return ", who waits for ".join((f"{first} would wait for {second}", *others))


class Report(NamedTuple):
    """What a wake tells of one agent.

    Args:
        name: the agent's name.
        head: one line without the result, such as `kid (idle): turn 1, success; its work: +1 commit, a1b2c3d`.
        text: its result or its error; empty when it said nothing.
        finished: whether the agent has finished.
    """

    name: str
    head: str
    text: str
    finished: bool


def over(wait_names: Sequence[str], reports: Sequence[Report], *, timed_out: bool) -> str:
    """Say in one sentence how a wait ended: `all of a, b have finished`, `timed out; a of a, b has finished`."""
    if not wait_names:
        return "nobody is left to wait for"
    those = ", ".join(wait_names)
    done = [report.name for report in reports if report.finished]
    if len(done) == len(wait_names):
        return f"{those} {'have' if len(done) > 1 else 'has'} finished"
    so_far = f"{', '.join(done) or 'none'} of {those} {'have' if len(done) > 1 else 'has'} finished"
    return f"its time is over; {so_far}" if timed_out else so_far


def words(sentence: str, note: str | None, reports: Sequence[Report], earlier: Sequence[str], most: int) -> str:
    """Return the text that tells an agent the results that it waited for, cut to size.

    Args:
        sentence: how the wait ended.
        note: the words that the agent wanted back.
        reports: what each awaited agent has to tell.
        earlier: messages about their earlier turns, as they would have been delivered.
        most: the bytes that all results together may have; each gets an equal share, and at least some hundred.
    """
    share = max(_LEAST_RESULT, min(excerpts.MOST, most // max(1, len(reports) + len(earlier))))
    parts = [sentence, f"You noted: {note}"] if note else [sentence]
    for report in reports:
        quoted = excerpts.quoted(report.text.strip(), share)
        parts.append(f"{report.head}\n\n{quoted}" if quoted else report.head)
    parts += [excerpts.shortened(text.strip(), share) for text in earlier]
    return "\n\n".join(parts) + "\n"
