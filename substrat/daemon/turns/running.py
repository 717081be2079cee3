"""Runs one turn's sandbox: launches or adopts it, follows it with its output and its limits, waits for its end.

`Accounting` commits its progress. The turn's task owns its pidfds and its watch. The sandbox is steered in `control`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import trio

from substrat.core.agents.cgroup_limits import RanOut
from substrat.core.agents.stop_reason import AFTER_RESULT
from substrat.core.agents.turn_control import Seen
from substrat.core.agents.verdict import TurnObservation
from substrat.daemon.kernel import descriptors, process, sandbox_process
from substrat.daemon.sandboxes import launch_plan
from substrat.daemon.state import reserve
from substrat.daemon.state.storing import until_stored
from substrat.daemon.turns import shortage
from substrat.daemon.turns.control import TurnControl
from substrat.daemon.turns.limits import LimitsWatch, Pauses
from substrat.daemon.turns.output import TurnOutput
from substrat.daemon.turns.shortage import patiently
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from substrat.core.agents.records import Process
    from substrat.core.agents.turn_limits import TurnLimits
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.kernel.cgroups import Group
    from substrat.daemon.kernel.inotify import ChangeFlag, Watcher
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.state.layout import TurnDir
    from substrat.daemon.turns.output import FindObstacles

_ROOM_FOR_ERRORS = 4096
"""Bytes on disk that a program's standard error has from the start: a block, enough for a message and a stack trace."""


class RunningTurn(TurnControl):
    """A turn from its launch, or its adoption by a new daemon, to its last line.

    Args:
        turn: its id.
        place: its directory.
        offset: where to take its output up.
        observer: records its progress.
        watcher: inotify.
        limits: how long things may take.
        points: the failpoints.
        obstacles: says of sessions that the agent has named which aren't its own, and why.
        group: the sandbox's cgroup, if there can be one.
        showing: lets others see the sandbox's first process, given its pid, for as long as the returned context lasts.
        frozen: whether it is to be stopped in memory from the start.
    """

    def __init__(
        self,
        turn: str,
        place: TurnDir,
        offset: int,
        observer: Accounting,
        watcher: Watcher,
        limits: TurnLimits,
        points: Failpoints,
        *,
        obstacles: FindObstacles,
        group: Group | None = None,
        showing: Callable[[int], AbstractContextManager[None]] = lambda _pid: nullcontext(),
        frozen: bool = False,
    ) -> None:
        pauses = Pauses(limits.silent, frozen=frozen)
        super().__init__(turn, place, limits.stop_grace, points, group, pauses)
        self._observer = observer
        self._watcher = watcher
        self._result_grace = limits.result_grace
        self._showing = showing
        self._without: frozenset[str] = frozenset()
        self._ended_before = False
        self._output = TurnOutput(
            turn=turn, place=place, offset=offset, observer=observer, longest=limits.output,
            stop=self.stop_request, exited=self._exited, obstacles=obstacles,
        )  # fmt: skip
        self._limits = LimitsWatch(
            turn=turn, place=place, observer=observer, watcher=watcher, limits=limits, output=self._output, pauses=pauses,
            kill=self.kill_soon,
        )  # fmt: skip

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
        if prepared is None or self.stop_request.wanted.is_set():
            if prepared is not None:
                prepared.close()
            return TurnObservation(None, None, self.stop_request.reason, "", anything=False)
        with ExitStack() as stack:
            try:
                change = stack.enter_context(self._watcher.watching(self._place.root))
            except OSError:
                prepared.close()
                raise
            started = await self._start(prepared)
            record = partial(self._observer.turn_spawned, self.turn, started, prepared.version, prepared.directory)
            return await self._accompany(process.open_own(started), change, record)

    async def adopt(self, started: Process) -> TurnObservation:
        """Stay with a sandbox that an earlier daemon started, whether it is still running or not."""
        self.process = started
        self._ended_before = not process.is_running(started)
        # Perhaps the daemon that is gone has stopped it in memory, and didn't come to letting it go on. A sandbox that it
        # held because protected paths were replaced goes on when `Protection` releases it, and not before.
        is_stopped = self._is_stopped_in_memory()
        self._is_held = self._is_held and is_stopped
        self._halt = Seen.HALTING if is_stopped else Seen.RUNNING
        self._output.find_result()
        self._points.at("sandbox to be adopted")
        with self._watcher.watching(self._place.root) as change:
            return await self._accompany(process.open_pidfd(started), change)

    async def _start(self, prepared: LaunchPlan) -> Process:
        try:
            # The file is the record; through `/proc/1/fd/0` an agent would reach, and could change, its own input.
            prompt = await trio.to_thread.run_sync(self._place.read_prompt)
            started = self.process = self._start_sandbox(prepared, prompt)
        except OSError as problem:
            short = shortage.error(problem, f"the turn's files can't be made: {problem.strerror}")
            raise short or SandboxFailed(f"{prepared.command[0]} can't be started: {problem.strerror}") from None
        finally:
            prepared.close()
        self._without = prepared.without
        return started

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

    async def _follow(self, change: ChangeFlag, followed: trio.Event) -> None:
        """Have the prompt recorded if the program doesn't print it, and then its output."""
        if self._observer.lacks_prompt(self.turn) and (prompt := await trio.to_thread.run_sync(self._place.prompt_text)):
            # A turn that is being stopped ends without that, also while there is no room for it.
            noted = partial(self._observer.prompt_handed_over, self.turn, prompt)
            await self.stop_request.unless_asked(partial(until_stored, noted))
        await self._output.follow(change, followed)

    async def _accompany(
        self, pidfd: int | None, change: ChangeFlag, record: Callable[[], None] = lambda: None
    ) -> TurnObservation:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.control)
                # The sandbox runs from here on, so it must be recorded, however long that takes.
                await until_stored(record)
                nursery.start_soon(self._end_after_result)
                nursery.start_soon(self._limits.watch, change)
                followed = trio.Event()
                nursery.start_soon(self._follow, change, followed)
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
        stop = None if self.stop_request.reason == AFTER_RESULT else self.stop_request.reason
        ran_out = self._group.ran_out() if self._group is not None else RanOut()
        errors, anything = self._place.read_errors(), self._place.has_output()
        return TurnObservation(
            self._output.result, exit_code, stop, errors, anything,
            ran_out=ran_out, disk_full=disk_full, without=self._without, ended_at=self._ended_at(exit_code),
        )  # fmt: skip

    # The end

    def _ended_at(self, exit_code: int | None) -> float | None:
        """Return when the sandbox ended, in seconds since the epoch, as its files say; None: this daemon has seen it end.

        Nobody wrote the end of one down that was killed while no daemon ran: its last sign of life comes nearest.
        """
        if exit_code is not None:
            return self._place.written_at(self._place.status)
        output = (self._place.stdout, self._place.stderr, self._place.status)
        return self._place.written_at(*output) if self._ended_before else None

    async def _wait_exit(self, pidfd: int | None) -> None:
        assert self.process is not None
        if pidfd is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._release_outer, pidfd)
                await process.wait_exit(self.process, pidfd)
                nursery.cancel_scope.cancel()
        # bubblewrap's outer process gone and its inner one alive: somebody killed the outer one, the tree must follow.
        inner = await patiently(self._find_inner)
        if inner is not None:
            self._ended_before = self._ended_before and process.has_ended(inner)
            self._is_to_be_killed = self._is_dying = True
            process.kill(inner)
            await trio.lowlevel.wait_readable(inner)

    async def _release_outer(self, pidfd: int) -> None:
        """Let bubblewrap's outer process end once its inner one has, though somebody outside may have stopped it."""
        await sandbox_process.reported(self._place, self._watcher)
        if (inner := await patiently(self._find_inner)) is not None and self._inner is not None:
            self._changed.set()
            with self._showing(self._inner):
                await trio.lowlevel.wait_readable(inner)
        self._is_gone = True
        self._changed.set()
        await sandbox_process.release(pidfd)

    async def _end_after_result(self) -> None:
        await self._output.result_seen.wait()
        await trio.sleep(self._result_grace)
        self.stop(AFTER_RESULT)
