"""Judges the outcome of a turn from its observation, for example a result line and an exit code. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from substrat.core.agents import cgroup_limits
from substrat.core.agents.cgroup_limits import RanOut
from substrat.core.agents.records import Outcome
from substrat.core.agents.stop_reason import StopKind
from substrat.core.programs import failures

if TYPE_CHECKING:
    from substrat.core.agents.stop_reason import StopReason
    from substrat.core.programs.failures import Failure
    from substrat.core.programs.program import AgentProgram, TurnResult


class TurnObservation(NamedTuple):
    """The observation of a turn that is over.

    Args:
        result: its `result` event, if it came.
        exit_code: the program's, if bubblewrap could still write it down.
        stop: why the daemon was stopping it, if it was.
        errors: the end of its standard error.
        anything: whether it wrote anything to standard output.
        damage: the damage to its files, if there is any.
        ran_out: the resources that it ran out of.
        disk_full: whether there was no room at its end where its output goes.
        last_passage: the agent's last words, after its last tool call.
        without: the dispensable options that the agent program was started without, as far as this daemon knows.
        is_stored: whether it succeeded and its agent's session is on disk for good: a stopped program deletes a chat that
            holds no whole turn.
        ended_at: when its files say that it ended, in seconds since the epoch; None: they don't, and it ended just now.
    """

    result: TurnResult | None
    exit_code: int | None
    stop: StopReason | None
    errors: str
    anything: bool
    damage: str | None = None
    ran_out: RanOut = RanOut()
    disk_full: bool = False
    last_passage: str = ""
    without: frozenset[str] = frozenset()
    is_stored: bool = False
    ended_at: float | None = None


_KILLED = 128 + 9
"""The exit code of a program that was ended by SIGKILL."""

NOTHING_SEEN = TurnObservation(None, None, None, "", anything=False)
"""Of a turn that never came to its launch."""


class Verdict(NamedTuple):
    """How a turn ended.

    Args:
        outcome: in one word.
        error: in one sentence, unless it went well.
        failure: its name, when it is one of cursor-agent's known ones.
    """

    outcome: Outcome
    error: str | None
    failure: Failure | None = None


def end_of(observation: TurnObservation, started_at: float, now: float) -> float:
    """Return when a turn ended: as its files say, but neither before its start nor later than now.

    Args:
        observation: the observation.
        started_at: the turn's start, in seconds since the epoch.
        now: the same.
    """
    if observation.ended_at is None:
        return now
    return min(now, max(started_at, observation.ended_at))


def judge(observation: TurnObservation, program: AgentProgram) -> Verdict:
    """Decide a turn's outcome.

    A `result` decides, with any exit code, and no `result` is a failure, with any exit code: cursor-agent
    was seen to exit 0 without one, and to print one and never exit.

    Args:
        observation: the observation.
        program: the agent program.
    """
    if observation.result is not None:
        return _said(observation.result, observation.last_passage, program)
    if observation.stop is not None:
        return _stopped(observation.stop, program.places.home)
    if observation.damage is not None:
        outcome = Outcome.LOST if observation.exit_code is None else Outcome.ERROR
        return Verdict(outcome, f"what became of the turn can't be told: {observation.damage}")
    if (shortage := cgroup_limits.out_of_memory(observation.ran_out)) is not None:
        return Verdict(Outcome.ERROR, shortage, failures.out_of_memory(shortage))
    if (launcher := _launcher_failed(observation)) is not None:
        return launcher
    if observation.exit_code is None:
        return Verdict(Outcome.LOST, "the sandbox was killed from outside, or the machine restarted")
    if (found := _no_room(observation)) is not None:
        return found
    if (failure := program.failure_of(observation.errors, None)) is not None:
        return Verdict(Outcome.ERROR, failure.sentence, failure)
    if observation.exit_code == _KILLED:
        ended = f"was killed by SIGKILL, or exited with its status {_KILLED},"
    else:
        ended = f"exited with status {observation.exit_code}"
    reason = failures.last_words(observation.errors)
    said = f": {reason}" if reason else ("" if observation.anything else " and without any output")
    return Verdict(Outcome.ERROR, f"the agent program {ended} without a result{said}")


def _said(result: TurnResult, last_passage: str, program: AgentProgram) -> Verdict:
    """Judge a turn by its result."""
    if result.is_error:
        failure = program.failure_of(result.text, result.status) if program.names_failed_results else None
        words = result.text or "the agent reported an error without a text"
        return Verdict(Outcome.ERROR, failure.sentence if failure is not None else words, failure)
    if (failure := program.failure_shown(result.text, last_passage)) is not None:
        return Verdict(Outcome.ERROR, failure.sentence, failure)
    return Verdict(Outcome.SUCCESS, None)


def _stopped(reason: StopReason, home: str) -> Verdict:
    """Judge a turn that the daemon stopped before it had a result."""
    kind, detail = reason.kind, reason.detail
    goes_on = "`substratctl resume NAME` goes on with the task"
    match kind:
        case StopKind.SUSPENDED | StopKind.INTERRUPTED | StopKind.ENDED | StopKind.BUDGET | StopKind.AFTER_RESULT:
            return Verdict(Outcome.INTERRUPTED, f"stopped: {reason}")
        case StopKind.TIME_LIMIT:
            more = f"{goes_on}, and `substratctl set NAME time_limit=SECONDS` gives the agent more time"
            return Verdict(Outcome.TIMED_OUT, f"the turn ran into its {reason} (turns.time_limit): {more}")
        case StopKind.SILENCE_LIMIT:
            quiet = f"the turn got no further and ran no tool for {detail or 'longer than it may'} (turns.silence_limit)"
            more = f"{goes_on}, and `substratctl set NAME silence_limit=SECONDS` gives the agent more time"
            return Verdict(Outcome.TIMED_OUT, f"{quiet}: {more}")
        case StopKind.TOOL_LIMIT:
            limit, _, call = detail.partition(": ")
            quiet = f"its tool call printed nothing for {limit} (turns.tool_limit): {call}"
            return Verdict(Outcome.TIMED_OUT, f"{quiet}; {goes_on}; raise the limit if the call must take so long")
        case StopKind.OUTPUT_LIMIT:
            said = f"the turn ran into its {reason}, which is disk.turn_output of the configuration"
            return Verdict(Outcome.ERROR, f"{said}: raise it if it must write so much")
        case StopKind.HOME_LIMIT:
            return Verdict(
                Outcome.ERROR,
                f"the agent's own directories (~/.cache, ~/{home}, chats) ran into their {reason}, which is "
                "disk.agent_home of the configuration, have more files than one for every 4096 bytes of it, or can't be "
                "looked into: delete something in them with `substratctl exec`, or raise the limit",
            )
        case StopKind.DISK_NEARLY_FULL:
            said = f"the turn was stopped because it was filling the disk ({detail})"
            return Verdict(Outcome.ERROR, f"{said}: make room, then resume the agent")
        case StopKind.PROTECTION:
            return Verdict(Outcome.ERROR, f"the turn was stopped because of its workspace's protection: {detail}")
        case _:
            assert_never(kind)


def _launcher_failed(observation: TurnObservation) -> Verdict | None:
    """Judge a turn of which nothing ran but bubblewrap or the network's launcher, which say why on standard error."""
    if observation.anything or observation.exit_code not in {None, 1}:
        return None
    words = failures.last_words(observation.errors)
    if not words.startswith(("bwrap: ", "substrat: ")):
        return None
    failure = failures.sandbox_failed(words)
    return Verdict(Outcome.ERROR, failure.sentence, failure)


def _no_room(observation: TurnObservation) -> Verdict | None:
    """Judge a program that ended for want of room to write; None when it was something else."""
    said_so = failures.says_no_room(observation.errors)
    # A program that can't write its output may have had no room for its complaint either.
    if observation.disk_full and (said_so or not observation.errors.strip()):
        return Verdict(Outcome.ERROR, failures.DISK_FULL_IN_TURN.sentence, failures.DISK_FULL_IN_TURN)
    if not said_so:
        return None
    where = "its workspace's disk or one of its directories in memory, /tmp and home (sandbox.memory_dir_bytes), is full"
    words = failures.last_words(observation.errors)
    return Verdict(Outcome.ERROR, f"the agent program found no room to write: {where}: {words}")
