"""Defines an agent's lifecycle: one table of (phase, event) to (phase, commands). Pure.

Theory of operation
-------------------
There is one machine an agent. Its *phases* are finer than the *states* people see: while a turn is being stopped the
agent is still `running` to the world, but the machine must know why it is being stopped, because that decides where it
goes once the process is gone.

Three kinds of event drive it. *Requests* come from a person (suspend, resume, interrupt, end) and may be refused.
*Work* arrives: a `prompt` is a person's (or a parent's) decision that the agent shall work, `mail` is only something it
should be told, so mail wakes an idle agent but leaves a failed one alone until a person has looked at it, or an ancestor
that was told the failure writes to it: that message is a `prompt` (`daemon/agents/mail.py`). *Turn events*
report a turn's outcome. Success, a stop and a failure can come in any phase with a process and are never refused there;
`TURN_RETRIED` comes in `RUNNING` only, because a turn that is stopped or frozen isn't tried again. A turn that succeeded
although it was being stopped still counts as success, but the agent goes where the stop was taking it.

An event that isn't in a phase's row is refused: `step` raises and nothing has changed. A request for the state that
the agent is in already (suspend a suspended agent) is in the table as a step to the same phase without commands,
because asking twice must not fail.

`settle` is the one decision that needs facts besides the phase: an agent whose turn is over is `checking` while its check
is to come; else it is `idle` if nothing waits for it, or `queued`.

Commands are values that carry their data, for example `StopTurn(SUSPENDED)`. The registry carries them out after it has
committed the new phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.stop_reason import ENDED, INTERRUPTED, SUSPENDED
from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.stop_reason import StopReason


class Phase(StrEnum):
    """Where an agent's lifecycle is."""

    IDLE = "idle"
    QUEUED = "queued"
    CHECKING = "checking"
    """Its turn is over, and its check waits or runs: it is finished when that passes."""
    RUNNING = "running"
    SUSPENDING = "suspending"
    INTERRUPTING = "interrupting"
    ENDING = "ending"
    SUSPENDED = "suspended"
    FROZEN = "frozen"
    """Suspended with its turn stopped in memory."""
    FAILED = "failed"
    ENDED = "ended"


class Event(StrEnum):
    """An event of an agent's life."""

    PROMPT = "prompt"
    MAIL = "mail"
    START = "start"
    SUSPEND = "suspend"
    FREEZE = "freeze"
    RESUME = "resume"
    INTERRUPT = "interrupt"
    END = "end"
    TURN_SUCCEEDED = "turn succeeded"
    TURN_STOPPED = "turn stopped"
    TURN_FAILED = "turn failed"
    TURN_RETRIED = "turn retried"
    """It failed with something that passes, and its prompt waits to be tried again."""
    UNPREPARED = "clone failed"
    """Its private clone couldn't be made or set up, so it has nowhere to work."""
    UNMET = "need failed"
    """An agent that it needs has not succeeded, so its first turn never begins."""
    CHECK_WANTED = "check wanted"
    """A question that is closed without an answer kept its work from being checked."""
    CHECK_PASSED = "check passed"
    CHECK_FAILED = "check failed"
    SENT_BACK = "sent back"
    """Its check failed, and a prompt says so to it."""
    EMPTIED = "inbox emptied"
    """Its messages were read by a tool, and nothing else waits for it."""


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Start the agent's new turn."""


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Stop the agent's turn.

    Args:
        reason: why, as the turn records it.
    """

    reason: StopReason


@dataclass(frozen=True, slots=True)
class FreezeTurn:
    """Freeze the agent's turn in memory."""


@dataclass(frozen=True, slots=True)
class ThawTurn:
    """Let the agent's frozen turn go on."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Look whether a waiting agent can start now."""


LifecycleCommand = StartTurn | StopTurn | FreezeTurn | ThawTurn | Admit
"""An effect that the registry carries out once the new phase is committed."""


class Transition(NamedTuple):
    """One cell of the table."""

    phase: Phase | None
    """None: `settle` decides between idle, queued and checking."""
    commands: tuple[LifecycleCommand, ...] = ()


STATE_OF = {
    Phase.IDLE: "idle",
    Phase.QUEUED: "queued",
    Phase.CHECKING: "queued",
    Phase.RUNNING: "running",
    Phase.SUSPENDING: "running",
    Phase.INTERRUPTING: "running",
    Phase.ENDING: "running",
    Phase.SUSPENDED: "suspended",
    Phase.FROZEN: "suspended",
    Phase.FAILED: "failed",
    Phase.ENDED: "ended",
}
"""The public state of each phase."""

RUNNING_PHASES = frozenset({Phase.RUNNING, Phase.SUSPENDING, Phase.INTERRUPTING, Phase.ENDING})
LIVE_PHASES = RUNNING_PHASES | {Phase.FROZEN}
"""The phases in which there is a process, or is about to be one."""

WORKING_PHASES = RUNNING_PHASES | {Phase.QUEUED, Phase.CHECKING}
"""The phases of an agent that goes on by itself."""

HELD_PHASES = frozenset({Phase.SUSPENDING, Phase.SUSPENDED, Phase.FROZEN})
"""The phases of an agent that a person has suspended, or is suspending."""

STOPPING_PHASES = frozenset({Phase.SUSPENDING, Phase.INTERRUPTING, Phase.ENDING})
"""The phases in which a turn is being stopped."""

P, E = Phase, Event
_ADMIT = (Admit(),)
_SETTLED = Transition(None, _ADMIT)
_SUSPEND = Transition(P.SUSPENDING, (StopTurn(SUSPENDED),))
_INTERRUPT = Transition(P.INTERRUPTING, (StopTurn(INTERRUPTED),))
_END = Transition(P.ENDING, (StopTurn(ENDED),))

TABLE: dict[Phase, dict[Event, Transition]] = {
    P.IDLE: {
        E.PROMPT: Transition(P.QUEUED, _ADMIT),
        E.MAIL: Transition(P.QUEUED, _ADMIT),
        E.SUSPEND: Transition(P.SUSPENDED),
        E.FREEZE: Transition(P.SUSPENDED),
        E.RESUME: Transition(P.IDLE),
        E.END: Transition(P.ENDED),
        E.UNPREPARED: Transition(P.FAILED),
        E.CHECK_WANTED: Transition(P.CHECKING),
    },
    P.QUEUED: {
        # It may be waiting for another try, which a person's decision puts an end to.
        E.PROMPT: Transition(P.QUEUED, _ADMIT),
        E.MAIL: Transition(P.QUEUED),
        E.START: Transition(P.RUNNING, (StartTurn(),)),
        E.SUSPEND: Transition(P.SUSPENDED),
        E.FREEZE: Transition(P.SUSPENDED),
        E.RESUME: Transition(P.QUEUED),
        E.END: Transition(P.ENDED),
        # By a person's command in its sandbox: it has no turn.
        E.EMPTIED: Transition(P.IDLE),
        E.UNPREPARED: Transition(P.FAILED),
        E.UNMET: Transition(P.FAILED),
    },
    P.CHECKING: {
        # What comes meanwhile waits for the verdict.
        E.PROMPT: Transition(P.CHECKING),
        E.MAIL: Transition(P.CHECKING),
        E.SUSPEND: Transition(P.SUSPENDED),
        E.FREEZE: Transition(P.SUSPENDED),
        E.RESUME: Transition(P.CHECKING),
        E.INTERRUPT: _SETTLED,
        E.END: Transition(P.ENDED),
        E.CHECK_PASSED: _SETTLED,
        E.CHECK_FAILED: Transition(P.FAILED, _ADMIT),
        E.SENT_BACK: Transition(P.QUEUED, _ADMIT),
    },
    P.RUNNING: {
        E.PROMPT: Transition(P.RUNNING),
        E.MAIL: Transition(P.RUNNING),
        E.SUSPEND: _SUSPEND,
        E.FREEZE: Transition(P.FROZEN, (FreezeTurn(), Admit())),
        E.RESUME: Transition(P.RUNNING),
        E.INTERRUPT: _INTERRUPT,
        E.END: _END,
        E.TURN_SUCCEEDED: _SETTLED,
        E.TURN_STOPPED: Transition(P.FAILED, _ADMIT),
        E.TURN_FAILED: Transition(P.FAILED, _ADMIT),
        E.TURN_RETRIED: Transition(P.QUEUED, _ADMIT),
    },
    P.SUSPENDING: {
        E.PROMPT: Transition(P.SUSPENDING),
        E.MAIL: Transition(P.SUSPENDING),
        E.SUSPEND: Transition(P.SUSPENDING),
        E.FREEZE: Transition(P.SUSPENDING),
        E.END: Transition(P.ENDING),
        E.TURN_SUCCEEDED: Transition(P.SUSPENDED, _ADMIT),
        E.TURN_STOPPED: Transition(P.SUSPENDED, _ADMIT),
        E.TURN_FAILED: Transition(P.SUSPENDED, _ADMIT),
    },
    P.INTERRUPTING: {
        E.PROMPT: Transition(P.INTERRUPTING),
        E.MAIL: Transition(P.INTERRUPTING),
        E.SUSPEND: Transition(P.SUSPENDING),
        E.RESUME: Transition(P.INTERRUPTING),
        E.INTERRUPT: Transition(P.INTERRUPTING),
        E.END: Transition(P.ENDING),
        E.TURN_SUCCEEDED: _SETTLED,
        E.TURN_STOPPED: _SETTLED,
        E.TURN_FAILED: _SETTLED,
    },
    P.ENDING: {
        E.END: Transition(P.ENDING),
        E.TURN_SUCCEEDED: Transition(P.ENDED, _ADMIT),
        E.TURN_STOPPED: Transition(P.ENDED, _ADMIT),
        E.TURN_FAILED: Transition(P.ENDED, _ADMIT),
    },
    P.SUSPENDED: {
        E.PROMPT: Transition(P.SUSPENDED),
        E.MAIL: Transition(P.SUSPENDED),
        E.SUSPEND: Transition(P.SUSPENDED),
        E.FREEZE: Transition(P.SUSPENDED),
        E.RESUME: _SETTLED,
        E.END: Transition(P.ENDED),
        E.UNPREPARED: Transition(P.SUSPENDED),
    },
    P.FROZEN: {
        E.PROMPT: Transition(P.FROZEN),
        E.MAIL: Transition(P.FROZEN),
        E.FREEZE: Transition(P.FROZEN),
        E.RESUME: Transition(P.RUNNING, (ThawTurn(),)),
        E.SUSPEND: _SUSPEND,
        E.INTERRUPT: _INTERRUPT,
        E.END: _END,
        # Only somebody else can have ended it; a result it had printed before still counts.
        E.TURN_SUCCEEDED: Transition(P.SUSPENDED),
        E.TURN_STOPPED: Transition(P.SUSPENDED),
        E.TURN_FAILED: Transition(P.SUSPENDED),
    },
    P.FAILED: {
        E.PROMPT: Transition(P.QUEUED, _ADMIT),
        E.MAIL: Transition(P.FAILED),
        E.SUSPEND: Transition(P.SUSPENDED),
        E.FREEZE: Transition(P.SUSPENDED),
        E.RESUME: _SETTLED,
        E.END: Transition(P.ENDED),
        E.UNPREPARED: Transition(P.FAILED),
    },
    P.ENDED: {
        E.END: Transition(P.ENDED),
        E.UNPREPARED: Transition(P.ENDED),
    },
}

_REFUSALS = {
    E.PROMPT: "takes no more prompts",
    E.MAIL: "takes no more messages",
    E.START: "has nothing to start",
    E.SUSPEND: "can't be suspended",
    E.FREEZE: "can't be frozen",
    E.RESUME: "can't be resumed",
    E.INTERRUPT: "can't be interrupted",
    E.END: "can't be ended",
}
_REMEDIES = {
    P.ENDED: "it has ended for good; spawn another",
    P.SUSPENDING: "its turn is still being stopped; try again in a moment",
    P.INTERRUPTING: "its turn is still being stopped; try again in a moment",
    P.ENDING: "it is being ended",
}


def step(
    phase: Phase, event: Event, *, waiting: bool, unchecked: bool = False, name: str = "the agent"
) -> tuple[Phase, tuple[LifecycleCommand, ...]]:
    """Decide the effect of an event.

    Args:
        phase: where the agent is.
        event: the event.
        waiting: whether its inbox holds anything, the event's own item included.
        unchecked: whether the check of its work is still to come.
        name: how to call it in a refusal.

    Returns:
        The new phase and the commands to carry out after it is committed.

    Raises:
        Refused: the phase doesn't allow the event; nothing has changed.
    """
    found = TABLE[phase].get(event)
    if found is None:
        reason = _REMEDIES.get(phase, f"it is {STATE_OF[phase]}")
        raise Refused(f"{name} {_REFUSALS.get(event, f'cannot take the event {event!r}')}: {reason}")
    return found.phase or settle(waiting=waiting, unchecked=unchecked), found.commands


def stays_together(phase: Phase, *, asked: bool, before: bool) -> bool:
    """Say whether an agent counts as suspended with all others, so that it goes on with them too.

    Args:
        phase: where it is.
        asked: whether all are being suspended, rather than this one by its name.
        before: whether it counted so before: one that was suspended or frozen by its name waits for its name.
    """
    return asked and (before or phase not in HELD_PHASES)


def settle(*, waiting: bool, unchecked: bool = False) -> Phase:
    """Say where an agent without a turn belongs; the arguments are as for `step`."""
    if unchecked:
        return Phase.CHECKING
    return Phase.QUEUED if waiting else Phase.IDLE


def _settled(phase: Phase, event: Event) -> tuple[Phase, ...]:
    """Return where `settle` may take an agent: a check is to come of a success, unless it was interrupted."""
    may_be_checked = event is Event.RESUME or (event is Event.TURN_SUCCEEDED and phase is Phase.RUNNING)
    return (Phase.IDLE, Phase.QUEUED, Phase.CHECKING) if may_be_checked else (Phase.IDLE, Phase.QUEUED)


def diagram() -> Iterator[str]:
    """Draw the table as a Mermaid state diagram, line by line; steps that stay where they are are left out."""
    yield "stateDiagram-v2"
    yield "    [*] --> idle"
    for phase, row in TABLE.items():
        targets: dict[Phase, list[str]] = {}
        for event, found in row.items():
            for target in (found.phase,) if found.phase else _settled(phase, event):
                targets.setdefault(target, []).append(event.value)
        for target, events in targets.items():
            if target != phase:
                yield f"    {phase} --> {target}: {', '.join(events)}"
    yield "    ended --> [*]"


if __name__ == "__main__":
    print("\n".join(diagram()))
