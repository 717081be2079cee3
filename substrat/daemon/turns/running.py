"""Runs one turn's sandbox: launches or adopts it, keeps its limits, stops it with a ladder of signals, waits for its end.

A `TurnObserver` commits its progress. The turn's task owns its pidfds and its watch.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.agents.cgroup_limits import RanOut
from substrat.core.agents.stop_reason import AFTER_RESULT, call_too_long, silent_too_long, took_too_long
from substrat.core.agents.verdict import TurnObservation
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.kernel import descriptors, process, sandbox_process
from substrat.daemon.sandboxes import launch_plan
from substrat.daemon.state import reserve
from substrat.daemon.state.storing import until_stored
from substrat.daemon.turns import shortage
from substrat.daemon.turns.output import StopRequest, TurnOutput
from substrat.daemon.turns.shortage import patiently
from substrat.errors import SandboxFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from substrat.core.agents.records import Process
    from substrat.core.agents.stop_reason import StopReason
    from substrat.core.agents.turn_limits import TurnLimits
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.kernel.cgroups import Group
    from substrat.daemon.kernel.inotify import ChangeFlag, Watcher
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.state.layout import TurnDir
    from substrat.daemon.turns.output import TurnObserver

log = structlog.get_logger("substrat.turn")

_ROOM_FOR_ERRORS = 4096
"""Bytes on disk that a program's standard error has from the start: a block, enough for a message and a stack trace."""
_FREEZE_PAUSE = 0.005
"""Seconds between attempts to stop all processes: the kernel starts new ones in less."""


class RunningTurn:
    """A turn from its launch, or its adoption by a new daemon, to its last line.

    Args:
        turn: its id.
        place: its directory.
        offset: where to take its output up.
        observer: records its progress.
        watcher: inotify.
        limits: how long things may take.
        points: the failpoints.
        group: the sandbox's cgroup, if there can be one.
        showing: lets others see the sandbox's first process, given its pid, for as long as the returned context lasts.
        frozen: whether it is to be stopped in memory from the start.
    """

    def __init__(
        self,
        turn: str,
        place: TurnDir,
        offset: int,
        observer: TurnObserver,
        watcher: Watcher,
        limits: TurnLimits,
        points: Failpoints,
        *,
        group: Group | None = None,
        showing: Callable[[int], AbstractContextManager[None]] = lambda _pid: nullcontext(),
        frozen: bool = False,
    ) -> None:
        self._showing = showing
        self.turn = turn
        self._place = place
        self._observer = observer
        self._watcher = watcher
        self._limits = limits
        self._stop = StopRequest()
        self._exited = trio.Event()
        self._output = TurnOutput(turn, place, offset, observer, limits.output, self._stop, self._exited)
        self._process: Process | None = None
        self._without: frozenset[str] = frozenset()
        self._inner: int | None = None
        self._inner_pidfd: int | None = None
        self._points = points
        self._group = group
        self._heard_at = trio.current_time() - limits.silent
        self._is_held = self._is_killed = False
        self._to_go_on = Wakeup()
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
        """Let the turn go on; `_keep_going` carries it out, as often as it takes."""
        if self._freezing.is_set():
            self._freezing, self.frozen = trio.Event(), trio.Event()
            self._heard_at = trio.current_time()
            self._thawing.set()
            self._to_go_on.set()

    @property
    def _freezer(self) -> Group | None:
        """The cgroup that stops all of the sandbox at once, None where each process must be signalled."""
        return self._group if self._group is not None and self._group.is_there else None

    def _continue(self) -> None:
        if (freezer := self._freezer) is not None:
            freezer.thaw()
        elif self._find_inner() is not None and self._inner is not None:
            sandbox_process.continue_all(self._inner)

    # A look at protected files (`lost_mounts.SandboxControl`)

    def first_process(self) -> int | None:
        """Return the pid of the sandbox's first process, None while there is none or when it has ended."""
        if self._exited.is_set() or self._find_inner() is None:
            return None
        return self._inner

    async def hold(self) -> bool:
        """Stop all of the sandbox in memory until `release`; says whether that was possible."""
        self._is_held = True
        while (first := await patiently(self.first_process)) is not None:
            if (freezer := self._freezer) is not None:
                stopped = await patiently(freezer.freeze)
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
        self._to_go_on.set()

    def end(self, reason: StopReason) -> None:
        """Kill the sandbox at once, without letting it go on; what can't be killed at once is stopped as ever."""
        try:
            self._kill()
        except OSError as problem:
            log.error("a sandbox can't be killed at once", turn=self.turn, reason=str(problem))  # noqa: TRY400
        else:
            self._is_killed = True
        self.stop(reason)

    def stop(self, reason: StopReason) -> None:
        """Ask for the turn to be stopped; the first reason counts, except that any reason beats `AFTER_RESULT`.

        A frozen turn is thawed first, so that it can end in good order.
        """
        self.thaw()
        self._stop.ask(reason)

    async def unless_stopped(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do something that can be given up when the turn is to be stopped; says whether it was done.

        Raises:
            SubstratError: it failed.
        """
        is_done, failure = False, None
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await self._stop.wanted.wait()
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
            prepare: prepares the turn's directory and returns the launch plan; nothing is started if the turn was stopped
                meanwhile, or if it says nothing.

        Raises:
            StorageFailed: there is no room for its files; nothing is running, and it can be tried again.
            SubstratError: the launch failed; nothing is running.
        """
        prepared = await prepare()
        if prepared is None or self._stop.wanted.is_set():
            if prepared is not None:
                prepared.close()
            return TurnObservation(None, None, self._stop.reason, "", anything=False)
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
        # Perhaps the daemon that is gone has stopped it in memory, and didn't come to letting it go on. A sandbox that it
        # held because protected files had lost their mounts goes on when `Protection` releases it, and not before.
        if not os.path.lexists(self._place.held) and self._is_stopped_in_memory():
            self._to_go_on.set()
        self._output.find_result()
        self._points.at("sandbox to be adopted")
        with self._watcher.watching(self._place.root) as change:
            return await self._accompany(process.open_pidfd(started), change)

    async def _start(self, prepared: LaunchPlan) -> int:
        try:
            # The file is the record; through `/proc/1/fd/0` an agent would reach, and could change, its own input.
            prompt = await trio.to_thread.run_sync(self._place.read_prompt)
            started = self._process = self._start_sandbox(prepared, prompt)
        except OSError as problem:
            short = shortage.error(problem, f"the turn's files can't be made: {problem.strerror}")
            raise short or SandboxFailed(f"{prepared.command[0]} can't be started: {problem.strerror}") from None
        finally:
            prepared.close()
        self._without = prepared.without
        pidfd = process.open_own(started)
        # The sandbox runs from here on, so it must be recorded, however long that takes.
        await until_stored(lambda: self._observer.turn_spawned(self.turn, started, prepared.version, prepared.directory))
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

    async def _accompany(self, pidfd: int | None, change: ChangeFlag) -> TurnObservation:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._climb_the_ladder)
                nursery.start_soon(self._end_after_result)
                nursery.start_soon(self._keep_time)
                nursery.start_soon(self._keep_silence, change)
                nursery.start_soon(self._keep_frozen)
                nursery.start_soon(self._keep_going)
                nursery.start_soon(self._keep_output)
                followed = trio.Event()
                nursery.start_soon(self._output.follow, change, followed)
                await self._wait_exit(pidfd)
                # At once: its output may wait to be recorded until there is room again.
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
        stop = None if self._stop.reason == AFTER_RESULT else self._stop.reason
        ran_out = self._group.ran_out() if self._group is not None else RanOut()
        errors, anything = self._place.read_errors(), self._place.has_output()
        return TurnObservation(
            self._output.result, exit_code, stop, errors, anything,
            ran_out=ran_out, disk_full=disk_full, without=self._without,
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
        inner = await patiently(self._find_inner)
        if inner is not None:
            process.kill(inner)
            await trio.lowlevel.wait_readable(inner)

    async def _release_outer(self, pidfd: int) -> None:
        """Let bubblewrap's outer process end once its inner one has, though somebody outside may have stopped it."""
        await sandbox_process.reported(self._place, self._watcher)
        if (inner := await patiently(self._find_inner)) is not None and self._inner is not None:
            with self._showing(self._inner):
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
        await self._stop.wanted.wait()
        rungs = (signal.SIGTERM,) if self._stop.reason == AFTER_RESULT else (signal.SIGINT, signal.SIGTERM)
        for number in rungs:
            with trio.move_on_after(self._limits.stop_grace):
                await self._signal_program(number)
                await trio.sleep_forever()
        await patiently(self._kill)

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
            while (inner := await patiently(self._find_inner)) is None or self._inner is None:
                await change.wait()
        self._points.before(f"{number.name} sent")
        if not await patiently(partial(sandbox_process.signal_program, self._inner, number)):
            process.kill(inner)
        self._points.after(f"{number.name} sent")

    async def _end_after_result(self) -> None:
        await self._output.result_seen.wait()
        await trio.sleep(self._limits.result_grace)
        self.stop(AFTER_RESULT)

    async def _keep_time(self) -> None:
        """Stop the turn when its time is up; the time it is frozen doesn't count."""
        left = self._limits.time_left
        if left is None:
            return
        while left > 0:
            await self._thawing.wait()
            began = trio.current_time()
            with trio.move_on_after(left):
                await self._freezing.wait()
            left -= trio.current_time() - began
        await until_stored(lambda: self._observer.turn_limit_reached(self.turn, took_too_long(self._limits.time)))

    async def _keep_silence(self, change: ChangeFlag) -> None:
        """Stop the turn when it has printed nothing for too long."""
        while True:
            call = self._observer.open_call(self.turn)
            silent = trio.current_time() - max(self._heard_at, change.raised_at)
            left = self._limits.silence_left(silent, is_calling=call is not None)
            if left is None:
                return
            if left <= 0:
                break
            await self._thawing.wait()
            with trio.move_on_after(left):
                await self._freezing.wait()
        reason = silent_too_long(self._limits.silence or 0) if call is None else call_too_long(self._limits.tool or 0, call)
        await until_stored(lambda: self._observer.turn_limit_reached(self.turn, reason))

    async def _keep_frozen(self) -> None:
        """Freeze all processes of the turn, whenever it is to be frozen."""
        while True:
            await self._freezing.wait()
            self._points.before("sandbox frozen")
            while self._freezing.is_set() and not self.frozen.is_set():
                pause = _FREEZE_PAUSE
                try:
                    if self._stop_in_memory():
                        self._points.after("sandbox frozen")
                        self.frozen.set()
                        break
                except OSError as problem:
                    log.error("waiting to freeze a turn", turn=self.turn, reason=str(problem))  # noqa: TRY400
                    pause = shortage.PAUSE
                await trio.sleep(pause)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._let_go_when_killed)
                await self._thawing.wait()
                nursery.cancel_scope.cancel()

    def _is_stopped_in_memory(self) -> bool:
        """Say whether a daemon may have stopped the sandbox; an agent's own stopped processes don't count."""
        if self._freezer is not None:
            return True
        return self._find_inner() is not None and self._inner is not None and sandbox_process.is_stopped(self._inner)

    async def _keep_going(self) -> None:
        """Let the sandbox go on whenever nothing keeps it stopped any more; what fails is tried again."""
        while True:
            await self._to_go_on.wait()
            self._to_go_on.clear()
            if self._is_killed:
                # Its processes would run until the kernel has come to each of them.
                await self._wait_for_inner()
            while not self._freezing.is_set() and not self._is_held and not self._exited.is_set():
                self._points.before("sandbox thawed")
                try:
                    self._continue()
                except OSError as problem:
                    log.error("waiting to let a turn go on", turn=self.turn, reason=str(problem))  # noqa: TRY400
                else:
                    self._points.after("sandbox thawed")
                    break
                await trio.sleep(shortage.PAUSE)

    async def _let_go_when_killed(self) -> None:
        """Let bubblewrap's outer process end, which is stopped in its cgroup like the others, when those were killed."""
        if self._group is not None and await self._wait_for_inner():
            await patiently(self._group.thaw)

    async def _wait_for_inner(self) -> bool:
        """Wait until the sandbox's first process has ended, and all others with it; False if there is none to be found."""
        if (inner := await patiently(self._find_inner)) is None:
            return False
        # A copy of the descriptor: only one task may wait for one, and `_wait_exit` may have to for the other.
        with ExitStack() as stack:
            copy = await patiently(partial(os.dup, inner))
            await trio.lowlevel.wait_readable(launch_plan.closed_by(stack, copy))
        return True

    def _stop_in_memory(self) -> bool:
        """Stop the processes that go on; returns whether all of the sandbox was stopped by now."""
        if self._find_inner() is None or self._inner is None:
            return False
        if (freezer := self._freezer) is not None:
            return freezer.freeze()
        return sandbox_process.stop_all(self._inner)

    async def _keep_output(self) -> None:
        """Notice a turn that writes too much, to standard error too, whether its lines are read as fast or not."""
        if not self._limits.output:
            return
        with self._watcher.watching(self._place.root) as change:
            while self._place.output_size() <= self._limits.output:
                await change.wait()
            await self._output.tell_too_long()
            # It is being stopped gently; one that goes on flooding the disk meanwhile is not.
            while self._place.output_size() <= 2 * self._limits.output:
                await change.wait()
            await patiently(self._kill)
