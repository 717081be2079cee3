"""The queries and changes of the totals, which outlive the turns, events and agents that they count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.totals import models_of
from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import TOTALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.totals import Addition, Stored

_ADD = f"{TOTALS.insert()} ON CONFLICT (name, label) DO UPDATE SET value = value + excluded.value"


class TotalQueries(Database):
    """The totals of one state directory; a part of `Store`."""

    def add_to_totals(self, additions: Sequence[Addition]) -> None:
        """Add to totals, as a part of the transaction that makes what they count true."""
        if additions:
            self._db.executemany(_ADD, additions)

    def totals(self) -> Stored:
        """Load all totals, by name and label."""
        return {(name, label): value for name, label, value in self._all(TOTALS, "")}

    def counted_models(self) -> set[str]:
        """Return the models that tokens are counted for by name."""
        return models_of(row[0] for row in self._db.execute("SELECT label FROM totals WHERE name = 'tokens'"))
