"""Keeps agents' claims, and finds those whose directories meet others. Pure.

Two directories meet where one is the other or lies in it. Those around a directory are the beginnings of its path, and
those in it stand side by side in a sorted list, so neither costs a look at every agent. Example: of `/p`, `/p/sub/x` and
`/q`, the first two meet `/p/sub`.
"""

from __future__ import annotations

import bisect
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from substrat.core.workspaces.overlap import Claim


class Claims:
    """The claims of some agents, by the agents' ids.

    Args:
        claims: those it begins with, the oldest agent's first.
    """

    def __init__(self, claims: Mapping[str, Claim]) -> None:
        self._claims = dict(claims)
        self._numbers = count()
        self._age = {agent: next(self._numbers) for agent in claims}
        self._holders: dict[str, set[str]] = {}
        for agent, claim in claims.items():
            for path in _places(claim):
                self._holders.setdefault(path, set()).add(agent)
        self._paths = sorted(self._holders)

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def put(self, agent: str, claim: Claim) -> None:
        """Keep an agent's claim, in the place of the one it had."""
        before = self._claims.get(agent)
        self._claims[agent] = claim
        if before is not None and _places(before) == _places(claim):
            return
        if before is not None:
            self._forget(agent, before)
        else:
            self._age[agent] = next(self._numbers)
        for path in _places(claim):
            if path not in self._holders:
                self._holders[path] = set()
                bisect.insort(self._paths, path)
            self._holders[path].add(agent)

    def drop(self, agent: str) -> None:
        """Forget an agent's claim, if there is one."""
        if (claim := self._claims.pop(agent, None)) is not None:
            del self._age[agent]
            self._forget(agent, claim)

    def _forget(self, agent: str, claim: Claim) -> None:
        for path in _places(claim):
            self._holders[path].discard(agent)
            if not self._holders[path]:
                del self._holders[path]
                del self._paths[bisect.bisect_left(self._paths, path)]

    def holders(self, path: str) -> Collection[str]:
        """Return the agents that claim exactly a directory."""
        return self._holders.get(path, ())

    def meeting(self, places: Iterable[str]) -> list[str]:
        """Return the agents of which a directory meets one of some places, the oldest first."""
        found: set[str] = set()
        for place in dict.fromkeys(places):
            found.update(*map(self.holders, _around(place)))
            start = place.rstrip("/") + "/"
            after = start[:-1] + "0"  # the next character: all that lies in the place sorts between the two
            inside = slice(bisect.bisect_left(self._paths, start), bisect.bisect_left(self._paths, after))
            found.update(*map(self.holders, self._paths[inside]))
        return sorted(found, key=self._age.__getitem__)

    def beside(self, claim: Claim, *without: str) -> tuple[Claim, ...]:
        """Return the claims of which a directory meets one of a claim's, the oldest agent's first.

        Args:
            claim: the claim.
            without: the agents that are left out.
        """
        return tuple(self._claims[agent] for agent in self.meeting(_places(claim)) if agent not in without)

    def writable_around(self, path: str) -> str | None:
        """Return a directory that an agent may write to, which is a path or around it; None: there is none."""
        for place in _around(path):
            claims = (self._claims[agent] for agent in self.holders(place))
            if any(place in claim.writable or place in claim.git for claim in claims):
                return place
        return None


def _places(claim: Claim) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*claim.readable, *claim.git)))


def _around(path: str) -> Iterator[str]:
    """Yield a path and the directories around it, the innermost first."""
    while path and path != "/":
        yield path
        path = path.rpartition("/")[0]
    yield "/"
