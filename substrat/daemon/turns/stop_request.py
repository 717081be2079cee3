"""Whether and why a running turn is to be stopped, and work that is given up then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from substrat.core.agents.stop_reason import AFTER_RESULT
from substrat.errors import SubstratError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.agents.stop_reason import StopReason


class StopRequest:
    """Whether and why a turn is to be stopped.

    Args:
        asked: called each time that it is asked for.
    """

    def __init__(self, asked: Callable[[], None]) -> None:
        self._asked = asked
        self.wanted = trio.Event()
        self.reason: StopReason | None = None

    @property
    def is_asked(self) -> bool:
        """Whether a person or a limit stops the turn, not only its own result."""
        return self.reason not in {None, AFTER_RESULT}

    def ask(self, reason: StopReason) -> None:
        """Ask for the turn to be stopped; the first reason counts, except that any reason beats `AFTER_RESULT`."""
        if not self.is_asked:
            self.reason = reason
        self.wanted.set()
        self._asked()

    async def unless_asked(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do something that can be given up when the turn is to be stopped; says whether it was done.

        Raises:
            SubstratError: it failed.
        """
        is_done, failure = False, None
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                await self.wanted.wait()
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
