"""The blocking way in: one client with its configuration, and one-shot functions; conversations are in `session`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from substrat.cursor_api import options
from substrat.cursor_api.answer import Answer, open_source
from substrat.cursor_api.model import AgentConfig, AgentResult, OutputFormat
from substrat.cursor_api.run_record import RunRecord
from substrat.cursor_api.shell import BLOCKING, finish
from substrat.cursor_api.stream import StreamingResponse

if TYPE_CHECKING:
    import os
    from typing import Unpack

    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.shell import Shell


class ConfigFields(TypedDict, total=False):
    """The fields of `AgentConfig` as keyword arguments."""

    workspace: str | os.PathLike[str] | None
    model: str | None
    force_approve: bool
    approve_mcps: bool
    api_key: str | None
    headers: str | list[str] | tuple[str, ...] | dict[str, str]
    agent_binary: str
    sandboxed: bool


class ConfiguredClient:
    """Runs cursor-agent, a process a query (or an agent of the daemon a query, with `sandboxed`).

    Args:
        config: how it is run; the defaults when None. It isn't changed.
        fields: fields of `AgentConfig` that replace the configuration's.
    """

    def __init__(self, config: AgentConfig | None = None, **fields: Unpack[ConfigFields]) -> None:
        self.config = options.configuration(config, fields)

    def _answer(self, shell: Shell, asked: RunRequest, fields: ConfigFields) -> Answer:
        config = options.configuration(self.config, fields)
        return Answer(shell, lambda _: open_source(shell, config, asked), RunRecord(asked.session_id))


class CursorAgentClient(ConfiguredClient):
    """Runs cursor-agent, blocking; the arguments are those of `ConfiguredClient`."""

    def query(
        self,
        prompt: str,
        session_id: str | None = None,
        timeout: float | None = None,
        mode: str | None = None,
        *,
        output_format: OutputFormat | str = OutputFormat.JSON,
        resume: str | None = None,
        **fields: Unpack[ConfigFields],
    ) -> AgentResult:
        """Ask, and wait for the answer.

        Args:
            prompt: the prompt.
            session_id: the chat to continue.
            timeout: after how many seconds the run is stopped, which is a failure.
            mode: `plan` or `ask`.
            output_format: the output's format; only `STREAM_JSON` gives `events`, and `TEXT` no `session_id`.
            resume: the same as `session_id`.
            fields: fields of `AgentConfig` for this query alone.

        Returns:
            The answer, or the failure.

        Raises:
            AgentNotFound: there is no agent program.
        """
        asked = options.request(
            prompt, output_format=output_format, session_id=session_id, resume=resume, timeout=timeout, mode=mode
        )
        return finish(self._answer(BLOCKING, asked, fields).read(asked))

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
    ) -> StreamingResponse:
        """Ask, and return the answer's events as they come.

        A run that ends without a result gives an event of its own at the end: a `RESULT_ERROR` whose `data` has the
        reason as `error` and is marked as `synthetic`.

        Args:
            prompt: the prompt.
            session_id: the chat to continue.
            stream_partial: whether the answer comes in pieces, too.
            mode: `plan` or `ask`.
            timeout: after how many seconds the run is stopped, which is a failure.
            resume: the same as `session_id`.
            fields: fields of `AgentConfig` for this query alone.

        Raises:
            AgentNotFound: there is no agent program.
        """
        asked = options.request(
            prompt, session_id=session_id, resume=resume, timeout=timeout, mode=mode, stream_partial=stream_partial
        )
        return StreamingResponse(self._answer(BLOCKING, asked, fields))


def query(prompt: str, config: AgentConfig | None = None, **options: Any) -> AgentResult:
    """Ask once; see `CursorAgentClient.query`.

    Args:
        prompt: the prompt.
        config: how cursor-agent is run.
        options: those of `CursorAgentClient.query`, and fields of `AgentConfig`.
    """
    return CursorAgentClient(config).query(prompt, **options)


def query_stream(prompt: str, config: AgentConfig | None = None, **options: Any) -> StreamingResponse:
    """Ask once and return the answer's events as they come; see `CursorAgentClient.query_stream`.

    Args:
        prompt: the prompt.
        config: how cursor-agent is run.
        options: those of `CursorAgentClient.query_stream`, and fields of `AgentConfig`.
    """
    return CursorAgentClient(config).query_stream(prompt, **options)
