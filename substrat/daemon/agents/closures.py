"""Keeps agents out of directories while the host's git writes there.

git follows a link that is put in a directory's place while it writes. So it writes only where no sandbox can: a directory
is closed first, which lets no sandbox begin that could write in it, and then those that run are waited for. A closing is
in memory only: the work that it is for ends with the daemon, or is begun anew by the next one.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.core.agents.lifecycle import LIVE_PHASES
from substrat.core.workspaces import overlap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry

Places = tuple[str, ...]


class User(NamedTuple):
    """An agent of which a sandbox runs.

    Args:
        name: its name.
        has_turn: whether a turn of it runs; else a command of `exec`, or the set-up of its clone.
    """

    name: str
    has_turn: bool


class Closures:
    """The closed directories of one daemon."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._closed: list[tuple[Places, str]] = []
        self._commands: Counter[str] = Counter()
        self._changed = trio.Event()

    def obstacle(self, agent: Agent) -> str | None:
        """Say why no sandbox of an agent's may begin; None: it may."""
        if not self._closed:
            return None
        claim = self._registry.index.claim(agent)
        return next((reason for places, reason in self._closed if overlap.writes_in(claim, places)), None)

    @contextmanager
    def closing(self, places: Places, reason: str) -> Iterator[None]:
        """Let no sandbox begin that can write in some directories, for as long as the context lasts.

        Args:
            places: the physical paths of the directories.
            reason: why, as a sentence about an agent that waits for it: `the work of fix is landed in /w first`.
        """
        entry = (places, reason)
        self._closed.append(entry)
        try:
            yield
        finally:
            self._closed.remove(entry)
            self.look()
            # Those that waited are admitted by the timer, which a daemon that is stopping has ended, so it starts no turn.
            self._registry.wake_at(self._registry.now())

    def users(self, places: Places) -> list[User]:
        """Return the agents of which sandboxes run that can write in some directories."""
        return [
            User(agent.name, agent.phase in LIVE_PHASES)
            for agent in self._registry.index.meeting(places)
            if (agent.phase in LIVE_PHASES or self._commands[agent.id])
            and overlap.writes_in(self._registry.index.claim(agent), places)
        ]

    async def unused(self, places: Places, tell: Callable[[list[User]], None]) -> bool:
        """Wait until no sandbox runs that can write in some closed directories; say whether there was one.

        Args:
            places: the directories.
            tell: is given the agents of which such sandboxes run, at each change of any agent; it may raise an error.
        """
        has_waited = False
        while found := self.users(places):
            tell(found)
            has_waited = True
            await self._changed.wait()
        return has_waited

    @asynccontextmanager
    async def entered(self, agent: Agent) -> AsyncIterator[None]:
        """Count a command's sandbox among an agent's running ones, as soon as it may begin."""
        while self.obstacle(agent) is not None:
            await self._changed.wait()
        self._commands[agent.id] += 1
        try:
            yield
        finally:
            self._commands -= Counter([agent.id])  # which leaves no zeros behind
            self.look()

    def look(self) -> None:
        """Have those that wait look again: a sandbox may have ended, or a directory may be open again."""
        self._changed.set()
        self._changed = trio.Event()
