"""Records what running turns report; `turn_ends` accounts for their ends, `requests` answers people and agents.

Methods run without an await, and each commits before it returns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from substrat.core.agents.records import (
    Agent,
    Session,
)
from substrat.core.agents.stop_reason import fills_disk, over_home_limit, over_output_limit
from substrat.core.programs.ndjson import Line
from substrat.core.programs.program import gets_further
from substrat.core.programs.table import decode, model_of, program_of, result_of, session_of
from substrat.daemon.agents.turn_ends import TurnEnds
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import Patience
from substrat.names import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.core.agents.records import Process
    from substrat.core.agents.stop_reason import StopReason
    from substrat.core.agents.verdict import TurnObservation, Verdict
    from substrat.core.programs.program import LineEvent, TurnResult
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry


class Accounting:
    """Records all turns.

    Args:
        registry: the agents.
        leave_out: starts an agent's program without an option from now on.
    """

    def __init__(self, registry: Registry, leave_out: Callable[[Agent, str], None]) -> None:
        self._registry = registry
        self._ends = TurnEnds(registry, leave_out)
        self._store = registry.store
        self._journal = registry.journal

    def result_seen(self, turn: str) -> TurnResult | None:
        """Return the result that an earlier daemon saw of a turn, read again from where the journal says it is."""
        agent = self._registry.agent_of_turn(turn)
        row = self._store.result_event(turn) if agent is not None else None
        data = self._journal.line_of(row) if row is not None else None
        if agent is None or row is None or data is None:
            return None
        line = Line(row.offset or 0, row.length or 0, data.removesuffix(b"\n"))
        return result_of(decode(line))

    def turn_spawned(self, turn: str, started: Process, version: str | None = None, directory: str | None = None) -> None:
        """Note a turn's process, and which directory its workspace is."""
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        number, items = agent.turn.number, self._store.items_of_turn(turn)
        data, cause = {"number": number, "items": [item.id for item in items]}, items[0].cause if items else None
        text = f"turn {number} started{_by(agent, version)}"
        with self._registry.change("sandbox recorded") as change:
            found, now = replace(agent, directory=directory or agent.directory), self._registry.steady()
            change.put_turn(found, replace(agent.turn, process=started, begun_at=now, heard_at=now))
            change.record(DaemonEvent(agent.id, turn, "turn:started", text, data, cause))

    def lacks_prompt(self, turn: str) -> bool:
        """Say whether a turn's prompt is to be recorded, because its program doesn't print it."""
        agent = self._registry.agent_of_turn(turn)
        is_printed = agent is None or program_of(agent).prints_prompt
        return agent is not None and not is_printed and not self._store.turn_has_event(agent.id, turn, "user")

    def prompt_handed_over(self, turn: str, prompt: str) -> None:
        """Record a turn's prompt: in a commit of its own, because that of a sandbox is small and can't wait."""
        if (agent := self._registry.agent_of_turn(turn)) is not None:
            with self._registry.change("note taken") as change:
                change.record(DaemonEvent(agent.id, turn, "user", prompt))

    def turn_lines(
        self,
        turn: str,
        lines: list[tuple[Line, LineEvent]],
        offset: int,
        obstacles: Mapping[str, str],
        patience: Patience = Patience.WAITS,
    ) -> None:
        """Record an agent's lines, above all the session's id.

        Args:
            turn: the turn.
            lines: the lines.
            offset: where the next one begins in its output.
            obstacles: why sessions that are named there can't become the agent's, by session, as their files say.
            patience: how a full disk is met.
        """
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        with self._registry.change("output recorded", patience) as change:
            self._journal.append(agent.id, turn, lines)
            reported = agent.turn.reported
            for _, event in lines:
                if event.kind == "system:init":
                    reported = True
                    agent = self._note_session(change, agent, turn, session_of(event), obstacles)
                    if agent.turn is not None and (model := model_of(event)) not in {None, agent.turn.told_model}:
                        agent = change.put_turn(agent, replace(agent.turn, told_model=model))
            assert agent.turn is not None
            is_heard = any(gets_further(event.kind) for _, event in lines)
            heard_at = self._registry.steady() if is_heard else agent.turn.heard_at
            agent = change.put_progress(agent, replace(agent.turn, offset=offset, reported=reported, heard_at=heard_at))
            if agent.turn is not None and (calls := sum(event.kind == "tool-call-started" for _, event in lines)):
                for tool_called in self._registry.follow_ups.tool_called:
                    tool_called(change, agent.turn, calls)

    def turn_truncated(self, turn: str, size: int, expected: int, patience: Patience = Patience.WAITS) -> None:
        """Note that an agent cut its own output."""
        text = f"the agent cut its own output from {expected} to {size} bytes; what was there is lost"
        self._update(turn, "output cut", ("turn:output-truncated", text), patience)

    def open_call(self, turn: str) -> str | None:
        """Return the newest tool call of a turn that has begun and not ended, in one line; None: none is open."""
        agent = self._registry.agent_of_turn(turn)
        return self._registry.journal.open_call(agent.id, turn) if agent is not None else None

    def turn_limit_reached(self, turn: str, reason: StopReason, event: tuple[str, str] | None = None) -> None:
        """Stop a turn that has run into a limit; a person's earlier reason stays."""
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        if agent.turn.stop is None:
            self._update(turn, "limit reached", event, stop=reason)
        self._registry.effects.stop(turn, reason)

    def turn_output_too_long(self, turn: str, limit: int) -> None:
        """Stop a turn that has written more bytes than it may."""
        self.turn_limit_reached(turn, over_output_limit(limit))

    def turn_home_too_big(self, turn: str, limit: int) -> None:
        """Stop a turn whose agent's own directories hold more bytes on disk than they may."""
        if (agent := self._registry.agent_of_turn(turn)) is None:
            return
        text = f"the agent's own directories, ~/.cache, ~/{program_of(agent).places.home} and chats, hold too much"
        self.turn_limit_reached(turn, over_home_limit(limit), ("turn:home-too-big", text))

    def turn_fills_disk(self, turn: str, wrote: int, free: int) -> None:
        """Stop a turn that is filling the disk: it has just written so many bytes, and so many are left."""
        self.turn_limit_reached(turn, reason := fills_disk(wrote, free), ("turn:fills-disk", str(reason)))

    def companion_called(self, turn: str) -> None:
        """Note that the agent program has called its companion in this turn."""
        agent = self._registry.agent_of_turn(turn)
        if agent is not None and agent.turn is not None and not agent.turn.contacted:
            self._update(turn, "companion called", contacted=True)

    def turn_note(self, turn: str, kind: str, text: str, patience: Patience = Patience.WAITS) -> None:
        """Tell something about a running turn.

        Args:
            turn: the turn.
            kind: the event's.
            text: its words.
            patience: `TURNS_END` only for a few notes a turn, of which an agent can't cause more.
        """
        self._update(turn, "note taken", (kind, text), patience)

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

    def turn_over(self, turn: str, verdict: Verdict, observation: TurnObservation) -> None:
        """Account for a turn that has ended (`TurnEnds.turn_over`)."""
        self._ends.turn_over(turn, verdict, observation)

    def _note_session(
        self, change: Change, agent: Agent, turn: str, session: str | None, obstacles: Mapping[str, str]
    ) -> Agent:
        """Store the session's id the moment it is seen, if it can be one and is no other agent's."""
        known = agent.session.id if agent.session else None
        if session is None or session == known:
            return agent
        if (obstacle := self._session_obstacle(session) or obstacles.get(session)) is not None:
            change.record(DaemonEvent(agent.id, turn, "session:refused", obstacle))
            return agent
        if known is not None:
            text = f"resumed {known}, but the agent is in {session}"
            change.record(DaemonEvent(agent.id, turn, "session:changed", text))
        return change.put(replace(agent, session=Session(session)))

    def _session_obstacle(self, session: str) -> str | None:
        """Say why a session can't become an agent's whatever its files say, None if it can."""
        if not is_uuid(session):
            return f"{session[:80]!r} is no session id"
        if self._registry.index.of_session(session) is not None:
            return f"session {session} belongs to another agent"
        return None

    def _update(
        self,
        turn: str,
        what: str,
        event: tuple[str, str] | None = None,
        patience: Patience = Patience.WAITS,
        **changes: object,
    ) -> None:
        agent = self._registry.agent_of_turn(turn)
        if agent is None or agent.turn is None:
            return
        with self._registry.change(what, patience, turn) as change:
            change.put_turn(agent, replace(agent.turn, **changes))  # type: ignore[arg-type]
            if event is not None:
                change.record(DaemonEvent(agent.id, turn, *event))


def _by(agent: Agent, version: str | None) -> str:
    return f" ({program_of(agent).name} {version})" if version else ""
