"""Adds up tokens over an agent's turns and over a family. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LARGEST = 2**63 - 1
"""The largest number that JSON answers carry: agent programs may report up to as much for each turn."""


class Tokens(NamedTuple):
    """The tokens of all turns of an agent, as lists show them: without those that the model's cache read or wrote."""

    input: int = 0
    output: int = 0

    def after(self, usage: Mapping[str, int] | None) -> Tokens:
        """Return the tokens after a turn that reported `usage`; no sum gets smaller or larger than a database keeps."""
        if usage is None:
            return self
        sums = (held + max(0, usage.get(name, 0)) for held, name in zip(self, ("inputTokens", "outputTokens"), strict=True))
        return Tokens(*(min(number, _LARGEST) for number in sums))


NO_TOKENS = Tokens()


class Total(NamedTuple):
    """The use of tokens of some turns.

    Args:
        turns: how many turns reported their use; builds before 2026.03 never do.
        usage: the sum of each of cursor-agent's counts.
    """

    turns: int
    usage: dict[str, int]


def total(usages: Iterable[Mapping[str, int]]) -> Total:
    """Add up the use of turns."""
    turns, sums = 0, dict[str, int]()
    for usage in usages:
        turns += 1
        for name, count in usage.items():
            sums[name] = max(-_LARGEST, min(sums.get(name, 0) + count, _LARGEST))
    return Total(turns, sums)


def together(totals: Iterable[Total]) -> Total:
    """Add up totals."""
    found = list(totals)
    return Total(sum(one.turns for one in found), total(one.usage for one in found).usage)
