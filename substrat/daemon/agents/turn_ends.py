"""Accounts for the ends of turns: the outcome, the words, and whether the turn's work is tried again or goes on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from substrat.core.agents import excerpts, prompts, result_schema, retry, totals, turn_check
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import Agent, Completion, ItemKind, Outcome, Restore, Turn
from substrat.core.agents.stop_reason import StopKind
from substrat.core.agents.verdict import end_of
from substrat.core.programs.failures import DESCRIPTORS_USED_UP, DISK_FULL, DISK_FULL_IN_TURN, USAGE_LIMIT
from substrat.core.programs.table import program_of, result_text
from substrat.daemon.agents import mail, turn_prompts
from substrat.daemon.agents.turn_prompts import asker, prompt_of
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import Patience
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.verdict import TurnObservation, Verdict
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry

_MAX_RESULT = 1024 * 1024
"""Characters of a turn's result: each is a row that `show` and `wait` answer in one message."""
_MAX_URGENT_RESULT = 16 * 1024
"""Characters of a stopped turn's result when the disk is full: an agent chooses its result, and must not use up by
it the room that is kept for stopping others."""
_LAST = 200
"""Characters of a result that lists show: the first line is one column of `ls`."""
_MAX_ERROR = 16 * 1024
"""Characters: the registry holds the last error of each agent, and every agent of a thousand may have failed."""
_UNREAD_LINES = 16
"""As many lines that are no JSON are looked at; a program that prints more of them isn't understood."""
_NOT_CONTACTED = "the agent program never called Substrat's companion in this turn, so the agent had no tools of Substrat"


class TurnEnds:
    """Accounts for the ends of all turns.

    Args:
        registry: the agents.
        leave_out: starts an agent's program without an option from now on.
    """

    def __init__(self, registry: Registry, leave_out: Callable[[Agent, str], None]) -> None:
        self._registry = registry
        self._leave_out = leave_out
        self._store = registry.store
        self._journal = registry.journal

    def turn_over(self, turn_id: str, verdict: Verdict, observation: TurnObservation) -> None:
        """Account for a turn that has ended.

        One that was stopped is accounted for on a full disk too, with its result cut short.

        Args:
            turn_id: the turn.
            verdict: its outcome.
            observation: its observation.

        Raises:
            StorageFailed: there is no room; nothing has changed.
        """
        try:
            self._account(turn_id, verdict, observation, _MAX_RESULT, Patience.WAITS)
        except StorageFailed:
            if not self._registry.is_being_stopped(turn_id):
                raise
            self._account(turn_id, verdict, observation, _MAX_URGENT_RESULT, Patience.URGENT)

    def _account(
        self, turn_id: str, verdict: Verdict, observation: TurnObservation, longest: int, patience: Patience
    ) -> None:
        agent = self._registry.agent_of_turn(turn_id)
        if agent is None or agent.turn is None:
            return
        result = observation.result
        text = result_text(result.text, self._journal.said(agent.id, turn_id)) if result else ""
        turn = replace(
            agent.turn, outcome=verdict.outcome, error=_cut(verdict.error, min(longest, _MAX_ERROR)),
            ended_at=end_of(observation, agent.turn.started_at, self._registry.now()),
            exit_code=observation.exit_code, session=agent.session.id if agent.session is not None else None,
            usage=self._usage(agent, result.usage) if result else None,
            result=_cut(text, longest) if result and verdict.outcome is Outcome.SUCCESS else None,
        )  # fmt: skip
        turn = self._with_report(agent, turn, text)
        with self._registry.change("turn accounted for", patience) as change:
            last = agent.last if turn.result is None else turn.result[:_LAST]
            session = agent.session and replace(agent.session, stored=agent.session.stored or observation.is_stored)
            told = replace(agent, last=last, tokens=agent.tokens.after(turn.usage), session=session)
            agent = change.put_turn(told, turn)
            self._store.add_to_totals(totals.of_end(turn, self._store.counted_models()))
            if result is not None and not turn.contacted:
                change.record(DaemonEvent(agent.id, turn.id, "mcp:not-contacted", _not_contacted(agent)))
            (ended,) = change.record(_end_event(agent, turn, self._store.start_of_turn(turn.id)))
            for turn_ended in self._registry.follow_ups.turn_ended:
                turn_ended(change, agent, turn, verdict, ended)
            agent = self._registry.find(agent.id)
            if (option := _unknown_option(agent, verdict, observation)) is not None:
                change.after(partial(self._leave_out, agent, option))
                self._try_again(change, agent, turn, 0.0)
            elif self._waits_for_account(agent, turn, verdict):
                self._queue_again(change, agent, turn, "its prompt waits in the queue again: the account holds it up")
            elif (seconds := self._retry_delay(agent, turn, verdict)) is not None:
                self._try_again(change, agent, turn, seconds)
            elif agent.phase is Phase.RUNNING and _is_out_of_budget(turn):
                turn = replace(turn, unsettled=True)
                self._go_on_later(change, change.put_turn(agent, turn), turn, ended)
            elif (seconds := self._restore_delay(agent, turn)) is not None:
                self._restore(change, agent, turn, seconds, ended)
            else:
                self._finish(change, agent, turn, verdict, ended)

    def _finish(self, change: Change, agent: Agent, turn: Turn, verdict: Verdict, ended: int) -> None:
        """Let an agent rest that doesn't go on with a turn by itself, or go on with what else waits."""
        if agent.phase is Phase.ENDING:  # before it has ended, which answers what it was asked otherwise
            self._work_ended(change, agent, turn, ended)
        agent = change.step(replace(agent, attempts=0), _EVENT_OF[verdict.outcome])
        if agent.phase in {Phase.SUSPENDED, Phase.ENDED}:
            change.record(DaemonEvent(agent.id, None, f"agent:{agent.phase}", str(agent.phase)))
        if agent.phase is Phase.FAILED and mail.goes_on(self._registry, agent):
            turn_prompts.say_again(self._registry, change, agent, ended)
            agent = change.step(self._registry.find(agent.id), Event.PROMPT)
        if agent.phase is not Phase.ENDED and not turn_check.is_pending(agent.checked):
            self._work_ended(change, agent, turn, ended)

    def _work_ended(self, change: Change, agent: Agent, turn: Turn, ended: int) -> None:
        for work_ended in self._registry.follow_ups.work_ended:
            work_ended(change, agent, turn, ended)

    def _usage(self, agent: Agent, told: dict[str, int] | None) -> dict[str, int] | None:
        """Return the usage of a turn alone, from what its program tells."""
        if told is None or agent.session is None or not program_of(agent).usage_is_total:
            return told
        before = self._store.used_in(agent.id, agent.session.id)
        return {name: max(0, count - before[name]) for name, count in told.items()}

    def _with_report(self, agent: Agent, turn: Turn, text: str) -> Turn:
        """Note the words of a turn for those who gave it the task, unless its agent has given them to `complete`.

        What it gave in an earlier turn holds until it is given another task: the operator's answer to its question is none.
        """
        if turn.completion is None and (held := turn_prompts.held(self._store, turn, agent.checked)) is not None:
            turn = replace(turn, report=held.report, completion=held.completion)
        if turn.outcome is not Outcome.SUCCESS or turn.completion is not None:
            return turn
        said = self._journal.said_last(agent.id, turn.id)
        report = text if said is None else result_text("", said)
        schema = agent.settings.result_schema
        is_unfit = schema is not None and result_schema.misfit(schema, report) is not None
        return replace(turn, report=excerpts.shortened(report), completion=Completion.UNFIT if is_unfit else None)

    def _retry_delay(self, agent: Agent, turn: Turn, verdict: Verdict) -> float | None:
        if agent.phase != Phase.RUNNING or verdict.failure is None:
            return None
        waits = verdict.failure in {DISK_FULL, DESCRIPTORS_USED_UP}
        if waits or (verdict.failure is DISK_FULL_IN_TURN and not self._may_have_acted(agent, turn)):
            return retry.DELAYS[min(agent.attempts, len(retry.DELAYS) - 1)]  # for as long as it takes
        acted = self._store.turn_has_event(agent.id, turn.id, "tool-call-started")
        return retry.delay(verdict.failure, agent.attempts, acted=acted or verdict.failure is DISK_FULL_IN_TURN)

    def _may_have_acted(self, agent: Agent, turn: Turn) -> bool:
        """Say whether a turn called a tool, or wrote a line that can't be read to its end and may have said so."""
        if self._store.turn_has_call(agent.id, turn.id):
            return True
        if any(self._store.turn_has_event(agent.id, turn.id, kind) for kind in ("tool-call-started", "unknown")):
            return True
        unread = self._store.events_of_turn(agent.id, turn.id, "raw", _UNREAD_LINES + 1)
        return len(unread) > _UNREAD_LINES or any(
            not program_of(agent).only_speaks(self._journal.line_of(row) or b"") for row in unread
        )

    def _waits_for_account(self, agent: Agent, turn: Turn, verdict: Verdict) -> bool:
        """Say whether a turn that met the account's usage limit may run again, behind its login's gate."""
        if agent.phase != Phase.RUNNING or turn.login is None:
            return False
        failure = verdict.failure
        return failure is not None and failure.name == USAGE_LIMIT and not self._may_have_acted(agent, turn)

    def _try_again(self, change: Change, agent: Agent, turn: Turn, seconds: float) -> None:
        """Let an agent wait until its turn is tried again."""
        said = f"this passes by itself: trying again in {seconds:g} s" if seconds else "trying again without this option"
        later = replace(agent, attempts=agent.attempts + 1, retry_at=self._registry.now() + seconds)
        self._queue_again(change, later, turn, said)

    def _queue_again(self, change: Change, agent: Agent, turn: Turn, said: str) -> None:
        """Put the items that the turn was to deliver back, and let the agent wait."""
        returned = self._store.take_back(turn.id)
        agent = change.put_turn(agent, replace(turn, unsettled=True))
        change.step(replace(agent, waiting=agent.waiting + returned), Event.TURN_RETRIED)
        change.record(DaemonEvent(agent.id, turn.id, "turn:retry", said))

    def _restore_delay(self, agent: Agent, turn: Turn) -> float | None:
        """Return after how many seconds an agent whose turn was lost goes on by itself, None if a person has to look."""
        if turn.outcome is not Outcome.LOST or agent.phase != Phase.RUNNING or agent.settings.restore is not Restore.AUTO:
            return None
        turns = self._registry.config.turns
        return retry.restore_delay(agent.restored_at, self._registry.now(), turns.restores, turns.restore_window)

    def _restore(self, change: Change, agent: Agent, turn: Turn, seconds: float, ended: int) -> None:
        """Let an agent go on whose turn was lost: where it stopped, or from the beginning if it didn't come to that.

        `ended` is the cursor of the event of the turn's end.
        """
        now = self._registry.now()
        window = self._registry.config.turns.restore_window
        times = (*(time for time in agent.restored_at if time > now - window), now)
        agent = replace(agent, restored_at=times, retry_at=now + seconds)
        text = f"the turn was lost: going on in {seconds:g} s"
        (cause,) = change.record(DaemonEvent(agent.id, turn.id, "agent:restored", text, None, ended))
        self._go_on_later(change, agent, turn, cause)

    def _go_on_later(self, change: Change, agent: Agent, turn: Turn, cause: int) -> None:
        """Let an agent go on with a turn when it may: where it stopped, or from the beginning if it didn't come to that."""
        if turn.reported:
            words = prompts.continuation(prompt_of(self._registry, turn))
            change.add_item(agent, ItemKind.CONTINUATION, words, asker(self._registry, turn), Event.TURN_RETRIED, cause)
        else:
            returned = self._store.take_back(turn.id)
            change.step(replace(agent, waiting=agent.waiting + returned), Event.TURN_RETRIED)


_EVENT_OF = {
    Outcome.SUCCESS: Event.TURN_SUCCEEDED,
    Outcome.INTERRUPTED: Event.TURN_STOPPED,
    Outcome.ERROR: Event.TURN_FAILED,
    Outcome.TIMED_OUT: Event.TURN_FAILED,
    Outcome.LOST: Event.TURN_FAILED,
}


def _is_out_of_budget(turn: Turn) -> bool:
    return turn.outcome is not Outcome.SUCCESS and turn.stop is not None and turn.stop.kind is StopKind.BUDGET


def _not_contacted(agent: Agent) -> str:
    return f"{_NOT_CONTACTED}: {program_of(agent).name} goes on without a companion that doesn't start"


def _unknown_option(agent: Agent, verdict: Verdict, observation: TurnObservation) -> str | None:
    """Return the option that the agent program doesn't know, if another try without it may succeed."""
    failure = verdict.failure
    if agent.phase != Phase.RUNNING or failure is None or failure.name != "unknown-option":
        return None
    option = failure.subject
    return option if option in program_of(agent).dispensable and option not in observation.without else None


def _end_event(agent: Agent, turn: Turn, started: int | None) -> DaemonEvent:
    assert turn.outcome is not None
    took = (turn.ended_at or turn.started_at) - turn.started_at
    said = f": {turn.error}" if turn.error else ""
    text = f"turn {turn.number} {turn.outcome.value} after {took:.1f} s{said}"
    data = {"number": turn.number, "outcome": turn.outcome.value, "exit_code": turn.exit_code}
    return DaemonEvent(agent.id, turn.id, "turn:ended", text, data, started)


def _cut(text: str | None, longest: int) -> str | None:
    """Bound a text that an agent object carries, in characters; the whole text is in the turn's output."""
    return text if text is None or len(text) <= longest else f"{text[:longest]}… [cut: {len(text)} characters]"
