"""Decides which totals a fact adds to, and puts the stored totals together for those who watch. Pure.

Totals are counters that only grow: they outlive the turns, events and agents that they count. For example a turn that
succeeded after 42 s adds 1 to `turns` under `success`, 1 to `turn_seconds` under `60`, the smallest bound that holds it,
and 42 to `turn_seconds_sum`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from substrat.core.agents.records import Turn

BOUNDS_S = (0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, float("inf"))
"""The histograms' bounds in seconds: from a turn that fails at once to one of hours. Totals are stored under them, so a
change of them comes with a migration."""
TOKEN_TYPES = {
    "input": "inputTokens", "output": "outputTokens", "cache_read": "cacheReadTokens", "cache_write": "cacheWriteTokens",
}  # fmt: skip
"""The types of tokens, each with the agent program's name for it."""
OTHER_MODEL = "other"
MOST_MODELS = 50
"""Models that tokens are counted for by name: agents name their children's models, and each makes four series for ever."""
_MOST_TOKENS = 10**10
"""More than a model writes in a year: a program that claims more must not use up the counters' precision (2**53)."""
_COUNTED = {
    "tool-call-started": ("tool_calls", ""),
    "message:sent": ("messages", "accepted"),
    "message:refused": ("messages", "refused"),
    "network:allowed": ("network", "allowed"),
    "network:denied": ("network", "denied"),
}
"""The kinds of events that are counted, each with its total."""

Stored = dict[tuple[str, str], float]
"""The stored totals, by name and label."""


class Addition(NamedTuple):
    """An addition to a total: the total's name, its label, empty where it has none, and how much is added."""

    name: str
    label: str
    value: float


def of_events(kinds: Iterable[str]) -> list[Addition]:
    """Return the additions of some events, by their kinds."""
    counts = Counter(_COUNTED[kind] for kind in kinds if kind in _COUNTED)
    return [Addition(name, label, count) for (name, label), count in counts.items()]


def of_begin(waited: float) -> list[Addition]:
    """Return the additions of a turn that begins after its agent has waited so many seconds for it."""
    return _observed("queue_seconds", waited)


def of_end(turn: Turn, models: Collection[str]) -> list[Addition]:
    """Return the additions of a turn that has ended.

    Args:
        turn: the turn.
        models: the models that tokens are counted for by name already.
    """
    assert turn.outcome is not None
    seconds = _observed("turn_seconds", (turn.ended_at or turn.started_at) - turn.started_at)
    used = turn.usage or {}
    is_named = turn.model is not None and (turn.model in models or len(models) < MOST_MODELS)
    model = turn.model if is_named else OTHER_MODEL
    tokens = [
        Addition("tokens", f"{kind} {model}", min(used[name], _MOST_TOKENS))
        for kind, name in TOKEN_TYPES.items()
        if used.get(name, 0) > 0
    ]
    return [Addition("turns", turn.outcome.value, 1), *seconds, *tokens]


def _observed(name: str, seconds: float) -> list[Addition]:
    """Return the additions of a duration; a clock that was set back makes none that is negative."""
    duration = max(0.0, seconds)
    bound = next(bound for bound in BOUNDS_S if duration <= bound)
    return [Addition(name, f"{bound:g}", 1), Addition(f"{name}_sum", "", duration)]


def models_of(labels: Iterable[str]) -> set[str]:
    """Return the models in the labels of the total `tokens`."""
    return {label.partition(" ")[2] for label in labels}


def put_together(stored: Stored) -> dict[str, object]:
    """Return the totals as members of the protocol's metrics object; those that nothing was added to are zero."""
    by_type: list[dict[str, object]] = []
    for (name, label), value in sorted(stored.items()):
        kind, _, model = label.partition(" ")
        if name == "tokens" and kind in TOKEN_TYPES:
            by_type.append({"type": kind, "model": model, "count": int(value)})
    return {
        "turns": {outcome.value: _count(stored, "turns", outcome.value) for outcome in Outcome},
        "turn_seconds": _histogram(stored, "turn_seconds"),
        "queue_seconds": _histogram(stored, "queue_seconds"),
        "tokens": by_type,
        "tool_calls": _count(stored, "tool_calls"),
        "messages": {label: _count(stored, "messages", label) for label in ("accepted", "refused")},
        "network": {label: _count(stored, "network", label) for label in ("allowed", "denied")},
    }


def _count(stored: Mapping[tuple[str, str], float], name: str, label: str = "") -> int:
    return int(stored.get((name, label), 0))


def _histogram(stored: Stored, name: str) -> dict[str, object]:
    """Return a histogram whose buckets hold all durations up to their bounds; the last one's bound is null."""
    buckets: list[dict[str, object]] = []
    count = 0
    for bound in BOUNDS_S:
        count += _count(stored, name, f"{bound:g}")
        buckets.append({"up_to": None if bound == BOUNDS_S[-1] else bound, "count": count})
    return {"buckets": buckets, "sum": stored.get((f"{name}_sum", ""), 0.0), "count": count}
