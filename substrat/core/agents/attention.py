"""Decides which agents need a person, and why, from facts that others have looked up. Pure.

Every view shows the same answer, and the bell goes by it. An agent has one attention at a time, the weightiest kind that
applies: an open question outweighs a turn that failed, and a turn that failed outweighs being idle. Of an agent that
another one leads, which can act, a person hears what only a person can settle; the rest is its lead's.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import HELD_PHASES, RUNNING_PHASES, Phase
from substrat.core.workspaces import work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from substrat.core.agents.records import Agent, Finding, Item
    from substrat.core.families.waits import Wait
    from substrat.core.workspaces.clones import Clone


class AttentionKind(StrEnum):
    """Why an agent is shown where it is, the weightiest first."""

    ANSWER = "answer"
    UNSAFE = "unsafe"
    UNKEPT = "unkept"
    FAILED = "failed"
    STUCK = "stuck"
    BUDGET = "budget"
    MERGE = "merge"
    HELD = "held"
    SUSPENDED = "suspended"
    WORKING = "working"
    WAITING = "waiting"
    CHECKING = "checking"
    QUEUED = "queued"
    IDLE = "idle"
    DONE = "done"


class Level(StrEnum):
    """How much a person should care: `urgent` now, `action` at some time, `info` not at all."""

    URGENT = "urgent"
    ACTION = "action"
    INFO = "info"


_LEVELS = {
    AttentionKind.ANSWER: Level.URGENT,
    AttentionKind.UNSAFE: Level.URGENT,
    AttentionKind.UNKEPT: Level.URGENT,
    AttentionKind.FAILED: Level.URGENT,
    AttentionKind.STUCK: Level.URGENT,
    AttentionKind.BUDGET: Level.ACTION,
    AttentionKind.MERGE: Level.ACTION,
    AttentionKind.HELD: Level.ACTION,
    AttentionKind.SUSPENDED: Level.ACTION,
}

_LONGEST = 200
"""Characters of a text: it is one column of a list."""
_OPTION = 30
"""Characters of an option beside its question; `inbox` shows all of it."""
_READ = 4 * _LONGEST
"""Characters of a question, an error or a finding that its line is made of; they may have as many as a message."""

_ABOUT_TO_CHECK = "its check is about to run"


class Attention(NamedTuple):
    """An agent's attention.

    Args:
        kind: why.
        text: one sentence.
        since: since when, in seconds since the epoch.
        item: the number of the question, where the agent has asked several: its name doesn't tell which is answered.
        is_frozen: whether a turn that is frozen, because protected paths were replaced, makes it unsafe.
    """

    kind: AttentionKind
    text: str
    since: float
    item: int | None = None
    is_frozen: bool = False

    @property
    def level(self) -> Level:
        """How much a person should care."""
        return level_of(self.kind)


def level_of(kind: AttentionKind) -> Level:
    """Return how much a person should care about agents of a kind."""
    return _LEVELS.get(kind, Level.INFO)


class Facts(NamedTuple):
    """All that an agent's attention depends on besides its record.

    Args:
        asked: the oldest question of the agent's that the operator hasn't answered, and how many there are.
        heard_at: when its running turn last had an event, in seconds since the epoch; None: it has no running turn.
        silent: the seconds since then in which the turn could run.
        call: the tool call of the running turn that is open, in one line; None: none is.
        held: why no turn of it starts although it could, because the disk is nearly full or its account has used up what it
            may; None when it isn't held.
        waiting_since: when the oldest item that waits for the agent was accepted; None when none waits.
        queue: its place in the queue or why it can't begin, or how its check stands, as a sentence; None: it doesn't wait.
        waits: its open waits for other agents, oldest first.
        holder: the name of the ancestor that has the commits in its clone, and is to land them; None: none has.
        target_is_gone: whether the branch that its work is to land in isn't there any more.
        is_led: whether one of its ancestors can act, and so is told of its failures and has its commits to take.
        budget: what is used up of its budget, and since when, while it or a descendant waits for that; None: nothing.
        untaken: its descendants whose commits are neither in its head nor in a branch of the user's, and are its to take.
    """

    asked: tuple[Item, int] | None = None
    heard_at: float | None = None
    silent: float = 0.0
    call: str | None = None
    held: str | None = None
    waiting_since: float | None = None
    queue: str | None = None
    waits: Sequence[Wait] = ()
    holder: str | None = None
    target_is_gone: bool = False
    is_led: bool = False
    budget: tuple[str, float] | None = None
    untaken: Sequence[Clone] = ()


class StuckAfter(NamedTuple):
    """Seconds without an event after which a running turn counts as stuck; 0: never.

    Args:
        silence: while no tool call is open.
        tool: while one is.
    """

    silence: float
    tool: float


def attention(agent: Agent, facts: Facts, stuck_after: StuckAfter) -> Attention:
    """Return the first thing that a person should know about an agent.

    Args:
        agent: the agent.
        facts: the facts that were looked up about it.
        stuck_after: when a running turn counts as stuck.
    """
    found = _candidates(agent, facts, stuck_after)
    if not facts.is_led:
        return next(found)
    return _for_lead(next(one for one in found if one.kind is not AttentionKind.MERGE))


def _for_lead(found: Attention) -> Attention:
    """Return what a person sees of an agent that is led: only its text says that it failed, or is suspended."""
    match found.kind:
        case AttentionKind.FAILED | AttentionKind.SUSPENDED:
            named = "" if found.text == found.kind else f"{found.kind}: "
            return found._replace(kind=AttentionKind.IDLE, text=f"{named}{found.text}")
        case _:
            return found


def can_act(agent: Agent, *, is_held: bool) -> bool:
    """Say whether an agent can take up what its descendants leave to it.

    Args:
        agent: the agent.
        is_held: whether no turn of it starts for now, for the disk or for its account.
    """
    return not is_held and agent.has_begun and agent.phase not in {*HELD_PHASES, Phase.FAILED, Phase.ENDED}


def is_at_rest(agent: Agent) -> bool:
    """Say whether an agent's work is ready to be landed: no turn of it runs or waits."""
    return agent.phase not in {*RUNNING_PHASES, Phase.QUEUED, Phase.CHECKING}


def _candidates(agent: Agent, facts: Facts, stuck_after: StuckAfter) -> Iterator[Attention]:
    """Give all that applies to an agent, in the order of `AttentionKind`."""
    if facts.asked is not None and agent.phase != Phase.ENDED:
        question, number = facts.asked
        item = question.id if number > 1 else None
        yield Attention(AttentionKind.ANSWER, _asked(question), question.time, item)
    turn = agent.turn
    if agent.phase == Phase.FROZEN and turn is not None and turn.replaced:
        path, more = turn.replaced[0].removeprefix(f"{agent.workspace}/"), len(turn.replaced) - 1
        were = f"and {more} more were" if more else "was"
        frozen = f"frozen, because {path} {were} replaced here: resume {agent.name}"
        yield Attention(AttentionKind.UNSAFE, _line(frozen), agent.since, is_frozen=True)
    if agent.findings:
        yield Attention(AttentionKind.UNSAFE, _findings(agent.findings), min(finding.time for finding in agent.findings))
    if agent.clone is not None and agent.clone.unkept is not None:
        yield Attention(AttentionKind.UNKEPT, _line(f"its work couldn't be kept: {agent.clone.unkept}"), agent.since)
    if agent.phase == Phase.FAILED and agent.clone is not None and agent.clone.error is not None:
        yield Attention(AttentionKind.FAILED, _line(agent.clone.error), agent.since)
    if agent.phase == Phase.FAILED and agent.unmet is not None:
        yield Attention(AttentionKind.FAILED, _line(agent.unmet), agent.since)
    if agent.phase == Phase.FAILED and turn is not None and agent.accepted_turn != turn.id:
        failure = _with_refusal(turn_check.refusal(agent.checked, turn) or turn.error or "its last turn failed", agent)
        yield Attention(AttentionKind.FAILED, failure, turn.ended_at or agent.since)
    patience = stuck_after.silence if facts.call is None else stuck_after.tool
    if agent.phase == Phase.RUNNING and facts.heard_at is not None and 0 < patience <= facts.silent:
        during = f" during {facts.call}" if facts.call is not None else ""
        yield Attention(AttentionKind.STUCK, _line(f"no progress for {_span(facts.silent)}{during}"), facts.heard_at)
    if facts.budget is not None:
        yield Attention(AttentionKind.BUDGET, *facts.budget)
    is_pending = turn_check.is_pending(agent.checked)
    if is_at_rest(agent) and not is_pending and (parts := list(_left(agent, facts))):
        own = agent.clone if agent.clone is not None and (_is_to_land(agent.clone, facts) or agent.clone.has_more) else None
        kept = [clone.kept.time for clone in (own, *facts.untaken) if clone is not None]
        yield Attention(AttentionKind.MERGE, _line(", ".join(parts)), max(kept))
    yield _of_phase(agent, facts)


def _is_to_land(clone: Clone, facts: Facts) -> bool:
    return clone.is_unlanded and facts.holder is None


def _left(agent: Agent, facts: Facts) -> Iterator[str]:
    """Say what work an agent leaves to a person: its own, and that of descendants which it hasn't taken."""
    if agent.clone is not None:
        if _is_to_land(agent.clone, facts):
            yield _to_land(agent.clone, facts)
        if agent.clone.has_more:
            yield from work.beside_head(agent.clone.kept)
    if facts.untaken:
        children = "1 child has" if len(facts.untaken) == 1 else f"{len(facts.untaken)} children have"
        yield f"{children} {_commits(sum(clone.kept.ahead for clone in facts.untaken))} that {agent.name} hasn't taken"


def _asked(question: Item) -> str:
    """Say a question in a line, with the answers that it proposes: `Which one? (1 merge, 2 rename)`."""
    if not question.options:
        return _line(question.text)
    numbered = [f"{number} {_line(option, _OPTION)}" for number, option in enumerate(question.options, 1)]
    proposed = _line(f" ({', '.join(numbered)})", _LONGEST // 2)
    return f"{_line(question.text, _LONGEST - len(proposed) - 1)} {proposed}"


def _to_land(clone: Clone, facts: Facts) -> str:
    commits = _commits(clone.kept.ahead)
    if facts.target_is_gone:
        return f"{clone.target} is gone: `{shlex.join(('substratctl', 'merge', clone.name))} --into BRANCH` lands {commits}"
    past, head = clone.landings, clone.kept.head
    if past.failed_head is not None and past.failed_head == head:
        return f"check failed: {past.failed_line}"
    if past.bounced is not None and past.bounced == head:
        return f"{commits} in conflict with {clone.target}, which the agent was told and has not solved"
    return f"{commits} to land in {clone.target}" if clone.target else f"{commits} to land"


def _commits(number: int) -> str:
    return "1 commit" if number == 1 else f"{number} commits"


def _of_phase(agent: Agent, facts: Facts) -> Attention:
    turn = agent.turn
    if agent.phase in RUNNING_PHASES:
        running = _with_refusal(f"turn {turn.number if turn else 1} is running", agent)
        return Attention(AttentionKind.WORKING, running, turn.started_at if turn else agent.since)
    match agent.phase:
        case Phase.QUEUED:
            since = facts.waiting_since or agent.since
            if facts.held is not None:
                return Attention(AttentionKind.HELD, _line(facts.held), since)
            return Attention(AttentionKind.QUEUED, _line(facts.queue or "waits for a turn"), since)
        case Phase.CHECKING:
            return Attention(AttentionKind.CHECKING, _line(facts.queue or _ABOUT_TO_CHECK), agent.since)
        case Phase.SUSPENDED | Phase.FROZEN:
            frozen = "frozen in memory" if agent.phase == Phase.FROZEN else ""
            waiting = f"{agent.waiting} prompts or messages wait" if agent.waiting > 1 else "1 prompt or message waits"
            checked = "its check is still to come" if turn_check.is_pending(agent.checked) else ""
            said = ", and ".join(filter(None, (frozen, checked, waiting if agent.waiting else "")))
            return Attention(AttentionKind.SUSPENDED, said or "suspended", agent.since)
        case Phase.ENDED:
            return Attention(AttentionKind.DONE, "ended", agent.since)
        case Phase.IDLE if facts.waits:
            names = dict.fromkeys(name for wait in facts.waits for name in wait.awaited)
            return Attention(AttentionKind.WAITING, _line(f"waits for {', '.join(names)}"), facts.waits[0].created_at)
        case Phase.FAILED:
            return Attention(
                AttentionKind.IDLE, _with_refusal("failed, and a person has accepted that", agent), agent.since
            )
        case _:
            # Not since its resume: `suspend --all` and `resume --all` give no work to it and take none.
            since = turn.ended_at if turn is not None and turn.ended_at is not None else agent.created_at
            return Attention(AttentionKind.IDLE, _with_refusal("has nothing to do", agent), since)


def reason(agent: Agent, facts: Facts) -> str | None:
    """Return why an agent is queued, held or checked, as a sentence; None for any other."""
    if agent.phase == Phase.CHECKING:
        return facts.queue or _ABOUT_TO_CHECK
    if agent.phase != Phase.QUEUED:
        return None
    return facts.held or facts.queue or "its turn is about to begin"


def _findings(findings: Sequence[Finding]) -> str:
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return _line(f"{findings[0].text[:_READ]}{more}")


def _with_refusal(text: str, agent: Agent) -> str:
    """Add what the network refused the newest turn and still would, and the command that allows it, both whole."""
    host = agent.turn.refused if agent.turn is not None else None
    if host is None or not agent.policy.could_allow(host):
        return _line(text)
    refusal = f"; refused {host}: allow {agent.name} {host}"
    return _line(text, max(20, _LONGEST - len(refusal))) + refusal


def _line(text: str, longest: int = _LONGEST) -> str:
    line = " ".join(text[:_READ].split())
    return line if len(line) <= longest and len(text) <= _READ else line[: longest - 1] + "…"


def _span(seconds: float) -> str:
    """Write a time span with its largest unit: `45 s`, `12 min`, `3 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
