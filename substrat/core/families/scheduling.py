"""Decides in which order agents that wait begin, and says for each why it waits. Pure.

Three rules, in this order: first agents of a higher priority, then the family (a root agent and its descendants) whose last
turn began longest ago, then the agent whose oldest item came first. An example: `lead` has spawned fifty workers and four
turns may run at once; a person spawns `anna`. The next turn that ends makes room for anna, although forty-six workers came
before her.

An agent with an obstacle of its own, such as a clone that is being made, takes no part in that and keeps nobody waiting.
"""

from __future__ import annotations

import heapq
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.prompts import timestamp
from substrat.core.agents.records import Priority
from substrat.core.workspaces.clones import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone

_STAGES = {
    Stage.WANTED: "its clone of {0.repository} is being made",
    Stage.MADE: "the set-up of its clone of {0.repository} runs",
    Stage.RESTORING: "its clone is being put back to turn {0.restoring}",
}
"""Why an agent waits whose clone isn't ready."""
_NEVER = -1
"""Before the first turn of any family."""


class ObstacleKind(Enum):
    """Why an agent can't begin, whatever room there is."""

    TREE = auto()
    """Its tree must not change for a moment, or git on the host is to write where it could write."""
    CLONE = auto()
    """Its clone isn't ready."""
    NEEDS = auto()
    """Other agents must succeed first."""
    ASLEEP = auto()
    """Messages alone have woken it too often."""
    RETRY = auto()
    """The time of its next try hasn't come."""
    BUDGET = auto()
    """What it may use with its family is used up."""
    AT_ONCE = auto()
    """As many turns of its family run as their budget lets."""
    ACCOUNT = auto()
    """Its login is held."""


class Obstacle(NamedTuple):
    """The reason why an agent can't begin.

    Args:
        kind: which.
        text: as a sentence for people.
        until: when it is over by itself, in seconds since the epoch; None: nobody knows.
    """

    kind: ObstacleKind
    text: str
    until: float | None = None


class Facts(NamedTuple):
    """All that decides whether an agent can begin, besides its record.

    Args:
        held: why its tree must not change, or no sandbox of it may begin, as a sentence.
        needs: the names of the agents that must succeed first.
        asleep_until: until when messages start no turn of it, in seconds since the epoch.
        budget: the sentence about its budget if that is used up, or its family's turns are as many as may run at once.
        account: the sentence about its login if that is held, and until when it is.
    """

    held: str | None = None
    needs: tuple[str, ...] = ()
    asleep_until: float | None = None
    budget: Obstacle | None = None
    account: Obstacle | None = None


def obstacle(agent: Agent, facts: Facts, now: float) -> Obstacle | None:
    """Return why an agent that waits can't begin; None if all that it needs is room.

    Args:
        agent: the agent.
        facts: the facts that were looked up about it.
        now: seconds since the epoch.
    """
    if facts.held is not None:
        return Obstacle(ObstacleKind.TREE, facts.held)
    if (text := _of_clone(agent.clone)) is not None:
        return Obstacle(ObstacleKind.CLONE, text)
    if agent.needs:
        return Obstacle(ObstacleKind.NEEDS, needed(facts.needs))
    if (until := facts.asleep_until) is not None:
        text = f"messages alone have started its last turns, so it waits until {timestamp(until)} or for your prompt"
        return Obstacle(ObstacleKind.ASLEEP, text, until)
    if agent.retry_at is not None and agent.retry_at > now:
        text = f"its last turn failed with something that passes, so it is tried again at {timestamp(agent.retry_at)}"
        return Obstacle(ObstacleKind.RETRY, text, agent.retry_at)
    return facts.budget or facts.account


def needed(names: Sequence[str]) -> str:
    """Say which agents must succeed first: `it begins when a and b have succeeded`."""
    *others, last = names
    those = f"{', '.join(others)} and {last} have" if others else f"{last} has"
    return f"it begins when {those} succeeded"


def _of_clone(clone: Clone | None) -> str | None:
    """Say why an agent's clone isn't ready; None if it is, or if there is none."""
    if clone is None or clone.stage is Stage.READY:
        return None
    if clone.stage is Stage.WANTED and clone.source is not None and clone.base is None:
        return "the work of its parent is being kept, and its clone starts there"
    return _STAGES.get(clone.stage, "its clone of {0.repository} isn't ready").format(clone)


_MEMORY_OF_A_TURN = 512 << 20
"""Bytes that an agent program with its tools takes, so that as many turns run at once as the machine has memory for."""


def most_running(wanted: int, memory: int) -> int:
    """Return how many turns may run at once.

    Args:
        wanted: `turns.max_running`; 0: as many as the memory is enough for, from 8 to 256.
        memory: the machine's, in bytes.
    """
    return wanted or max(8, min(256, memory // _MEMORY_OF_A_TURN))


class Waiting(NamedTuple):
    """An agent that waits for its turn.

    Args:
        agent: its id.
        family: the id of its family's root.
        priority: its priority.
        number: the number of its oldest item; items are numbered as they come.
        obstacle: why it can't begin whatever room there is; None: it can.
        trial: the login whose gate is shut and of which it may be the trial (`account_gate`); None: its login is open.
        is_blamed: whether its turn has shut that gate: it tries only where no other agent can.
    """

    agent: str
    family: str
    priority: Priority
    number: int
    obstacle: Obstacle | None = None
    trial: str | None = None
    is_blamed: bool = False


def order(waiting: Iterable[Waiting], served: Mapping[str, int]) -> list[Waiting]:
    """Return agents in the order in which they begin.

    Args:
        waiting: the agents.
        served: a number for each family that has had a turn; the later its last turn began, the greater.
    """
    classes: dict[Priority, dict[str, list[Waiting]]] = {priority: {} for priority in Priority}
    for one in sorted(waiting, key=lambda one: one.number, reverse=True):  # so that the oldest is the last, to be popped
        classes[one.priority].setdefault(one.family, []).append(one)
    last, following = dict(served), max(served.values(), default=0) + 1
    found = []
    for families in classes.values():
        line = [(last.get(family, _NEVER), members[-1].number, family) for family, members in families.items()]
        heapq.heapify(line)
        while line:
            _, _, family = heapq.heappop(line)
            members = families[family]
            found.append(members.pop())
            last[family], following = following, following + 1
            if members:
                heapq.heappush(line, (last[family], members[-1].number, family))
    return found


def starts(waiting: Iterable[Waiting], served: Mapping[str, int], room: int) -> list[str]:
    """Return the ids of the agents that begin now, in order.

    Args:
        waiting: the agents that wait.
        served: as for `order`.
        room: how many turns may begin; at least 1.
    """
    found: dict[str, str] = {}
    line = order((one for one in waiting if one.obstacle is None), served)
    others = {one.trial for one in line if not one.is_blamed}
    for one in line:
        if one.is_blamed and one.trial in others:
            continue
        found.setdefault(one.trial or one.agent, one.agent)  # one turn of a login alone tries whether the account may go on
    return list(found.values())[:room]


class Running(NamedTuple):
    """How many turns run, and how many checks of landings, each of which counts as a turn."""

    turn: int
    check: int = 0


class Place(NamedTuple):
    """An agent's place in the queue.

    Args:
        agent: its id.
        family: the id of its family's root.
        priority: its priority.
        position: 1 for the one that begins next; those that can't begin come last.
        reason: why it waits, as a sentence.
        obstacle: why it can't begin whatever room there is.
    """

    agent: str
    family: str
    priority: Priority
    position: int
    reason: str
    obstacle: Obstacle | None


def places(
    waiting: Sequence[Waiting], served: Mapping[str, int], running: Running, most: int, closed: str | None
) -> list[Place]:
    """Return the queue: who begins when, and why each waits.

    Args:
        waiting: the agents that wait.
        served: as for `order`.
        running: the turns and checks that run.
        most: how many may at once.
        closed: why no turn at all starts, as a sentence; None: turns start.
    """
    line = order((one for one in waiting if one.obstacle is None), served)
    line += order((one for one in waiting if one.obstacle is not None), served)
    return [
        Place(one.agent, one.family, one.priority, position, _reason(one, position, running, most, closed), one.obstacle)
        for position, one in enumerate(line, 1)
    ]


def check_waits(running: Running, closed: str | None) -> str:
    """Say why a check waits for room.

    Args:
        running: the turns and checks that run.
        closed: as for `places`.
    """
    return f"its check waits: {closed or _busy(running)}"


def _reason(one: Waiting, position: int, running: Running, most: int, closed: str | None) -> str:
    if one.obstacle is not None:
        return one.obstacle.text
    if closed is not None:
        return closed
    if position <= most - sum(running):
        return "its turn is about to begin"
    return f"place {position} in the queue: {_busy(running)}"


def _busy(running: Running) -> str:
    counted = [f"{number} {word}{'s' if number != 1 else ''}" for word, number in running._asdict().items() if number]
    if not counted:
        return "no turn is let in yet"
    verb = "runs" if sum(running) == 1 else "run"
    return f"{' and '.join(counted)} {verb}, as many as may at once (turns.max_running)"
