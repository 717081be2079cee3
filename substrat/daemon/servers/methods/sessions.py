"""The methods that read the chats that cursor-agent keeps for a workspace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.agents.prompts import timestamp
from substrat.core.programs.table import PROGRAMS, program_of
from substrat.daemon.kernel import nofollow
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import Encoded, Integer, OperatorRequest, about
from substrat.errors import InvalidParams, NotAvailable

if TYPE_CHECKING:
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class SessionList(OperatorRequest, frozen=True):
    """Lists the chats that cursor-agent keeps for a workspace, the newest first.

    There are at most 2000 of them, and at most 100 of agents whose first turn hasn't
    ended. Those chats are in the agents' own directories until then. Fails with
    `NotAvailable` when there are none and `agent.program` is another program.
    """

    method: ClassVar[str] = "session.list"
    waits: ClassVar[bool] = True

    workspace: Annotated[str, about("the absolute path of the directory")]

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        holders = {agent.session.id: agent.name for agent in services.registry.agents if agent.session is not None}
        found = await services.chats.list_all(await _physical(services.state.files, self.workspace))
        program = PROGRAMS[services.registry.config.agent.program]
        if not found and program.session_file is not None:
            raise NotAvailable(
                f"sessions of {program.name} can't be listed: `substratctl transcript NAME` shows the turns of an agent"
            )
        objects = (
            {
                "session": chat.session,
                "title": chat.title,
                "model": chat.model,
                "created_at": _created_at(chat.created_ms),
                "updated_at": timestamp(chat.updated_at),
                "size": chat.size,
                "agent": holders.get(chat.session),
                "damage": chat.damage,
            }
            for chat in found
        )
        return Encoded(await slices.encode_list([one] for one in objects))


class SessionRead(OperatorRequest, frozen=True):
    """Reads a page of a chat's messages."""

    method: ClassVar[str] = "session.read"
    waits: ClassVar[bool] = True

    workspace: Annotated[str, about("the absolute path of the directory")]
    session: Annotated[str, about("the chat's id")]
    after: Annotated[Integer, about("the number to read after; default: 0, the beginning")] = 0

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        session, after = self.session.lower(), max(0, self.after)
        for agent in services.registry.agents:
            program = program_of(agent)
            if program.session_file is not None and agent.session is not None and agent.session.id == session:
                raise NotAvailable(
                    f"sessions of {program.name} can't be read: `substratctl transcript {agent.name}` shows the turns"
                )
        head, messages = await services.chats.read(await _physical(services.state.files, self.workspace), session, after)
        return {
            "session": session,
            "title": head.title,
            "model": head.model,
            "created_at": _created_at(head.created_ms),
            "damage": head.damage,
            "messages": [{"role": message.role, "text": message.text, "calls": message.calls} for message in messages],
            "after": messages[-1].number if messages else after,
        }


def _created_at(milliseconds: int | None) -> str | None:
    return timestamp(milliseconds / 1000) if milliseconds is not None else None


async def _physical(files: Files, path: str) -> str:
    """Return a workspace's physical path, which cursor-agent files its chats under."""
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(f"{path!r} isn't an absolute path")
    try:
        return await files.run(path, nofollow.physical, path)
    except OSError as problem:
        raise InvalidParams(f"{path} can't be looked at: {problem.strerror}; give the directory itself") from None
