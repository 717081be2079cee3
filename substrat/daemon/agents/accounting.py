"""Records turns' reports and outcomes, and decides on retries; `requests` answers people and agents.

Methods run without an await, and each commits before it returns (`output.TurnObserver`).
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from substrat.core.agents import prompts, result_schema, retry, totals
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import (
    OPERATOR,
    Agent,
    Completion,
    ItemKind,
    Outcome,
    Restore,
    Session,
    Turn,
    left_unfinished,
)
from substrat.core.agents.stop_reason import fills_disk, over_home_limit, over_output_limit
from substrat.core.families import results
from substrat.core.programs.failures import DESCRIPTORS_USED_UP, DISK_FULL, DISK_FULL_IN_TURN, USAGE_LIMIT
from substrat.core.programs.ndjson import Line
from substrat.core.programs.table import PROGRAM
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Process
    from substrat.core.agents.stop_reason import StopReason
    from substrat.core.agents.verdict import TurnObservation, Verdict
    from substrat.core.programs.program import LineEvent, TurnResult
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry

log = structlog.get_logger("substrat.accounting")

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
_NOT_CONTACTED = (
    "the agent program never called Substrat's companion in this turn, so the agent had no tools of Substrat: "
    f"{PROGRAM.name} says nothing when it can't read its {PROGRAM.places.mcp} or start a server"
)


class StoredSessions(Protocol):
    """Finds agents' chats on disk; `chats.sessions` does."""

    def is_stored(self, agent: Agent) -> bool:
        """Say whether an agent's session is on disk for good."""

    def check_resumable(self, agent: Agent) -> None:
        """Raise if an agent's session can't be continued."""


class Accounting:
    """Records all turns.

    Args:
        registry: the agents.
        sessions: finds agents' sessions on disk.
        leave_out: starts the agent program without an option from now on.
    """

    def __init__(self, registry: Registry, sessions: StoredSessions, leave_out: Callable[[str], None]) -> None:
        self._registry = registry
        self._sessions = sessions
        self._leave_out = leave_out
        self._store = registry.store
        self._journal = registry.journal

    # Prompts

    def prompt_of(self, turn: Turn) -> str:
        """Return the prompt of a turn, which delivers its items, after the words that Substrat has for the agent."""
        agent = self._registry.get(turn.agent)
        clone = agent.clone if agent is not None else None
        notice = f"{clone.notice}\n\n" if clone is not None and clone.notice and clone.notice_turn == turn.number else ""
        items = self._store.items_of_turn(turn.id)
        prompt = "".join(item.text for item in items if item.kind is not ItemKind.MESSAGE)
        messages = [item for item in items if item.kind is ItemKind.MESSAGE]
        if not messages:
            return notice + prompt
        delivery = prompts.delivery(messages, secrets.token_hex(4), turn.started_at)
        return f"{notice}{prompt}\n\n{delivery}" if prompt else notice + delivery

    def unfinished(self, agent: Agent) -> str | None:
        """Return the prompt with which an agent goes on with its last turn, None if that turn came to its end."""
        turn = agent.turn
        if turn is None or not left_unfinished(turn, waiting=agent.waiting > 0):
            return None
        if not self._store.items_of_turn(turn.id):
            return None  # its items wait again already
        prompt = self.prompt_of(turn)
        return prompts.continuation(prompt) if turn.reported else prompt

    def asker_of(self, agent: Agent) -> tuple[str, str]:
        """Return who gave an agent the task of its last turn, by id and name: they are told when it is done after all."""
        turn = agent.turn
        if turn is not None and left_unfinished(turn, waiting=agent.waiting > 0):
            return self._asker(turn)
        return OPERATOR, OPERATOR

    def _asker(self, turn: Turn) -> tuple[str, str]:
        for item in self._store.items_of_turn(turn.id):
            if item.kind is not ItemKind.MESSAGE:
                return item.sender, item.sender_name
        return OPERATOR, OPERATOR

    # Reports of a turn

    def result_seen(self, turn: str) -> TurnResult | None:
        """Return the result that an earlier daemon saw of a turn, read again from where the journal says it is."""
        agent = self._registry.agent_of_turn(turn)
        row = self._store.result_event(turn) if agent is not None else None
        data = self._journal.line_of(row) if row is not None else None
        if row is None or data is None:
            return None
        line = Line(row.offset or 0, row.length or 0, data.removesuffix(b"\n"))
        return PROGRAM.result_of(PROGRAM.decode(line))

    def turn_spawned(self, turn: str, started: Process, version: str | None = None, directory: str | None = None) -> None:
        """Note a turn's process, and which directory its workspace is."""
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        number, items = agent.turn.number, self._store.items_of_turn(turn)
        data, cause = {"number": number, "items": [item.id for item in items]}, items[0].cause if items else None
        text = f"turn {number} started{_by(version)}"
        with self._registry.change("sandbox recorded") as change:
            found, now = replace(agent, directory=directory or agent.directory), self._registry.steady()
            change.put_turn(found, replace(agent.turn, process=started, begun_at=now, heard_at=now))
            change.record(DaemonEvent(agent.id, turn, "turn:started", text, data, cause))

    def turn_lines(self, turn: str, lines: list[tuple[Line, LineEvent]], offset: int, *, urgent: bool = False) -> None:
        """Record an agent's lines, above all the session's id; `urgent` uses the room that is kept for a full disk."""
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        with self._registry.change("output recorded", urgent=urgent) as change:
            self._journal.append(agent.id, turn, lines)
            reported = agent.turn.reported
            for _, event in lines:
                if event.kind == "system:init":
                    reported = True
                    agent = self._note_session(change, agent, turn, PROGRAM.session_of(event))
            assert agent.turn is not None
            if any(event.kind == "tool-call-started" for _, event in lines):
                for tool_called in self._registry.follow_ups.tool_called:
                    tool_called(change, agent.turn)
            heard_at = self._registry.steady()
            change.put_progress(agent, replace(agent.turn, offset=offset, reported=reported, heard_at=heard_at))

    def turn_truncated(self, turn: str, size: int, expected: int, *, urgent: bool = False) -> None:
        """Note that an agent cut its own output; `urgent` uses the room that is kept for a full disk."""
        text = f"the agent cut its own output from {expected} to {size} bytes; what was there is lost"
        self._update(turn, "output cut", ("turn:output-truncated", text), urgent=urgent)

    def open_call(self, turn: str) -> str | None:
        """Return the newest tool call of a turn that has begun and not ended, in one line; None: none is open."""
        agent = self._registry.agent_of_turn(turn)
        return self._registry.journal.open_call(agent.id, turn) if agent is not None else None

    def turn_limit_reached(self, turn: str, limit: StopReason) -> None:
        """Stop a turn that has run into a limit."""
        self._stop(turn, limit)

    def turn_output_too_long(self, turn: str, limit: int) -> None:
        """Stop a turn that has written more bytes than it may."""
        self._stop(turn, over_output_limit(limit))

    def turn_home_too_big(self, turn: str, limit: int) -> None:
        """Stop a turn whose agent's own directories hold more bytes on disk than they may."""
        text = f"the agent's own directories, ~/.cache, ~/{PROGRAM.places.home} and chats, hold too much"
        self._stop(turn, over_home_limit(limit), ("turn:home-too-big", text))

    def turn_fills_disk(self, turn: str, wrote: int, free: int) -> None:
        """Stop a turn that is filling the disk: it has just written so many bytes, and so many are left."""
        self._stop(turn, reason := fills_disk(wrote, free), ("turn:fills-disk", str(reason)))

    def _stop(self, turn: str, reason: StopReason, event: tuple[str, str] | None = None) -> None:
        """Stop a turn for a reason of the daemon's; a person's earlier reason stays."""
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        if agent.turn.stop is None:
            self._update(turn, "limit reached", event, stop=reason)
        self._registry.effects.stop(turn, reason)

    def companion_called(self, turn: str) -> None:
        """Note that the agent program has called its companion in this turn."""
        agent = self._registry.agent_of_turn(turn)
        if agent is not None and agent.turn is not None and not agent.turn.contacted:
            self._update(turn, "companion called", contacted=True)

    def turn_note(self, turn: str, kind: str, text: str, *, holds_up_end: bool = False) -> None:
        """Tell something about a running turn.

        Args:
            turn: the turn.
            kind: the event's.
            text: its words.
            holds_up_end: whether the turn's end waits for this note, which must not wait for room on the disk then once
                the turn is being stopped; only for a few notes a turn, of which an agent can't cause more.
        """
        agent = self._registry.agent_of_turn(turn)
        stopping = agent is not None and agent.turn is not None and agent.turn.stop is not None
        self._update(turn, "note taken", (kind, text), urgent=holds_up_end and stopping)

    def network_decided(self, turn: str, kind: str, text: str, refused: str | None) -> None:
        """Tell a decision of a running turn's network.

        Args:
            turn: the turn.
            kind: the event's.
            text: its words.
            refused: the host that was refused, where an entry of the allow-list lets it through.
        """
        changes: dict[str, Any] = {"refused": refused} if refused is not None else {}
        self._update(turn, "note taken", (kind, text), **changes)

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
            self._account(turn_id, verdict, observation, _MAX_RESULT, urgent=False)
        except StorageFailed:
            agent = self._registry.agent_of_turn(turn_id)
            if agent is None or agent.turn is None or agent.turn.stop is None:
                raise
            self._account(turn_id, verdict, observation, _MAX_URGENT_RESULT, urgent=True)

    def _account(self, turn_id: str, verdict: Verdict, observation: TurnObservation, longest: int, *, urgent: bool) -> None:
        agent = self._registry.agent_of_turn(turn_id)
        if agent is None or agent.turn is None:
            return
        result = observation.result
        text = PROGRAM.result_text(result.text, self._journal.said(agent.id, turn_id)) if result else ""
        turn = replace(
            agent.turn, outcome=verdict.outcome, error=_cut(verdict.error, min(longest, _MAX_ERROR)),
            ended_at=self._registry.now(), exit_code=observation.exit_code, usage=result.usage if result else None,
            result=_cut(text, longest) if result and verdict.outcome is Outcome.SUCCESS else None,
        )  # fmt: skip
        turn = self._with_report(agent, turn, text)
        with self._registry.change("turn accounted for", urgent=urgent) as change:
            last = agent.last if turn.result is None else turn.result[:_LAST]
            told = replace(agent, last=last, tokens=agent.tokens.after(turn.usage))
            agent = change.put_turn(self._with_stored_session(told, turn), turn)
            self._store.add_to_totals(totals.of_end(turn, self._store.counted_models()))
            if result is not None and not turn.contacted:
                change.record(DaemonEvent(agent.id, turn.id, "mcp:not-contacted", _NOT_CONTACTED))
            (ended,) = change.record(_end_event(agent, turn, self._store.start_of_turn(turn.id)))
            for turn_ended in self._registry.follow_ups.turn_ended:
                turn_ended(change, agent, turn, verdict, ended)
            if (option := _unknown_option(agent, verdict, observation)) is not None:
                change.after(partial(self._leave_out, option))
                self._try_again(change, agent, turn, 0.0)
            elif self._waits_for_account(agent, turn, verdict):
                self._queue_again(change, agent, turn, "its prompt waits in the queue again: the account holds it up")
            elif (seconds := self._retry_delay(agent, turn, verdict)) is not None:
                self._try_again(change, agent, turn, seconds)
            elif (seconds := self._restore_delay(agent, turn)) is not None:
                self._restore(change, agent, turn, seconds, ended)
            else:
                if agent.phase is Phase.ENDING:  # before it has ended, which answers what it was asked otherwise
                    self._work_ended(change, agent, turn, ended)
                agent = change.step(replace(agent, attempts=0), _EVENT_OF[verdict.outcome])
                if agent.phase in {Phase.SUSPENDED, Phase.ENDED}:
                    change.record(DaemonEvent(agent.id, None, f"agent:{agent.phase}", str(agent.phase)))
                if agent.phase is not Phase.ENDED:
                    self._work_ended(change, agent, turn, ended)

    def _work_ended(self, change: Change, agent: Agent, turn: Turn, ended: int) -> None:
        for work_ended in self._registry.follow_ups.work_ended:
            work_ended(change, agent, turn, ended)

    def _with_report(self, agent: Agent, turn: Turn, text: str) -> Turn:
        """Note the words of a turn for those who gave it the task, unless its agent has given them to `complete`."""
        if turn.outcome is not Outcome.SUCCESS or turn.completion is not None:
            return turn
        said = self._journal.said_last(agent.id, turn.id)
        report = text if said is None else PROGRAM.result_text("", said)
        is_unfit = agent.result_schema is not None and result_schema.misfit(agent.result_schema, report) is not None
        return replace(turn, report=results.shortened(report), completion=Completion.UNFIT if is_unfit else None)

    def _with_stored_session(self, agent: Agent, turn: Turn) -> Agent:
        """Note that the session is on disk for good: a stopped program deletes a chat that holds no whole turn."""
        if agent.session is None or turn.outcome is not Outcome.SUCCESS or not self._sessions.is_stored(agent):
            return agent
        return replace(agent, session=replace(agent.session, stored=True))

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
            not PROGRAM.only_speaks(self._journal.line_of(row) or b"") for row in unread
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
        if turn.outcome is not Outcome.LOST or agent.phase != Phase.RUNNING or agent.restore is not Restore.AUTO:
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
        if turn.reported:
            words = prompts.continuation(self.prompt_of(turn))
            change.add_item(agent, ItemKind.CONTINUATION, words, self._asker(turn), Event.TURN_RETRIED, cause)
        else:
            returned = self._store.take_back(turn.id)
            change.step(replace(agent, waiting=agent.waiting + returned), Event.TURN_RETRIED)

    def _note_session(self, change: Change, agent: Agent, turn: str, session: str | None) -> Agent:
        """Store the session's id the moment it is seen, if it can be one and is no other agent's."""
        known = agent.session.id if agent.session else None
        if session is None or session == known:
            return agent
        if (obstacle := self._session_obstacle(agent, session)) is not None:
            change.record(DaemonEvent(agent.id, turn, "session:refused", obstacle))
            return agent
        if known is not None:
            text = f"resumed {known}, but the agent is in {session}"
            change.record(DaemonEvent(agent.id, turn, "session:changed", text))
        return change.put(replace(agent, session=Session(session)))

    def _session_obstacle(self, agent: Agent, session: str) -> str | None:
        """Say why a session can't become an agent's, None if it can."""
        if not PROGRAM.is_session_id(session):
            return f"{session[:80]!r} is no session id"
        if any(other.session and other.session.id == session for other in self._registry.agents):
            return f"session {session} belongs to another agent"
        try:
            self._sessions.check_resumable(replace(agent, session=Session(session)))
        except SubstratError as problem:
            return problem.message
        return None

    def _update(
        self, turn: str, what: str, event: tuple[str, str] | None = None, *, urgent: bool = False, **changes: object
    ) -> None:
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        with self._registry.change(what, urgent=urgent) as change:
            change.put_turn(agent, replace(agent.turn, **changes))  # type: ignore[arg-type]
            if event is not None:
                change.record(DaemonEvent(agent.id, turn, *event))


_EVENT_OF = {
    Outcome.SUCCESS: Event.TURN_SUCCEEDED,
    Outcome.INTERRUPTED: Event.TURN_STOPPED,
    Outcome.ERROR: Event.TURN_FAILED,
    Outcome.TIMED_OUT: Event.TURN_FAILED,
    Outcome.LOST: Event.TURN_FAILED,
}


def _unknown_option(agent: Agent, verdict: Verdict, observation: TurnObservation) -> str | None:
    """Return the option that the agent program doesn't know, if another try without it may succeed."""
    failure = verdict.failure
    if agent.phase != Phase.RUNNING or failure is None or failure.name != "unknown-option":
        return None
    option = failure.subject
    return option if option in PROGRAM.dispensable and option not in observation.without else None


def _end_event(agent: Agent, turn: Turn, started: int | None) -> DaemonEvent:
    assert turn.outcome is not None
    took = (turn.ended_at or turn.started_at) - turn.started_at
    said = f": {turn.error}" if turn.error else ""
    text = f"turn {turn.number} {turn.outcome.value} after {took:.1f} s{said}"
    data = {"number": turn.number, "outcome": turn.outcome.value, "exit_code": turn.exit_code}
    return DaemonEvent(agent.id, turn.id, "turn:ended", text, data, started)


def _by(version: str | None) -> str:
    return f" ({PROGRAM.name} {version})" if version else ""


def _cut(text: str | None, longest: int) -> str | None:
    """Bound a text that an agent object carries, in characters; the whole text is in the turn's output."""
    return text if text is None or len(text) <= longest else f"{text[:longest]}… [cut: {len(text)} characters]"
