"""Queries and changes of the table of private clones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.records import Closed
from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import CLONES, LANDINGS, LEFT_REFS, WORKED_IN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.landing import Landing
    from substrat.core.workspaces.left_refs import LeftRefs

_SAVE = CLONES.upsert("id")
_NOTE_LEFT = LEFT_REFS.insert("INSERT OR REPLACE")
_ADD_LANDING = LANDINGS.insert(without=("id",))
_NOTE_WORKED_IN = WORKED_IN.upsert("root")


class CloneQueries(Database):
    """The private clones of one state directory."""

    def save_clone(self, clone: Clone) -> None:
        """Insert or replace a clone's row."""
        kept = clone.kept
        members = {name: getattr(kept, name) for name in kept.__slots__ if name != "only_here"}
        only_here = {name: getattr(kept.only_here, name) for name in kept.only_here.__slots__}
        self._db.execute(_SAVE, CLONES.write(clone, id=clone.agent, **members, **only_here))

    def clones(self) -> list[Clone]:
        """Load every clone, those of removed agents too, in the order of their agents' ids."""
        return self._all(CLONES, "ORDER BY id")

    def clone(self, agent_id: str) -> Clone | None:
        """Load one agent's clone."""
        return next(iter(self._all(CLONES, "WHERE id = ?", agent_id)), None)

    def forget_clone(self, agent_id: str) -> None:
        """Delete the row of a clone whose tree is gone, as its agent is."""
        self._db.execute("DELETE FROM clones WHERE id = ?", (agent_id,))

    def left_refs(self) -> list[LeftRefs]:
        """Load the notes about refs of agents that are over, in the order of their repositories and names."""
        return self._all(LEFT_REFS, "ORDER BY git_dir, name")

    def note_left_refs(self, left: LeftRefs) -> None:
        """Insert or replace the note about an agent's refs in a repository."""
        self._db.execute(_NOTE_LEFT, LEFT_REFS.write(left))

    def forget_left_refs(self, left: LeftRefs) -> None:
        """Delete the note about an agent's refs in a repository."""
        self._db.execute("DELETE FROM left_refs WHERE git_dir = ? AND name = ?", (left.git_dir, left.name))

    def worked_in(self) -> dict[str, frozenset[str]]:
        """Load the directories in which agents have worked in place, each with the objects that were borrowed before."""
        return {root: frozenset(borrowed) for root, borrowed in self._all(WORKED_IN, "")}

    def note_worked_in(self, roots: Iterable[str], borrowed: Iterable[str]) -> None:
        """Note the objects that repositories in some directories borrow, before an agent works there."""
        found = tuple(sorted(borrowed))
        self._db.executemany(_NOTE_WORKED_IN, [WORKED_IN.write(None, root=root, borrowed=found) for root in roots])

    # Landings

    def add_landing(self, landing: Landing) -> int:
        """Store a landing that was asked for and return its number; the number it comes with is ignored."""
        return int(self._db.execute(_ADD_LANDING, LANDINGS.write(landing)[1:]).lastrowid or 0)

    def open_landings(self) -> list[Landing]:
        """Load the landings that aren't decided yet, in their order."""
        return self._all(LANDINGS, "WHERE outcome IS NULL ORDER BY id")

    def landings_of(self, request: str) -> list[Landing]:
        """Load the landings that a client has asked for by an id of its own."""
        return self._all(LANDINGS, "WHERE request = ? ORDER BY id", request)

    def note_intended(self, number: int, commits: tuple[str | None, str], head: str, checkout: str | None) -> None:
        """Note the commits that a landing is about to move its branch from and to, the head of the latter, and where."""
        intended = "UPDATE landings SET intended_from = ?, intended = ?, intended_head = ?, intended_in = ? WHERE id = ?"
        self._db.execute(intended, (*commits, head, checkout, number))

    def note_settled(self, number: int) -> None:
        """Note that nothing of a landing is left in the checkout in which it was about to move its branch."""
        self._db.execute("UPDATE landings SET intended_in = NULL WHERE id = ?", (number,))

    def lands_in(self, agent: str) -> str | None:
        """Return the checkout in which a landing of an agent's work moves its branch, or has begun to; None: none does."""
        moving = "WHERE outcome IS NULL AND intended_in NOT NULL AND agent = ? ORDER BY id"
        return next((landing.intended_in for landing in self._all(LANDINGS, moving, agent)), None)

    def decide_landing(self, number: int, outcome: str, item: int | None) -> None:
        """Store a landing's outcome, and the operator's inbox item that tells it."""
        self._db.execute("UPDATE landings SET outcome = ?, item = ? WHERE id = ?", (outcome, item, number))

    def forget_old_landings(self, before: float) -> None:
        """Delete decided landings that were asked for before a time, but those that an item of the operator's is about."""
        self._db.execute(
            "DELETE FROM landings WHERE outcome NOT NULL AND time < ? AND NOT EXISTS "
            "(SELECT 1 FROM items WHERE items.id = item AND turn IS NULL AND closed IS NULL)",
            (before,),
        )

    def settle_earlier(self, landing: Landing) -> None:
        """Close the operator's items about earlier landings of an agent's work in the same branch."""
        self._db.execute(
            "UPDATE items SET closed = ? WHERE turn IS NULL AND closed IS NULL AND id IN "
            "(SELECT item FROM landings WHERE agent = ? AND target = ? AND id < ?)",
            (Closed.SETTLED, landing.agent, landing.target, landing.id),
        )
