"""Tells which sandboxes of an agent's run now, its turn's and those of a person's commands, and when that changes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.daemon.kernel import procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

TURN, COMMAND = "turn", "exec"


class ShownSandbox(NamedTuple):
    """A running sandbox, so that a client can find its first process and be sure that it is the same one.

    Args:
        kind: `TURN` or `COMMAND`.
        pid: its first process.
        start_time: that process's start in clock ticks since boot.
    """

    kind: str
    pid: int
    start_time: int


class RunningSandboxes:
    """The running sandboxes of one daemon's agents."""

    def __init__(self) -> None:
        self._shown: dict[str, list[ShownSandbox]] = {}
        self._changed: dict[str, trio.Event] = {}

    def of(self, agent_id: str) -> list[ShownSandbox]:
        """Return an agent's running sandboxes, its turn's first, the newest command's next."""
        newest = self._shown.get(agent_id, [])[::-1]
        return sorted(newest, key=lambda one: one.kind != TURN)

    def change_of(self, agent_id: str) -> trio.Event:
        """Return the event that is set when a sandbox of an agent's is there or has gone."""
        return self._changed.setdefault(agent_id, trio.Event())

    @contextmanager
    def showing(self, agent_id: str, kind: str, pid: int) -> Iterator[None]:
        """Count a sandbox among an agent's running ones."""
        started = procfs.start_time(pid)
        if started is None:  # it has ended
            yield
            return
        shown = ShownSandbox(kind, pid, started)
        self._shown.setdefault(agent_id, []).append(shown)
        self._tell(agent_id)
        try:
            yield
        finally:
            self._shown[agent_id].remove(shown)
            if not self._shown[agent_id]:
                del self._shown[agent_id]
            self._tell(agent_id)

    def _tell(self, agent_id: str) -> None:
        self._changed.pop(agent_id, trio.Event()).set()
