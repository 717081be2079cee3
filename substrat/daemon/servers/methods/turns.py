"""The methods of an agent's turns: their pages, their tokens, and a command beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import trio

from substrat.core.agents.usage import Total, together, total
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import AgentName, Encoded, Integer, OperatorRequest, about
from substrat.daemon.servers.objects import turn_object
from substrat.daemon.turns.exec_caller import ExecRequest

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.store import Store

_MAX_TURNS = 100
"""Turns in a page: with short results, a page that a client shows at once."""
_USAGES = 256
"""Turns whose usage is added up at once: they are read and added in a millisecond or two."""


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

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        turns = services.registry.store.turns_after(agent.id, self.after, _MAX_TURNS, slices.PAGE_BYTES)
        pieces = await slices.encode_list([turn_object(turn)] for turn in turns)
        return Encoded([b'{"turns":', *pieces, b',"after":%d}' % (turns[-1].number if turns else self.after)])


class AgentUsage(OperatorRequest, frozen=True):
    """Adds up the tokens that an agent's turns used.

    Only turns that ended with a result tell their usage.
    """

    method: ClassVar[str] = "agent.usage"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        registry = services.registry
        members = registry.family(services.requests.find(self.agent))
        totals = [await _total(registry.store, member) for member in members]
        return {**totals[0]._asdict(), "family": {"agents": len(members), **together(totals)._asdict()}}


async def _total(store: Store, agent: Agent) -> Total:
    found, after = Total(0, {}), 0
    while page := store.usages(agent.id, after, _USAGES):
        found, after = together([found, total(usage for _, usage in page)]), page[-1][0]
        await trio.lowlevel.checkpoint()
    return found
