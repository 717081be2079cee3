"""The stream of a run's events for Trio: no task of its own, and no process that outlives its block."""

from __future__ import annotations

import os
import signal as signals
import weakref
from typing import TYPE_CHECKING, Protocol

import trio

from substrat import errors
from substrat.cursor_api import run, sandboxed, trio_connection
from substrat.cursor_api.direct import Direct
from substrat.cursor_api.stream import on_connection

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.model import AgentConfig, AgentEvent, AgentResult
    from substrat.cursor_api.run_record import RunRecord

_CLOSING_S = 15.0
"""How long the uncancellable end of a run may take: the daemon climbs from SIGINT to SIGKILL in ten seconds."""


class AsyncSource(Protocol):
    """Where a stream's events come from; the methods are those of the blocking `Source`."""

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, if it is a child of this one."""

    async def next(self) -> AgentEvent | None:
        """Wait for the next event; None when there are no more."""

    async def settle(self) -> None:
        """Let a run that has answered come to its end."""

    async def cancel(self, number: int) -> None:
        """Stop the run."""

    async def close(self) -> None:
        """Stop the run if it goes on, and give everything up."""

    def abandon(self) -> None:
        """Close without patience, without raising and without waiting for Trio."""

    def conclude(self, record: RunRecord) -> AgentEvent | None:
        """Account for a run that is over."""


class AsyncStreamingResponse:
    """An answer under way: `async for` over it, inside `async with` for it to be stopped when the block is left.

    The run starts with the block or, without one, with the first event that is asked for. A cancellation inside it stops
    the process before it goes on.

    Args:
        opener: starts the run.
        record: takes note of the events.
    """

    def __init__(self, opener: Callable[[], Awaitable[AsyncSource]], record: RunRecord) -> None:
        self._opener: Callable[[], Awaitable[AsyncSource]] | None = opener
        self._run_record = record
        self._source: AsyncSource | None = None
        self._cancelled = False
        self._finished = False

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
        """The process; None for a sandboxed run and before the start."""
        return self._source.process if self._source is not None else None

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

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.settle()  # noqa: ASYNC102 - aclose shields itself
        finally:
            await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        if self._finished:
            raise StopAsyncIteration
        source = await self._started()
        try:
            event = await source.next()
        except trio.Cancelled:
            await self.aclose()
            raise
        except errors.ConnectionLost:
            if not self._finished:
                raise
            event = None
        if self._cancelled or self._finished:
            await self.aclose()
            raise StopAsyncIteration
        if event is not None:
            return self._run_record.add(event)
        await self.aclose()
        event = source.conclude(self._run_record)
        if event is None:
            raise StopAsyncIteration
        return event

    async def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop the answer; returns when its process is gone.

        Args:
            signal: the first signal to the process and everything under it; SIGKILL follows if that isn't enough.
        """
        due = not self._cancelled and not self._finished
        self._cancelled = True
        if due:
            self._run_record.cancel()
            if self._source is not None:
                await _shielded(self._source.cancel(int(signal)))

    async def settle(self) -> None:
        """Let a run whose result was received come to its end by itself; otherwise do nothing."""
        unsettled = not self._finished and not self._cancelled and self._run_record.final is not None
        if unsettled and self._source is not None:
            await self._source.settle()
            await self.aclose()

    async def aclose(self) -> None:
        """Stop the run if it goes on, and close the stream's descriptors; can't be cancelled, and takes a bounded time."""
        self._finished = True
        if self._source is not None:
            await _shielded(self._source.close())

    async def _started(self) -> AsyncSource:
        if self._source is None:
            opener, self._opener = self._opener, None
            if opener is None:
                raise errors.Refused("this answer could not be started: ask again")
            self._source = await opener()
            weakref.finalize(self, _abandon, self._source, os.getpid())
        return self._source


class AsyncDirect:
    """A run on the binary itself.

    Args:
        config: how cursor-agent is run.
        request: the prompt and its options.
    """

    def __init__(self, config: AgentConfig, request: RunRequest) -> None:
        self._direct = Direct(config, request)
        self._run = self._direct.run
        self._reading = False
        self._stopped: trio.Event | None = None
        self.abandon = self._direct.abandon
        self.conclude = self._direct.conclude

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process."""
        return self._direct.process

    async def next(self) -> AgentEvent | None:
        """Wait for the next event; None when the run is over."""
        await trio.lowlevel.checkpoint()
        while (event := self._direct.at_hand()) is None and not self._run.over:
            await self._turn()
        return event

    async def settle(self) -> None:
        """Let a run that has answered come to its end by itself, which it is given a moment for."""
        while self._direct.answered and not self._run.over:
            await self._turn()
            self._run.drain()

    async def cancel(self, number: int) -> None:
        """End the process and everything under it."""
        if self._stopped is not None:
            await self._stopped.wait()
            return
        self._stopped = trio.Event()
        try:
            members = self._run.begin_stop(number)
            await self._gone()
            self._run.kill(members)
            await self._gone()
        finally:
            self._run.over = True
            self._stopped.set()

    async def close(self) -> None:
        """Stop the run if it goes on, and close its descriptors."""
        if not self._run.exited:
            await self.cancel(signals.SIGTERM)
        if self._reading:
            trio.lowlevel.notify_closing(self._run.fileno())
        self._run.close()

    async def _turn(self) -> None:
        """Wait for something to happen and take it in; while the run is being stopped, wait for that."""
        if self._stopped is not None:
            await self._stopped.wait()
            return
        self._reading = True
        try:
            with trio.move_on_after(self._run.patience()):
                await trio.lowlevel.wait_readable(self._run.fileno())
        except trio.ClosedResourceError:
            return
        finally:
            self._reading = False
        self._run.turn(0)

    async def _gone(self) -> None:
        """Wait for the process's end, for a while; its output is dropped, by this task or by the one that reads."""
        with trio.move_on_after(run.STOP_GRACE):
            while not self._run.exited:
                await trio.lowlevel.wait_readable(self._run.end_fileno() if self._reading else self._run.fileno())
                self._run.drain()


class AsyncSandboxed:
    """A turn in the daemon's sandbox; made by `open`.

    Args:
        sandbox_agent: the agent.
        request: the prompt and its options.
        keep: whether the agent stays after the turn.
    """

    process = None

    def __init__(self, sandbox_agent: sandboxed.SandboxAgent, request: RunRequest, *, keep: bool) -> None:
        self._sandbox_agent = sandbox_agent
        self._keep = keep
        self._turn = sandboxed.SandboxedTurn(sandbox_agent, request)
        self._connection: trio_connection.TrioConnection | None = None
        self.conclude = self._turn.conclude

    async def open(self) -> Self:
        """Hand over the prompt."""
        self._connection = await trio_connection.connect(self._sandbox_agent.socket)
        try:
            await self._connection.drive(self._turn.begin())
        except BaseException:
            await _shielded(self.close())  # noqa: ASYNC102 - it shields
            raise
        return self

    async def next(self) -> AgentEvent | None:
        """Wait for the next event; None when the turn is over."""
        assert self._connection is not None
        await trio.lowlevel.checkpoint()
        return await self._connection.drive(self._turn.read())

    async def settle(self) -> None:
        """Do nothing: the daemon sees to a program that has answered."""

    async def cancel(self, number: int) -> None:
        """Interrupt the turn."""
        await apart(self._sandbox_agent.socket, self._turn.interrupt())

    async def close(self) -> None:
        """Give up the connection, and the agent unless it stays; a turn that goes on is stopped."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        await connection.aclose()
        await apart(self._sandbox_agent.socket, self._turn.leave() if self._keep else self._sandbox_agent.remove())

    def abandon(self) -> None:
        """Close, blocking: only for a stream that was dropped instead of being left."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.abandon()
        remove_quietly(self._sandbox_agent.socket, self._turn.leave() if self._keep else self._sandbox_agent.remove())


async def apart(path: str, steps: sandboxed.Steps[None]) -> None:
    """Perform steps over a connection of their own."""
    connection = await trio_connection.connect(path)
    try:
        await connection.drive(steps)
    finally:
        await connection.aclose()


def remove_quietly(path: str, steps: sandboxed.Steps[None]) -> None:
    """Perform steps, blocking, and ignore the daemon's refusal."""
    try:
        on_connection(path, steps)
    except errors.SubstratError:
        return


async def open_source(
    config: AgentConfig, request: RunRequest, sandbox_agent: sandboxed.SandboxAgent | None = None
) -> AsyncSource:
    """Start a run.

    Args:
        config: how cursor-agent is run.
        request: the prompt and its options.
        sandbox_agent: the sandboxed agent of a conversation; None: one for this run alone, if it is to be sandboxed.
    """
    if not config.sandboxed:
        await trio.lowlevel.checkpoint()
        return AsyncDirect(config, request)
    if sandbox_agent is None:
        sandboxed.check_session(request.session_id)
        return await AsyncSandboxed(sandboxed.SandboxAgent(config), request, keep=False).open()
    return await AsyncSandboxed(sandbox_agent, request, keep=True).open()


async def _shielded(closing: Awaitable[None]) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING_S):
        await closing


def _abandon(source: AsyncSource, owner: int) -> None:
    if os.getpid() == owner:
        source.abandon()
