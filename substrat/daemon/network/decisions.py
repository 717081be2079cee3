"""Thins out the decisions of a `filtered` network: a repeated refusal is recorded at its first, 10th, 100th … time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_DIFFERENT = 1000
"""Different hosts of one turn: each is an event, and a port scan would fill the journal."""


class Decision(NamedTuple):
    """One decision for the journal, for example `pypi.org:443: on the allow-list`.

    Args:
        allowed: whether a connection was let through.
        text: the target and the reason.
        remedy: the allow-list entry that would let it through, if one would.
    """

    allowed: bool
    text: str
    remedy: str | None = None


class Decisions:
    """Records each allowed name once, and a refusal at its first, tenth, hundredth … time.

    Args:
        record: records a decision.
    """

    def __init__(self, record: Callable[[Decision], None]) -> None:
        self._record = record
        self._allowed: set[str] = set()
        self._denied: dict[str, int] = {}

    def forget(self) -> None:
        """Record everything anew, because the allow-list has changed."""
        self._allowed.clear()
        self._denied.clear()

    def allowed(self, name: str, port: int, why: str) -> None:
        """Note that a connection was let through."""
        target = f"{printable(name)}:{port}"
        if target not in self._allowed and len(self._allowed) < _MAX_DIFFERENT:
            self._allowed.add(target)
            self._record(Decision(True, f"{target}: {why}"))

    def denied(self, target: str, why: str, remedy: str | None = None) -> None:
        """Note a refusal.

        Args:
            target: the host and port.
            why: the reason.
            remedy: the pattern that would let it through, if one would.
        """
        text = f"{target}: {why}"
        if text not in self._denied and len(self._denied) >= _MAX_DIFFERENT:
            text, remedy = "others: too many different ones were refused to name them all", None
        count = self._denied[text] = self._denied.get(text, 0) + 1
        if _is_power_of_ten(count):
            self._record(Decision(False, text if count == 1 else f"{text} ({count} times)", remedy))


def _is_power_of_ten(count: int) -> bool:
    """Say whether a positive number is 1, 10, 100 and so on: a one and zeros."""
    return str(count).rstrip("0") == "1"


def printable(name: str) -> str:
    """Return a name for an event: printable, and of at most 253 characters (RFC 1035)."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:253])
