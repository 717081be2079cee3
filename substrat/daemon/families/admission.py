"""Starts checks, and turns in the order of `core.families.scheduling`: as many as may run at once."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import structlog

from substrat.core.agents import prompts, totals
from substrat.core.agents.lifecycle import Event
from substrat.core.agents.records import SYSTEM, Agent, Item, ItemKind, Turn
from substrat.core.families.scheduling import ObstacleKind
from substrat.daemon.agents import mail
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from substrat.core.agents.prompts import Rank
    from substrat.core.families.scheduling import Obstacle, Waiting
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.disk_gate import DiskGate
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.account_gates import AccountGates
    from substrat.daemon.families.budgets import Budgets
    from substrat.daemon.families.queue import Queue
    from substrat.daemon.families.waits import Waits

log = structlog.get_logger("substrat.admission")

_TOLD = (ObstacleKind.ACCOUNT, ObstacleKind.BUDGET)
"""The obstacles that an agent's followers are told of."""


class Admission:
    """Starts turns while it is open; it is closed until the daemon has taken up an earlier one's turns."""

    def __init__(
        self, registry: Registry, queue: Queue, gates: AccountGates, budgets: Budgets, waits: Waits, disk_gate: DiskGate
    ) -> None:
        self._registry = registry
        self._queue = queue
        self._gates = gates
        self._budgets = budgets
        self._waits = waits
        self._disk_gate = disk_gate
        self._is_open = False
        self._told: dict[ObstacleKind | None, set[str]] = {kind: set() for kind in (None, *_TOLD)}
        """The agents whose followers were told why they wait, by the reason; None: the disk is nearly full."""

    def open(self) -> None:
        """Let turns start from now on."""
        self._is_open = True

    def close(self) -> None:
        """Let no more turns start."""
        self._is_open = False

    def admit(self) -> None:
        """Start checks and the turns of agents that wait, as many as may run at once."""
        if not self._is_open:
            return
        registry, queue = self._registry, self._queue
        room = queue.room
        waiting = queue.waiting()
        ready = [one for one in waiting if one.obstacle is None]
        is_needed = bool(ready or queue.waiting_checks) and room > 0
        may_start = self._disk_gate.look(registry.config.disk.free, needed=is_needed)
        obstacles = {one.agent: one.obstacle for one in waiting if one.obstacle is not None}
        for agent_id, obstacle in obstacles.items():
            _wait(registry, agent_id, obstacle)
        for kind in _TOLD:
            self._tell(kind, {agent_id: one.text for agent_id, one in obstacles.items() if one.kind is kind})
        room -= queue.begin_checks(room if may_start else 0)
        if not may_start:
            self._tell(None, {one.agent: self._disk_gate.reason or "" for one in ready})
            return
        self._told[None].clear()
        try:
            self._start(ready, room)
        except StorageFailed as problem:
            # Accepted items stay queued and are tried again: no event tells when there is room.
            log.error("no turn started", reason=problem.message)  # noqa: TRY400 - it says it all
            self._disk_gate.look_again()

    def _start(self, ready: Sequence[Waiting], room: int) -> None:
        """Start turns in their order; one that began just now may have used up the budget of those after it."""
        while ready and room > 0:
            found = self._queue.starts(ready, room)
            begun = [one for one in map(self._registry.find, found) if self._start_turn(one)]
            if len(begun) == len(found):
                return
            room -= len(begun)
            ready = [one for one in self._queue.waiting() if one.obstacle is None]

    def _tell(self, kind: ObstacleKind | None, reasons: Mapping[str, str]) -> None:
        """Tell the followers of agents why these wait, each once for as long as it does for that reason."""
        told = self._told[kind]
        told.intersection_update(reasons)
        news = [agent for agent in reasons if agent not in told]
        if not news:
            return
        try:
            with self._registry.change("wait told") as change:
                for agent in news:
                    change.record(DaemonEvent(agent, None, "turn:waiting", f"its turn waits: {reasons[agent]}"))
        except StorageFailed:
            return  # it is told when there is room for that
        told.update(news)

    def _start_turn(self, agent: Agent) -> bool:
        """Start a turn of an agent that waits, and say whether its budgets let it begin."""
        registry, gates = self._registry, self._gates
        if self._budgets.obstacle(agent) is not None:
            return False
        rank = partial(mail.rank_of, registry, agent)
        items = _next_delivery(registry.store.waiting_items(agent.id), rank)
        number = agent.turn.number + 1 if agent.turn is not None else 1
        now, login = registry.now(), gates.login_of(agent)
        turn = Turn(str(uuid.uuid4()), agent.id, number, now, heard_at=registry.steady(), login=login, model=agent.model)
        with registry.change("turn begun") as change:
            registry.store.save_turn(turn)
            registry.store.add_to_totals(totals.of_begin(now - agent.since))
            registry.store.deliver(items, turn.id)
            gates.turn_begun(turn)
            self._waits.delivered(change, agent.id, items)
            _tell_senders(registry, change, agent, turn, items)
            started = replace(
                agent, turn=turn, waiting=agent.waiting - sum(item.starts_turn for item in items), retry_at=None
            )
            if agent.clone is not None and agent.clone.notice is not None:
                started = change.put_clone(started, _with_notice(agent.clone, agent.turn, number))
            self._budgets.turn_begun(change, change.step(started, Event.START))
        self._queue.began(agent)
        return True


def _wait(registry: Registry, agent_id: str, obstacle: Obstacle) -> None:
    """See to it that an agent that can't begin is looked at again in time, and tell one that messages woke too often."""
    if obstacle.until is None:
        return
    registry.wake_at(obstacle.until)
    agent = registry.find(agent_id)
    if obstacle.kind is not ObstacleKind.ASLEEP or (agent.retry_at is not None and agent.retry_at > registry.now()):
        return
    text = (
        f"its turn waits: messages alone have started its last {registry.config.limits.wakes} turns; it goes on "
        f"at {prompts.timestamp(obstacle.until)}, or when a person prompts it"
    )
    try:
        with registry.change("wait told") as change:
            change.put(replace(agent, retry_at=obstacle.until))
            change.record(DaemonEvent(agent.id, None, "turn:waiting", text))
    except StorageFailed as problem:
        log.error("wait not told", agent=agent.name, reason=problem.message)  # noqa: TRY400 - it says it all


def _tell_senders(registry: Registry, change: Change, agent: Agent, turn: Turn, items: list[Item]) -> None:
    """Record, for the agents that sent messages, in which turn they are delivered."""
    for item in items:
        if item.intent is not None and registry.get(item.sender) is not None:
            text = f"message {item.id} is delivered in turn {turn.number} of {agent.name}"
            data = {"by": SYSTEM, "message": item.id, "to": agent.name, "turn": turn.number}
            change.record(DaemonEvent(item.sender, None, "message:delivered", text, data, item.cause))


def _with_notice(clone: Clone, before: Turn | None, number: int) -> Clone:
    """Give the words for an agent's next prompt to a turn; they go when the agent has seen the turn that had them."""
    if before is not None and before.number == clone.notice_turn and before.reported:
        return replace(clone, notice=None, notice_turn=None)
    return replace(clone, notice_turn=number)


def _next_delivery(waiting: list[Item], rank_of: Callable[[Item], Rank]) -> list[Item]:
    """Choose the items for the next turn: one prompt, or messages up to the next prompt, as many as fit into one.

    Messages that start no turn of their own go along with either.
    """
    first = next(item for item in waiting if item.starts_turn)
    if first.kind is not ItemKind.MESSAGE:
        return [first, *prompts.fitting([item for item in waiting if not item.starts_turn], rank_of)]
    return prompts.fitting(list(takewhile(lambda item: item.kind is ItemKind.MESSAGE, waiting)), rank_of)
