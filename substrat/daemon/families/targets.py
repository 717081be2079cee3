"""Whether the branches that clones' work is to land in are still there: a person may rename or delete one.

It is read from files. For example after `git branch -m main trunk` there is neither `refs/heads/main` nor a line of
`packed-refs` with it. Lists of agents ask for it, and wait but a moment for a repository that doesn't answer.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.kernel import nofollow
from substrat.daemon.state.own_files import is_kind
from substrat.errors import SubstratError

if TYPE_CHECKING:
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files

_PACKED_BYTES = 1 << 20
"""Bytes of `packed-refs`, some 15,000 refs, which are read in a millisecond; of larger ones it isn't known."""
_MOMENT = 0.3
"""Seconds that a list waits; a look takes some milliseconds, and one that takes longer counts for the next list."""


class Targets:
    """Knows which branches are gone, as of the last look."""

    def __init__(self, registry: Registry, files: Files) -> None:
        self._registry = registry
        self._files = files
        self._gone: dict[str, frozenset[str]] = {}
        """The branches that are gone, by their git directory."""
        self._wanted, self._over = Wakeup(), trio.Event()

    def is_gone(self, clone: Clone) -> bool:
        """Say whether a clone's branch surely isn't there; a repository that hadn't a commit may not have it yet."""
        return clone.base is not None and clone.target in self._gone.get(clone.git_dir, ())

    async def look(self) -> None:
        """Have the branches looked at whose work hasn't landed, and wait a moment for that."""
        if self._looked_for():
            over = self._over
            self._wanted.set()
            with trio.move_on_after(_MOMENT):
                await over.wait()

    async def run(self) -> None:
        """Look whenever that is asked for, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            over, self._over = self._over, trio.Event()
            async with trio.open_nursery() as nursery:
                for git_dir, branches in self._looked_for().items():
                    nursery.start_soon(self._look, git_dir, tuple(branches))
            over.set()

    def _looked_for(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for agent in self._registry.agents:
            if agent.clone is not None and agent.clone.target is not None and agent.clone.is_unlanded:
                found.setdefault(agent.clone.git_dir, set()).add(agent.clone.target)
        return found

    async def _look(self, git_dir: str, branches: tuple[str, ...]) -> None:
        with suppress(SubstratError):  # it is as it was
            self._gone[git_dir] = await self._files.run(git_dir, gone, git_dir, branches)


def gone(git_dir: str, branches: tuple[str, ...]) -> frozenset[str]:
    """Return those of some branches that surely aren't there."""
    heads = f"{git_dir}/refs/heads"
    if not is_kind(heads, stat.S_ISDIR):  # where refs are in tables (git 2.45, `reftable`) it is a file
        return frozenset()
    # Other branches may lie below this one's name.
    places = {name: f"{heads}/{name}" for name in branches}
    absent = [name for name, at in places.items() if not os.path.lexists(at) or is_kind(at, stat.S_ISDIR)]
    packed = nofollow.read_small(f"{git_dir}/packed-refs", _PACKED_BYTES)
    if packed is None:
        return frozenset(() if os.path.lexists(f"{git_dir}/packed-refs") else absent)
    return frozenset(name for name in absent if b" refs/heads/" + os.fsencode(name) + b"\n" not in packed)
