"""Looks up the facts that agents' attention depends on; `core.attention` decides from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents import attention
from substrat.core.agents.attention import Facts
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.prompts import timestamp
from substrat.daemon.agents import mail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent, Finding
    from substrat.daemon.agents.registry import Registry


class Overview:
    """Answers who needs a person.

    Args:
        registry: the agents.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def of(self, agents: Sequence[Agent]) -> list[dict[str, object]]:
        """Return the members of each agent's object that its record doesn't hold, in the agents' order.

        They are `attention`, `reason` and `activity`.

        Args:
            agents: a few agents; a caller with many asks for one slice after the other.
        """
        registry = self._registry
        questions = registry.store.open_questions([agent.id for agent in agents])
        now, stuck_after = registry.now(), registry.config.turns.stuck_after
        held = registry.admission.obstacle
        found: list[dict[str, object]] = []
        for agent in agents:
            facts = Facts(
                questions.get(agent.id), self._heard_at(agent), held, self._waiting_since(agent),
                self._queue_reason(agent, now),
            )  # fmt: skip
            one = attention.attention(agent, facts, now, stuck_after)
            shown = {"kind": one.kind.value, "level": one.level.value, "text": one.text, "since": timestamp(one.since)}
            found.append({
                "attention": shown, "reason": attention.reason(agent, facts), "activity": self._activity(agent),
            })  # fmt: skip
        return found

    def extras(self, agent: Agent) -> dict[str, object]:
        """Return the members of `vocabulary.AGENT_EXTRAS`: since when a running turn is silent; null for other agents."""
        heard = self._heard_at(agent)
        return {"heard_at": timestamp(heard) if heard is not None else None}

    def _activity(self, agent: Agent) -> dict[str, object] | None:
        act = self._registry.journal.last_act(agent.id) if agent.turn is not None else None
        return {"text": act.text, "since": timestamp(act.since)} if act is not None else None

    def _waiting_since(self, agent: Agent) -> float | None:
        return self._registry.store.waiting_since(agent.id) if agent.phase == Phase.QUEUED else None

    def _heard_at(self, agent: Agent) -> float | None:
        turn = agent.turn
        if agent.phase != Phase.RUNNING or turn is None:
            return None
        # The time a turn was frozen is no silence of the agent's.
        return max(turn.started_at, turn.thawed_at or 0.0, self._registry.journal.heard_at(agent.id))

    def _queue_reason(self, agent: Agent, now: float) -> str | None:
        if agent.phase != Phase.QUEUED:
            return None
        if (until := mail.asleep_until(self._registry, agent)) is not None:
            return f"messages alone have started its last turns, so it waits until {timestamp(until)} or for your prompt"
        if agent.retry_at is not None and agent.retry_at > now:
            return f"its last turn failed with something that passes, so it is tried again at {timestamp(agent.retry_at)}"
        return None


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
