"""Holds agents still for a moment: no turn of one begins, and no command of a person, while its tree must not change.

A hold is in memory only: the work that it is for ends with the daemon, or is begun anew by the next one.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Holds:
    """The agents of one daemon that are held."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def reason(self, agent_id: str) -> str | None:
        """Return why an agent is held, as a sentence; None: it isn't."""
        return self._reasons.get(agent_id)

    def check(self, agent_id: str) -> None:
        """Raise `Refused` if an agent is held."""
        if (reason := self.reason(agent_id)) is not None:
            raise Refused(f"{reason}: try again in a moment")

    @contextmanager
    def holding(self, agent_id: str, reason: str) -> Iterator[None]:
        """Hold an agent, removed or not, for as long as the context lasts.

        Args:
            agent_id: its id.
            reason: why, for example `fix is being removed`.

        Raises:
            Refused: it is held already.
        """
        self.check(agent_id)
        self._reasons[agent_id] = reason
        try:
            yield
        finally:
            del self._reasons[agent_id]
