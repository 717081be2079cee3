"""Words of budgets: those that people give, and those that tell how much is used."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def limits(given: Iterable[str]) -> list[str] | None:
    """Return the limits that options give, each by itself; None: there are none."""
    return [word for text in given for word in text.split(",") if word] or None


def told(budget: object) -> str:
    """Say how much of each limit is used: `33 of 40 turns, 12.5 of 90 minutes`; empty for no budget."""
    found = numbers(budget, "limits")
    used = numbers(budget, "used")
    sums = [
        f"${used.get(key, 0):,.2f} of ${limit:,.2f}"
        if key == "usd"
        else f"{shown(used.get(key, 0))} of {shown(limit)} {word(key)}"
        for key, limit in found.items()
        if key != "running"
    ]
    return ", ".join((*sums, *(f"{shown(found[key])} running at once" for key in found if key == "running")))


def numbers(budget: object, member: str) -> dict[str, float]:
    """Return a member of a budget's object: numbers by their keys."""
    found = budget.get(member) if isinstance(budget, dict) else None
    return found if isinstance(found, dict) else {}


def word(key: str) -> str:
    """Return a key as a word: `tool calls`."""
    return key.replace("_", " ")


def shown(number: float) -> str:
    """Return a number as people read it: `1,200`, `12.5`, `0.03`."""
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}" if number >= 1 else f"{round(number, 2):g}"
