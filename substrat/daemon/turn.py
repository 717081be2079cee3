"""One running turn: its launch or adoption, its output, its end, the ladder of signals that stops it; no bookkeeping.

What is seen goes to the supervisor, which commits it. The task owns the turn's agent socket, its pidfds and its watch.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog
import trio

from substrat.core import stream
from substrat.core.ndjson import Line, Splitter
from substrat.core.toolcalls import Pairing
from substrat.core.verdict import Seen
from substrat.daemon import process
from substrat.errors import SandboxFailed, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.records import Process
    from substrat.daemon.places import TurnPlace
    from substrat.daemon.watch import Change, Watcher

log = structlog.get_logger("substrat.turn")

_CHUNK = 256 * 1024
_BATCH = 200
_FULL_DISK_PAUSE = 1.0
AFTER_RESULT = "went on after its result"
"""The one reason for stopping that doesn't change the turn's outcome."""


class Launch(NamedTuple):
    """What starts a sandbox.

    Args:
        command: what is executed.
        environment: its environment.
        options: bubblewrap's, which it reads from a descriptor.
        version: the agent program's, None when its path doesn't tell.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    options: bytes
    version: str | None = None


class Pace(NamedTuple):
    """How long things may take, in seconds, and how many bytes the output may have; `time_left` None, 0 bytes: no limit."""

    stop_grace: float
    result_grace: float
    time_left: float | None
    output: int = 0


async def stored(write: Callable[[], None]) -> None:
    """Write something down, as often as it takes: when the disk is full, what was seen waits until there is room.

    Args:
        write: commits it, or raises `StorageFailed` and has changed nothing.
    """
    while True:
        try:
            write()
        except StorageFailed as problem:
            log.error("waiting to write the state", reason=problem.message)  # noqa: TRY400 - the sentence says it all
            await trio.sleep(_FULL_DISK_PAUSE)
        else:
            return


def disk_is_full(problem: OSError) -> bool:
    """Say whether something failed for want of room, on the disk or in a quota."""
    return problem.errno in {errno.ENOSPC, errno.EDQUOT}


class Books(Protocol):
    """What a turn tells whoever keeps the books; each call commits before it returns."""

    def result_seen(self, turn: str) -> stream.Result | None:
        """Return the result of the turn that is in the books already, if one is."""

    def turn_spawned(self, turn: str, started: Process, version: str | None = None) -> None:
        """The sandbox was started, with a version of the agent program."""

    def turn_lines(self, turn: str, lines: list[tuple[Line, stream.Event]], offset: int) -> None:
        """The agent wrote lines; everything before `offset` has been seen."""

    def turn_truncated(self, turn: str, size: int, expected: int) -> None:
        """The agent cut its own output."""

    def turn_time_is_up(self, turn: str) -> None:
        """The time limit has passed."""

    def turn_output_too_long(self, turn: str, limit: int) -> None:
        """The agent has written more bytes than it may."""


class RunningTurn:
    """A turn from its launch, or its adoption by a new daemon, to its last line.

    Args:
        turn: its id.
        place: its directory.
        offset: where to take its output up.
        books: who is told.
        watcher: inotify.
        pace: how long things may take.
    """

    def __init__(self, turn: str, place: TurnPlace, offset: int, books: Books, watcher: Watcher, pace: Pace) -> None:
        self.turn = turn
        self._place = place
        self._offset = offset
        self._books = books
        self._watcher = watcher
        self._pace = pace
        self._stop_wanted = trio.Event()
        self._stop_reason: str | None = None
        self._result_seen = trio.Event()
        self._exited = trio.Event()
        self._calls = Pairing()
        self._result: stream.Result | None = None
        self._process: Process | None = None
        self._inner: int | None = None
        self._inner_pidfd: int | None = None

    def stop(self, reason: str) -> None:
        """Ask for the turn to be stopped; the first reason counts, except that any reason beats `AFTER_RESULT`."""
        if self._stop_reason in {None, AFTER_RESULT}:
            self._stop_reason = reason
        self._stop_wanted.set()

    async def run(self, launch: Callable[[], Awaitable[Launch]]) -> Seen:
        """Launch the sandbox and stay with it to its end.

        Args:
            launch: prepares the turn's directory and says what to start; nothing is started if the turn was stopped
                meanwhile.

        Raises:
            StorageFailed: there is no room for its files; nothing is running, and it can be tried again.
            SubstratError: the launch failed; nothing is running.
        """
        prepared = await launch()
        if self._stop_wanted.is_set():
            return Seen(None, None, self._stop_reason, "", anything=False)
        with self._watcher.watching(self._place.root) as change:
            pidfd = await self._start(prepared)
            return await self._accompany(pidfd, change)

    async def adopt(self, started: Process) -> Seen:
        """Stay with a sandbox that an earlier daemon started, whether it is still running or not."""
        self._process = started
        # The line was read by the daemon that is gone; what it said was not.
        self._result = self._books.result_seen(self.turn)
        if self._result is not None:
            self._result_seen.set()
        with self._watcher.watching(self._place.root) as change:
            return await self._accompany(process.open_pidfd(started), change)

    async def _start(self, launch: Launch) -> int:
        files: list[int] = []
        try:
            files.append(os.open(self._place.prompt, os.O_RDONLY | os.O_CLOEXEC))
            # Appending, so that several writers and a truncation never make holes.
            appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            outputs = (self._place.stdout, self._place.stderr, self._place.status)
            files.extend(os.open(path, appending, 0o600) for path in outputs)
            files.append(process.readable(launch.options))
            self._process = process.start(launch.command, launch.environment, files)
        except OSError as problem:
            if disk_is_full(problem):
                raise StorageFailed(f"the turn's files can't be made: {problem.strerror}; make room") from None
            raise SandboxFailed(f"{launch.command[0]} can't be started: {problem.strerror}") from None
        finally:
            for descriptor in files:
                os.close(descriptor)
        started = self._process
        pidfd = process.open_own(started)
        # The sandbox runs from here on, so it has to get into the books, however long that takes.
        await stored(lambda: self._books.turn_spawned(self.turn, started, launch.version))
        return pidfd

    async def _accompany(self, pidfd: int | None, change: Change) -> Seen:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._climb_the_ladder)
                nursery.start_soon(self._end_after_result)
                nursery.start_soon(self._keep_time)
                nursery.start_soon(self._keep_output)
                followed = trio.Event()
                nursery.start_soon(self._follow, change, followed)
                await self._wait_exit(pidfd)
                self._exited.set()
                change.set()
                await followed.wait()
                nursery.cancel_scope.cancel()
        finally:
            for descriptor in (pidfd, self._inner_pidfd):
                if descriptor is not None:
                    os.close(descriptor)
            self._inner_pidfd = None
        _, exit_code = process.read_status(self._place.read_status())
        stop = None if self._stop_reason == AFTER_RESULT else self._stop_reason
        return Seen(self._result, exit_code, stop, self._place.read_errors(), self._place.has_output())

    # The end

    async def _wait_exit(self, pidfd: int | None) -> None:
        assert self._process is not None
        if pidfd is not None:
            await process.wait_exit(self._process, pidfd)
        # bubblewrap's outer process gone and its inner one alive: somebody killed the outer one, the tree must follow.
        inner = self._find_inner()
        if inner is not None:
            process.kill(inner)
            await trio.lowlevel.wait_readable(inner)

    def _find_inner(self) -> int | None:
        """Return a pidfd of the sandbox's first process, or None while there is none to be found."""
        if self._inner_pidfd is None and self._process is not None:
            self._inner, _ = process.read_status(self._place.read_status())
            if self._inner is not None:
                self._inner_pidfd = process.open_inner(self._process, self._inner)
        return self._inner_pidfd

    async def _climb_the_ladder(self) -> None:
        """Stop the turn when it is asked for: SIGINT, SIGTERM, then the whole pid namespace."""
        await self._stop_wanted.wait()
        rungs = (signal.SIGTERM,) if self._stop_reason == AFTER_RESULT else (signal.SIGINT, signal.SIGTERM)
        for number in rungs:
            with trio.move_on_after(self._pace.stop_grace):
                await self._signal_program(number)
                await trio.sleep_forever()
        self._kill()

    def _kill(self) -> None:
        inner = self._find_inner()
        if inner is not None:
            process.kill(inner)
        elif self._process is not None:
            process.kill_recorded(self._process)

    async def _signal_program(self, number: signal.Signals) -> None:
        """Signal the agent program; when bubblewrap hasn't started it yet there is nothing to be gentle with."""
        with self._watcher.watching(self._place.root) as change:
            while (inner := self._find_inner()) is None or self._inner is None:
                await change.wait()
        if not process.signal_program(self._inner, number):
            process.kill(inner)

    async def _end_after_result(self) -> None:
        await self._result_seen.wait()
        await trio.sleep(self._pace.result_grace)
        self.stop(AFTER_RESULT)

    async def _keep_time(self) -> None:
        if self._pace.time_left is not None:
            await trio.sleep(max(0.0, self._pace.time_left))
            await stored(lambda: self._books.turn_time_is_up(self.turn))

    async def _keep_output(self) -> None:
        """Notice a turn that writes too much, to standard error too, whether its lines are read as fast or not."""
        if not self._pace.output:
            return
        with self._watcher.watching(self._place.root) as change:
            while self._place.output_size() <= self._pace.output:
                await change.wait()
            await stored(lambda: self._books.turn_output_too_long(self.turn, self._pace.output))
            # It is being stopped gently; one that goes on flooding the disk meanwhile is not.
            while self._place.output_size() <= 2 * self._pace.output:
                await change.wait()
            self._kill()

    # The output

    async def _follow(self, change: Change, done: trio.Event) -> None:
        splitter = Splitter(self._offset)
        try:
            descriptor = os.open(self._place.stdout, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            done.set()
            return
        try:
            while True:
                over = self._exited.is_set()
                data = os.pread(descriptor, _CHUNK, splitter.position)
                if data:
                    await self._take(list(splitter.feed(data)))
                    await trio.lowlevel.checkpoint()
                elif (size := os.fstat(descriptor).st_size) < splitter.position:
                    expected = splitter.position
                    await stored(lambda size=size, expected=expected: self._books.turn_truncated(self.turn, size, expected))  # type: ignore[misc]
                    splitter = Splitter(size)
                elif over:
                    break
                else:
                    await change.wait()
        finally:
            os.close(descriptor)
        await self._take(list(splitter.finish()))
        done.set()

    async def _take(self, lines: list[Line]) -> None:
        """Pass lines on in batches, so that a flood of short ones doesn't hold up everybody else."""
        for start in range(0, len(lines), _BATCH):
            batch = lines[start : start + _BATCH]
            decoded = [(line, stream.decode(line, self._calls)) for line in batch]
            last = batch[-1]
            await self._note(decoded, last.offset + last.length + last.ended)
            await trio.lowlevel.checkpoint()

    async def _note(self, decoded: list[tuple[Line, stream.Event]], offset: int) -> None:
        await stored(lambda: self._books.turn_lines(self.turn, decoded, offset))
        for _, event in decoded:
            if (result := stream.result_of(event)) is not None:
                self._result = result
                self._result_seen.set()
