"""Watches over the limits of one running turn: its time, its silence, and how much it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from substrat.core.agents.stop_reason import call_too_long, silent_too_long, took_too_long
from substrat.daemon.state.storing import until_stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.turn_limits import TurnLimits
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.kernel.inotify import ChangeFlag, Watcher
    from substrat.daemon.state.layout import TurnDir
    from substrat.daemon.turns.output import TurnOutput


class Pauses:
    """When a running turn is frozen, and when it goes on.

    Args:
        silent: the seconds that it has printed nothing by now.
        frozen: whether it is frozen from the start.
    """

    def __init__(self, silent: float, *, frozen: bool) -> None:
        self.freezing, self.thawing = trio.Event(), trio.Event()
        (self.freezing if frozen else self.thawing).set()
        self.silent_since = trio.current_time() - silent

    @property
    def is_frozen(self) -> bool:
        """Whether it is frozen, or about to be."""
        return self.freezing.is_set()

    def freeze(self) -> None:
        """Let the turn's time stand still."""
        self.thawing = trio.Event()
        self.freezing.set()

    def thaw(self) -> None:
        """Let the turn's time go on, with a silence that begins anew."""
        self.freezing = trio.Event()
        self.silent_since = trio.current_time()
        self.thawing.set()


@attrs.define(kw_only=True, eq=False)
class LimitsWatch:
    """Watches over the limits of a running turn.

    Args:
        turn: its id.
        place: its directory.
        observer: stops it when it has run into a limit.
        watcher: inotify.
        limits: the limits.
        output: its output.
        pauses: the times that count for none of its limits.
        kill: kills it, because it floods the disk while it is being stopped gently.
    """

    _turn: str
    _place: TurnDir
    _observer: Accounting
    _watcher: Watcher
    _limits: TurnLimits
    _output: TurnOutput
    _pauses: Pauses
    _kill: Callable[[], None]

    async def watch(self, change: ChangeFlag) -> None:
        """Watch over all limits until cancelled.

        Args:
            change: raised when a file in the turn's directory has changed.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._keep_silence, change)
            nursery.start_soon(self._keep_output)

    async def _keep_time(self) -> None:
        """Stop the turn when its time is up; the time it is frozen doesn't count."""
        left = self._limits.time_left
        if left is None:
            return
        while left > 0:
            await self._pauses.thawing.wait()
            began = trio.current_time()
            with trio.move_on_after(left):
                await self._pauses.freezing.wait()
            left -= trio.current_time() - began
        await until_stored(lambda: self._observer.turn_limit_reached(self._turn, took_too_long(self._limits.time)))

    async def _keep_silence(self, change: ChangeFlag) -> None:
        """Stop the turn when it has printed nothing for too long, or nothing but tries to connect."""
        while True:
            call = self._observer.open_call(self._turn)
            stalled = self._output.stalled_since
            silent = trio.current_time() - max(self._pauses.silent_since, change.raised_at if stalled is None else stalled)
            left = self._limits.silence_left(silent, is_calling=call is not None)
            if left is None:
                return
            if left <= 0:
                break
            await self._pauses.thawing.wait()
            with trio.move_on_after(left):
                await self._pauses.freezing.wait()
        reason = silent_too_long(self._limits.silence or 0) if call is None else call_too_long(self._limits.tool or 0, call)
        await until_stored(lambda: self._observer.turn_limit_reached(self._turn, reason))

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
            self._kill()
