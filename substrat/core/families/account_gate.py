"""Decides when turns of an account begin that has used up what it may. Pure.

A *login* is an agent program and the hash of its account or key. A turn that fails because of the account's usage limit
shuts the gate of its login, for its model alone until a turn of a second model has met the limit too: vendors have
limits of single models, and the remedy is another one. No turn behind the gate begins until the time that the program
has stated, else for 5, 10, 20 … 60 minutes. An agent can have its program say what it wants, so a stated time counts
for an hour at most, until an agent of another family has met the limit too; of several stated times the nearest counts.
Then one turn, the *trial*, begins alone, of another agent than the one that has shut the gate where one waits. When it
calls a tool or succeeds the gate opens, and the others begin one after the other within some seconds, each at a time of
its own; if the trial meets the limit again the gate stays shut, for longer; if it ends otherwise it has shown nothing,
and another one may try. Without that, each of a hundred agents would fail with the same limit, one after the other.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from substrat.core.agents.prompts import timestamp
from substrat.core.families.scheduling import Obstacle, ObstacleKind

if TYPE_CHECKING:
    from substrat.core.agents.records import Turn

FIRST_S = 300.0
"""Seconds for which a gate is shut at first, when the program states no time."""
LONGEST_S = 3600.0
"""Seconds: each further time is twice as long, up to an hour, in which a person may have raised the limit."""

SPREAD_S = 5.0
"""Seconds over which the turns of a login begin once its gate has opened: all at once would meet limits of rate."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of a login, which is shut or has just opened; there is none for a login whose turns begin.

    Args:
        login: the login, for example `cursor-agent:9f86d081884c7d65`.
        blamed: the id of the agent whose turn has shut it.
        reason: the failure, in one sentence.
        shut_at: when, in seconds since the epoch.
        until: when a turn may try, in seconds since the epoch.
        failures: how many turns in a row, each begun after the one before had shut the gate, have met the limit; 0: it has
            opened at `shut_at`, and the last of those that waited may begin at `until`.
        trial: the id of the turn that tries, if one does.
        model: the model whose turns it holds; None: all of the login's.
    """

    login: str
    blamed: str
    reason: str
    shut_at: float
    until: float
    failures: int = 1
    trial: str | None = None
    model: str | None = None

    @property
    def is_shut(self) -> bool:
        """Whether no turn but a trial may begin."""
        return self.failures > 0

    def holds(self, model: str | None) -> bool:
        """Say whether it holds the turns of a model; None: the model of an earlier version's turn, which isn't known."""
        return self.model is None or model is None or self.model == model


def pause(failures: int) -> float:
    """Return for how many seconds a gate is shut after so many failures in a row: 300, 600, 1200, 2400, then 3600."""
    return min(FIRST_S * 2.0 ** min(failures - 1, 8), LONGEST_S)


def shut(
    gate: Gate | None, login: str, turn: Turn, reason: str, stated: float | None, now: float, *, is_confirmed: bool = False
) -> Gate:
    """Return the gate after a turn has met the usage limit.

    Turns that ran already when the gate was shut show nothing new: a hundred of them count as one failure.

    Args:
        gate: the login's gate, None if it was open.
        login: the login.
        turn: the turn.
        reason: its failure, in one sentence.
        stated: when the limit ends by the program's words, in seconds since the epoch.
        now: the time, in seconds since the epoch.
        is_confirmed: whether an agent of another family has shut the gate before.
    """
    if stated is not None and not is_confirmed:
        stated = min(stated, now + LONGEST_S)
    if gate is not None and not gate.holds(turn.model):
        # Of two times that lie ahead the nearer counts; turns that run already show nothing of the gate as it is now.
        ends = [at for at in (gate.until, stated) if at is not None and at > now]
        return replace(gate, model=None, shut_at=now, until=min(ends, default=now + pause(gate.failures)))
    if gate is not None and gate.trial != turn.id and turn.started_at < gate.shut_at:
        return replace(gate, until=min(gate.until, stated)) if stated is not None else gate
    failures = gate.failures + 1 if gate is not None else 1
    until = stated if stated is not None else now + pause(failures)
    return Gate(login, turn.agent, reason, now, until, failures, model=gate.model if gate is not None else turn.model)


def after_other_end(gate: Gate, turn: Turn, *, succeeded: bool) -> Gate | None:
    """Return the gate after a turn has ended otherwise than by the usage limit; None: it is open.

    Args:
        gate: the login's gate.
        turn: the turn.
        succeeded: whether it succeeded.
    """
    is_newer = gate.trial == turn.id or (gate.holds(turn.model) and turn.started_at >= gate.shut_at)
    if succeeded and is_newer:
        return None
    return replace(gate, trial=None) if gate.trial == turn.id else gate


def opened(gate: Gate, now: float) -> Gate:
    """Return a gate that opens now, in seconds since the epoch."""
    return replace(gate, shut_at=now, until=now + SPREAD_S, failures=0, trial=None)


def may_try(gate: Gate, now: float, *, is_trying: bool) -> bool:
    """Say whether a turn may begin as the trial.

    Args:
        gate: the gate.
        now: the time, in seconds since the epoch; one before the gate was shut shows that the clock was set back, and that
            `until` means nothing any more.
        is_trying: whether the gate's trial runs.
    """
    return not is_trying and not gate.shut_at <= now < gate.until


def tried_by_a_person(gate: Gate, now: float) -> Gate:
    """Return the gate after a person has asked that a turn tries now."""
    return replace(gate, until=min(gate.until, now))


def obstacle(gate: Gate, now: float, agent: str, *, is_trying: bool, blamed: str | None = None) -> Obstacle | None:
    """Return why a turn of the gate's login can't begin, None if one may.

    Args:
        gate: the gate.
        now: the time, in seconds since the epoch.
        agent: the id of the turn's agent, which gives it a time of its own once the gate has opened.
        is_trying: whether the gate's trial runs.
        blamed: the name of the agent whose turn has shut it; None: it is gone.
    """
    if not gate.is_shut:
        at = gate.shut_at + SPREAD_S * zlib.crc32(agent.encode()) / 2**32
        text = f"its account may go on, and the turns of its login begin one after the other: this one at {timestamp(at)}"
        return Obstacle(ObstacleKind.ACCOUNT, text, at) if gate.shut_at <= now < at else None
    if may_try(gate, now, is_trying=is_trying):
        return None
    if is_trying:
        text = "the account has used up what it may, and another turn tries whether it may go on: this one waits for that"
        return Obstacle(ObstacleKind.ACCOUNT, text)
    then = "one turn of its login tries then, `substratctl queue --try` lets one try now"
    if gate.model is not None:
        then += ", `substratctl set NAME model=…` goes on with another model"
    what = f" with the model {gate.model}" if gate.model is not None else ""
    whose = f", by a turn of {blamed}" if blamed is not None else ""
    text = f"the account has used up what it may{what}{whose}; held until {timestamp(gate.until)}: {then}"
    return Obstacle(ObstacleKind.ACCOUNT, text, gate.until)
