"""One running turn: its launch or adoption, its output, its end, the ladder of signals that stops it; no bookkeeping.

What is seen goes to the supervisor, which commits it. The task owns the turn's agent socket, its pidfds and its watch.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog
import trio

from substrat.core.agents.cgroup_limits import RanOut
from substrat.core.agents.verdict import SILENCE_LIMIT, TIME_LIMIT, TurnObservation
from substrat.core.programs import lenient
from substrat.core.programs.ndjson import Line, Splitter
from substrat.core.programs.table import PROGRAM
from substrat.daemon.kernel import descriptors, process, sandbox_process
from substrat.daemon.kernel.tail import Cut, Tail
from substrat.daemon.sandboxes import launch_plan
from substrat.daemon.state import reserve
from substrat.daemon.state.storing import FULL_DISK_PAUSE, disk_is_full, until_stored
from substrat.errors import SandboxFailed, StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from substrat.core.agents.records import Process
    from substrat.core.programs.program import LineEvent, TurnResult
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.kernel.cgroups import Group
    from substrat.daemon.kernel.inotify import Change, Watcher
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.state.layout import TurnDir

log = structlog.get_logger("substrat.turn")

_BATCH = 200
_BYTES_PER_LINE, _FEWEST_LINES = 256, 1000
"""How many lines `disk.turn_output` stands for: an event costs the state that much however short its line is."""
_BATCH_BYTES = 64 * 1024
"""Lines that are decoded and recorded without letting others have their turn: some milliseconds. A longer line is decoded
in a thread."""
_MOST_CUTS = 100
"""How often a turn's output may be cut: each time is an event, and an agent that cuts it takes nothing of the disk."""
_LAST_READING_SECONDS = 10.0
"""How long the output of a turn that was stopped is read on, once its processes are gone, before who stopped it is
answered: enough for a hundred thousand lines."""
_URGENT_WRITES = 5
"""How many batches of a turn's output are recorded on a full disk once the turn is being stopped: enough for its
last words. The rest stays unread in its file, because the room that is kept for stopping turns must do for all of them."""
_ROOM_FOR_ERRORS = 4096
"""Bytes on disk that a program's standard error has from the start: a block, enough for a message and a stack trace."""
_FREEZE_PAUSE = 0.005
AFTER_RESULT = "went on after its result"
"""The one reason for stopping that doesn't change the turn's outcome."""


class TurnLimits(NamedTuple):
    """How long things may take, in seconds, and how much a turn may write.

    Args:
        stop_grace: between the rungs of the ladder.
        result_grace: between a result and the program's end.
        time_left: until the turn's time is up; None: it has no limit.
        silence: without any output; None: no limit.
        heard_at: when its silence begins at the earliest, in seconds since the epoch.
        output: how many bytes it may write; 0: no limit.
    """

    stop_grace: float
    result_grace: float
    time_left: float | None = None
    silence: float | None = None
    heard_at: float = 0.0
    output: int = 0


def _batches(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Put lines together that are recorded at once."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) >= _BATCH or size + line.length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line.length
    if batch:
        yield batch


def _decode_whole(line: Line, decode: Callable[[Line], LineEvent]) -> LineEvent:
    """Decode a line, and write it anew where the journal would have to."""
    event = decode(line)
    if event.body is None or event.verbatim:
        return event
    return event._replace(written=lenient.as_json(event.body))


class TurnObserver(Protocol):
    """What a turn tells whoever keeps the books; each call commits before it returns."""

    def result_seen(self, turn: str) -> TurnResult | None:
        """Return the result of the turn that is in the books already, if one is."""

    def turn_spawned(self, turn: str, started: Process, version: str | None = None) -> None:
        """The sandbox was started, with a version of the agent program."""

    def turn_lines(self, turn: str, lines: list[tuple[Line, LineEvent]], offset: int, *, urgent: bool = False) -> None:
        """The agent wrote lines; everything before `offset` has been seen; `urgent`: recorded on a full disk too."""

    def turn_truncated(self, turn: str, size: int, expected: int, *, urgent: bool = False) -> None:
        """The agent cut its own output; `urgent`: recorded on a full disk too."""

    def turn_note(self, turn: str, kind: str, text: str, *, holds_up_end: bool = False) -> None:
        """Something is to be told about the turn; `holds_up_end`: on a full disk too once the turn is being stopped."""

    def turn_limit_reached(self, turn: str, limit: str) -> None:
        """The turn has run into one of `verdict.LIMITS`."""

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
        points: where the daemon may be told to die.
        now: the clock, in seconds since the epoch.
        group: the sandbox's cgroup, if there can be one.
        frozen: whether it is to be stopped in memory from the start.
    """

    def __init__(
        self,
        turn: str,
        place: TurnDir,
        offset: int,
        books: TurnObserver,
        watcher: Watcher,
        pace: TurnLimits,
        points: Failpoints,
        now: Callable[[], float],
        *,
        group: Group | None = None,
        frozen: bool = False,
    ) -> None:
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
        self._decode_line = PROGRAM.decoder()
        self._lines = self._cuts = 0
        self._read_until: float | None = None
        self._is_unread = False
        self._urgent_writes = _URGENT_WRITES
        self._is_too_long = False
        self._result: TurnResult | None = None
        self._process: Process | None = None
        self._inner: int | None = None
        self._inner_pidfd: int | None = None
        self._points = points
        self._now = now
        self._group = group
        self._heard_at = pace.heard_at
        self._is_held = False
        self._freezing, self._thawing = trio.Event(), trio.Event()
        self.frozen = trio.Event()
        (self._freezing if frozen else self._thawing).set()

    @property
    def process(self) -> Process | None:
        """The sandbox's outer process, once it is started."""
        return self._process

    @property
    def has_begun(self) -> bool:
        """Whether the sandbox has reported its first process."""
        return self._find_inner() is not None

    def freeze(self) -> None:
        """Stop the turn in memory; `frozen` is set once all of it is."""
        if self._thawing.is_set():
            self._thawing = trio.Event()
            self._freezing.set()

    def thaw(self) -> None:
        """Let the turn go on."""
        if self._freezing.is_set():
            self._freezing, self.frozen = trio.Event(), trio.Event()
            self._heard_at = self._now()
            self._points.before("sandbox thawed")
            if not self._is_held:
                self._continue()
            self._points.after("sandbox thawed")
            self._thawing.set()

    def _continue(self) -> None:
        if self._group is not None and self._group.is_there:
            self._group.thaw()
        elif self._find_inner() is not None and self._inner is not None:
            sandbox_process.continue_all(self._inner)

    # A look at protected files (`lost_mounts.Holder`)

    def first_process(self) -> int | None:
        """Return the pid of the sandbox's first process, None while there is none or when it has ended."""
        if self._exited.is_set() or self._find_inner() is None:
            return None
        return self._inner

    async def hold(self) -> bool:
        """Stop all of the sandbox in memory until `release`; says whether that was possible."""
        self._is_held = True
        while (first := self.first_process()) is not None:
            if self._group is not None and self._group.is_there:
                stopped = self._group.freeze()
            else:
                # An agent decides how many processes there are to look at.
                stopped = await trio.to_thread.run_sync(sandbox_process.stop_all, first)
            if stopped:
                return True
            await trio.sleep(_FREEZE_PAUSE)
        return False

    def release(self) -> None:
        """Let the sandbox go on, unless a person has frozen it."""
        self._is_held = False
        if not self._freezing.is_set() and not self._exited.is_set():
            self._continue()

    def end(self, reason: str) -> None:
        """Kill the sandbox at once, without letting it go on."""
        self._kill()
        self.stop(reason)

    def stop(self, reason: str) -> None:
        """Ask for the turn to be stopped; the first reason counts, except that any reason beats `AFTER_RESULT`.

        A frozen turn is thawed first, so that it can end in good order.
        """
        self.thaw()
        if self._stop_reason in {None, AFTER_RESULT}:
            self._stop_reason = reason
        self._stop_wanted.set()

    async def unless_stopped(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do something that can be given up when the turn is to be stopped; says whether it was done.

        Raises:
            SubstratError: it failed.
        """
        is_done, failure = False, None
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await self._stop_wanted.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_up)
            try:
                await work()
                is_done = True
            except SubstratError as problem:
                failure = problem
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return is_done

    async def run(self, prepare: Callable[[], Awaitable[LaunchPlan | None]]) -> TurnObservation:
        """Launch the sandbox and stay with it to its end.

        Args:
            prepare: prepares the turn's directory and says what to start; nothing is started if the turn was stopped
                meanwhile, or if it says nothing.

        Raises:
            StorageFailed: there is no room for its files; nothing is running, and it can be tried again.
            SubstratError: the launch failed; nothing is running.
        """
        prepared = await prepare()
        if prepared is None or self._stop_wanted.is_set():
            if prepared is not None:
                prepared.close()
            return TurnObservation(None, None, self._stop_reason, "", anything=False)
        with ExitStack() as stack:
            try:
                change = stack.enter_context(self._watcher.watching(self._place.root))
            except OSError:
                prepared.close()
                raise
            pidfd = await self._start(prepared)
            return await self._accompany(pidfd, change)

    async def adopt(self, started: Process) -> TurnObservation:
        """Stay with a sandbox that an earlier daemon started, whether it is still running or not."""
        self._process = started
        # The line was read by the daemon that is gone; what it said was not.
        self._result = self._books.result_seen(self.turn)
        if self._result is not None:
            self._result_seen.set()
        self._points.at("sandbox to be adopted")
        with self._watcher.watching(self._place.root) as change:
            return await self._accompany(process.open_pidfd(started), change)

    async def _start(self, prepared: LaunchPlan) -> int:
        try:
            # The file is the record; through `/proc/1/fd/0` an agent would reach, and could change, what it reads from.
            prompt = await trio.to_thread.run_sync(self._place.read_prompt)
            started = self._process = self._start_sandbox(prepared, prompt)
        except OSError as problem:
            descriptors.refuse_shortage(problem)
            if disk_is_full(problem):
                raise StorageFailed(f"the turn's files can't be made: {problem.strerror}; make room") from None
            raise SandboxFailed(f"{prepared.command[0]} can't be started: {problem.strerror}") from None
        finally:
            prepared.close()
        pidfd = process.open_own(started)
        # The sandbox runs from here on, so it has to get into the books, however long that takes.
        await until_stored(lambda: self._books.turn_spawned(self.turn, started, prepared.version))
        return pidfd

    def _start_sandbox(self, prepared: LaunchPlan, prompt: bytes) -> Process:
        with ExitStack() as stack:
            standard = (
                launch_plan.closed_by(stack, descriptors.sealed(prompt)),
                launch_plan.closed_by(stack, launch_plan.append_to(self._place.stdout)),
                launch_plan.closed_by(stack, launch_plan.append_to(self._place.stderr)),
            )
            # So that the program can say so when the disk is full.
            reserve.allocate_beforehand(standard[2], _ROOM_FOR_ERRORS)
            given = stack.enter_context(launch_plan.descriptors(prepared, standard, self._place))
            self._points.before("sandbox started")
            started = process.start(prepared.command, prepared.environment, given)
            self._points.after("sandbox started")
            return started

    async def _accompany(self, pidfd: int | None, change: Change) -> TurnObservation:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._climb_the_ladder)
                nursery.start_soon(self._end_after_result)
                nursery.start_soon(self._keep_time)
                nursery.start_soon(self._keep_silence)
                nursery.start_soon(self._keep_frozen)
                nursery.start_soon(self._keep_output)
                followed = trio.Event()
                nursery.start_soon(self._follow, change, followed)
                await self._wait_exit(pidfd)
                # At once: what it has written may wait to be recorded until there is room again.
                disk_full = self._place.is_full()
                self._exited.set()
                change.set()
                await followed.wait()
                nursery.cancel_scope.cancel()
        finally:
            for descriptor in (pidfd, self._inner_pidfd):
                if descriptor is not None:
                    os.close(descriptor)
            self._inner_pidfd = None
        _, exit_code = sandbox_process.read_status(self._place.read_status())
        stop = None if self._stop_reason == AFTER_RESULT else self._stop_reason
        ran_out = self._group.ran_out() if self._group is not None else RanOut()
        errors, anything = self._place.read_errors(), self._place.has_output()
        return TurnObservation(
            self._result, exit_code, stop, errors, anything, ran_out=ran_out, disk_full=disk_full
        )  # fmt: skip

    # The end

    async def _wait_exit(self, pidfd: int | None) -> None:
        assert self._process is not None
        if pidfd is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._release_outer, pidfd)
                await process.wait_exit(self._process, pidfd)
                nursery.cancel_scope.cancel()
        # bubblewrap's outer process gone and its inner one alive: somebody killed the outer one, the tree must follow.
        inner = self._find_inner()
        if inner is not None:
            process.kill(inner)
            await trio.lowlevel.wait_readable(inner)

    async def _release_outer(self, pidfd: int) -> None:
        """Let bubblewrap's outer process end once its inner one has, though somebody outside may have stopped it."""
        await sandbox_process.reported(self._place, self._watcher)
        if (inner := self._find_inner()) is not None:
            await trio.lowlevel.wait_readable(inner)
        await sandbox_process.release(pidfd)

    def _find_inner(self) -> int | None:
        """Return a pidfd of the sandbox's first process, or None while there is none to be found."""
        if self._inner_pidfd is None and self._process is not None:
            self._inner, _ = sandbox_process.read_status(self._place.read_status())
            if self._inner is not None:
                self._inner_pidfd = sandbox_process.open_inner(self._process, self._inner)
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
        self._points.before("sandbox killed")
        if inner is not None:
            process.kill(inner)
        elif self._process is not None:
            sandbox_process.kill_recorded(self._process)
        self._points.after("sandbox killed")

    async def _signal_program(self, number: signal.Signals) -> None:
        """Signal the agent program; when bubblewrap hasn't started it yet there is nothing to be gentle with."""
        with self._watcher.watching(self._place.root) as change:
            while (inner := self._find_inner()) is None or self._inner is None:
                await change.wait()
        self._points.before(f"{number.name} sent")
        if not sandbox_process.signal_program(self._inner, number):
            process.kill(inner)
        self._points.after(f"{number.name} sent")

    async def _end_after_result(self) -> None:
        await self._result_seen.wait()
        await trio.sleep(self._pace.result_grace)
        self.stop(AFTER_RESULT)

    async def _keep_time(self) -> None:
        """Stop the turn when its time is up; the time it is frozen doesn't count."""
        left = self._pace.time_left
        if left is None:
            return
        while left > 0:
            await self._thawing.wait()
            began = trio.current_time()
            with trio.move_on_after(left):
                await self._freezing.wait()
            left -= trio.current_time() - began
        await until_stored(lambda: self._books.turn_limit_reached(self.turn, TIME_LIMIT))

    async def _keep_silence(self) -> None:
        """Stop the turn when it has printed nothing for too long; what its files say counts, also after a restart."""
        limit = self._pace.silence
        if limit is None:
            return
        while (left := self._place.printed_at(self._heard_at) + limit - self._now()) > 0:
            await self._thawing.wait()
            with trio.move_on_after(left):
                await self._freezing.wait()
        await until_stored(lambda: self._books.turn_limit_reached(self.turn, SILENCE_LIMIT))

    async def _keep_frozen(self) -> None:
        """Stop whatever of the turn isn't stopped yet, whenever it is to be frozen."""
        while True:
            await self._freezing.wait()
            self._points.before("sandbox frozen")
            while self._freezing.is_set() and not self.frozen.is_set():
                if self._stop_in_memory():
                    self._points.after("sandbox frozen")
                    self.frozen.set()
                else:
                    await trio.sleep(_FREEZE_PAUSE)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._let_go_when_killed)
                await self._thawing.wait()
                nursery.cancel_scope.cancel()

    async def _let_go_when_killed(self) -> None:
        """Let bubblewrap's outer process end, which is stopped in its cgroup like the others, when those were killed."""
        if self._group is not None and (inner := self._find_inner()) is not None:
            # One of its own: only one task may wait for a descriptor, and `_wait_exit` may have to for the other.
            with ExitStack() as stack:
                await trio.lowlevel.wait_readable(launch_plan.closed_by(stack, os.dup(inner)))
            self._group.thaw()

    def _stop_in_memory(self) -> bool:
        """Stop what goes on; returns whether all of the sandbox was stopped by now."""
        if self._find_inner() is None or self._inner is None:
            return False
        if self._group is not None and self._group.is_there:
            return self._group.freeze()
        return sandbox_process.stop_all(self._inner)

    async def _keep_output(self) -> None:
        """Notice a turn that writes too much, to standard error too, whether its lines are read as fast or not."""
        if not self._pace.output:
            return
        with self._watcher.watching(self._place.root) as change:
            while self._place.output_size() <= self._pace.output:
                await change.wait()
            await self._tell_too_long()
            # It is being stopped gently; one that goes on flooding the disk meanwhile is not.
            while self._place.output_size() <= 2 * self._pace.output:
                await change.wait()
            self._kill()

    # The output

    async def _follow(self, change: Change, done: trio.Event) -> None:
        splitter, too_much = Splitter(self._offset), 0
        tail = await self._open_output()
        if tail is None:
            done.set()
            return
        try:
            while True:
                over = self._exited.is_set()
                found = b"" if self._is_unread else tail.read()
                if isinstance(found, Cut):
                    self._cuts += 1
                    if self._cuts > _MOST_CUTS:
                        await self._leave_unread(found.position, f"the agent has cut its own output {_MOST_CUTS} times")
                    elif await self._recorded(partial(self._books.turn_truncated, self.turn, found.size, found.expected)):
                        splitter = Splitter(found.position)
                    else:
                        await self._leave_unread(found.position)
                elif found:
                    await self._take(splitter.feed(found))
                    # A file can be said to be longer than anybody could read.
                    too_much += len(found) if self._is_too_long else 0
                    if too_much > self._pace.output:
                        await self._stop_reading(splitter.consumed)
                    await trio.lowlevel.checkpoint()
                elif over:
                    break
                else:
                    await change.wait()
        finally:
            tail.close()
        await self._take(splitter.finish())
        done.set()

    async def _open_output(self) -> Tail | None:
        """Open the turn's output, as soon as there is a descriptor for it; None when there is no such file."""
        while True:
            try:
                return Tail(self._place.stdout, self._offset)
            except FileNotFoundError:
                return None
            except OSError as problem:
                if not descriptors.is_short(problem):
                    raise
                log.error("waiting to read a turn's output", reason=descriptors.sentence(problem))  # noqa: TRY400
            await trio.sleep(FULL_DISK_PAUSE)

    async def _take(self, lines: Iterator[Line]) -> None:
        """Pass lines on in batches, so that a flood of short ones doesn't hold up everybody else."""
        most = max(_FEWEST_LINES, self._pace.output // _BYTES_PER_LINE) if self._pace.output else None
        batches = _batches(lines)
        while not self._is_unread and (batch := next(batches, None)):
            self._lines += len(batch)
            if most is not None and self._lines > most:
                await self._stop_reading(batch[0].offset)
                return
            if self._reads_too_long():
                await self._leave_unread(
                    batch[0].offset, "the turn was stopped, and there is more of it than can be read quickly"
                )
                return
            decoded = await self._decode(batch)
            last = batch[-1]
            if not await self._note(decoded, last.offset + last.length + last.ended):
                await self._leave_unread(batch[0].offset)
                return
            await trio.lowlevel.checkpoint()

    async def _decode(self, batch: list[Line]) -> list[tuple[Line, LineEvent]]:
        """Decode lines; a long one in a thread, because an agent decides how much there is in it."""
        if len(batch) > 1 or batch[0].length <= _BATCH_BYTES:
            return [(line, self._decode_line(line)) for line in batch]
        return [(batch[0], await trio.to_thread.run_sync(_decode_whole, batch[0], self._decode_line))]

    def _reads_too_long(self) -> bool:
        """Say whether somebody who stopped the turn has waited long enough for what it wrote to be read."""
        if not self._exited.is_set() or self._stop_reason in {None, AFTER_RESULT}:
            return False
        if self._read_until is None:
            self._read_until = trio.current_time() + _LAST_READING_SECONDS
        return trio.current_time() > self._read_until

    async def _stop_reading(self, offset: int) -> None:
        """Stop a turn that has written too many lines to be events, however few bytes they are."""
        self._is_unread = True
        text = f"what the agent wrote from byte {offset} on is too much to be read; it is in {self._place.stdout}"
        await until_stored(lambda: self._books.turn_note(self.turn, "turn:output-unread", text, holds_up_end=True))
        await self._tell_too_long()

    async def _leave_unread(self, offset: int, why: str = "the disk is full") -> None:
        """Read no further in a turn's output."""
        self._is_unread = True
        where = self._place.stdout
        text = f"what the agent wrote from byte {offset} on isn't read, because {why}; it is in {where}"
        await until_stored(lambda: self._books.turn_note(self.turn, "turn:output-unread", text, holds_up_end=True))

    async def _tell_too_long(self) -> None:
        if not self._is_too_long:
            self._is_too_long = True
            await until_stored(lambda: self._books.turn_output_too_long(self.turn, self._pace.output))

    async def _note(self, decoded: list[tuple[Line, LineEvent]], offset: int) -> bool:
        """Record lines; returns whether that could be done."""
        if not await self._recorded(partial(self._books.turn_lines, self.turn, decoded, offset)):
            return False
        for _, event in decoded:
            if (result := PROGRAM.result_of(event)) is not None:
                self._result = result
                self._result_seen.set()
        return True

    async def _recorded(self, write: Callable[..., None]) -> bool:
        """Write down what was seen of the output, and wait for room on a full disk until the turn is to be stopped.

        Args:
            write: commits it, with `urgent=True` on a full disk too, or raises `StorageFailed` and has changed nothing.

        Returns:
            Whether it was written; False: the turn is being stopped, and has used up its share of the room for that.
        """
        while True:
            is_stopping = self._stop_reason not in {None, AFTER_RESULT}
            try:
                write()
            except StorageFailed as problem:
                if is_stopping and not self._urgent_writes:
                    return False
                log.error("waiting to write the state", reason=problem.message)  # noqa: TRY400 - the sentence says it all
            else:
                return True
            if is_stopping:
                self._urgent_writes -= 1
                with suppress(StorageFailed):  # then the reserve is used up, and it is given up after a few more tries
                    write(urgent=True)
                    return True
            with trio.move_on_after(FULL_DISK_PAUSE):
                if not self._stop_wanted.is_set():
                    await self._stop_wanted.wait()
                await trio.sleep(FULL_DISK_PAUSE if is_stopping or self._stop_reason == AFTER_RESULT else 0)
