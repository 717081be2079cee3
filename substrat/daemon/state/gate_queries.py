"""The queries and changes of the gates of logins whose turns are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import GATES

if TYPE_CHECKING:
    from substrat.core.families.account_gate import Gate

_SAVE = GATES.upsert("login")


class GateQueries(Database):
    """The gates of one state directory; a part of `Store`."""

    def gates(self) -> dict[str, Gate]:
        """Load every gate by its login, the one that was shut first first."""
        return {gate.login: gate for gate in self._all(GATES, "ORDER BY shut_at, login")}

    def save_gate(self, gate: Gate) -> None:
        """Insert or replace a gate's row."""
        self._db.execute(_SAVE, GATES.write(gate))

    def forget_gate(self, login: str) -> None:
        """Delete a gate."""
        self._db.execute("DELETE FROM gates WHERE login = ?", (login,))
