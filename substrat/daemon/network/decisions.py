"""Tells what a `filtered` network has decided, each thing ever more rarely; writing it down is another's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_TOLD = 1000


class Decision(NamedTuple):
    """What was decided, for the journal.

    Args:
        allowed: whether a connection was let through.
        text: what was decided, and why.
        remedy: what a person would put on the allow-list to have it otherwise, if that helps.
    """

    allowed: bool
    text: str
    remedy: str | None = None


class Decisions:
    """Tells each allowed name once, and refusals at their first, tenth, hundredth … time.

    Args:
        tell: writes it down.
    """

    def __init__(self, tell: Callable[[Decision], None]) -> None:
        self._tell = tell
        self._allowed: set[str] = set()
        self._denied: dict[str, int] = {}

    def forget(self) -> None:
        """Tell everything anew: what was decided may be decided otherwise now."""
        self._allowed.clear()
        self._denied.clear()

    def allowed(self, name: str, port: int, why: str) -> None:
        """Note that a connection was let through."""
        what = f"{shown(name)}:{port}"
        if what not in self._allowed and len(self._allowed) < _MAX_TOLD:
            self._allowed.add(what)
            self._tell(Decision(True, f"{what}: {why}"))

    def denied(self, what: str, why: str, remedy: str | None = None) -> None:
        """Note a refusal.

        Args:
            what: the host and port.
            why: the reason.
            remedy: the pattern that would let it through, if one would.
        """
        text = f"{what}: {why}"
        if text not in self._denied and len(self._denied) >= _MAX_TOLD:
            text, remedy = "others: too many different ones were refused to name them all", None
        count = self._denied[text] = self._denied.get(text, 0) + 1
        if str(count).strip("0") == "1":
            self._tell(Decision(False, text if count == 1 else f"{text} ({count} times)", remedy))


def shown(name: str) -> str:
    """Make a name fit to be told: printable, and not endless."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:253])
