"""Decides which waiting agents' turns start: as many as may run at once, longest waiting first."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

import structlog

from substrat.core.agents import prompts
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import Agent, Item, ItemKind, Turn
from substrat.daemon.agents import mail
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from substrat.daemon.agents.disk_gate import DiskGate
    from substrat.daemon.agents.registry import Registry

log = structlog.get_logger("substrat.admission")


class Admission:
    """Starts turns while it is open; it is closed until the daemon has taken up an earlier one's turns.

    Args:
        disk_gate: holds turns back while the disk is nearly full.
    """

    def __init__(self, disk_gate: DiskGate) -> None:
        self._disk_gate = disk_gate
        self._is_open = False
        self._notified: set[str] = set()

    @property
    def obstacle(self) -> str | None:
        """Why turns that could start don't, as a sentence; None when none is held back."""
        return self._disk_gate.reason

    def open(self) -> None:
        """Let turns start from now on."""
        self._is_open = True

    def close(self) -> None:
        """Let no more turns start."""
        self._is_open = False

    def admit(self, registry: Registry) -> None:
        """Start the turns of agents that wait, as many as may run at once, longest waiting first."""
        if not self._is_open:
            return
        now = registry.now()
        room = registry.config.turns.max_running - registry.running
        first = registry.store.first_waiting()
        queued = [agent for agent in registry.agents if agent.phase == Phase.QUEUED and agent.id in first]
        may_start = self._disk_gate.look(registry.config.disk.free, needed=bool(queued) and room > 0)
        if may_start:
            self._notified.clear()
        for agent in sorted(queued, key=lambda agent: first[agent.id]):
            if agent.retry_at is not None and agent.retry_at > now:
                registry.wake_at(agent.retry_at)
            elif (until := mail.asleep_until(registry, agent)) is not None:
                _put_off(registry, agent, until)
            elif not may_start:
                self._hold(registry, agent)
            elif room > 0:
                room -= 1
                try:
                    _start_turn(registry, agent)
                except StorageFailed as problem:
                    # Accepted items stay queued and are tried again: no event tells when there is room.
                    log.error("turn not started", agent=agent.name, reason=problem.message)  # noqa: TRY400 - it says it all
                    self._disk_gate.look_again()
                    return

    def _hold(self, registry: Registry, agent: Agent) -> None:
        """Tell an agent's followers why it waits, once until turns start again."""
        if agent.id in self._notified:
            return
        try:
            with registry.change("wait told") as change:
                change.record(DaemonEvent(agent.id, None, "turn:waiting", f"its turn waits: {self._disk_gate.reason}"))
        except StorageFailed:
            return  # it is told when there is room for that
        self._notified.add(agent.id)


def _put_off(registry: Registry, agent: Agent, until: float) -> None:
    """Let an agent wait that messages have woken too often."""
    registry.wake_at(until)
    text = (
        f"its turn waits: messages alone have started its last {registry.config.limits.wakes} turns; it goes on "
        f"at {prompts.timestamp(until)}, or when a person prompts it"
    )
    try:
        with registry.change("wait told") as change:
            change.put(replace(agent, retry_at=until))
            change.record(DaemonEvent(agent.id, None, "turn:waiting", text))
    except StorageFailed as problem:
        log.error("wait not told", agent=agent.name, reason=problem.message)  # noqa: TRY400 - it says it all


def _start_turn(registry: Registry, agent: Agent) -> None:
    items = _next_delivery(registry.store.waiting_items(agent.id))
    number = agent.turn.number + 1 if agent.turn is not None else 1
    turn = Turn(str(uuid.uuid4()), agent.id, number, registry.now())
    with registry.change("turn begun") as change:
        registry.store.save_turn(turn)
        registry.store.deliver(items, turn.id)
        started = replace(agent, turn=turn, waiting=agent.waiting - len(items), retry_at=None)
        change.step(started, Event.START)


def _next_delivery(waiting: list[Item]) -> list[Item]:
    """Choose the items for the next turn: a prompt alone, or messages up to the next prompt, as many as fit into one."""
    if waiting[0].kind is not ItemKind.MESSAGE:
        return waiting[:1]
    return prompts.fitting(list(takewhile(lambda item: item.kind is ItemKind.MESSAGE, waiting)))
