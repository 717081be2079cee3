"""The methods of an agent's turns: their pages, their tokens, and a command beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import trio

from substrat.core.agents.usage import Total, together, total
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import (
    After,
    AgentName,
    Encoded,
    Integer,
    OperatorRequest,
    about,
)
from substrat.daemon.servers.objects import turn_object
from substrat.daemon.turns.exec_caller import ExecRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.store import Store

_MAX_TURNS = 100
"""Turns in a page: with short results, a page that a client shows at once."""
_USAGES = 256
"""Turns whose usage is added up at once: they are read and added in a millisecond or two."""
_MOST_AGENTS = 1000
"""Agents of a page: the answer is made in some tens of milliseconds, in slices."""


class AgentExec(OperatorRequest, frozen=True):
    """Runs a command in a sandbox like the agent's: it sees the files that the agent's next turn would see.

    A turn may be running meanwhile. The MCP server `substrat` of the sandbox's
    `.cursor/mcp.json` answers, turn or not, on a socket of the command's own: calls there
    are made in the agent's name and belong to no turn. It is refused while work lands in a directory where the agent can
    write.
    """

    method: ClassVar[str] = "agent.exec"
    waits: ClassVar[bool] = True

    agent: AgentName
    command: Annotated[tuple[str, ...], about("the program and its arguments, as seen from inside")]
    descriptors: Annotated[str, about("absolute path of a Unix stream socket that the client listens at")]
    terminal: Annotated[str | None, about("the value of `TERM` for a command on a terminal; default: it is on none")] = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        call = ExecRequest(self.command, self.descriptors, self.terminal)
        return {"exit_code": await services.exec_sessions.run(agent, call)}


class AgentTurns(OperatorRequest, frozen=True):
    """Reads a page of an agent's turns."""

    method: ClassVar[str] = "agent.turns"

    agent: AgentName
    after: Annotated[Integer, about("the number of the turn to read after; default: 0, the beginning")] = 0
    limit: Annotated[
        Integer,
        about(f"how many at most, from 1 to {_MAX_TURNS}; default: {_MAX_TURNS}; a number outside counts as the nearest"),
    ] = _MAX_TURNS

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        limit = max(1, min(_MAX_TURNS, self.limit))
        turns = services.registry.store.turns_after(agent.id, self.after, limit, slices.PAGE_BYTES)
        pieces = await slices.encode_list([turn_object(turn)] for turn in turns)
        return Encoded([b'{"turns":', *pieces, b',"after":%d}' % (turns[-1].number if turns else self.after)])


class AgentUsage(OperatorRequest, frozen=True):
    """Adds up the tokens that an agent's turns used.

    Only turns that ended with a result tell their usage.
    """

    method: ClassVar[str] = "agent.usage"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        (found,) = await _used(services.registry, [services.requests.find(self.agent)])
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
        used = await _used(services.registry, agents)
        return [{"agent": agent.id, "name": agent.name, **found} for agent, found in zip(agents, used, strict=True)]


async def _used(registry: Registry, agents: Sequence[Agent]) -> list[dict[str, object]]:
    """Return what agents and their families have used; the turns of each are read once."""
    families = [registry.family(agent) for agent in agents]
    totals: dict[str, Total] = {}
    for member in (one for family in families for one in family):
        if member.id not in totals:
            totals[member.id] = await _total(registry.store, member)
    found: list[dict[str, object]] = []
    for family in families:
        whole = together(totals[one.id] for one in family) if len(family) > 1 else totals[family[0].id]
        found.append({**totals[family[0].id]._asdict(), "family": {"agents": len(family), **whole._asdict()}})
        await trio.lowlevel.checkpoint()
    return found


async def _total(store: Store, agent: Agent) -> Total:
    found, after = Total(0, {}), 0
    while True:
        page = store.usages(agent.id, after, _USAGES)
        await trio.lowlevel.checkpoint()
        if page:
            found, after = together([found, total(usage for _, usage in page)]), page[-1][0]
        if len(page) < _USAGES:
            return found
