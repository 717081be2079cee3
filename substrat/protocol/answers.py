"""Says which of a question's options a person's words choose: the daemon tells the agent, the client the person."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def chosen(options: Sequence[str], text: str) -> str | None:
    """Return the option that a text names by its number, from 1, or its words; None: they are a person's own words."""
    word = text.strip()
    if word.isdecimal() and 1 <= int(word) <= len(options):
        return options[int(word) - 1]
    return next((option for option in options if option.lower() == word.lower()), None)
