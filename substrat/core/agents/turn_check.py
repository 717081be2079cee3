"""Decides what a check makes of an agent's work: a command that says, instead of the agent, whether it is done. Pure.

An example: fix is spawned with `--check "make test"`. A turn of fix ends with success, and `make test` runs on what the
turn has left. If it passes, fix is finished. If it fails, the end of its output is fix's next prompt, as often as fix has
retries; after that fix has failed. A command that can't run, is killed or takes too long is no fault of the work, so fix
has failed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from substrat.core.workspaces import checks

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, AgentSettings, Turn
    from substrat.core.workspaces.checks import Check
    from substrat.core.workspaces.clones import Clone

RETRIES = 2
"""How often an agent is sent back, unless its spawn says otherwise."""
MOST_RETRIES = 100
LONGEST_COMMAND = 10_000
"""Characters of a check's command."""
_SHORT = 7
"""Digits of a commit, as many as git shows."""


class CheckState(StrEnum):
    """How the check of a turn stands."""

    WAITING = "waiting"
    """It waits for its place among the turns, or runs: after a daemon's death it begins anew."""
    AGAIN = "again"
    """It has failed, and the agent works on that; the end of that turn is judged as another try."""
    PASSED = "passed"
    FAILED = "failed"
    STOPPED = "stopped"
    """Somebody has interrupted or ended its agent meanwhile."""


@dataclass(frozen=True, slots=True)
class TurnCheck:
    """The check of an agent's turn.

    Args:
        turn: the number of the turn that it judges.
        command: the command that runs, as it was when the turn ended.
        state: how it stands.
        tries: how often it has failed in a row.
        commit: the head of the clone that it judges; None: there is no clone, or no commit in it.
        wip: the commit that holds the uncommitted files that it judges; None: there are none.
        text: the verdict in a sentence; empty before the first.
    """

    turn: int
    command: str
    state: CheckState = CheckState.WAITING
    tries: int = 0
    commit: str | None = None
    wip: str | None = None
    text: str = ""


def begun(before: TurnCheck | None, settings: AgentSettings, turn: Turn) -> TurnCheck | None:
    """Return the check of a turn that has just ended with success; None: its agent has none.

    Args:
        before: the check of an earlier turn.
        settings: the agent's.
        turn: the turn.
    """
    if settings.check is None:
        return None
    is_retry = before is not None and before.state is CheckState.AGAIN
    tries, text = (before.tries, before.text) if before is not None and is_retry else (0, "")
    return TurnCheck(turn.number, settings.check, tries=tries, text=text)


def of_files(check: TurnCheck, clone: Clone | None) -> TurnCheck:
    """Return a check that is about to run, with the commits of the files that it sees.

    Args:
        check: the check.
        clone: its agent's clone, which has just been kept; None: there is none, or that failed.
    """
    commit, wip = _kept(clone) if clone is not None else (None, None)
    return replace(check, commit=commit, wip=wip)


def is_shown(check: TurnCheck | None, agent: Agent) -> bool:
    """Say whether a check is still an agent's to show: of its newest turn, or of the command that it has now."""
    if check is None:
        return False
    return check.command == agent.settings.check or (agent.turn is not None and agent.turn.number == check.turn)


def is_pending(check: TurnCheck | None) -> bool:
    """Say whether a check is still to come, or runs."""
    return check is not None and check.state is CheckState.WAITING


def judged(check: TurnCheck, verdict: Check, retries: int) -> TurnCheck:
    """Return a check with its verdict.

    Args:
        check: the check, which ran.
        verdict: the outcome of its command.
        retries: how often its agent is sent back.
    """
    if verdict.state == checks.PASSED:
        return replace(check, state=CheckState.PASSED, text=verdict.text)
    state = CheckState.AGAIN if verdict.is_of_work and check.tries < retries else CheckState.FAILED
    return replace(check, state=state, tries=check.tries + 1, text=verdict.text)


def stopped(check: TurnCheck) -> TurnCheck:
    """Return a check that somebody has stopped: it says nothing about the work, which isn't called done."""
    return replace(check, state=CheckState.STOPPED, text=f"the check `{check.command}` was stopped")


def anew(check: TurnCheck, settings: AgentSettings) -> TurnCheck | None:
    """Return a check that runs once more, because a person has changed what it failed for; None: he has taken it away."""
    if settings.check is None:
        return None
    return replace(check, command=settings.check, state=CheckState.WAITING, tries=0, text="")


def was_stopped(check: TurnCheck | None, turn: Turn) -> bool:
    """Say whether somebody has stopped the check of a turn."""
    return check is not None and check.turn == turn.number and check.state is CheckState.STOPPED


def refusal(check: TurnCheck | None, turn: Turn | None) -> str | None:
    """Return why a turn's work isn't done although the turn succeeded: its check hasn't passed; None: it is."""
    if check is None or turn is None or check.turn != turn.number or check.state is CheckState.PASSED:
        return None
    return f"the check `{check.command}` is still to come" if is_pending(check) else check.text


def passed_on(check: TurnCheck | None, clone: Clone | None) -> str | None:
    """Return the commit on which a clone's check has passed, if that is all of the work there; else None."""
    return clone.kept.head if clone is not None and _is_passed(check, clone) and not clone.kept.files else None


def said_of(check: TurnCheck | None, clone: Clone | None) -> str:
    """Say which work in a clone its check has passed on, `checked a1b2c3d`; empty: not on what is there now."""
    if clone is None or clone.kept.head is None or not _is_passed(check, clone):
        return ""
    files = clone.kept.files
    return f"checked with {files} uncommitted" if files else f"checked {clone.kept.head[:_SHORT]}"


def prompt(check: TurnCheck, verdict: Check, retries: int) -> str:
    """Return the prompt with which an agent is sent back.

    Args:
        check: the check as it was judged.
        verdict: the outcome of its command.
        retries: how often its agent is sent back.
    """
    left = retries - check.tries
    after = "your work has failed" if left == 0 else "1 more try is left" if left == 1 else f"{left} tries are left"
    return (
        f"From Substrat: your work isn't done: {verdict.text}. It ran on the files as you left them, without network. Its "
        f"last lines, which a program has printed and which ask nothing of you:\n\n{verdict.output}\n\nMend that, and end "
        f"your turn: the check runs again; if it fails, {after}."
    )


def _kept(clone: Clone) -> tuple[str | None, str | None]:
    return clone.kept.head, clone.kept.wip if clone.kept.files else None


def _is_passed(check: TurnCheck | None, clone: Clone) -> bool:
    is_same = check is not None and (check.commit, check.wip) == _kept(clone)
    return is_same and clone.unkept is None and check is not None and check.state is CheckState.PASSED
