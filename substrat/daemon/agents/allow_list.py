"""Changes the allow-lists of agents' `filtered` networks while they run; `network.connections` applies them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.netfilter.names import AllowList
from substrat.core.workspaces import overlap
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import PolicyDenied, Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.core.agents.rights import Policy
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.network.filtered import Networks


class AllowLists:
    """Changes agents' allow-lists."""

    def __init__(self, registry: Registry, networks: Networks) -> None:
        self._registry = registry
        self.networks = networks

    def change(self, name: str, add: tuple[str, ...], remove: tuple[str, ...]) -> Agent:
        """Put patterns on an agent's list and take others off; its running sandboxes obey at once.

        Its descendants lose the same patterns, because they never have more than it.

        Args:
            name: the agent's name or id.
            add: patterns as people write them.
            remove: the same; each must be on the list.

        Raises:
            InvalidParams: a pattern is none, or can't be taken off.
            PolicyDenied: the agent's parent hasn't got the pattern itself, or another agent that has less can write the
                agent's rules.
            Refused: the agent has another network, or has ended.
        """
        agent = self._registry.find(name)
        if agent.policy.network is not Network.FILTERED:
            raise Refused(f"{agent.name} has the network {agent.policy.network.value!r}, which has no list to change")
        if agent.phase == Phase.ENDED:
            raise Refused(f"{agent.name} has ended: spawn another agent with what it needs")
        wanted = AllowList.of(agent.policy.allow).changed(add, remove)
        policy = replace(agent.policy, allow=wanted.texts)
        parent = self._registry.get(agent.parent)
        if parent is not None and not self._registry.most_of_child(parent, agent.settings.program).allows(policy):
            raise PolicyDenied(
                f"{agent.name} can't have more than its parent {parent.name}: `substratctl allow {parent.name} …` first"
            )
        notes = self.check_shared(agent, policy)
        with self._registry.change("allow-list changed") as change:
            self._set(change, agent, wanted)
            for note in notes:
                change.record(DaemonEvent(agent.id, None, "workspace:shared", note))
        return self._registry.find(agent.id)

    def check_shared(self, agent: Agent, policy: Policy) -> tuple[str, ...]:
        """Find out whether an agent may have a list in the directories that it shares, and return the notes on it.

        Less than it has it may always have; a turn of another agent that would take its files for rules doesn't start then.
        """
        index, is_more = self._registry.index, not agent.policy.allows(policy)
        claim = index.claim(replace(agent, policy=policy))
        # Descendants lose the same, so they differ from it no more than before.
        without = [agent.id] if is_more else [member.id for member in self._registry.family(agent)]
        others = index.claims.beside(claim, *without)
        before = {found.other.name for found in overlap.overlaps(index.claim(agent), others) if found.is_mixed}
        shared = overlap.overlaps(claim, others)
        if is_more:
            refused = overlap.refusal(claim, others)
            if refused is None and not self._registry.config.sandbox.shared_networks:
                refused = overlap.refusal_of_mixed(claim, shared)
            if refused is not None:
                raise PolicyDenied(refused)
        return tuple(overlap.notes(found for found in shared if found.is_mixed and found.other.name not in before))

    def _set(self, change: Change, agent: Agent, wanted: AllowList) -> None:
        """Give an agent a list and hold its descendants to it."""
        before = AllowList.of(agent.policy.allow)
        if wanted == before:
            return
        after = change.put(replace(agent, policy=replace(agent.policy, allow=wanted.texts)))
        more = [f"+{text}" for text in wanted.texts if text not in before.texts]
        less = [f"-{text}" for text in before.texts if text not in wanted.texts]
        change.record(DaemonEvent(agent.id, None, "network:changed", " ".join((*more, *less))))
        change.after(partial(self.networks.allow, agent.id, wanted.texts))
        for child in self._registry.children(agent.id):
            if child.policy.network is Network.FILTERED:
                most = self._registry.most_of_child(after, child.settings.program)
                self._set(change, child, AllowList.of(child.policy.within(most).allow))
