"""The methods of an agent's turns: their pages, and a command beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import (
    AgentName,
    Encoded,
    Integer,
    OperatorRequest,
    about,
)
from substrat.daemon.servers.objects import turn_object
from substrat.daemon.turns.exec_caller import ExecRequest

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection

_MAX_TURNS = 100
"""Turns in a page: with short results, a page that a client shows at once."""


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
