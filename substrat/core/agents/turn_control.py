"""Decides what is done to a running turn's sandbox: one table of (wanted, seen) to commands. Pure.

Theory of operation
-------------------
Four parties steer one sandbox, each without knowing of the others: a person freezes it and lets it go on, the protection of
its workspace holds it for a look at protected files, a person or a limit stops it, and some kill it at once. `wanted` makes
one wish of theirs, the strongest: killing goes before stopping, stopping before standing still, standing still before
running. A turn that is being stopped while it is held or frozen climbs the ladder of signals without being let go on.

What is seen of the sandbox says how far that wish has come. The daemon's one control task (`daemon/turns/control.py`)
looks, asks this table, carries out its commands in their order, and looks again when a wish or a fact has changed. So
commands are written to be repeated: `SIGNAL` sends the signal of the ladder's present rung once, `ARM_TIMER` lets that
rung's time run.

Two columns keep the promise that a sandbox which is being killed never runs again, for the kernel takes its time to come to
each process: in `DYING` there are no commands at all, and in `GONE`, where `THAW` is, nothing is left that could run but
bubblewrap's outer process, which must write the exit code down and may be stopped in the same cgroup.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import TYPE_CHECKING

from substrat.core.agents.stop_reason import AFTER_RESULT

if TYPE_CHECKING:
    from substrat.core.agents.stop_reason import StopReason


class Wanted(StrEnum):
    """The state that a turn's sandbox is to be in."""

    RUNNING = "running"
    FROZEN = "frozen"
    """Stopped in memory, by a person."""
    HELD = "held"
    """Stopped in memory, for a look at protected files."""
    STOPPING = "stopping"
    """Climbing the ladder of signals."""
    STOPPING_HELD = "stopping while held"
    """Climbing the ladder, but not let go on: it is held, or was frozen after the stop was asked for."""
    KILLED = "killed"


class Seen(StrEnum):
    """The state that a turn's sandbox is in, as far as the daemon knows."""

    STARTING = "starting"
    """Bubblewrap hasn't reported its first process yet."""
    RUNNING = "running"
    HALTING = "halting"
    """Some of its processes are, or may be, stopped in memory."""
    STOPPED = "stopped"
    """All of them are."""
    DYING = "dying"
    """It was killed, and its first process hasn't ended yet."""
    GONE = "gone"
    """Its first process has ended, and with it all others in it."""


class Command(StrEnum):
    """An act on a turn's sandbox."""

    SIGNAL = "signal"
    FREEZE = "freeze"
    THAW = "thaw"
    KILL = "kill"
    ARM_TIMER = "arm timer"


S, C = Seen, Command
_CLIMB = (C.SIGNAL, C.ARM_TIMER)
_ENDING = {S.DYING: (), S.GONE: (C.THAW,)}
_STANDING = {S.STARTING: (), S.RUNNING: (C.FREEZE,), S.HALTING: (C.FREEZE,), S.STOPPED: (), **_ENDING}

TABLE: dict[Wanted, dict[Seen, tuple[Command, ...]]] = {
    Wanted.RUNNING: {S.STARTING: (), S.RUNNING: (), S.HALTING: (C.THAW,), S.STOPPED: (C.THAW,), **_ENDING},
    Wanted.FROZEN: _STANDING,
    Wanted.HELD: _STANDING,
    Wanted.STOPPING: {
        # A sandbox that never comes up is killed when the rungs' times are over.
        S.STARTING: (C.ARM_TIMER,),
        S.RUNNING: _CLIMB,
        # Let go on first, so that the program can end in good order.
        S.HALTING: (C.THAW, *_CLIMB),
        S.STOPPED: (C.THAW, *_CLIMB),
        **_ENDING,
    },
    Wanted.STOPPING_HELD: {
        S.STARTING: (C.ARM_TIMER,),
        S.RUNNING: (C.FREEZE, *_CLIMB),
        S.HALTING: (C.FREEZE, *_CLIMB),
        S.STOPPED: _CLIMB,
        **_ENDING,
    },
    Wanted.KILLED: {**dict.fromkeys((S.STARTING, S.RUNNING, S.HALTING, S.STOPPED), (C.KILL,)), **_ENDING},
}


def wanted(*, frozen: bool, held: bool, stopping: bool, killed: bool) -> Wanted:
    """Make one wish of all that is asked of a sandbox.

    Args:
        frozen: whether a person has frozen it.
        held: whether it is held for a look at protected files.
        stopping: whether it is to be stopped.
        killed: whether it is to be killed, or the ladder has come to that.
    """
    if killed:
        return Wanted.KILLED
    if stopping:
        return Wanted.STOPPING_HELD if held or frozen else Wanted.STOPPING
    if held:
        return Wanted.HELD
    return Wanted.FROZEN if frozen else Wanted.RUNNING


def ladder(reason: StopReason | None) -> tuple[signal.Signals, ...]:
    """Return the signals that a turn gets, one after the other, before it is killed.

    Args:
        reason: why it is being stopped; a program that goes on after its result isn't interrupted, it has nothing to do.
    """
    return (signal.SIGTERM,) if reason == AFTER_RESULT else (signal.SIGINT, signal.SIGTERM)
