"""Watches the directories that hold findings' files: a finding closes soon after these are gone, and opens with them."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.agents.lifecycle import LIVE_PHASES
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.kernel.inotify import EntryWatcher
from substrat.errors import DescriptorsUsedUp, StorageFailed
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from substrat.core.agents.records import Finding
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files

log = structlog.get_logger("substrat.findings")

_MOST = 1000
"""Directories that are watched: the user has some ten thousand watches. Findings elsewhere close at the next turn's end."""
_PAUSE = 0.5
"""Seconds between two looks: an agent that works in such a directory may change its names at any rate."""


async def run(
    registry: Registry,
    files: Files,
    closed: Callable[[], Collection[Finding]],
    look_again: Callable[[], Awaitable[None]],
) -> None:
    """Have findings looked at when something has changed beside their files, until cancelled.

    Args:
        registry: the agents.
        files: touches the directories.
        closed: returns the findings that have closed by themselves.
        look_again: looks at all findings.
    """
    wanted = Wakeup()
    known: dict[str, tuple[bool, tuple[int, ...]]] = {}

    def look_at(agents: Iterable[str]) -> None:
        """Look soon if a sandbox may have ended, a finding has come, or an agent is removed."""
        for agent_id in agents:
            agent = registry.get(agent_id)
            if agent is None:
                known.pop(agent_id, None)
                wanted.set()
                continue
            now = agent.phase in LIVE_PHASES, tuple(finding.number for finding in agent.findings)
            if known.get(agent_id, (False, ())) != now:
                known[agent_id] = now
                wanted.set()

    registry.observe(look_at)
    with closing(EntryWatcher()) as watcher:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_notice, watcher, wanted)
            watched: set[int] = set()
            while True:
                wanted.clear()
                try:
                    watched = await _watch(registry, files, closed(), watcher, watched)
                    await look_again()
                except (StorageFailed, DescriptorsUsedUp) as problem:
                    log.error("a finding that is settled stays open", reason=problem.message)  # noqa: TRY400
                await wanted.wait()


async def _notice(watcher: EntryWatcher, wanted: Wakeup) -> None:
    while True:
        await watcher.wait()
        await trio.sleep(_PAUSE)
        watcher.changes(())  # which names they are doesn't matter
        wanted.set()


async def _watch(
    registry: Registry, files: Files, closed: Collection[Finding], watcher: EntryWatcher, watched: set[int]
) -> set[int]:
    """Watch the directories of findings' files, and those above, which may be renamed; return the watches' numbers."""
    places: dict[str, str] = {}
    pairs = [(one, finding) for one in registry.agents for finding in one.findings]
    pairs += [(one, finding) for finding in closed if (one := registry.get(finding.agent))]
    for agent, finding in pairs:
        for directory in dict.fromkeys(map(os.path.dirname, finding.files)):
            places[directory] = agent.host_directory
            outer = os.path.dirname(directory)
            while outer not in places and is_within(outer, agent.host_directory):
                places[outer] = agent.host_directory
                outer = os.path.dirname(outer)
    found: set[int] = set()
    some = list(places.items())[:_MOST]
    for place in dict.fromkeys(place for _, place in some):
        with suppress(NoAnswer):
            numbers = await watcher.watch(files, place, [directory for directory, its in some if its == place])
            # Another is gone, or there are no watches left.
            found |= {number for number in numbers.values() if isinstance(number, int)}
    for number in watched - found:
        watcher.forget(number)
    return found
