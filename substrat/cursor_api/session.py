"""A conversation: prompts that continue one chat, blocking; the chat itself is cursor-agent's to keep."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Generic, TypeVar

from substrat import errors
from substrat.cursor_api import options, sandboxed
from substrat.cursor_api.answer import Answer, open_source
from substrat.cursor_api.client import ConfigFields, ConfiguredClient, CursorAgentClient
from substrat.cursor_api.model import AgentConfig, AgentResult, OutputFormat
from substrat.cursor_api.run_record import RunRecord
from substrat.cursor_api.shell import BLOCKING, Shell, finish
from substrat.cursor_api.stream import StreamingResponse

if TYPE_CHECKING:
    from typing import ClassVar, Self, Unpack

    from substrat.cursor_api.answer import Response, Source
    from substrat.cursor_api.command import RunRequest

C = TypeVar("C", bound=ConfiguredClient)


class Conversation(Generic[C]):
    """The parts that the blocking and the Trio session share.

    Args:
        client: whose configuration counts, or that configuration itself.
        session_id: a chat to continue; cursor-agent silently begins an empty one if it doesn't know it.
        config: the configuration, if there is no client.
        fields: fields of `AgentConfig` that replace the configuration's.

    Raises:
        NotAvailable: a sandboxed conversation can't begin with a chat that isn't its agent's.
    """

    _shell: ClassVar[Shell]
    _client: ClassVar[type[ConfiguredClient]]

    def __init__(
        self,
        client: C | AgentConfig | None = None,
        session_id: str | None = None,
        *,
        config: AgentConfig | None = None,
        **fields: Unpack[ConfigFields],
    ) -> None:
        base = client if isinstance(client, AgentConfig) else getattr(client, "config", None)
        self._config = options.configuration(config if config is not None else base, fields)
        given = isinstance(client, self._client) and config is None and not fields
        self.client: C = client if given else self._client(self._config)  # type: ignore[assignment]
        self._session_id = session_id or None
        self._history: list[tuple[str, AgentResult]] = []
        self._recorded: weakref.WeakSet[Answer] = weakref.WeakSet()
        self._last: weakref.ref[Answer] | None = None
        self._sandbox_agent: sandboxed.SandboxAgent | None = None
        if self._config.sandboxed:
            sandboxed.check_session(session_id)
            self._sandbox_agent = sandboxed.SandboxAgent(self._config)
            weakref.finalize(self, _remove, self._sandbox_agent, os.getpid())

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

    def _answer(self, asked: RunRequest) -> Answer:
        async def opener(answer: Answer) -> Source:
            await self._check_free()
            self._last = weakref.ref(answer)
            request = asked._replace(session_id=self._resumed())
            try:
                return await open_source(self._shell, self._config, request, self._sandbox_agent)
            except BaseException:
                self._last = None  # it is no answer that others must wait for
                raise

        return Answer(self._shell, opener, RunRecord(self._resumed(), self._named))

    async def _send(self, prompt: str, asked: RunRequest) -> AgentResult:
        return self._record(prompt, await self._answer(asked).read(asked))

    async def _finalize(self, prompt: str, stream: Response) -> AgentResult:
        """Record a stream's outcome, once however often it is asked for."""
        await stream.answer.leave()
        if stream.answer in self._recorded:
            return stream.result
        self._recorded.add(stream.answer)
        return self._record(prompt, stream.result)

    async def _reset(self) -> None:
        await self._close()
        self._session_id = None
        self._history.clear()

    async def _close(self) -> None:
        last = self._last() if self._last is not None else None
        if last is not None:
            await last.leave()
        if self._sandbox_agent is not None:
            await self._sandbox_agent.remove(self._shell)

    async def _check_free(self) -> None:
        last = self._last() if self._last is not None else None
        if last is None or last.cancelled:
            return
        await last.settle()
        if not last.finished:
            raise errors.Refused(
                "the last answer is still being read: read it to its end, or cancel it, before the next prompt"
            )

    def _record(self, prompt: str, result: AgentResult) -> AgentResult:
        if result.session_id:
            self._session_id = result.session_id
        self._history.append((prompt, result))
        return result

    def _resumed(self) -> str | None:
        """Return the chat to name in a request; a sandboxed agent has its own."""
        return None if self._sandbox_agent is not None else self._session_id


class ConversationSession(Conversation[CursorAgentClient]):
    """A conversation with cursor-agent; the arguments are those of `Conversation`.

    A sandboxed one keeps one agent of the daemon for all prompts and removes it at `close`, so use it in a `with`
    statement; a direct one holds nothing between prompts.
    """

    _shell = BLOCKING
    _client = CursorAgentClient

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
        asked = options.request(prompt, output_format=output_format, timeout=timeout, mode=mode)
        return finish(self._send(prompt, asked))

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
        asked = options.request(prompt, timeout=timeout, mode=mode, stream_partial=stream_partial)
        return StreamingResponse(self._answer(asked))

    def finalize_stream(self, prompt: str, stream: StreamingResponse) -> AgentResult:
        """Record a prompt and its streamed answer; a stream that wasn't read to its end is stopped.

        Args:
            prompt: the prompt it answers.
            stream: the stream that `send_stream` returned.

        Returns:
            Its result; of a cancelled one, a failure with the words until then.
        """
        return finish(self._finalize(prompt, stream))

    def reset(self) -> None:
        """Begin anew: the next prompt starts another chat."""
        finish(self._reset())

    def close(self) -> None:
        """Stop an answer that is still under way and, of a sandboxed conversation, remove the agent."""
        finish(self._close())


def _remove(sandbox_agent: sandboxed.SandboxAgent, owner: int) -> None:
    # A forked child has a copy of the conversation, but not the agent.
    if os.getpid() == owner:
        sandbox_agent.abandon()
