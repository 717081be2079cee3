"""The same for Trio programs: a client, conversations and one-shot functions that never block the loop.

No task is started: a query is read by the task that asks for it, and ends with its block. asyncio programs can't use it.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

import trio

from substrat import errors
from substrat.cursor_api import options
from substrat.cursor_api.aio_stream import AsyncStreamingResponse, apart, open_source, remove_quietly
from substrat.cursor_api.client import ConfigFields, without_events
from substrat.cursor_api.model import AgentConfig, AgentResult, OutputFormat
from substrat.cursor_api.run_record import RunRecord
from substrat.cursor_api.session import Conversation

if TYPE_CHECKING:
    from typing import Self, Unpack

    from substrat.cursor_api.aio_stream import AsyncSource
    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.sandboxed import SandboxAgent

__all__ = ["AsyncConversationSession", "AsyncCursorAgentClient", "AsyncStreamingResponse", "query", "query_stream"]


class AsyncCursorAgentClient:
    """Runs cursor-agent, a process a query (or an agent of the daemon a query, with `sandboxed`).

    Args:
        config: how it is run; the defaults when None. It isn't changed.
        fields: fields of `AgentConfig` that replace the configuration's.
    """

    def __init__(self, config: AgentConfig | None = None, **fields: Unpack[ConfigFields]) -> None:
        self.config = options.configuration(config, fields)

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
        return await _ask(_stream(options.configuration(self.config, fields), asked), asked)

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
        return _stream(options.configuration(self.config, fields), asked)


class AsyncConversationSession(Conversation):
    """A conversation with cursor-agent; the arguments are those of `ConversationSession`.

    A sandboxed one keeps one agent of the daemon for all prompts: use it in `async with`, which removes the agent.
    """

    def __init__(
        self,
        client: AsyncCursorAgentClient | AgentConfig | None = None,
        session_id: str | None = None,
        *,
        config: AgentConfig | None = None,
        **fields: Unpack[ConfigFields],
    ) -> None:
        super().__init__(client, session_id, config=config, **fields)
        given = isinstance(client, AsyncCursorAgentClient) and config is None and not fields
        self.client = client if given else AsyncCursorAgentClient(self._config)
        self._stream: weakref.ref[AsyncStreamingResponse] | None = None
        if self._sandbox_agent is not None:
            weakref.finalize(self, _remove, self._sandbox_agent, os.getpid())

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
        return self._record(prompt, await _ask(self._open(asked), asked))

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
        return self._open(options.request(prompt, timeout=timeout, mode=mode, stream_partial=stream_partial))

    async def finalize_stream(self, prompt: str, stream: AsyncStreamingResponse) -> AgentResult:
        """Record a prompt and its streamed answer; a stream that wasn't read to its end is stopped."""
        await stream.settle()
        await stream.aclose()
        return self._record_stream(prompt, stream)

    async def reset(self) -> None:
        """Begin anew: the next prompt starts another chat."""
        await self.aclose()
        self._session_id = None
        self._history.clear()

    async def aclose(self) -> None:
        """Stop an answer that is still under way and, of a sandboxed conversation, remove the agent."""
        stream = self._stream() if self._stream is not None else None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
            if stream is not None:
                await stream.aclose()
            if self._sandbox_agent is not None and self._sandbox_agent.agent is not None:
                await apart(self._sandbox_agent.socket, self._sandbox_agent.remove())

    def _open(self, asked: RunRequest) -> AsyncStreamingResponse:
        async def opener() -> AsyncSource:
            await self._check_free()
            self._stream = weakref.ref(stream)
            return await open_source(self._config, asked._replace(session_id=self._resumed()), self._sandbox_agent)

        stream = AsyncStreamingResponse(opener, RunRecord(self._resumed(), self._named))
        return stream

    async def _check_free(self) -> None:
        last = self._stream() if self._stream is not None else None
        if last is None or last.cancelled:
            return
        await last.settle()
        if not last.finished:
            raise errors.Refused("the last answer is still being read: read it to its end, or cancel it, before the next")


async def query(prompt: str, config: AgentConfig | None = None, **options: Any) -> AgentResult:
    """Ask once; the arguments are those of `AsyncCursorAgentClient.query` and the fields of `AgentConfig`."""
    return await AsyncCursorAgentClient(config).query(prompt, **options)


def query_stream(prompt: str, config: AgentConfig | None = None, **options: Any) -> AsyncStreamingResponse:
    """Return the answer's events as they come; see `AsyncCursorAgentClient.query_stream`."""
    return AsyncCursorAgentClient(config).query_stream(prompt, **options)


def _stream(config: AgentConfig, asked: RunRequest) -> AsyncStreamingResponse:
    return AsyncStreamingResponse(lambda: open_source(config, asked), RunRecord(asked.session_id))


async def _ask(stream: AsyncStreamingResponse, asked: RunRequest) -> AgentResult:
    async with stream:
        async for _ in stream:
            pass
    return without_events(stream.result, asked)


def _remove(sandbox_agent: SandboxAgent, owner: int) -> None:
    if os.getpid() == owner and sandbox_agent.agent is not None:
        remove_quietly(sandbox_agent.socket, sandbox_agent.remove())
