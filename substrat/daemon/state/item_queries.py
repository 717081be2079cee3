"""The queries and changes of inbox items: prompts and messages that wait for an agent or for the operator."""

# ruff: noqa: S608 - the queries are put together from constants
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from substrat.core.agents.records import Closed, Item
from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_WAITS = "turn IS NULL AND closed IS NULL"
"""The condition of an item that waits; the partial indexes of `items` say the same."""


class ItemQueries(Database):
    """The inbox items of one state directory; a part of `Store`."""

    def add_item(self, item: Item) -> int:
        """Store an inbox item and return its number; the number it comes with is ignored."""
        done = self._db.execute(
            "INSERT INTO items (agent, kind, sender, sender_name, text, time) VALUES (?,?,?,?,?,?)",
            (item.agent, item.kind, item.sender, item.sender_name, item.text, item.time),
        )
        return int(done.lastrowid or 0)

    def waiting_items(self, agent_id: str | None, limit: int = 1000) -> list[Item]:
        """Load the items that wait for an agent (None: the operator), in the order of delivery."""
        rows = self._db.execute(
            f"{ITEMS.select} WHERE {_WAITS} AND agent IS ? ORDER BY kind != 'continuation', id LIMIT ?",
            (agent_id, limit),
        )
        return [_item(row) for row in rows]

    def waiting_from(self, sender: str | None, agent_id: str | None) -> int:
        """Count the items that wait for an agent (None: the operator) from one sender (None: from all)."""
        row = self._db.execute(
            f"SELECT count(*) FROM items WHERE {_WAITS} AND agent IS ?1 AND (?2 IS NULL OR sender = ?2)",
            (agent_id, sender),
        ).fetchone()
        return int(row[0])

    def woken_by_mail(self, agent_id: str, count: int, operator: str) -> float | None:
        """Return when the first of an agent's newest turns started if messages alone started them all.

        Args:
            agent_id: the agent.
            count: how many turns.
            operator: whose messages don't count as such.

        Returns:
            Seconds since the epoch; None when there are fewer turns, or one was started otherwise.
        """
        row = self._db.execute(
            "SELECT count(*), min(started_at), sum(EXISTS (SELECT 1 FROM items WHERE items.turn = newest.id AND "
            "(kind != 'message' OR sender = ?3))) FROM "
            "(SELECT id, started_at FROM turns WHERE agent = ?1 ORDER BY number DESC LIMIT ?2) AS newest",
            (agent_id, count, operator),
        ).fetchone()
        return row[1] if row[0] == count and not row[2] else None

    def waits_from_a_person(self, agent_id: str, operator: str) -> bool:
        """Say whether a person's doing waits for an agent: anything but messages of agents and of the daemon."""
        row = self._db.execute(
            f"SELECT 1 FROM items WHERE {_WAITS} AND agent = ?1 AND (kind != 'message' OR sender = ?2) LIMIT 1",
            (agent_id, operator),
        ).fetchone()
        return row is not None

    def operator_items(self, after: int = 0, limit: int = 1000) -> list[Item]:
        """Load the oldest messages and questions that wait for the operator, those with greater numbers than `after`."""
        found = self._db.execute(
            f"{ITEMS.select} WHERE {_WAITS} AND agent IS NULL AND id > ? ORDER BY id LIMIT ?", (after, limit)
        )
        return [_item(row) for row in found]

    def item(self, item_id: int) -> Item | None:
        """Load one inbox item."""
        row = self._db.execute(f"{ITEMS.select} WHERE id = ?", (item_id,)).fetchone()
        return _item(row) if row else None

    def first_waiting(self) -> dict[str, int]:
        """Return the number of the oldest item that waits for each agent."""
        rows = self._db.execute(f"SELECT agent, min(id) FROM items WHERE {_WAITS} AND agent NOT NULL GROUP BY agent")
        return dict(rows)

    def items_of_turn(self, turn_id: str) -> list[Item]:
        """Load the items that a turn delivered."""
        rows = self._db.execute(f"{ITEMS.select} WHERE turn = ? ORDER BY id", (turn_id,))
        return [_item(row) for row in rows]

    def deliver(self, items: Iterable[Item], turn_id: str) -> None:
        """Note that a turn delivers items."""
        self._db.executemany("UPDATE items SET turn = ? WHERE id = ?", [(turn_id, item.id) for item in items])

    def close_items(self, items: Iterable[Item], how: Closed) -> None:
        """Note that items ended without a turn of their own."""
        self._db.executemany("UPDATE items SET closed = ? WHERE id = ?", [(how, item.id) for item in items])

    def forget_settled(self) -> None:
        """Delete the messages of removed agents that the operator has settled; open ones stay."""
        # A literal, not a parameter: only so does SQLite find out that the partial index applies.
        self._db.execute(
            f"DELETE FROM items WHERE closed = '{Closed.SETTLED.value}' AND sender NOT IN (SELECT id FROM agents)"
        )

    def take_back(self, turn_id: str) -> int:
        """Let the items that a turn was to deliver wait again, and return how many they are."""
        return self._db.execute("UPDATE items SET turn = NULL WHERE turn = ?", (turn_id,)).rowcount

    def item_turn(self, item_id: int) -> tuple[str | None, str | None] | None:
        """Return an item's agent and the turn that delivered it, or None when there is no such item."""
        row = self._db.execute("SELECT agent, turn FROM items WHERE id = ?", (item_id,)).fetchone()
        return (row[0], row[1]) if row else None

    def waits(self, item_id: int) -> bool:
        """Say whether an item waits: no turn has delivered it, and it isn't closed."""
        row = self._db.execute("SELECT turn IS NULL AND closed IS NULL FROM items WHERE id = ?", (item_id,)).fetchone()
        return bool(row and row[0])

    def newest_prompt(self, agent_id: str) -> int | None:
        """Return the number of the newest item that gets a turn of its own."""
        row = self._db.execute(
            "SELECT max(id) FROM items WHERE agent = ? AND kind IN ('prompt', 'continuation')", (agent_id,)
        ).fetchone()
        return row[0] if row else None

    def open_questions(self, agents: Sequence[str]) -> dict[str, Item]:
        """Return the oldest question of each of some agents that the operator hasn't answered, by the agent's id."""
        found = self._db.execute(
            f"{ITEMS.select} WHERE id IN (SELECT min(id) FROM items WHERE {_WAITS} AND agent IS NULL AND "
            f"kind = 'question' AND sender IN ({','.join('?' * len(agents))}) GROUP BY sender)",
            agents,
        )
        return {item.sender: item for item in map(_item, found)}

    def waiting_since(self, agent_id: str) -> float | None:
        """Return when the oldest item that waits for an agent was accepted, in seconds since the epoch."""
        row = self._db.execute(
            f"SELECT time FROM items WHERE {_WAITS} AND agent = ? ORDER BY id LIMIT 1", (agent_id,)
        ).fetchone()
        return row[0] if row else None

    def note_report(self, item_id: int, turn_id: str) -> None:
        """Note that an inbox item reports the end of a turn: until it is delivered the turn counts as unread."""
        self._db.execute("UPDATE items SET about = ? WHERE id = ?", (turn_id, item_id))


def _item(values: Any) -> Item:
    return Item(**ITEMS.fields_of(ITEMS.read(values), "turn", "about", "closed"))
