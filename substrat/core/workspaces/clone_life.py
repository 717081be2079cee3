"""Defines a private clone's life: one table of (event, stage) to (stage, commands). Pure.

Requests (`EXEC`, `RESTORE`, `LEAVE`, `PRUNE`) come from a person, and a stage that has no cell for one refuses it by a
sentence. The others tell a fact, and have a cell for each stage in which they can come. `docs/architecture.md` says which
services tell what.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from substrat.core.workspaces.clones import Stage
from substrat.errors import Refused

if TYPE_CHECKING:
    from substrat.core.workspaces.clones import Clone


class CloneEvent(StrEnum):
    """An event of a clone's life."""

    ASKED = "asked"
    """Its agent was spawned, or is to work."""
    OVER = "over"
    """Its agent has ended."""
    MADE = "made"
    SET_UP = "set up"
    FAILED = "failed"
    """It couldn't be made or set up."""
    EXEC = "exec"
    """A command of a person's is to run in it."""
    RESTORE = "restore"
    """It is to be put back to a turn."""
    RESTORED = "restored"
    """It was put back, or couldn't be."""
    LEAVE = "leave"
    """Its agent is to be removed, while its tree stays."""
    PRUNE = "prune"
    """Its tree is to be removed."""
    GONE = "gone"
    """Its tree was removed."""


class CloneCommand(StrEnum):
    """An effect that is carried out once the new stage is committed."""

    PREPARE = "prepare"
    """Have it made or set up, or have that stopped."""
    ADMIT = "admit"
    """Look whether its agent's turn can begin now."""


S, E, C = Stage, CloneEvent, CloneCommand
_STAY = {stage: (stage,) for stage in S}
_TOO_LATE = {S.PRUNING: (S.PRUNING,), S.PRUNED: (S.PRUNED,)}

TABLE: dict[CloneEvent, dict[Stage, tuple[Stage, *tuple[CloneCommand, ...]]]] = {
    E.ASKED: {**_STAY, S.WANTED: (S.WANTED, C.PREPARE), S.FAILED: (S.WANTED, C.PREPARE)},
    E.OVER: {**_STAY, S.WANTED: (S.WANTED, C.PREPARE), S.MADE: (S.MADE, C.PREPARE)},
    E.MADE: {S.WANTED: (S.MADE,), **_TOO_LATE},
    E.SET_UP: {S.MADE: (S.READY, C.ADMIT), **_TOO_LATE},
    E.FAILED: {S.WANTED: (S.FAILED,), S.MADE: (S.FAILED,), **_TOO_LATE},
    E.EXEC: {S.MADE: (S.MADE,), S.READY: (S.READY,), S.FAILED: (S.FAILED,)},
    E.RESTORE: {S.READY: (S.RESTORING,)},
    E.RESTORED: {S.RESTORING: (S.READY, C.ADMIT)},
    E.LEAVE: {stage: (stage,) for stage in S if stage is not S.RESTORING},
    E.PRUNE: {**{stage: (S.PRUNING,) for stage in S if stage is not S.RESTORING}, S.PRUNED: (S.PRUNED,)},
    E.GONE: {S.PRUNING: (S.PRUNED,), S.PRUNED: (S.PRUNED,)},
}
"""The stage afterwards of each pair, and the commands."""

PREPARING = frozenset({S.WANTED, S.MADE})
"""The stages in which a clone is being made or set up, unless its agent has ended."""
WITH_TREE = frozenset({S.MADE, S.READY, S.RESTORING, S.FAILED})
"""The stages in which it may have a tree with work."""

_REFUSALS = {
    S.WANTED: "the clone of {0.name} isn't made yet: `substratctl show {0.name}` tells when it is",
    S.MADE: "the clone of {0.name} isn't ready: `substratctl show {0.name}` tells when it is",
    S.READY: "the clone of {0.name} is ready already",
    S.RESTORING: "{0.name} is being put back to turn {0.restoring}: try again in a moment",
    S.FAILED: "the clone of {0.name} couldn't be made or set up: `substratctl resume {0.name}` tries again",
    **dict.fromkeys((S.PRUNING, S.PRUNED), "the clone of {0.name} is removed, its work is kept in {0.repository}"),
}


def step(clone: Clone, event: CloneEvent) -> tuple[Clone, tuple[CloneCommand, ...]]:
    """Decide the effect of an event.

    Args:
        clone: the clone, with all else that the event changes, for example its `error`.
        event: the event.

    Returns:
        The clone in its new stage, and the commands to carry out after it is committed.

    Raises:
        Refused: its stage doesn't allow the event.
    """
    if clone.stage not in TABLE[event]:
        raise Refused(_REFUSALS[clone.stage].format(clone))
    stage, *commands = TABLE[event][clone.stage]
    error, turn = None if stage is S.WANTED else clone.error, clone.restoring if stage is S.RESTORING else None
    return replace(clone, stage=stage, error=error, restoring=turn), tuple(commands)


def as_read(clone: Clone) -> Clone:
    """Return a clone as its row means it: with a turn to be put back to it is `RESTORING`, where older rows say `READY`."""
    stage = S.READY if clone.restoring is None else S.RESTORING
    return replace(clone, stage=stage) if clone.stage in {S.READY, S.RESTORING} else clone
