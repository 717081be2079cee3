"""Speaks MCP with one companion through the official SDK; what the tools do is passed in. The only importer of `mcp`.

Importing it takes most of a second, so the daemon does that late and in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mcp_server import tools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mcp.server.context import ServerRequestContext

INSTRUCTIONS = (
    "Substrat connects you to the other agents on this machine. Every call returns at once; replies and results "
    "arrive as your next turn."
)

MAX_IN_FLIGHT = 64
"""How many requests of one connection are worked on at once; more wait unread."""

TOOLS = [
    types.Tool(name=tools.name_of(tool), description=tools.description_of(tool), input_schema=tools.schema_of(tool))
    for tool in tools.TOOLS
]


async def serve(
    version: str,
    lines: AsyncIterator[bytes],
    send: Callable[[bytes], Awaitable[None]],
    call: Callable[[str, dict[str, Any] | None, str], tuple[str, bool]],
) -> None:
    """Serve one connection until its lines end.

    Args:
        version: what to call ourselves.
        lines: what the companion sends, a message each.
        send: sends a line back.
        call: performs a tool call from its name, its arguments and its request id; returns the text of the answer and
            whether it is an error. It must not raise.
    """

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text, is_error = call(params.name, params.arguments, str(context.request_id))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    server: Server[Any] = Server(
        "substrat", version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )
    server.middleware.clear()  # tracing that nobody here reads
    room = anyio.Semaphore(MAX_IN_FLIGHT)
    to_server, from_companion = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    to_companion, from_server = anyio.create_memory_object_stream[SessionMessage](1)

    async def read() -> None:
        async with to_server:
            async for line in lines:
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError as problem:
                    await to_server.send(problem)
                else:
                    if isinstance(message, types.JSONRPCRequest):
                        await room.acquire()
                    await to_server.send(SessionMessage(message))

    async def write() -> None:
        async with from_server:
            async for message in from_server:
                await send(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                if isinstance(message.message, types.JSONRPCResponse | types.JSONRPCError):
                    room.release()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        await server.run(from_companion, to_companion, server.create_initialization_options())
        group.cancel_scope.cancel()
