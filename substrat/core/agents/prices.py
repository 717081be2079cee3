"""Says what a turn's tokens cost at list price. Pure: the table's text, `prices.toml`, is given.

An example: a turn of `claude-sonnet-4-5` with 1,000 tokens of input, 20,000 read from the cache and 500 of output costs
0.003 + 0.006 + 0.0075 dollars. A model that isn't in the table, `auto` among them, has no price: which one it was is the
program's secret.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_PER = 1e6
"""Tokens that a price is for."""
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}$|@\d{8}$")
_EFFORT = re.compile(r"-(?:thinking|low|medium|high|xhigh)$")
_VENDOR = re.compile(r"^(?:[a-z-]+/)?(?:claude-)?")


class Price(NamedTuple):
    """The list price of a model in dollars for a million tokens; None: the vendor names none, and asks for that of input.

    Args:
        input: of input that no cache has; all programs' decoders leave what was cached out.
        cache_read: of input that was read from the cache.
        cache_write: of input that was written to it.
        output: of output.
    """

    input: float
    cache_read: float | None = None
    cache_write: float | None = None
    output: float | None = None


_TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
"""The counts of a turn's usage, in the order of `Price`."""

Prices = dict[str, Price]
"""The prices of models by their plain names."""


def parse(text: str) -> Prices:
    """Read the table: a table for each provider, in it for each model the members of `Price`."""
    providers = tomllib.loads(text)
    return {
        plain(model): Price(**{kind: float(price) for kind, price in prices.items() if kind in Price._fields})
        for models in providers.values()
        for model, prices in models.items()
    }


def plain(model: str) -> str:
    """Return a model's name as programs agree on it: `claude-sonnet-4-5` and `sonnet-4.5` are `sonnet-4-5`."""
    name = model.strip().lower()
    return _VENDOR.sub("", name).replace(".", "-")


def price_of(prices: Prices, model: str | None) -> Price | None:
    """Return a model's price; None: it has none.

    A model's name may end with how much it thinks, which costs no more by the token: `-thinking`, `-high`.
    """
    name = plain(model or "")
    return prices.get(name) or prices.get(_DATE.sub("", name)) or prices.get(_EFFORT.sub("", name))


def cost(prices: Prices, model: str | None, usage: Mapping[str, int]) -> float | None:
    """Return the dollars that a turn's tokens cost; None: its model has no price."""
    if (price := price_of(prices, model)) is None:
        return None
    counts = (max(0, usage.get(kind, 0)) for kind in _TOKENS)
    return sum(count * (price.input if kind is None else kind) for kind, count in zip(price, counts, strict=True)) / _PER
