"""Serves one companion's connection: takes its lines, sends the answers, and calls the given tools."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import trio

from mcp_server import conversation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import ModuleType


async def import_newer() -> ModuleType:
    """Import `mcp_server.newer`, which takes most of a second, in a thread."""
    return await trio.to_thread.run_sync(importlib.import_module, "mcp_server.newer")


async def serve(
    version: str,
    lines: AsyncIterator[bytes],
    send: Callable[[bytes], Awaitable[None]],
    call: conversation.ToolCall,
    pace: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    newer: Callable[[], Awaitable[ModuleType]] = import_newer,
    *,
    has_tasks: Callable[[], bool],
) -> None:
    """Serve one connection until its lines end.

    One message is worked on at a time, and the next is read when its answer is sent: who reads no answers gets no further.

    Args:
        version: our version for `serverInfo`.
        lines: the companion's lines, a message each.
        send: sends a line back.
        call: performs a tool call.
        pace: waits until a batch's next message may be worked on.
        newer: imports `mcp_server.newer`, for a client that needs it.
        has_tasks: says whether the agent sees the tools for tasks.
    """
    talk = conversation.McpConversation(version, call, has_tasks)
    async for line in lines:
        messages, reply = conversation.read(line)
        for place, message in enumerate(messages):
            if place:
                await pace()
            if talk.opens_newer(message):
                module = await newer()
                await module.serve(version, messages[place:], reply, lines, send, call, pace, has_tasks)
                return
            answer = await talk.take(message)
            if answer and (said := reply.put(message, answer)):
                await send(said)
