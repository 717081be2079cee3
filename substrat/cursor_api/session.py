"""A conversation: prompts that continue one chat, blocking; the chat itself is cursor-agent's to keep."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from substrat import errors
from substrat.cursor_api import options, sandboxed
from substrat.cursor_api.client import ConfigFields, CursorAgentClient, ask
from substrat.cursor_api.model import AgentConfig, AgentResult, OutputFormat
from substrat.cursor_api.stream import StreamingResponse, on_connection, open_stream

if TYPE_CHECKING:
    from typing import Self, Unpack


class Conversation:
    """The memory of a conversation, for the blocking and the Trio session.

    Args:
        client: whose configuration counts, or that configuration.
        session_id: a chat to continue.
        config: the configuration, if there is no client.
        fields: fields of `AgentConfig` that replace the configuration's.

    Raises:
        NotAvailable: a sandboxed conversation can't begin with a chat of somebody else's.
    """

    def __init__(
        self,
        client: Any = None,
        session_id: str | None = None,
        *,
        config: AgentConfig | None = None,
        **fields: Unpack[ConfigFields],
    ) -> None:
        base = client if isinstance(client, AgentConfig) else getattr(client, "config", None)
        self._config = options.configuration(config if config is not None else base, fields)
        self._session_id = session_id or None
        self._history: list[tuple[str, AgentResult]] = []
        self._recorded: weakref.WeakSet[object] = weakref.WeakSet()
        self._sandbox_agent: sandboxed.SandboxAgent | None = None
        if self._config.sandboxed:
            sandboxed.check_session(session_id)
            self._sandbox_agent = sandboxed.SandboxAgent(self._config)

    @property
    def session_id(self) -> str | None:
        """The chat, None until the agent has named it."""
        return self._session_id

    @property
    def history(self) -> list[tuple[str, AgentResult]]:
        """The prompts and their results, oldest first."""
        return list(self._history)

    def _named(self, session_id: str) -> None:
        self._session_id = session_id

    def _record(self, prompt: str, result: AgentResult) -> AgentResult:
        if result.session_id:
            self._session_id = result.session_id
        self._history.append((prompt, result))
        return result

    def _record_stream(self, prompt: str, stream: Any) -> AgentResult:
        """Record a stream's outcome, once however often it is asked for."""
        result: AgentResult = stream.result
        if stream in self._recorded:
            return result
        self._recorded.add(stream)
        return self._record(prompt, result)

    def _resumed(self) -> str | None:
        """Return the chat to name in a request; a sandboxed agent has its own."""
        return None if self._sandbox_agent is not None else self._session_id


class ConversationSession(Conversation):
    """A conversation with cursor-agent.

    A sandboxed one keeps one agent of the daemon for all prompts and removes it at `close`, so use it in a `with`
    statement; a direct one holds nothing between prompts.

    Args:
        client: whose configuration counts, or that configuration itself.
        session_id: a chat to continue; cursor-agent silently begins an empty one if it doesn't know it.
        config: the configuration, if there is no client.
        fields: fields of `AgentConfig` that replace the configuration's.
    """

    def __init__(
        self,
        client: CursorAgentClient | AgentConfig | None = None,
        session_id: str | None = None,
        *,
        config: AgentConfig | None = None,
        **fields: Unpack[ConfigFields],
    ) -> None:
        super().__init__(client, session_id, config=config, **fields)
        given = isinstance(client, CursorAgentClient) and config is None and not fields
        self.client = client if given and isinstance(client, CursorAgentClient) else CursorAgentClient(self._config)
        self._stream: weakref.ref[StreamingResponse] | None = None
        if self._sandbox_agent is not None:
            weakref.finalize(self, _remove, self._sandbox_agent, os.getpid())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        prompt: str,
        timeout: float | None = None,
        mode: str | None = None,
        *,
        output_format: OutputFormat | str = OutputFormat.JSON,
    ) -> AgentResult:
        """Send a prompt, wait for the answer and record both.

        Args:
            prompt: the prompt.
            timeout: after how many seconds the run is stopped, which is a failure.
            mode: `plan` or `ask`.
            output_format: as for `CursorAgentClient.query`; `TEXT` doesn't name the chat, so don't begin with it.

        Raises:
            Refused: the last answer is still being read.
        """
        self._check_free()
        asked = options.request(prompt, output_format=output_format, session_id=self._resumed(), timeout=timeout, mode=mode)
        stream = open_stream(self._config, asked, self._sandbox_agent, self._named)
        return self._record(prompt, ask(stream, asked))

    def send_stream(
        self,
        prompt: str,
        stream_partial: bool = True,
        mode: str | None = None,
        *,
        timeout: float | None = None,
    ) -> StreamingResponse:
        """Send a prompt and return the answer's events as they come; `finalize_stream` records them.

        Args:
            prompt: the prompt.
            stream_partial: whether the answer comes in pieces, too.
            mode: `plan` or `ask`.
            timeout: after how many seconds the run is stopped, which is a failure.

        Raises:
            Refused: the last answer is still being read.
        """
        self._check_free()
        asked = options.request(
            prompt, session_id=self._resumed(), timeout=timeout, mode=mode, stream_partial=stream_partial
        )
        stream = open_stream(self._config, asked, self._sandbox_agent, self._named)
        self._stream = weakref.ref(stream)
        return stream

    def finalize_stream(self, prompt: str, stream: StreamingResponse) -> AgentResult:
        """Record a prompt and its streamed answer; a stream that wasn't read to its end is stopped.

        Args:
            prompt: the prompt it answers.
            stream: the stream that `send_stream` returned.

        Returns:
            Its result; of a cancelled one, a failure with the words until then.
        """
        stream.settle()
        stream.close()
        return self._record_stream(prompt, stream)

    def reset(self) -> None:
        """Begin anew: the next prompt starts another chat."""
        self.close()
        self._session_id = None
        self._history.clear()

    def close(self) -> None:
        """Stop an answer that is still under way and, of a sandboxed conversation, remove the agent."""
        stream = self._stream() if self._stream is not None else None
        if stream is not None:
            stream.settle()
            stream.close()
        if self._sandbox_agent is not None and self._sandbox_agent.agent is not None:
            on_connection(self._sandbox_agent.socket, self._sandbox_agent.remove())

    def _check_free(self) -> None:
        stream = self._stream() if self._stream is not None else None
        if stream is None or stream.cancelled:
            return
        stream.settle()
        if not stream.finished:
            raise errors.Refused(
                "the last answer is still being read: read it to its end, or cancel it, before the next prompt"
            )


def _remove(sandbox_agent: sandboxed.SandboxAgent, owner: int) -> None:
    if os.getpid() == owner and sandbox_agent.agent is not None:
        try:
            on_connection(sandbox_agent.socket, sandbox_agent.remove())
        except errors.SubstratError:
            return
