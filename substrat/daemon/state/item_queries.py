"""The queries and changes of inbox items: prompts and messages that wait for an agent or for the operator."""

# ruff: noqa: S608 - the queries are put together from constants
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from substrat.core.agents.records import Closed, Intent, Item
from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from substrat.daemon.state.rows import ItemRow


_WAITS = "turn IS NULL AND closed IS NULL"
"""The condition of an item that waits; the partial indexes of `items` say the same."""
_DELIVERED = f"(turn NOT NULL OR closed = '{Closed.READ.value}')"
"""The condition of an item that its agent was given."""
_ADD_ITEM = ITEMS.insert(without=("id",))


class MessageRow(NamedTuple):
    """An item as `inbox NAME` shows it.

    Args:
        item: the item.
        turn: the number of the turn that delivered it.
        state: `accepted`, `delivered`, `answered`, `refused` or `dropped`.
    """

    item: Item
    turn: int | None
    state: str


class ItemQueries(Database):
    """The inbox items of one state directory; a part of `Store`."""

    def add_item(self, item: Item) -> int:
        """Store an inbox item and return its number; the number it comes with is ignored."""
        awaited = item.intent is Intent.REQUEST and item.agent is not None
        values = ITEMS.write(item, turn=None, about=None, closed=None, awaited=awaited)
        return int(self._db.execute(_ADD_ITEM, values[1:]).lastrowid or 0)

    def waiting_items(self, agent_id: str | None, limit: int = 1000) -> list[Item]:
        """Load the items that wait for an agent (None: the operator), in the order of delivery."""
        return self._items(f"{_WAITS} AND agent IS ? ORDER BY kind != 'continuation', id LIMIT ?", agent_id, limit)

    def waiting_from(self, sender: str | None, agent_id: str | None) -> int:
        """Count the items that wait for an agent (None: the operator) from one sender (None: from all)."""
        row = self._db.execute(
            f"SELECT count(*) FROM items WHERE {_WAITS} AND agent IS :agent AND (:sender IS NULL OR sender = :sender)",
            {"agent": agent_id, "sender": sender},
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
            "(kind != 'message' OR sender = :operator))) FROM "
            "(SELECT id, started_at FROM turns WHERE agent = :agent ORDER BY number DESC LIMIT :count) AS newest",
            {"agent": agent_id, "count": count, "operator": operator},
        ).fetchone()
        return row[1] if row[0] == count and not row[2] else None

    def waits_from_a_person(self, agent_id: str, operator: str) -> bool:
        """Say whether a person's doing waits for an agent: anything but messages of agents and of the daemon."""
        persons = f"SELECT 1 FROM items WHERE {_WAITS} AND agent = ? AND (kind != 'message' OR sender = ?) LIMIT 1"
        return bool(self._value(persons, agent_id, operator))

    def operator_items(self, after: int = 0, limit: int = 1000) -> list[Item]:
        """Load the oldest messages and questions that wait for the operator, those with greater numbers than `after`."""
        return self._items(f"{_WAITS} AND agent IS NULL AND id > ? ORDER BY id LIMIT ?", after, limit)

    def item(self, item_id: int) -> Item | None:
        """Load one inbox item."""
        return next(iter(self._items("id = ?", item_id)), None)

    def first_waiting(self) -> dict[str, int]:
        """Return the number of the oldest item that waits for each agent and starts a turn."""
        rows = self._db.execute(
            f"SELECT agent, min(id) FROM items WHERE {_WAITS} AND agent NOT NULL AND starts_turn GROUP BY agent"
        )
        return dict(rows)

    def items_of_turn(self, turn_id: str) -> list[Item]:
        """Load the items that a turn delivered: those that started it, then the words that came in its middle."""
        return self._items("turn = ? ORDER BY kind = 'now', id", turn_id)

    def deliver(self, items: Iterable[Item], turn_id: str) -> None:
        """Note that a turn delivers items."""
        self._db.executemany("UPDATE items SET turn = ? WHERE id = ?", [(turn_id, item.id) for item in items])

    def close_items(self, items: Iterable[Item], how: Closed) -> None:
        """Note that items ended without a turn of their own."""
        self._db.executemany("UPDATE items SET closed = ? WHERE id = ?", [(how, item.id) for item in items])

    def drop_questions(self, sender: str) -> None:
        """Note that the operator's answers to an agent's questions would reach nobody any more."""
        self._db.execute(
            f"UPDATE items SET closed = '{Closed.DROPPED.value}' "
            f"WHERE {_WAITS} AND agent IS NULL AND kind = 'question' AND sender = ?",
            (sender,),
        )

    def forget_settled(self) -> None:
        """Delete the messages of removed agents that the operator has settled; open ones stay."""
        # A literal, not a parameter: only so does SQLite find out that the partial index applies.
        self._db.execute(
            f"DELETE FROM items WHERE closed = '{Closed.SETTLED.value}' AND sender NOT IN (SELECT id FROM agents)"
        )

    def take_back(self, turn_id: str) -> int:
        """Let the items that a turn was to deliver wait again, and return how many of them start a turn."""
        count = self._value("SELECT count(*) FROM items WHERE turn = ? AND starts_turn", turn_id)
        self._db.execute("UPDATE items SET turn = NULL WHERE turn = ?", (turn_id,))
        return count or 0

    def open_requests(self, agent_id: str) -> list[Item]:
        """Load the requests that an agent was given and whose senders await an answer, oldest first."""
        return self._items(f"awaited AND agent = ? AND {_DELIVERED} ORDER BY id", agent_id)

    def settle_requests(self, numbers: Iterable[int]) -> None:
        """Note that the senders of requests await no answer any more."""
        self._db.executemany("UPDATE items SET awaited = 0 WHERE id = ?", [(number,) for number in numbers])

    def newest_delivered(self, agent_id: str, sender_id: str) -> int | None:
        """Return the number of the newest message from a sender that an agent was given, None if there is none."""
        newest = f"SELECT max(id) FROM items WHERE agent = ? AND sender = ? AND {_DELIVERED}"
        return self._value(newest, agent_id, sender_id)

    def informing(self, agent_id: str) -> int:
        """Count the messages that wait for an agent and start no turn."""
        return self._value(f"SELECT count(*) FROM items WHERE {_WAITS} AND agent = ? AND NOT starts_turn", agent_id) or 0

    def start_turn_with_gathered(self, agent_id: str, sender: str) -> int:
        """Let a sender's messages that wait for an agent and start no turn start one, and return how many there are."""
        return self._db.execute(
            f"UPDATE items SET starts_turn = 1 WHERE {_WAITS} AND agent = ? AND sender = ? AND NOT starts_turn",
            (agent_id, sender),
        ).rowcount

    def agents_with_gathered(self, sender: str) -> list[str]:
        """Return the agents for which a sender's messages wait that start no turn."""
        return [
            agent for (agent,) in self._db.execute(
                f"SELECT DISTINCT agent FROM items WHERE {_WAITS} AND sender = ? AND NOT starts_turn", (sender,)
            )
        ]  # fmt: skip

    def unread_by_sender(self, agent_id: str) -> dict[str, int]:
        """Count the items that wait for an agent, by the names of their senders."""
        return dict(
            self._db.execute(
                f"SELECT sender_name, count(*) FROM items WHERE {_WAITS} AND agent = ? GROUP BY sender_name", (agent_id,)
            )
        )

    def is_waiting(self, agent_id: str, sender: str, text: str) -> bool:
        """Say whether an item of a sender's with a text waits for an agent."""
        same = f"SELECT 1 FROM items WHERE {_WAITS} AND agent = ? AND sender = ? AND text = ? LIMIT 1"
        return bool(self._value(same, agent_id, sender, text))

    def questions_due(self, now: float) -> list[Item]:
        """Load the questions that wait for the operator and whose time is over."""
        return self._items(f"{_WAITS} AND deadline NOT NULL AND deadline <= ?", now)

    def next_deadline(self) -> float | None:
        """Return when the time of the next question is over, in seconds since the epoch."""
        return self._value(f"SELECT min(deadline) FROM items WHERE {_WAITS} AND deadline NOT NULL")

    def messages_of(self, agent_id: str, after: int, limit: int) -> list[MessageRow]:
        """Load some of the items sent to an agent or by it, oldest first, those with greater numbers than `after`."""
        columns = ", ".join(f"items.{name}" for name in ITEMS.names)
        found = self._db.execute(
            f"SELECT turns.number, EXISTS (SELECT 1 FROM items AS replies WHERE replies.reply_to = items.id), {columns} "
            "FROM items LEFT JOIN turns ON turns.id = items.turn "
            "WHERE (items.agent = :agent OR items.sender = :agent) AND items.id > :after ORDER BY items.id LIMIT :limit",
            {"agent": agent_id, "after": after, "limit": limit},
        )
        return [MessageRow(_item(values), number, _state(ITEMS.read(values), bool(answered)))
                for number, answered, *values in found]  # fmt: skip

    def forget_refused(self, sender: str, kept: int) -> None:
        """Delete all but the newest of an agent's messages that nobody took."""
        self._db.execute(
            "DELETE FROM items WHERE sender = :sender AND closed = :closed AND id NOT IN (SELECT id FROM items WHERE "
            "sender = :sender AND closed = :closed ORDER BY id DESC LIMIT :kept)",
            {"sender": sender, "closed": Closed.REFUSED.value, "kept": kept},
        )

    def item_turn(self, item_id: int) -> tuple[str | None, str | None] | None:
        """Return an item's agent and the turn that delivered it, or None when there is no such item."""
        row = self._db.execute("SELECT agent, turn FROM items WHERE id = ?", (item_id,)).fetchone()
        return (row[0], row[1]) if row else None

    def waits(self, item_id: int) -> bool:
        """Say whether an item waits: no turn has delivered it, and it isn't closed."""
        return bool(self._value("SELECT turn IS NULL AND closed IS NULL FROM items WHERE id = ?", item_id))

    def was_given(self, item_id: int) -> bool:
        """Say whether an item's agent was given it, in a turn or by `check_inbox`."""
        return bool(self._value(f"SELECT {_DELIVERED} FROM items WHERE id = ?", item_id))

    def newest_prompt(self, agent_id: str) -> int | None:
        """Return the number of the newest item that gets a turn of its own."""
        newest = "SELECT max(id) FROM items WHERE agent = ? AND kind IN ('prompt', 'now', 'continuation')"
        return self._value(newest, agent_id)

    def open_questions(self, agents: Sequence[str]) -> dict[str, tuple[Item, int]]:
        """Return the oldest question of each of some agents that the operator hasn't answered, and how many there are."""
        asked = self._db.execute(
            f"SELECT min(id), count(*) FROM items WHERE {_WAITS} AND agent IS NULL AND kind = 'question' "
            f"AND sender IN ({','.join('?' * len(agents))}) GROUP BY sender",
            agents,
        )
        counts: dict[int, int] = dict(asked.fetchall())
        if not counts:
            return {}
        found = self._items(f"id IN ({','.join('?' * len(counts))})", *counts)
        return {item.sender: (item, counts[item.id]) for item in found}

    def asking(self) -> set[str]:
        """Return the agents with questions that the operator hasn't answered."""
        asked = self._db.execute(
            f"SELECT DISTINCT sender FROM items WHERE {_WAITS} AND agent IS NULL AND kind = 'question'"
        )
        return {sender for (sender,) in asked}

    def questions_of(self, sender: str) -> list[Item]:
        """Load an agent's questions that the operator hasn't answered, oldest first."""
        return self._items(f"{_WAITS} AND agent IS NULL AND kind = 'question' AND sender = ? ORDER BY id", sender)

    def count_questions(self) -> int:
        """Count the questions that the operator hasn't answered."""
        return self._value(f"SELECT count(*) FROM items WHERE {_WAITS} AND agent IS NULL AND kind = 'question'") or 0

    def askers(self, agents: Sequence[str]) -> set[str]:
        """Return those of some agents that have asked the operator something that isn't answered."""
        found = self._db.execute(
            f"SELECT DISTINCT sender FROM items WHERE {_WAITS} AND agent IS NULL AND kind = 'question' "
            "AND sender IN (SELECT value FROM json_each(?))",
            (json.dumps(list(agents)),),
        )
        return {row[0] for row in found}

    def waiting_since(self, agent_id: str) -> float | None:
        """Return when the oldest item that waits for an agent was accepted, in seconds since the epoch."""
        return self._value(f"SELECT time FROM items WHERE {_WAITS} AND agent = ? ORDER BY id LIMIT 1", agent_id)

    def _items(self, condition: str, *values: object) -> list[Item]:
        return [_item(row) for row in self._db.execute(f"{ITEMS.select} WHERE {condition}", values)]

    def note_cause(self, item_id: int, cursor: int) -> None:
        """Note which event brought an item that the event's data name."""
        self._db.execute("UPDATE items SET cause = ? WHERE id = ?", (cursor, item_id))

    def note_report(self, item_id: int, turn_id: str) -> None:
        """Note that an inbox item reports the end of a turn: until it is delivered the turn counts as unread."""
        self._db.execute("UPDATE items SET about = ? WHERE id = ?", (turn_id, item_id))


def _state(row: ItemRow, answered: bool) -> str:
    """Name the state of an item that `inbox NAME` shows."""
    if row.closed in {Closed.REFUSED, Closed.DROPPED}:
        return row.closed.value
    if answered or row.closed is Closed.SETTLED:
        return "answered"
    return "accepted" if row.turn is None and row.closed is None else "delivered"


def _item(values: Any) -> Item:
    row = ITEMS.read(values)
    return Item(**{name: getattr(row, name) for name in Item.__slots__})
