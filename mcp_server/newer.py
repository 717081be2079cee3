"""Serves clients that speak the revision 2026-07-28 of MCP or later, through the official SDK. The only importer of `mcp`.

Importing it takes most of a second, so `host` does that when the first such client comes, and in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import pydantic_core
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from mcp_server import conversation, relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.abc import ObjectSendStream
    from mcp.server.context import ServerRequestContext

MAX_IN_FLIGHT = 64
"""How many requests of one connection are worked on at once; more wait unread."""

_LISTINGS = {
    has_tasks: types.ListToolsResult.model_validate_json(listing, by_name=False).tools
    for has_tasks, listing in conversation.LISTINGS.items()
}


async def serve(
    version: str,
    messages: list[relay.McpMessage],
    reply: relay.Reply,
    lines: AsyncIterator[bytes],
    send: Callable[[bytes], Awaitable[None]],
    call: conversation.ToolCall,
    pace: Callable[[], Awaitable[None]],
    has_tasks: Callable[[], bool],
) -> None:
    """Serve one connection until its lines end.

    Args:
        version: our version for `serverInfo`.
        messages: the messages of the first line, which has been read and not been worked on.
        reply: the answer to that line.
        lines: the companion's lines after it.
        send: sends a line back.
        call: performs a tool call.
        pace: waits until a batch's next message may be worked on.
        has_tasks: says whether the agent sees the tools for tasks.
    """

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_LISTINGS[has_tasks()])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text, is_error = await call(params.name, params.arguments, requests.id_of(context.request_id))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    server: Server[Any] = Server(
        "substrat",
        version=version,
        instructions=conversation.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.middleware.clear()  # its tracing has no reader here
    to_companion, from_server = anyio.create_memory_object_stream[SessionMessage](1)
    to_server, from_companion = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    requests = _Requests(send, to_server, pace)

    async def read() -> None:
        async with to_server:
            await requests.take(messages, reply)
            async for line in lines:
                await requests.take(*conversation.read(line))

    async def write() -> None:
        async with from_server:
            async for message in from_server:
                await requests.take_answer(message.message)

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        await server.run(from_companion, to_companion, server.create_initialization_options())
        group.cancel_scope.cancel()


class _Requests:
    """Sees to it that each request of a connection is answered exactly once, with its own id.

    The SDK leaves lines that it can't read unanswered, knows no batches, and mixes up requests under way with the same id;
    so it is given well-formed requests only, numbered by us.

    Args:
        send: sends a line to the client.
        to_server: where the SDK takes messages from.
        pace: waits until a batch's next message may be worked on.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        to_server: ObjectSendStream[SessionMessage | Exception],
        pace: Callable[[], Awaitable[None]],
    ) -> None:
        self._send = send
        self._to_server = to_server
        self._pace = pace
        self._sending = anyio.Lock()
        self._room = anyio.Semaphore(MAX_IN_FLIGHT)
        self._asked: dict[int, tuple[relay.McpMessage, relay.Reply]] = {}
        self._last = 0

    def id_of(self, number: object) -> str:
        """Return the client's id of a request that we have numbered, as text."""
        assert isinstance(number, int)
        return str(self._asked[number][0].body["id"])

    async def take(self, messages: list[relay.McpMessage], reply: relay.Reply) -> None:
        """Answer the malformed messages of a line with errors, and pass the others on."""
        for place, message in enumerate(messages):
            if place:
                await self._pace()
            refusal = conversation.refusal_of(message)
            if message.key is None:
                if refusal is None:
                    await self._notify(message)
            elif refusal is not None:
                await self._put(reply.put(message, relay.error(message.key, *refusal)))
            else:
                await self._ask(message, reply)

    async def _notify(self, message: relay.McpMessage) -> None:
        method, params = message.body.get("method"), message.body.get("params")
        # Answers have no method: the daemon asks clients nothing. Tools answer at once, so a cancellation comes too late;
        # MCP lets us ignore it, while the SDK would leave the request unanswered.
        if method is None or method == "notifications/cancelled" or isinstance(params, list):
            return
        notification = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
        await self._to_server.send(SessionMessage(types.JSONRPCNotification.model_validate(notification)))

    async def _ask(self, message: relay.McpMessage, reply: relay.Reply) -> None:
        await self._room.acquire()
        self._last += 1
        self._asked[self._last] = message, reply
        request = {"jsonrpc": "2.0", "id": self._last, "method": message.body["method"]}
        if message.body.get("params") is not None:
            request["params"] = message.body["params"]
        await self._to_server.send(SessionMessage(types.JSONRPCRequest.model_validate(request)))

    async def take_answer(self, answer: types.JSONRPCMessage) -> None:
        """Send the SDK's messages on: an answer under the client's own id, other messages as they are."""
        if not isinstance(answer, types.JSONRPCResponse | types.JSONRPCError):
            await self._put(answer.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            return
        assert isinstance(answer.id, int)
        message, reply = self._asked.pop(answer.id)
        self._room.release()
        assert message.key is not None
        if isinstance(answer, types.JSONRPCError):
            name, value = b"error", answer.error.model_dump_json(by_alias=True, exclude_unset=True).encode()
        else:
            name, value = b"result", pydantic_core.to_json(answer.result)
        text = b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (message.key, name, value)
        await self._put(reply.put(message, text))

    async def _put(self, line: bytes) -> None:
        if line:
            async with self._sending:
                await self._send(line)
