"""Defines an agent's lifecycle: one table of (phase, event) to (phase, commands). Pure.

Theory of operation
-------------------
There is one machine an agent. Its *phases* are finer than the *states* people see: while a turn is being stopped the
agent is still `running` to the world, but the machine must know why it is being stopped, because that decides where it
goes once the process is gone.

Three kinds of event drive it. *Requests* come from a person (suspend, resume, interrupt, end) and may be refused.
*Work* arrives: a `prompt` is a person's (or a parent's) decision that the agent shall work, `mail` is only something it
should be told, so mail wakes an idle agent but leaves a failed one alone until a person has looked at it. *Turn events*
report a turn's outcome. Success, a stop and a failure can come in any phase with a process and are never refused there;
`TURN_RETRIED` comes in `RUNNING` only, because a turn that is stopped or frozen isn't tried again. A turn that succeeded
although it was being stopped still counts as success, but the agent goes where the stop was taking it.

An event that isn't in a phase's row is refused: `step` raises and nothing has changed. A request for the state that
the agent is in already (suspend a suspended agent) is in the table as a step to the same phase without commands,
because asking twice must not fail.

`settle` is the one decision that needs a fact besides the phase: an agent whose turn is over is `idle` if nothing waits
for it, else `queued`.

Commands are values that carry their data, for example `StopTurn("suspended")`. The registry carries them out after it has
committed the new phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.records import SUSPENDED
from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Phase(StrEnum):
    """Where an agent's lifecycle is."""

    IDLE = "idle"
    QUEUED = "queued"
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
    EMPTIED = "inbox emptied"
    """Its messages were read by a tool, and nothing else waits for it."""


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Start the agent's new turn."""


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Stop the agent's turn.

    Args:
        reason: why, as it is stored in the turn, for example `suspended`.
    """

    reason: str


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


class Step(NamedTuple):
    """One cell of the table."""

    phase: Phase | None
    """None: `settle` decides between idle and queued."""
    commands: tuple[LifecycleCommand, ...] = ()


STATE_OF = {
    Phase.IDLE: "idle",
    Phase.QUEUED: "queued",
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

STOPPING_PHASES = frozenset({Phase.SUSPENDING, Phase.INTERRUPTING, Phase.ENDING})
"""The phases in which a turn is being stopped."""

P, E = Phase, Event
_ADMIT = (Admit(),)
_SETTLED = Step(None, _ADMIT)
_SUSPEND = Step(P.SUSPENDING, (StopTurn(SUSPENDED),))
_INTERRUPT = Step(P.INTERRUPTING, (StopTurn("interrupted"),))
_END = Step(P.ENDING, (StopTurn("ended"),))

TABLE: dict[Phase, dict[Event, Step]] = {
    P.IDLE: {
        E.PROMPT: Step(P.QUEUED, _ADMIT),
        E.MAIL: Step(P.QUEUED, _ADMIT),
        E.SUSPEND: Step(P.SUSPENDED),
        E.FREEZE: Step(P.SUSPENDED),
        E.RESUME: Step(P.IDLE),
        E.END: Step(P.ENDED),
    },
    P.QUEUED: {
        # It may be waiting for another try, which a person's decision puts an end to.
        E.PROMPT: Step(P.QUEUED, _ADMIT),
        E.MAIL: Step(P.QUEUED),
        E.START: Step(P.RUNNING, (StartTurn(),)),
        E.SUSPEND: Step(P.SUSPENDED),
        E.FREEZE: Step(P.SUSPENDED),
        E.RESUME: Step(P.QUEUED),
        E.END: Step(P.ENDED),
        # By a person's command in its sandbox: it has no turn.
        E.EMPTIED: Step(P.IDLE),
    },
    P.RUNNING: {
        E.PROMPT: Step(P.RUNNING),
        E.MAIL: Step(P.RUNNING),
        E.SUSPEND: _SUSPEND,
        E.FREEZE: Step(P.FROZEN, (FreezeTurn(), Admit())),
        E.RESUME: Step(P.RUNNING),
        E.INTERRUPT: _INTERRUPT,
        E.END: _END,
        E.TURN_SUCCEEDED: _SETTLED,
        E.TURN_STOPPED: Step(P.FAILED, _ADMIT),
        E.TURN_FAILED: Step(P.FAILED, _ADMIT),
        E.TURN_RETRIED: Step(P.QUEUED, _ADMIT),
    },
    P.SUSPENDING: {
        E.PROMPT: Step(P.SUSPENDING),
        E.MAIL: Step(P.SUSPENDING),
        E.SUSPEND: Step(P.SUSPENDING),
        E.FREEZE: Step(P.SUSPENDING),
        E.END: Step(P.ENDING),
        E.TURN_SUCCEEDED: Step(P.SUSPENDED, _ADMIT),
        E.TURN_STOPPED: Step(P.SUSPENDED, _ADMIT),
        E.TURN_FAILED: Step(P.SUSPENDED, _ADMIT),
    },
    P.INTERRUPTING: {
        E.PROMPT: Step(P.INTERRUPTING),
        E.MAIL: Step(P.INTERRUPTING),
        E.SUSPEND: Step(P.SUSPENDING),
        E.RESUME: Step(P.INTERRUPTING),
        E.INTERRUPT: Step(P.INTERRUPTING),
        E.END: Step(P.ENDING),
        E.TURN_SUCCEEDED: _SETTLED,
        E.TURN_STOPPED: _SETTLED,
        E.TURN_FAILED: _SETTLED,
    },
    P.ENDING: {
        E.END: Step(P.ENDING),
        E.TURN_SUCCEEDED: Step(P.ENDED, _ADMIT),
        E.TURN_STOPPED: Step(P.ENDED, _ADMIT),
        E.TURN_FAILED: Step(P.ENDED, _ADMIT),
    },
    P.SUSPENDED: {
        E.PROMPT: Step(P.SUSPENDED),
        E.MAIL: Step(P.SUSPENDED),
        E.SUSPEND: Step(P.SUSPENDED),
        E.FREEZE: Step(P.SUSPENDED),
        E.RESUME: _SETTLED,
        E.END: Step(P.ENDED),
    },
    P.FROZEN: {
        E.PROMPT: Step(P.FROZEN),
        E.MAIL: Step(P.FROZEN),
        E.FREEZE: Step(P.FROZEN),
        E.RESUME: Step(P.RUNNING, (ThawTurn(),)),
        E.SUSPEND: _SUSPEND,
        E.INTERRUPT: _INTERRUPT,
        E.END: _END,
        # Only somebody else can have ended it; a result it had printed before still counts.
        E.TURN_SUCCEEDED: Step(P.SUSPENDED),
        E.TURN_STOPPED: Step(P.SUSPENDED),
        E.TURN_FAILED: Step(P.SUSPENDED),
    },
    P.FAILED: {
        E.PROMPT: Step(P.QUEUED, _ADMIT),
        E.MAIL: Step(P.FAILED),
        E.SUSPEND: Step(P.SUSPENDED),
        E.FREEZE: Step(P.SUSPENDED),
        E.RESUME: _SETTLED,
        E.END: Step(P.ENDED),
    },
    P.ENDED: {
        E.END: Step(P.ENDED),
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
    phase: Phase, event: Event, *, waiting: bool, name: str = "the agent"
) -> tuple[Phase, tuple[LifecycleCommand, ...]]:
    """Decide the effect of an event.

    Args:
        phase: where the agent is.
        event: the event.
        waiting: whether its inbox holds anything, the event's own item included.
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
    return found.phase or settle(waiting=waiting), found.commands


def settle(*, waiting: bool) -> Phase:
    """Say where an agent without a turn belongs."""
    return Phase.QUEUED if waiting else Phase.IDLE


def diagram() -> Iterator[str]:
    """Draw the table as a Mermaid state diagram, line by line; steps that stay where they are are left out."""
    yield "stateDiagram-v2"
    yield "    [*] --> idle"
    for phase, row in TABLE.items():
        targets: dict[Phase, list[str]] = {}
        for event, found in row.items():
            for target in (found.phase,) if found.phase else (Phase.IDLE, Phase.QUEUED):
                targets.setdefault(target, []).append(event.value)
        for target, events in targets.items():
            if target != phase:
                yield f"    {phase} --> {target}: {', '.join(events)}"
    yield "    ended --> [*]"


if __name__ == "__main__":
    print("\n".join(diagram()))
