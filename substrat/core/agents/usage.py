"""Adds up tokens and their list price over an agent's turns, over a family, or by day, model and repository. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import prices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from substrat.core.agents.prices import Prices

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


class Used(NamedTuple):
    """The use of a turn.

    Args:
        agent: its agent's id.
        number: its number.
        at: when it was started, in seconds since the epoch.
        model: its model; None: that isn't known.
        usage: the counts that it reported.
    """

    agent: str
    number: int
    at: float
    model: str | None
    usage: Mapping[str, int]


class Total(NamedTuple):
    """The use of tokens of some turns.

    Args:
        turns: how many turns reported their use; builds before 2026.03 never do.
        usage: the sum of each of cursor-agent's counts.
        usd: what those of them cost at list price whose models have one, in dollars; None: none has.
        unpriced: how many turns have none.
    """

    turns: int = 0
    usage: Mapping[str, int] = {}
    usd: float | None = None
    unpriced: int = 0


def total(used: Iterable[Used], table: Prices) -> Total:
    """Add up the use of turns."""
    return together(_of_turn(one, table) for one in used)


def _of_turn(used: Used, table: Prices) -> Total:
    usd = prices.cost(table, used.model, used.usage)
    return Total(1, used.usage, usd, unpriced=int(usd is None))


def together(totals: Iterable[Total]) -> Total:
    """Add up totals."""
    turns, unpriced, usd, sums = 0, 0, list[float](), dict[str, int]()
    for one in totals:
        turns, unpriced = turns + one.turns, unpriced + one.unpriced
        usd += [one.usd] if one.usd is not None else []
        for name, count in one.usage.items():
            sums[name] = max(-_LARGEST, min(sums.get(name, 0) + count, _LARGEST))
    return Total(turns, sums, math.fsum(usd) if usd else None, unpriced)
