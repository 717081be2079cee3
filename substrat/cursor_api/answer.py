"""One answer under way, for the blocking and the Trio stream: started, read, cancelled, settled, closed."""

from __future__ import annotations

import dataclasses
import os
import weakref
from typing import TYPE_CHECKING

from substrat import errors
from substrat.cursor_api import sandboxed
from substrat.cursor_api.model import OutputFormat

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable

    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.direct import Direct
    from substrat.cursor_api.model import AgentConfig, AgentEvent, AgentResult
    from substrat.cursor_api.run_record import RunRecord
    from substrat.cursor_api.shell import Shell

    Source = Direct | sandboxed.Sandboxed


class Answer:
    """The events of one run. One that is merely dropped is stopped when it is collected.

    Args:
        shell: how its steps wait.
        opener: starts the run.
        record: takes note of the events.
    """

    def __init__(self, shell: Shell, opener: Callable[[Answer], Awaitable[Source]], record: RunRecord) -> None:
        self._shell = shell
        self._opener: Callable[[Answer], Awaitable[Source]] | None = opener
        self.record = record
        self.source: Source | None = None
        self.cancelled = False
        self.finished = False

    async def start(self) -> Source:
        """Start the run, once."""
        if self.source is None:
            opener, self._opener = self._opener, None
            if opener is None:
                raise errors.Refused("this answer could not be started: ask again")
            self.source = await opener(self)
            self.finalizer = weakref.finalize(self, _abandon, self.source, os.getpid())
        return self.source

    async def next(self) -> AgentEvent | None:
        """Wait for the next event; None when there are no more."""
        if self.finished:
            return None
        source = await self.start()
        try:
            event = await source.next()
        except errors.ConnectionLost:
            if not self.finished:
                raise
            event = None
        if self.cancelled or self.finished:
            await self.close()
            return None
        if event is not None:
            return self.record.add(event)
        await self.close()
        return source.conclude(self.record)

    async def cancel(self, number: int) -> None:
        """Stop the run, beginning with a signal; returns when its process is gone."""
        due = not self.cancelled and not self.finished
        self.cancelled = True
        if due:
            self.record.cancel()
            if self.source is not None:
                await self._shell.shielded(self.source.cancel(number))

    async def settle(self) -> None:
        """Let a run whose result was received come to its end by itself; otherwise do nothing."""
        unsettled = not self.finished and not self.cancelled and self.record.final is not None
        if unsettled and self.source is not None:
            await self.source.settle()
            await self.close()

    async def close(self) -> None:
        """Stop the run if it goes on, and give up its descriptors; may be called again."""
        self.finished = True
        if self.source is not None:
            await self._shell.shielded(self.source.close())

    async def leave(self, problem: BaseException | None = None) -> None:
        """Close it, settled unless an exception is what ends its block."""
        try:
            if problem is None:
                await self.settle()
        finally:
            await self.close()  # noqa: ASYNC102 - it shields itself

    async def read(self, request: RunRequest) -> AgentResult:
        """Read it to its end and return the result, without events unless the format is a stream."""
        try:
            while await self.next() is not None:
                pass
        finally:
            await self.leave()  # noqa: ASYNC102 - it shields itself
        result = self.record.result()
        return result if request.output_format is OutputFormat.STREAM_JSON else dataclasses.replace(result, events=[])


class Response:
    """The members of both streams that tell of an answer.

    Args:
        answer: the answer.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self.answer.cancelled

    @property
    def events(self) -> list[AgentEvent]:
        """All events received so far."""
        return self.answer.record.events

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process; None for a sandboxed run and before the start."""
        return self.answer.source.process if self.answer.source is not None else None

    @property
    def session_id(self) -> str:
        """The chat; empty until the agent has named it."""
        return self.answer.record.session_id

    @property
    def finished(self) -> bool:
        """Whether there are no more events."""
        return self.answer.finished

    @property
    def result(self) -> AgentResult:
        """The query's result, as far as events were received."""
        return self.answer.record.result()


async def open_source(
    shell: Shell, config: AgentConfig, request: RunRequest, sandbox_agent: sandboxed.SandboxAgent | None = None
) -> Source:
    """Start a run.

    Args:
        shell: how its steps wait.
        config: how cursor-agent is run.
        request: the prompt and its options.
        sandbox_agent: the sandboxed agent of a conversation; None: one for this run alone, if it is to be sandboxed.
    """
    if not config.sandboxed:
        from substrat.cursor_api.direct import Direct

        return Direct(shell, config, request)
    if sandbox_agent is not None:
        return await sandboxed.Sandboxed(shell, sandbox_agent, request, keep=True).begin()
    sandboxed.check_session(request.session_id)
    return await sandboxed.Sandboxed(shell, sandboxed.SandboxAgent(config), request, keep=False).begin()


def _abandon(source: Source, owner: int) -> None:
    # A forked child has a copy of the stream, but not the run.
    if os.getpid() == owner:
        source.abandon()
