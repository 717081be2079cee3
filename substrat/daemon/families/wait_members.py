"""Finds the agents that an agent may wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.lifecycle import Phase
from substrat.daemon.families.agent_lists import unknown
from substrat.errors import InvalidParams, LimitReached, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.errors import SubstratError

MOST_MEMBERS = 1000
"""Agents in one wait: more than a family may have, and a list that is still looked through in a millisecond."""


def members_of(registry: Registry, agent: Agent, names: Sequence[str] | None) -> tuple[list[Agent], list[SubstratError]]:
    """Return the agents that an agent is to wait for, and why each of the others can't be waited for.

    Args:
        registry: the agents.
        agent: the agent that waits.
        names: the others; None: its children.

    Raises:
        NotFound: no such agent.
        Refused: it would wait for itself or an ancestor alone, or has no children.
        InvalidParams: no agent is named.
        LimitReached: too many are.
    """
    problems: list[SubstratError] = []
    if names is None:
        children = registry.children(agent.id)
        told = set(registry.store.reports_waiting(agent.id, [one.id for one in children]).values()) if children else set()
        members = [one for one in map(registry.find, (child.id for child in children)) if one.phase != Phase.ENDED
                   or one.id in told]  # fmt: skip
        if not members:
            raise Refused(f"{agent.name} has no children to wait for: name the agents, or spawn some first")
    else:
        members = []
        for name in dict.fromkeys(names):
            try:
                members.append(_named(registry, agent, name))
            except (NotFound, Refused) as problem:
                problems.append(problem)
        if problems and not members:
            raise problems[0]
        if not members:
            raise InvalidParams("names is empty: name the agents to wait for, or leave it out for all your children")
    if len(members) > MOST_MEMBERS:
        raise LimitReached(f"one wait can be for {MOST_MEMBERS} agents: name fewer")
    return members, problems


def _named(registry: Registry, agent: Agent, name: str) -> Agent:
    try:
        found = registry.find(name)
    except NotFound:
        raise unknown(registry, agent, name) from None
    if found.id == agent.id:
        raise Refused(f"{name} can't wait for itself: name other agents")
    if found.id in registry.lineage(agent):
        raise Refused(
            f"{name} can't be waited for, because {agent.name} descends from it and it may wait for {agent.name}: "
            "finish your turn; a message from it starts the next"
        )
    if registry.root_of(found).id != registry.root_of(agent).id:
        raise Refused(f"{name} isn't of {agent.name}'s family: name descendants, or siblings and theirs")
    return found
