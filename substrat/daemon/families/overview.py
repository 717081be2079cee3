"""Looks up the facts that agents' attention depends on; `core.agents.attention` decides from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from substrat.core.agents import attention
from substrat.core.agents.attention import Attention, Facts
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.prompts import timestamp
from substrat.core.families.scheduling import ObstacleKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent, Finding
    from substrat.core.families.scheduling import Place
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.budgets import Budgets
    from substrat.daemon.families.checks import Checks
    from substrat.daemon.families.queue import Queue
    from substrat.daemon.families.targets import Targets
    from substrat.daemon.families.waits import Waits


Places = Callable[[], Mapping[str, "Place"]]
"""Looks the queue up when it is first asked, and gives each agent's place, by its id."""


class Overview:
    """Answers who needs a person."""

    def __init__(
        self, registry: Registry, queue: Queue, waits: Waits, targets: Targets, checks: Checks, budgets: Budgets
    ) -> None:
        self._registry = registry
        self._queue = queue
        self._waits = waits
        self._targets = targets
        self._checks = checks
        self._budgets = budgets

    def places(self) -> Places:
        """Return what gives the agents' places in the queue, as they are when it is first asked."""
        return cache(lambda: {place.agent: place for place in self._queue.places()})

    def of(self, agents: Sequence[Agent], places: Places | None = None) -> list[dict[str, object]]:
        """Return the members of each agent's object that its record doesn't hold, in the agents' order.

        They are `attention`, `reason`, `family`, `activity`, `waits` and `check`.

        Args:
            agents: a few agents; a caller with many asks for one slice after the other.
            places: their places in the queue, where a caller with many has them looked up once.
        """
        found: list[dict[str, object]] = []
        for agent, facts, one in self._judged(agents, places or self.places()):
            family, reason = self._registry.root_of(agent).id, attention.reason(agent, facts)
            found.append({
                "attention": attention_object(one), "reason": reason, "family": family, "activity": self._activity(agent),
                "waits": len(facts.waits), "check": self._checks.public(agent),
            })  # fmt: skip
        return found

    def attentions(self, agents: Sequence[Agent], places: Places | None = None) -> list[Attention]:
        """Return the attention of each of a few agents, in their order; `places` as of `of`."""
        return [one for _, _, one in self._judged(agents, places or self.places())]

    def _judged(self, agents: Sequence[Agent], places: Places) -> Iterator[tuple[Agent, Facts, Attention]]:
        registry = self._registry
        questions = registry.store.open_questions([agent.id for agent in agents])
        turns = registry.config.turns
        stuck_after = attention.StuckAfter(turns.stuck_after, turns.tool_stuck_after)
        for agent in agents:
            place = places().get(agent.id) if agent.phase == Phase.QUEUED else None
            reason = place.reason if place is not None else self._checks.sentence(agent)
            is_held, waits = self._is_held(agent, places), self._waits.open_of(agent.id)
            is_led = self._is_led(agent, places)
            below = registry.family(agent)[1:] if agent.phase == Phase.IDLE and not waits and not is_led else []
            # While one of them works, the agent is woken once more, and may take all of it then.
            is_done = bool(below) and all(map(attention.is_at_rest, below))
            facts = Facts(
                questions.get(agent.id), self._heard_at(agent), self._silent(agent), self._open_call(agent),
                reason if is_held else None, self._waiting_since(agent), reason, waits, holder=registry.holder_of(agent),
                target_is_gone=self._target_is_gone(agent), is_led=is_led, budget=self._budgets.spent_by(agent),
                untaken=registry.untaken(agent) if is_done else (),
            )  # fmt: skip
            yield agent, facts, attention.attention(agent, facts, stuck_after)

    def is_urgent(self, agents: Sequence[Agent]) -> bool:
        """Say whether one of some agents, none of which has a running turn, needs a person now."""
        registry = self._registry
        questions = registry.store.open_questions([agent.id for agent in agents])
        never = attention.StuckAfter(0.0, 0.0)
        found = (attention.attention(agent, Facts(questions.get(agent.id)), never) for agent in agents)
        return any(one.level is attention.Level.URGENT for one in found)

    def heard_at(self, agents: Sequence[Agent]) -> list[str | None]:
        """Return since when each agent's running turn is silent, None for agents without one."""
        found = [self._heard_at(agent) for agent in agents]
        return [timestamp(heard) if heard is not None else None for heard in found]

    def _is_led(self, agent: Agent, places: Places) -> bool:
        above = map(self._registry.get, self._registry.lineage(agent)[1:])
        return any(one is not None and attention.can_act(one, is_held=self._is_held(one, places)) for one in above)

    def _is_held(self, agent: Agent, places: Places) -> bool:
        """Say whether an agent waits although there may be room: for the disk, or for its account."""
        place = places().get(agent.id) if agent.phase == Phase.QUEUED else None
        if place is None:
            return False
        if place.obstacle is None:
            return self._queue.closed is not None
        return place.obstacle.kind is ObstacleKind.ACCOUNT

    def _activity(self, agent: Agent) -> dict[str, object] | None:
        act = self._registry.journal.last_act(agent.id) if agent.turn is not None else None
        return {"text": act.text, "since": timestamp(act.since)} if act is not None else None

    def _target_is_gone(self, agent: Agent) -> bool:
        return agent.clone is not None and agent.clone.is_unlanded and self._targets.is_gone(agent.clone)

    def _waiting_since(self, agent: Agent) -> float | None:
        return self._registry.store.waiting_since(agent.id) if agent.phase == Phase.QUEUED else None

    def _open_call(self, agent: Agent) -> str | None:
        is_running = agent.phase == Phase.RUNNING and agent.turn is not None
        return self._registry.journal.open_call(agent.id, agent.turn.id) if is_running and agent.turn is not None else None

    def _heard_at(self, agent: Agent) -> float | None:
        if agent.phase != Phase.RUNNING or agent.turn is None:
            return None
        return max(agent.since, self._registry.journal.heard_at(agent.id))

    def _silent(self, agent: Agent) -> float:
        # The time in which a turn was frozen, or the machine slept, is no silence of the agent's.
        heard_at = agent.turn.heard_at if agent.turn is not None else None
        return self._registry.steady() - heard_at if heard_at is not None else 0.0


def attention_object(one: Attention) -> dict[str, object]:
    """Return an agent's attention as people see it."""
    more: dict[str, object] = {"item": one.item} if one.item is not None else {}
    if one.is_frozen:
        more["frozen"] = True
    return {"kind": one.kind.value, "level": one.level.value, "text": one.text, "since": timestamp(one.since), **more}


def finding_object(finding: Finding) -> dict[str, object]:
    """Return a finding as people see it."""
    return {
        "number": finding.number,
        "path": finding.path,
        "text": finding.text,
        "since": timestamp(finding.time),
        "turn": finding.turn,
        "aside": finding.aside,
        "difference": finding.difference,
    }
