"""Tells which sandboxes have everything mounted, and waits for those that are still being set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from sandbox.bwrap import STAGE
from substrat.daemon.kernel import procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox

log = structlog.get_logger("substrat.protection")

_PAUSE, _SECONDS, _LONG_PAUSE = 0.005, 2.0, 0.2
"""The kernel doesn't report when bubblewrap has mounted everything (some 10 ms). A sandbox that isn't ready after
the seconds, for example because a person has frozen it, is checked with the long pause between checks."""


def _waits(first: int) -> bool:
    """Say whether a sandbox waits for late mounts (`bwrap.GATE`); only `remount` moves them from where they stand."""
    try:
        return any(mount.point.startswith(f"{STAGE}/") for mount in procfs.mounts(first))
    except ProcessLookupError:
        return False  # it has just ended


class SetUpWatch:
    """Waits for sandboxes in which something changed while they were being set up.

    Args:
        sandboxes: the sandboxes that are protected, by name.
        ended: the names of those that were ended.
        ask: asks for a check of a sandbox that is ready.
    """

    def __init__(
        self, sandboxes: Mapping[str, ProtectedSandbox], ended: Collection[str], ask: Callable[[str], None]
    ) -> None:
        self._sandboxes = sandboxes
        self._ended = ended
        self._ask = ask
        self._unready: dict[str, float] = {}
        self._is_waited_for = trio.Event()

    def forget(self, name: str) -> None:
        """Wait no longer for a sandbox."""
        self._unready.pop(name, None)

    def is_set_up(self, sandbox: ProtectedSandbox) -> bool:
        """Say whether a sandbox has everything mounted and runs; one that is still being set up is noted, to be looked at.

        Such a one mustn't be waited for, nor held: stopped in memory it is never ready, and a person may have frozen it.
        """
        first = sandbox.control.first_process()
        if first is None or sandbox.name in self._ended:
            return False
        if not procfs.children(first) or _waits(first):
            self._unready.setdefault(sandbox.name, trio.current_time())
            self._is_waited_for.set()
            return False
        return True

    async def run(self) -> None:
        """Ask for a check of sandboxes that were being set up when something changed, as soon as they are ready."""
        while True:
            await self._is_waited_for.wait()
            self._is_waited_for = trio.Event()
            while self._unready:
                waiting, self._unready = self._unready, {}
                for name, since in waiting.items():
                    sandbox = self._sandboxes.get(name)
                    if sandbox is not None and self._may_be_set_up(sandbox):
                        self._ask(name)
                    elif name in self._unready:
                        self._unready[name] = since
                is_quick = any(since + _SECONDS > trio.current_time() for since in self._unready.values())
                await trio.sleep(_PAUSE if is_quick else _LONG_PAUSE)

    def _may_be_set_up(self, sandbox: ProtectedSandbox) -> bool:
        try:
            return self.is_set_up(sandbox)
        except Exception:
            log.exception("can't tell whether a sandbox is set up")
            return True  # the check ends it, and goes on with the others
