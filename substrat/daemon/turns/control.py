"""Controls a running turn's sandbox: freezes it, holds it, lets it go on, stops it by a ladder of signals, kills it.

Strategy: whoever steers the sandbox (`freeze`, `thaw`, `hold`, `release`, `stop`, `end`) only notes a wish and rings
`_changed`. One task, `control`, looks at the sandbox, asks the table of `core/agents/turn_control.py`, and carries out its
commands; an act that fails is tried again after a pause, with the wishes of then. So no two tasks ever stop and continue
one sandbox against each other. `end` alone also acts by itself, because each instant more would be the agent's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

import structlog
import trio

from substrat.core.agents import turn_control
from substrat.core.agents.turn_control import Command, Seen
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.kernel import process, sandbox_process
from substrat.daemon.turns import shortage
from substrat.daemon.turns.shortage import patiently
from substrat.daemon.turns.stop_request import StopRequest

if TYPE_CHECKING:
    import signal

    from substrat.core.agents.records import Process
    from substrat.core.agents.stop_reason import StopReason
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.kernel.cgroups import Group
    from substrat.daemon.state.layout import TurnDir
    from substrat.daemon.turns.limits import Pauses

log = structlog.get_logger("substrat.control")

_FREEZE_PAUSE = 0.005
"""Seconds between attempts to stop all processes: the kernel starts new ones in less."""


class TurnControl:
    """Controls one turn's sandbox (`lost_mounts.SandboxControl`).

    Args:
        turn: its id.
        place: its directory.
        stop_grace: the seconds between the rungs of the ladder.
        points: the failpoints.
        group: the sandbox's cgroup, if there can be one.
        pauses: when it is frozen.
    """

    def __init__(
        self, turn: str, place: TurnDir, stop_grace: float, points: Failpoints, group: Group | None, pauses: Pauses
    ) -> None:
        self.turn = turn
        self._place = place
        self._stop_grace = stop_grace
        self._points = points
        self._group = group
        self._pauses = pauses
        self._changed = Wakeup()
        self.stop_request = StopRequest(self._changed.set)
        self.frozen, self._exited = trio.Event(), trio.Event()
        self.process: Process | None = None
        """The sandbox's outer process, once it is started."""
        self._inner: int | None = None
        self._inner_pidfd: int | None = None
        self._is_held = self._is_to_be_killed = self._is_dying = self._is_gone = False
        self._halt = Seen.RUNNING
        self._rungs: list[signal.Signals] = []
        self._rung_ends: float | None = None
        self._is_signalled = False

    @property
    def has_begun(self) -> bool:
        """Whether the sandbox has reported its first process."""
        return self._find_inner() is not None

    # Wishes: noted here, and carried out by `control`

    def freeze(self) -> None:
        """Stop the turn in memory; `frozen` is set once all of it is."""
        if not self._pauses.is_frozen:
            self._pauses.freeze()
            self._look_anew()

    def thaw(self) -> None:
        """Let the turn go on, unless it is held or being killed."""
        if self._pauses.is_frozen:
            self._pauses.thaw()
            self.frozen = trio.Event()
            self._changed.set()

    def stop(self, reason: StopReason) -> None:
        """Ask for the turn to be stopped; the first reason counts, except that any reason beats `AFTER_RESULT`.

        A frozen turn is thawed first, so that it can end in good order.
        """
        self.thaw()
        self.stop_request.ask(reason)

    # A look at protected files (`lost_mounts.SandboxControl`)

    async def hold_from_adoption(self) -> None:
        """Hold a sandbox until `release`, if an earlier daemon has stopped it: that one may have died while it held it."""
        self._is_held = True
        if self._pauses.is_frozen and await self._was_stopped():
            self._halt = Seen.STOPPED

    def is_stopped(self) -> bool:
        """Say whether all of the sandbox is stopped in memory; an ordered freeze takes a while to come to that."""
        return self._halt is Seen.STOPPED

    def first_process(self) -> int | None:
        """Return the pid of the sandbox's first process, None while there is none or when it has ended."""
        if self._exited.is_set() or self._find_inner() is None:
            return None
        return self._inner

    async def hold(self) -> bool:
        """Stop all of the sandbox in memory until `release`; says whether that was possible."""
        self._is_held = True
        self._look_anew()
        while await patiently(self.first_process) is not None:
            if self._halt is Seen.STOPPED or self._is_gone:
                return True
            await trio.sleep(_FREEZE_PAUSE)
        return False

    def release(self) -> None:
        """Let the sandbox go on, unless a person has frozen it or it is being killed."""
        self._is_held = False
        self._changed.set()

    def end(self, reason: StopReason) -> None:
        """Kill the sandbox at once, or as soon as that can be done, without letting it go on."""
        self._is_to_be_killed = True
        try:
            self._kill()
        except OSError as problem:
            log.error("a sandbox can't be killed at once", turn=self.turn, reason=str(problem))  # noqa: TRY400
        self.stop(reason)

    def kill_soon(self) -> None:
        """Kill the sandbox as soon as that is possible."""
        self._is_to_be_killed = True
        self._changed.set()

    def _look_anew(self) -> None:
        """Stop also the processes that somebody outside has let go on since all were stopped."""
        if self._halt is Seen.STOPPED:
            self._halt = Seen.HALTING
        self._changed.set()

    # Control

    async def control(self) -> None:
        """Do to the sandbox what the table says, whenever a wish or a fact has changed, until it is gone."""
        while True:
            self._changed.clear()
            seen = await patiently(self._look)
            if seen is Seen.GONE and self._halt is Seen.RUNNING:
                return
            pause = math.inf
            for command in turn_control.TABLE[self._wanted()][seen]:
                try:
                    pause = min(pause, await self._carry_out(command))
                except OSError as problem:
                    log.error("waiting to control a turn", turn=self.turn, command=command, reason=str(problem))  # noqa: TRY400
                    pause = min(pause, shortage.PAUSE)
            with trio.move_on_after(pause):
                await self._changed.wait()

    def _wanted(self) -> turn_control.Wanted:
        return turn_control.wanted(
            frozen=self._pauses.is_frozen, held=self._is_held, stopping=self.stop_request.wanted.is_set(),
            killed=self._is_to_be_killed,
        )  # fmt: skip

    def _look(self) -> Seen:
        if self._is_gone or self._exited.is_set():
            return Seen.GONE
        if self._is_dying:
            return Seen.DYING
        return self._halt if self._find_inner() is not None else Seen.STARTING

    async def _carry_out(self, command: Command) -> float:
        """Carry out a command; returns after how many seconds to look again, if nothing changes before."""
        match command:
            case Command.FREEZE:
                return await self._freeze()
            case Command.THAW:
                self._thaw()
            case Command.SIGNAL:
                self._signal()
            case Command.ARM_TIMER:
                return self._time_rung()
            case Command.KILL:
                self._kill()
            case _:
                assert_never(command)
        return math.inf

    async def _freeze(self) -> float:
        """Stop the processes that go on, one pass of them; the kernel may be starting more."""
        assert self._inner is not None
        if self._halt is Seen.RUNNING and self._pauses.is_frozen:
            self._points.before("sandbox frozen")
        self._halt = Seen.HALTING
        if (freezer := self._freezer) is not None:
            is_stopped = freezer.freeze()
        else:
            # An agent decides how many processes there are to look at.
            is_stopped = await trio.to_thread.run_sync(sandbox_process.stop_all, self._inner)
        if not is_stopped:
            return _FREEZE_PAUSE
        self._halt = Seen.STOPPED
        if self._pauses.is_frozen:
            self._points.after("sandbox frozen")
            self.frozen.set()
        return math.inf

    def _thaw(self) -> None:
        """Let the sandbox go on, or where it is gone bubblewrap's outer process, which is stopped in its cgroup too."""
        self._points.before("sandbox thawed")
        if (freezer := self._freezer) is not None:
            freezer.thaw()
        elif self._inner is not None and not self._is_gone and not self._exited.is_set():
            sandbox_process.continue_all(self._inner)
        self._points.after("sandbox thawed")
        self._halt = Seen.RUNNING
        self._changed.set()

    def _signal(self) -> None:
        """Signal the agent program, once a rung; where bubblewrap hasn't started it there is nothing to be gentle with."""
        if self._is_signalled or self._inner is None:
            return
        number = self._climb()
        self._points.before(f"{number.name} sent")
        if not sandbox_process.signal_program(self._inner, number):
            self.kill_soon()
        self._points.after(f"{number.name} sent")
        self._is_signalled = True

    def _climb(self) -> signal.Signals:
        """Return the signal of the ladder's present rung, the first one's if it hasn't been climbed before."""
        if not self._rungs:
            self._rungs = [*turn_control.ladder(self.stop_request.reason)]
        if self._rung_ends is None:
            self._rung_ends = trio.current_time() + self._stop_grace
        return self._rungs[0]

    def _time_rung(self) -> float:
        """Go on to the next rung of the ladder when the present one's time is over; returns the seconds until then."""
        self._climb()
        assert self._rung_ends is not None
        if (left := self._rung_ends - trio.current_time()) > 0:
            return left
        self._rungs.pop(0)
        self._is_signalled = False
        self._rung_ends = None if self._rungs else math.inf
        self._is_to_be_killed = self._is_to_be_killed or not self._rungs
        return 0.0

    def _kill(self) -> None:
        inner = self._find_inner()
        self._points.before("sandbox killed")
        if inner is not None:
            process.kill(inner)
        elif self.process is not None:
            sandbox_process.kill_recorded(self.process)
        self._is_dying = inner is not None or self.process is not None
        self._points.after("sandbox killed")

    @property
    def _freezer(self) -> Group | None:
        """The cgroup that stops all of the sandbox at once, None where each process must be signalled."""
        return self._group if self._group is not None and self._group.is_there else None

    def _find_inner(self) -> int | None:
        """Return a pidfd of the sandbox's first process, or None while there is none to be found."""
        if self._inner_pidfd is None and self.process is not None:
            self._inner, _ = sandbox_process.read_status(self._place.read_status())
            if self._inner is not None:
                self._inner_pidfd = sandbox_process.open_inner(self.process, self._inner)
        return self._inner_pidfd

    async def _was_stopped(self) -> bool:
        """Say whether an earlier daemon has stopped all of the sandbox, and not only begun to."""
        if (freezer := self._freezer) is not None:
            return freezer.is_stopped
        inner, _ = sandbox_process.read_status(await patiently(self._place.read_status))
        return inner is not None and await trio.to_thread.run_sync(sandbox_process.are_all_stopped, inner)

    def _is_stopped_in_memory(self) -> bool:
        """Say whether a daemon may have stopped the sandbox; an agent's own stopped processes don't count."""
        if (freezer := self._freezer) is not None:
            return freezer.is_to_be_stopped
        return self._find_inner() is not None and self._inner is not None and sandbox_process.is_stopped(self._inner)
