"""The queries and changes of agents' waits, and of the inbox items that belong to them."""

# ruff: noqa: S608 - the queries are put together from constants
from __future__ import annotations

import json
from typing import TYPE_CHECKING

from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import WAITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from substrat.core.families.waits import Wait

_ADD = WAITS.insert(without=("id",))
_SAVE = WAITS.upsert("id")


class WaitQueries(Database):
    """The waits of one state directory; a part of `Store`."""

    def add_wait(self, wait: Wait) -> int:
        """Store a wait and return its number; the number it comes with is ignored."""
        return int(self._db.execute(_ADD, WAITS.write(wait)[1:]).lastrowid or 0)

    def save_wait(self, wait: Wait) -> None:
        """Replace a wait's row."""
        self._db.execute(_SAVE, WAITS.write(wait))

    def forget_wait(self, number: int) -> None:
        """Delete a wait."""
        self._db.execute("DELETE FROM waits WHERE id = ?", (number,))

    def pending_waits(self) -> list[Wait]:
        """Load every wait that isn't told yet, oldest first."""
        return self._all(WAITS, "ORDER BY id")

    def waiters(self, agents: Sequence[str]) -> set[str]:
        """Return those of some agents that wait for others."""
        found = self._db.execute(
            "SELECT DISTINCT agent FROM waits WHERE wake IS NULL AND agent IN (SELECT value FROM json_each(?))",
            (json.dumps(agents),),
        )
        return {row[0] for row in found}

    def reports_waiting(self, agent_id: str, members: Sequence[str]) -> dict[int, str]:
        """Return the items that wait for an agent and tell the end of a turn of some others, with the other's id each."""
        places = ",".join("?" * len(members))
        found = self._db.execute(
            "SELECT items.id, turns.agent FROM items JOIN turns ON turns.id = items.about WHERE items.turn IS NULL AND "
            f"closed IS NULL AND about NOT NULL AND items.agent = ? AND turns.agent IN ({places}) ORDER BY items.id",
            (agent_id, *members),
        )
        return dict(found.fetchall())

    def reported(self, items: Iterable[int]) -> list[tuple[str | None, str]]:
        """Return the turn that each of some items is about, and the item's text, in their order."""
        found = []
        for number in sorted(items):
            row = self._db.execute("SELECT about, text FROM items WHERE id = ?", (number,)).fetchone()
            if row is not None:
                found.append((row[0], str(row[1])))
        return found

    def close_numbers(self, numbers: Iterable[int], how: str) -> None:
        """Note that items ended without a turn of their own."""
        self._db.executemany("UPDATE items SET closed = ? WHERE id = ?", [(how, number) for number in numbers])
