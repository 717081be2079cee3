"""The queries and changes of the families that were started from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import RUNS

if TYPE_CHECKING:
    from substrat.core.families.runs import Run

_SAVE = RUNS.upsert("name")
_FORGET = (
    "DELETE FROM runs WHERE ended_at IS NOT NULL AND name NOT IN "
    "(SELECT name FROM runs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?)"
)
_MOST = 200
"""Runs that are over and kept: a nightly one's of half a year."""


class RunQueries(Database):
    """The runs of one state directory; a part of `Store`."""

    def runs(self) -> list[Run]:
        """Load every run, the newest first."""
        return self._all(RUNS, "ORDER BY started_at DESC, name")

    def run_names(self) -> list[str]:
        """Load the names of all runs."""
        return [row[0] for row in self._db.execute("SELECT name FROM runs")]

    def open_runs(self) -> list[Run]:
        """Load the runs that aren't over, the oldest first."""
        return self._all(RUNS, "WHERE ended_at IS NULL ORDER BY started_at, name")

    def run(self, name: str) -> Run | None:
        """Load a run by its family's name; None: there is none."""
        return next(iter(self._all(RUNS, "WHERE name = ?", name)), None)

    def save_run(self, run: Run) -> None:
        """Insert or replace a run's row; of those that are over only the newest stay."""
        self._db.execute(_SAVE, RUNS.write(run))
        self._db.execute(_FORGET, (_MOST,))
