"""The API for Trio programs: a client, conversations and one-shot functions that never block the loop.

No task is started: a query is read by the task that asks for it, and ends with its block. asyncio programs can't use it.
"""

from __future__ import annotations

import signal as signals
from typing import TYPE_CHECKING, Any

import trio

from substrat import __version__
from substrat.client.events import TaskConnection
from substrat.client.unix_socket import open_stream
from substrat.cursor_api import options
from substrat.cursor_api.answer import Response
from substrat.cursor_api.client import ConfigFields, ConfiguredClient
from substrat.cursor_api.model import AgentConfig, AgentResult, OutputFormat
from substrat.cursor_api.session import Conversation
from substrat.cursor_api.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType
    from typing import Self, Unpack

    from substrat.cursor_api.model import AgentEvent

__all__ = ["AsyncConversationSession", "AsyncCursorAgentClient", "AsyncStreamingResponse", "query", "query_stream"]

_CLOSING_S = 20.0
"""How long the uncancellable end of a run may take: the daemon climbs from SIGINT to SIGKILL in ten seconds."""


class _OnTrio(Shell):
    """Waits as a Trio task."""

    async def readable(self, descriptor: int, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await trio.lowlevel.wait_readable(descriptor)

    async def connect(self, path: str) -> TaskConnection:
        return TaskConnection(await open_stream(path), f"substrat.cursor_api {__version__}", path)

    async def shielded(self, closing: Awaitable[None]) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING_S):
            await closing


_ON_TRIO = _OnTrio()


class AsyncStreamingResponse(Response):
    """An answer under way: `async for` over it, inside `async with` for it to be stopped when the block is left.

    The run starts with the block or, without one, with the first event that is asked for. A cancellation inside it stops
    the process before it goes on.
    """

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        await self.answer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.answer.leave(problem)  # noqa: ASYNC102 - it shields itself

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        try:
            await trio.lowlevel.checkpoint()
            event = await self.answer.next()
        except trio.Cancelled:
            await self.aclose()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop the answer; returns when its process is gone.

        Args:
            signal: the first signal to the process and everything under it; SIGKILL follows if that isn't enough.
        """
        await self.answer.cancel(int(signal))

    async def settle(self) -> None:
        """Let a run whose result was received come to its end by itself; otherwise do nothing."""
        await self.answer.settle()

    async def aclose(self) -> None:
        """Stop the run if it goes on, and close the stream's descriptors; can't be cancelled, and takes a bounded time."""
        await self.answer.close()


class AsyncCursorAgentClient(ConfiguredClient):
    """Runs cursor-agent for Trio tasks; the arguments are those of `ConfiguredClient`."""

    async def query(
        self,
        prompt: str,
        session_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the blocking twin's, and its end is a result, not an exception
        mode: str | None = None,
        *,
        output_format: OutputFormat | str = OutputFormat.JSON,
        resume: str | None = None,
        **fields: Unpack[ConfigFields],
    ) -> AgentResult:
        """Ask, and wait for the answer; the arguments are those of `CursorAgentClient.query`.

        Raises:
            AgentNotFound: there is no agent program.
        """
        asked = options.request(
            prompt, output_format=output_format, session_id=session_id, resume=resume, timeout=timeout, mode=mode
        )
        return await self._answer(_ON_TRIO, asked, fields).read(asked)

    def query_stream(
        self,
        prompt: str,
        session_id: str | None = None,
        stream_partial: bool = True,
        mode: str | None = None,
        *,
        timeout: float | None = None,
        resume: str | None = None,
        **fields: Unpack[ConfigFields],
    ) -> AsyncStreamingResponse:
        """Return the answer's events as they come; the arguments are those of `CursorAgentClient.query_stream`.

        The run starts with the stream's block or first event, which is also when a missing program is noticed.
        """
        asked = options.request(
            prompt, session_id=session_id, resume=resume, timeout=timeout, mode=mode, stream_partial=stream_partial
        )
        return AsyncStreamingResponse(self._answer(_ON_TRIO, asked, fields))


class AsyncConversationSession(Conversation[AsyncCursorAgentClient]):
    """A conversation with cursor-agent; the arguments are those of `Conversation`.

    A sandboxed one keeps one agent of the daemon for all prompts: use it in `async with`, which removes the agent.
    """

    _shell = _ON_TRIO
    _client = AsyncCursorAgentClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def send(
        self,
        prompt: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the blocking twin's, and its end is a result, not an exception
        mode: str | None = None,
        *,
        output_format: OutputFormat | str = OutputFormat.JSON,
    ) -> AgentResult:
        """Send a prompt, wait for the answer and record both.

        Raises:
            Refused: the last answer is still being read.
        """
        asked = options.request(prompt, output_format=output_format, timeout=timeout, mode=mode)
        return await self._send(prompt, asked)

    def send_stream(
        self,
        prompt: str,
        stream_partial: bool = True,
        mode: str | None = None,
        *,
        timeout: float | None = None,
    ) -> AsyncStreamingResponse:
        """Send a prompt and return the answer's events as they come; `finalize_stream` records them.

        The prompt is sent, or `Refused` is raised because the last answer is still being read, when the stream starts.
        """
        asked = options.request(prompt, timeout=timeout, mode=mode, stream_partial=stream_partial)
        return AsyncStreamingResponse(self._answer(asked))

    async def finalize_stream(self, prompt: str, stream: AsyncStreamingResponse) -> AgentResult:
        """Record a prompt and its streamed answer; a stream that wasn't read to its end is stopped."""
        return await self._finalize(prompt, stream)

    async def reset(self) -> None:
        """Begin anew: the next prompt starts another chat."""
        await self._reset()

    async def aclose(self) -> None:
        """Stop an answer that is still under way and, of a sandboxed conversation, remove the agent."""
        await self._shell.shielded(self._close())


async def query(prompt: str, config: AgentConfig | None = None, **options: Any) -> AgentResult:
    """Ask once; the arguments are those of `AsyncCursorAgentClient.query` and the fields of `AgentConfig`."""
    return await AsyncCursorAgentClient(config).query(prompt, **options)


def query_stream(prompt: str, config: AgentConfig | None = None, **options: Any) -> AsyncStreamingResponse:
    """Return the answer's events as they come; see `AsyncCursorAgentClient.query_stream`."""
    return AsyncCursorAgentClient(config).query_stream(prompt, **options)
