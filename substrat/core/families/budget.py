"""Decides how much an agent and all that descend from it may use together: a budget is their pool. Pure.

An example: `lead` has the budget `turns=40`. Each turn of lead, of its children and of theirs is one of the 40. With 32
used the pool is nearly used up, and the turns that begin then are told so. With 40 it is used up: no turn of the family
begins until a person gives it more. Nothing is ended, and queued turns go on waiting.

A child may have a budget of its own beside its parent's. Its use counts for both, and both must have something left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TURNS, MINUTES, TOOL_CALLS, RUNNING = "turns", "minutes", "tool_calls", "running"
INPUT_TOKENS, OUTPUT_TOKENS, USD = "input_tokens", "output_tokens", "usd"
SUMS = (USD, TURNS, MINUTES, INPUT_TOKENS, OUTPUT_TOKENS, TOOL_CALLS)
"""The keys of sums. `minutes` are those of the turns, without the time for which they were frozen; `usd` is the list price
of their tokens in dollars (`core/agents/prices.py`)."""
_FRACTIONS = (USD, MINUTES)
KEYS = (*SUMS, RUNNING)
"""The sums, and `running`: how many turns may run at once, which is a limit and no sum."""
MOST = 10**12
"""The largest limit: sums up to a thousand times as much are exact."""
_IN_A_TURN = (MINUTES, TOOL_CALLS)
"""The keys that are counted while a turn runs, so it is stopped when they are used up; tokens are told at its end."""
_WARNED = 0.8
"""The part of a limit from which on turns are told."""


class Standing(StrEnum):
    """How much of a budget is left; the order of the members is theirs."""

    OK = "ok"
    WARNED = "warned"
    """Four fifths of a limit are used: an event says so, and the turns that begin are told."""
    OUT = "out"


_ORDER = tuple(Standing)


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of an agent and all that descend from it.

    Args:
        limits: how much of each key there is; empty where an agent's use is counted only for an ancestor's budget.
        used: how much of each sum is used since it is counted; a turn that ran then counts whole.
        told: the standing that the last event told; only a change of the limits makes it better.
        since: since when, in seconds since the epoch.
        unpriced: the model of a turn that has no list price, so that its `usd` aren't known; None: there was no such turn.
    """

    limits: dict[str, float] = field(default_factory=dict, hash=False)
    used: dict[str, float] = field(default_factory=dict, hash=False)
    told: Standing = Standing.OK
    since: float = 0.0
    unpriced: str | None = None

    def with_spent(self, spent: Mapping[str, float]) -> Budget:
        """Return the budget after more of some sums is used."""
        most = float(MOST * 1000)
        sums = {key: min(self.used.get(key, 0.0) + max(0.0, more), most) for key, more in spent.items() if more}
        return replace(self, used={**self.used, **sums})

    @property
    def sums(self) -> list[tuple[str, float]]:
        """The limits of the sums, each with its key."""
        return [(key, limit) for key, limit in self.limits.items() if key != RUNNING]

    @property
    def standing(self) -> Standing:
        """How it stands by its use."""
        if self.unpriced is not None and USD in self.limits:
            return Standing.OUT
        part = max((_part(self, key) for key, _ in self.sums), default=0.0)
        return Standing.OUT if part >= 1 else Standing.WARNED if part >= _WARNED else Standing.OK

    def noted(self, now: float, standing: Standing | None = None) -> Budget:
        """Return the budget with a standing told, if that is worse than the one told before.

        Args:
            now: the time, in seconds since the epoch.
            standing: how it stands with the turns that run; None: as it stands without them.
        """
        return self.told_as(max(self.told, standing or self.standing, key=_ORDER.index), now)

    def told_as(self, standing: Standing, now: float) -> Budget:
        """Return the budget with a standing told, since now if it is another one than was told before."""
        return self if standing is self.told else replace(self, told=standing, since=now)

    @property
    def left(self) -> dict[str, float]:
        """How much of each limit is left; all of `running`."""
        return {key: max(0.0, limit - self.used.get(key, 0.0)) for key, limit in self.limits.items()}

    @property
    def stops_turns(self) -> bool:
        """Whether turns that run are stopped: something is used up that is counted while they run."""
        return any(key in _IN_A_TURN and _part(self, key) >= 1 for key, _ in self.sums)

    def seconds_left(self, running: int) -> float | None:
        """Return after how many seconds its minutes are used up while so many turns run; None: it has no such limit."""
        limit = self.limits.get(MINUTES)
        return None if limit is None or not running else max(0.0, limit - self.used.get(MINUTES, 0.0)) * 60.0 / running


def read(words: Iterable[str]) -> dict[str, float]:
    """Read limits as people write them, `turns=40`; raises `InvalidParams`."""
    found: dict[str, float] = {}
    for word in words:
        key, _, value = word.partition("=")
        try:
            found[key] = float(value)
        except ValueError:
            raise InvalidParams(f"{word!r} is no KEY=NUMBER of a budget: write it as in turns=40") from None
    return checked(found)


def checked(limits: Mapping[str, float]) -> dict[str, float]:
    """Return limits, or raise `InvalidParams` if a budget can't have them."""
    for key, limit in limits.items():
        if key not in KEYS:
            raise InvalidParams(f"a budget has no {key!r}: choose among {', '.join(KEYS)}")
        if not 0 <= limit <= MOST:
            raise InvalidParams(f"{key} can be a number from 0 to {MOST}, not {limit:g}")
        if key not in _FRACTIONS and limit != int(limit):
            raise InvalidParams(f"{key} can be a whole number, not {limit:g}")
        if key == RUNNING and limit == 0:
            raise InvalidParams("running can be 1 or more: turns=0 lets no turn begin")
    return dict(limits)


def with_limits(before: Budget | None, limits: Mapping[str, float]) -> Budget:
    """Return a budget with other limits for some keys; one that had no limits of its own begins to count anew."""
    kept = before if before is not None and before.limits else Budget()
    unpriced = None if USD in limits else kept.unpriced
    return replace(kept, limits={**kept.limits, **limits}, unpriced=unpriced)


def with_more(before: Budget | None, more: Mapping[str, float]) -> Budget:
    """Return a budget with more of some keys: than its limit, or than is used where it had none; as `with_limits`."""
    kept = before if before is not None and before.limits else Budget()
    sums = {key: kept.limits.get(key, kept.used.get(key, 0.0)) + added for key, added in more.items()}
    return with_limits(kept, checked(sums))


def too_much(limits: Mapping[str, float], name: str, above: Budget) -> str | None:
    """Say why a child can't have a budget below that of an ancestor of the name; None: it can."""
    left = above.left
    over = next((key for key, limit in limits.items() if limit > left.get(key, limit)), None)
    return None if over is None else f"{over} can be {_number(left[over])} at most, the rest of {name}'s budget"


def sentence(name: str, budget: Budget) -> str:
    """Return the scarcest limit with the command that raises it: `40 of 40 turns: budget lead --add turns=10`."""
    if budget.unpriced is not None and USD in budget.limits:
        return f"{_unpriced(budget)}: {_again(name, budget)}"
    return f"{_used(budget, _scarcest(budget))}: {_more(name, budget)}"


def spent_up(name: str, budget: Budget) -> str:
    """Return why a turn waits: `40 of 40 turns of the budget of lead are used: `substratctl …` lets it go on`."""
    if budget.unpriced is not None and USD in budget.limits:
        command = _again(name, budget)
        return f"{_unpriced(budget)}: `substratctl {command}` lets it go on"
    used, command = _used(budget, _scarcest(budget)), _more(name, budget)
    return f"{used} of the budget of {name} are used: `substratctl {command}` lets it go on"


def of_all(budget: Budget) -> str:
    """Say how much of each limit is used: `33 of 40 turns, 12.5 of 90 minutes, 4 running at once`."""
    at_once = [f"{_number(limit)} running at once" for key, limit in budget.limits.items() if key == RUNNING]
    return ", ".join([*(_used(budget, key) for key, _ in budget.sums), *at_once])


def words(name: str, budget: Budget) -> str | None:
    """Return the line for agents whose pool, an agent's of the name, is nearly used up; None: much is left."""
    if budget.standing is Standing.OK:
        return None
    used = f"{of_all(budget)} of the budget of {name} and its descendants are used"
    return f"From Substrat: {used}. At its end all of them pause."


def _unpriced(budget: Budget) -> str:
    return f"{budget.unpriced} has no list price, so the usd of a turn aren't known"


def _again(name: str, budget: Budget) -> str:
    """Return the command that counts on without that turn."""
    return f"budget {name} --set usd={budget.limits[USD]:g}"


def _scarcest(budget: Budget) -> str:
    return max((key for key, _ in budget.sums), key=lambda key: _part(budget, key))


def _more(name: str, budget: Budget) -> str:
    """Return the command that gives enough of the scarcest limit: the excess, and a quarter of the limit."""
    key = _scarcest(budget)
    over = max(0.0, budget.used.get(key, 0.0) - budget.limits[key])
    return f"budget {name} --add {key}={math.ceil(over) + max(1, round(budget.limits[key] / 4))}"


def _part(budget: Budget, key: str) -> float:
    limit = budget.limits[key]
    return budget.used.get(key, 0.0) / limit if limit else float("inf")


def _used(budget: Budget, key: str) -> str:
    if key == USD:
        return f"${budget.used.get(key, 0.0):,.2f} of ${budget.limits[key]:,.2f}"
    return f"{_number(budget.used.get(key, 0.0))} of {_number(budget.limits[key])} {key.replace('_', ' ')}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}" if value >= 1 else f"{round(value, 2):g}"
