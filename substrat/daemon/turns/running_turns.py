"""Carries out the effects of committed changes on running turns, and queues turns for the runner."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from substrat.daemon.agents.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.records import Agent, Turn
    from substrat.core.agents.stop_reason import StopReason
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.state.trash import Trash
    from substrat.daemon.turns.running import RunningTurn


@attrs.define(eq=False)
class RunningTurns:
    """The turns of one daemon that run or are about to (`change.Effects`).

    Effects that a killed daemon owes are made good by the next one: it takes up every turn that hasn't ended.
    """

    _layout: Layout
    _trash: Trash
    _points: Failpoints
    turn_runs: Wakeup = attrs.field(init=False, factory=Wakeup)
    """Is set whenever a turn has begun to run, or goes on after it was frozen."""
    clone_wanted: Wakeup = attrs.field(init=False, factory=Wakeup)
    """Is set when an agent wants a clone."""
    _to_start: deque[tuple[Agent, Turn]] = attrs.field(init=False, factory=deque)
    arrived: Wakeup = attrs.field(init=False, factory=Wakeup)
    """Is set when a turn is to be started."""
    _running: dict[str, RunningTurn] = attrs.field(init=False, factory=dict)
    _stop_reasons: dict[str, StopReason] = attrs.field(init=False, factory=dict)

    # Effects

    def start(self, agent: Agent, turn: Turn) -> None:
        """Hand a turn, which may already have a process, to the runner."""
        self._to_start.append((agent, turn))
        self.arrived.set()

    def stop(self, turn_id: str, reason: StopReason) -> None:
        """Stop a turn, also one whose task hasn't come to its launch yet."""
        if turn_id in self._running:
            self._running[turn_id].stop(reason)
        else:
            self._stop_reasons[turn_id] = reason

    def freeze(self, turn_id: str) -> None:
        """Freeze a running turn in memory; for one whose task hasn't come to its launch yet nothing is done.

        `agent.suspend` refuses then, and takes the freeze back.
        """
        if turn_id in self._running:
            self._running[turn_id].freeze()

    def thaw(self, turn_id: str) -> None:
        """Let a frozen turn go on."""
        if turn_id in self._running:
            self._running[turn_id].thaw()
            self.turn_runs.set()

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files; a sweep finishes a deletion that was cut short."""
        self._points.before("files removed")
        self._layout.agent(agent.id).remove_sockets()
        self._trash.discard(self._layout.agent(agent.id).root)
        self._points.after("files removed")

    def prepare_clones(self) -> None:
        """Have the clones made that agents want; those that a killed daemon owed are made by the next one."""
        self.clone_wanted.set()

    # The runner's side

    def take_to_start(self) -> Iterator[tuple[Agent, Turn]]:
        """Hand out the turns that are to be started."""
        self.arrived.clear()
        while self._to_start:
            yield self._to_start.popleft()

    def of(self, agent: Agent) -> RunningTurn | None:
        """Return an agent's running turn, None while it has none."""
        return self._running.get(agent.turn.id) if agent.turn is not None else None

    def add(self, running: RunningTurn) -> None:
        """Let effects reach a turn from now on, and stop it if that was asked for already."""
        self._running[running.turn] = running
        self.turn_runs.set()
        if (reason := self._stop_reasons.pop(running.turn, None)) is not None:
            running.stop(reason)

    def remove(self, turn_id: str) -> None:
        """Forget a turn whose sandbox has ended; it isn't accounted for yet, so effects may still come."""
        del self._running[turn_id]

    def accounted_for(self, turn_id: str) -> None:
        """Forget what was asked of a turn; no more effects come for it."""
        self._stop_reasons.pop(turn_id, None)
