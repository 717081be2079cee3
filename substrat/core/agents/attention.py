"""Decides which agents need a person, and why, from facts that others have looked up. Pure.

Every view shows the same answer: `ls` and `show` today. An agent has one attention at a time, the weightiest kind that
applies: an open question outweighs a turn that failed, and a turn that failed outweighs being idle.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.lifecycle import RUNNING_PHASES, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from substrat.core.agents.records import Agent, Finding, Item


class Kind(StrEnum):
    """Why an agent is shown where it is, the weightiest first."""

    ANSWER = "answer"
    UNSAFE = "unsafe"
    FAILED = "failed"
    STUCK = "stuck"
    HELD = "held"
    SUSPENDED = "suspended"
    WORKING = "working"
    QUEUED = "queued"
    IDLE = "idle"
    DONE = "done"


class Level(StrEnum):
    """How much a person should care: `urgent` now, `action` at some time, `info` not at all."""

    URGENT = "urgent"
    ACTION = "action"
    INFO = "info"


_LEVELS = {
    Kind.ANSWER: Level.URGENT,
    Kind.UNSAFE: Level.URGENT,
    Kind.FAILED: Level.URGENT,
    Kind.STUCK: Level.URGENT,
    Kind.HELD: Level.ACTION,
    Kind.SUSPENDED: Level.ACTION,
}

_LONGEST = 200
"""Characters of a text: it is one column of a list."""
_READ = 4 * _LONGEST
"""Characters of a question, an error or a finding that its line is made of; they may have as many as a message."""


class Attention(NamedTuple):
    """An agent's attention.

    Args:
        kind: why.
        text: one sentence.
        since: since when, in seconds since the epoch.
    """

    kind: Kind
    text: str
    since: float

    @property
    def level(self) -> Level:
        """How much a person should care."""
        return _LEVELS.get(self.kind, Level.INFO)


class Facts(NamedTuple):
    """All that an agent's attention depends on besides its record.

    Args:
        question: the oldest question of the agent's that the operator hasn't answered.
        heard_at: when its running turn last had an event, in seconds since the epoch; None: it has no running turn.
        held: why no turn starts at all, for example because the disk is nearly full; None when turns start.
        waiting_since: when the oldest item that waits for the agent was accepted; None when none waits.
        queue: why the agent itself waits, when that isn't only for its place among the running ones.
    """

    question: Item | None = None
    heard_at: float | None = None
    held: str | None = None
    waiting_since: float | None = None
    queue: str | None = None


def attention(agent: Agent, facts: Facts, now: float, stuck_after: float) -> Attention:
    """Return the first thing that a person should know about an agent.

    Args:
        agent: the agent.
        facts: the facts that were looked up about it.
        now: seconds since the epoch.
        stuck_after: seconds without an event after which a running turn counts as stuck; 0: never.
    """
    return next(_candidates(agent, facts, now, stuck_after))


def _candidates(agent: Agent, facts: Facts, now: float, stuck_after: float) -> Iterator[Attention]:
    """Give all that applies to an agent, in the order of `Kind`."""
    if facts.question is not None and agent.phase != Phase.ENDED:
        yield Attention(Kind.ANSWER, _line(facts.question.text), facts.question.time)
    if agent.findings:
        yield Attention(Kind.UNSAFE, _findings(agent.findings), min(finding.time for finding in agent.findings))
    turn = agent.turn
    if agent.phase == Phase.FAILED and turn is not None and agent.accepted_turn != turn.id:
        yield Attention(Kind.FAILED, _line(turn.error or "its last turn failed"), turn.ended_at or agent.since)
    if agent.phase == Phase.RUNNING and facts.heard_at is not None and 0 < stuck_after <= now - facts.heard_at:
        yield Attention(Kind.STUCK, f"no event for {_span(now - facts.heard_at)}", facts.heard_at)
    yield _of_phase(agent, facts)


def _of_phase(agent: Agent, facts: Facts) -> Attention:
    turn = agent.turn
    if agent.phase in RUNNING_PHASES:
        return Attention(
            Kind.WORKING, f"turn {turn.number if turn else 1} is running", turn.started_at if turn else agent.since
        )
    match agent.phase:
        case Phase.QUEUED:
            since = facts.waiting_since or agent.since
            if facts.held is not None:
                return Attention(Kind.HELD, _line(facts.held), since)
            return Attention(Kind.QUEUED, _line(facts.queue or "waits for a turn"), since)
        case Phase.SUSPENDED | Phase.FROZEN:
            how = "frozen in memory" if agent.phase == Phase.FROZEN else "suspended"
            waiting = f", and {agent.waiting} prompts or messages wait" if agent.waiting else ""
            return Attention(Kind.SUSPENDED, f"{how}{waiting}", agent.since)
        case Phase.ENDED:
            return Attention(Kind.DONE, "ended", agent.since)
        case Phase.FAILED:
            return Attention(Kind.IDLE, "failed, and a person has accepted that", agent.since)
        case _:
            return Attention(Kind.IDLE, "has nothing to do", agent.since)


def reason(agent: Agent, facts: Facts) -> str | None:
    """Return why an agent is queued or held, as a sentence; None for an agent that is neither."""
    if agent.phase != Phase.QUEUED:
        return None
    return facts.held or facts.queue or "it waits for a turn to end, because as many run as may"


def _findings(findings: Sequence[Finding]) -> str:
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return _line(f"{findings[0].text[:_READ]}{more}")


def _line(text: str) -> str:
    line = " ".join(text[:_READ].split())
    return line if len(line) <= _LONGEST and len(text) <= _READ else line[: _LONGEST - 1] + "…"


def _span(seconds: float) -> str:
    """Write a time span with its largest unit: `45 s`, `12 min`, `3 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
