"""The methods that add up what agents used: one with its family, a page of agents, and by day, model or repository."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

import trio

from substrat.core.agents.reminding import moment
from substrat.core.agents.usage import Total, Used, together, total
from substrat.daemon.servers.methods.request import After, AgentName, Integer, OperatorRequest, about

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.core.agents.prices import Prices
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.store import Store

_USAGES = 256
"""Turns whose usage is added up at once: they are read and added in a millisecond or two."""
_MOST_AGENTS = 1000
"""Agents of a page: the answer is made in some tens of milliseconds, in slices."""


class By(StrEnum):
    """What `usage.sum` tells apart."""

    AGENT = "agent"
    DAY = "day"
    MODEL = "model"
    REPOSITORY = "repository"


class AgentUsage(OperatorRequest, frozen=True):
    """Adds up the tokens that an agent's turns used, and their list price.

    Only turns that ended with a result tell their usage.
    """

    method: ClassVar[str] = "agent.usage"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        (found,) = await _used(services, [services.requests.find(self.agent)])
        return found


class UsageList(OperatorRequest, frozen=True):
    """Adds up the tokens that agents' turns used, page by page, as `agent.usage` does for one.

    If a page has `limit` agents, ask for the next one with `after`, the id of its last agent, as with `agent.list`.
    """

    method: ClassVar[str] = "usage.list"

    after: After = None
    limit: Annotated[
        Integer,
        about(
            f"how many at most, from 1 to {_MOST_AGENTS}; default: {_MOST_AGENTS}; a number outside counts as the nearest"
        ),
    ] = _MOST_AGENTS

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agents = services.registry.page(self.after, max(1, min(_MOST_AGENTS, self.limit)))
        used = await _used(services, agents)
        return [{"agent": agent.id, "name": agent.name, **found} for agent, found in zip(agents, used, strict=True)]


class UsageSum(OperatorRequest, frozen=True):
    """Adds up the tokens of turns by agent, day, model or repository, and their list price.

    A day is one of the daemon's time zone, and a turn counts for the day of its start. Turns of removed agents are gone.
    """

    method: ClassVar[str] = "usage.sum"

    by: Annotated[By, about("what is told apart: `agent`, `day`, `model` or `repository`")]
    agents: Annotated[tuple[str, ...] | None, about("only these agents' turns, by name or id; default: all agents'")] = None
    since: Annotated[
        str | None,
        about("only turns that were started at this time or later, such as `2026-01-31T18:00:00Z`; default: all"),
    ] = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        registry, since = services.registry, moment(self.since) if self.since is not None else 0.0
        asked = {services.requests.find(name).id for name in self.agents} if self.agents is not None else None
        key_of, found = _keys(registry, self.by), dict[str, Total]()
        for after in range(0, registry.store.last_turn_row(), _USAGES):
            by_key: dict[str, list[Used]] = {}
            for used in registry.store.usages_since(since, after, _USAGES):
                if (asked is None or used.agent in asked) and (key := key_of(used)) is not None:
                    by_key.setdefault(key, []).append(used)
            for key, turns in by_key.items():
                found[key] = together([found.get(key, Total()), total(turns, registry.prices)])
            await trio.lowlevel.checkpoint()
        return [{"key": key, **one._asdict()} for key, one in sorted(found.items(), key=_order(self.by))]


def _keys(registry: Registry, by: By) -> Callable[[Used], str | None]:
    """Return the function that names what a turn's use counts for; None: its agent was removed meanwhile."""

    def key(used: Used) -> str | None:
        if (agent := registry.get(used.agent)) is None:
            return None
        match by:
            case By.DAY:
                return time.strftime("%Y-%m-%d", time.localtime(used.at))
            case By.MODEL:
                return used.model or "unknown"
            case By.REPOSITORY:
                return agent.clone.repository if agent.clone is not None else agent.workspace
            case By.AGENT:
                return agent.name

    return key


def _order(by: By) -> Callable[[tuple[str, Total]], tuple[float, str]]:
    """Return the key by which sums are sorted: days by their dates, all else the most expensive first."""

    def key(item: tuple[str, Total]) -> tuple[float, str]:
        return (0.0 if by is By.DAY else -(item[1].usd or 0.0), item[0])

    return key


async def _used(services: Services, agents: Sequence[Agent]) -> list[dict[str, object]]:
    """Return what agents and their families have used; the turns of each are read once."""
    registry = services.registry
    families = [registry.family(agent) for agent in agents]
    totals: dict[str, Total] = {}
    for member in (one for family in families for one in family):
        if member.id not in totals:
            totals[member.id] = await _total(registry.store, member, registry.prices)
    found: list[dict[str, object]] = []
    for family in families:
        whole = together(totals[one.id] for one in family) if len(family) > 1 else totals[family[0].id]
        found.append({**totals[family[0].id]._asdict(), "family": {"agents": len(family), **whole._asdict()}})
        await trio.lowlevel.checkpoint()
    return found


async def _total(store: Store, agent: Agent, table: Prices) -> Total:
    found, after = Total(), 0
    while True:
        page = store.usages(agent.id, after, _USAGES)
        await trio.lowlevel.checkpoint()
        if page:
            found, after = together([found, total(page, table)]), page[-1].number
        if len(page) < _USAGES:
            return found
