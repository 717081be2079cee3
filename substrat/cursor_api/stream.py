"""A blocking stream of a run's events that can be cancelled; its events come from a `Source`."""

from __future__ import annotations

import os
import signal as signals
import weakref
from typing import TYPE_CHECKING, Protocol

from substrat import errors
from substrat.cursor_api import sandboxed
from substrat.cursor_api.run_record import RunRecord

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.model import AgentConfig, AgentEvent, AgentResult


class Source(Protocol):
    """Where a stream's events come from. `abandon` ends a stream that was dropped."""

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, if it is a child of this one."""

    def next(self) -> AgentEvent | None:
        """Wait for the next event; None when there are no more."""

    def settle(self) -> None:
        """Let a run that has answered come to its end."""

    def cancel(self, number: int) -> None:
        """Stop the run."""

    def close(self) -> None:
        """Stop the run if it goes on, and give everything up; may be called again."""

    def abandon(self) -> None:
        """Close without patience and without raising."""

    def conclude(self, record: RunRecord) -> AgentEvent | None:
        """Account for a run that is over; returns the event of a failure that the stream didn't tell."""


class StreamingResponse:
    """An answer under way: iterate over it for its events.

    Iterating goes on where the last iteration stopped, as with a file; `events` keeps all that was received. A stream
    that is read to its end, cancelled, or left through its `with` statement has given up its process and descriptors;
    one that is merely dropped is stopped when it is collected.

    Args:
        source: where the events come from.
        record: takes note of them.
    """

    def __init__(self, source: Source, record: RunRecord) -> None:
        self._source = source
        self._run_record = record
        self._cancelled = False
        self._finished = False
        self._finalizer = weakref.finalize(self, _abandon, source, os.getpid())

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    @property
    def events(self) -> list[AgentEvent]:
        """All events received so far."""
        return self._run_record.events

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process; None for a sandboxed run."""
        return self._source.process

    @property
    def session_id(self) -> str:
        """The chat; empty until the agent has named it."""
        return self._run_record.session_id

    @property
    def finished(self) -> bool:
        """Whether there are no more events."""
        return self._finished

    @property
    def result(self) -> AgentResult:
        """The query's result, as far as events were received."""
        return self._run_record.result()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AgentEvent:
        if self._finished:
            raise StopIteration
        event = self._source.next()
        if self._cancelled:
            self.close()
            raise StopIteration
        if event is not None:
            return self._run_record.add(event)
        self.close()
        event = self._source.conclude(self._run_record)
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.settle()
        self.close()

    def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop the answer; returns when its process is gone. Another thread may call it while one iterates.

        Args:
            signal: the first signal to the process and everything under it; SIGKILL follows if that isn't enough. A
                sandboxed run is interrupted by the daemon in its own way.
        """
        if self._cancelled or self._finished:
            self._cancelled = True
            return
        self._cancelled = True
        self._run_record.cancel()
        self._source.cancel(int(signal))

    def settle(self) -> None:
        """Let a run whose result was received come to its end by itself; otherwise do nothing."""
        if not self._finished and not self._cancelled and self._run_record.final is not None:
            self._source.settle()
            self.close()

    def close(self) -> None:
        """Stop the run if it goes on, and close the stream's descriptors; may be called again."""
        self._finished = True
        self._source.close()


class SandboxedSource:
    """A turn in the daemon's sandbox, over a connection of its own.

    Args:
        sandbox_agent: the agent.
        request: the prompt and its options.
        keep: whether the agent stays after the turn.

    Raises:
        SubstratError: the daemon isn't there or refuses.
    """

    process = None

    def __init__(self, sandbox_agent: sandboxed.SandboxAgent, request: RunRequest, *, keep: bool) -> None:
        from substrat.cli.connection import Connection

        self._sandbox_agent = sandbox_agent
        self._keep = keep
        self._open = True
        self._turn = sandboxed.SandboxedTurn(sandbox_agent, request)
        self._connection = Connection(sandbox_agent.socket)
        try:
            sandboxed.drive(self._connection, self._turn.begin())
        except BaseException:
            self.abandon()
            raise

    def next(self) -> AgentEvent | None:
        """Wait for the next event; None when the turn is over."""
        return sandboxed.drive(self._connection, self._turn.read())

    def settle(self) -> None:
        """Do nothing: the daemon sees to a program that has answered."""

    def cancel(self, number: int) -> None:
        """Interrupt the turn, over another connection because this one may be in use by another thread."""
        on_connection(self._sandbox_agent.socket, self._turn.interrupt())

    def close(self) -> None:
        """Give up the connection, and the agent unless it stays; a turn that goes on is stopped."""
        if not self._open:
            return
        self._open = False
        try:
            steps = self._turn.leave() if self._keep else self._sandbox_agent.remove()
            on_connection(self._sandbox_agent.socket, steps)
        finally:
            self._connection.__exit__()

    def abandon(self) -> None:
        """Close, and ignore the daemon's refusal."""
        try:
            self.close()
        except errors.SubstratError:
            return

    def conclude(self, record: RunRecord) -> AgentEvent | None:
        """Account for a turn that is over; returns the event of a failure that the stream didn't tell."""
        return self._turn.conclude(record)


def on_connection(path: str, steps: sandboxed.Steps[None]) -> None:
    """Perform steps over a connection of their own."""
    from substrat.cli.connection import Connection

    with Connection(path) as connection:
        sandboxed.drive(connection, steps)


def open_stream(
    config: AgentConfig,
    request: RunRequest,
    sandbox_agent: sandboxed.SandboxAgent | None = None,
    on_session: Callable[[str], None] | None = None,
) -> StreamingResponse:
    """Start a run.

    Args:
        config: how cursor-agent is run.
        request: the prompt and its options.
        sandbox_agent: the sandboxed agent of a conversation; None: one for this run alone, if it is to be sandboxed.
        on_session: is told the chat's id when the run names it.
    """
    source: Source
    if not config.sandboxed:
        from substrat.cursor_api.direct import Direct

        source = Direct(config, request)
    elif sandbox_agent is None:
        sandboxed.check_session(request.session_id)
        source = SandboxedSource(sandboxed.SandboxAgent(config), request, keep=False)
    else:
        source = SandboxedSource(sandbox_agent, request, keep=True)
    return StreamingResponse(source, RunRecord(request.session_id, on_session))


def _abandon(source: Source, owner: int) -> None:
    # A forked child has a copy of the stream, but not the run.
    if os.getpid() == owner:
        source.abandon()
