"""Pages of answers."""

from __future__ import annotations

from typing import NamedTuple, cast

Object = dict[str, object]


class Page(NamedTuple):
    """A page of an answer.

    Args:
        content: what is in it.
        after: the parameter `after` of the next one; None: it is the last.
    """

    content: object
    after: object | None


class Encoded(bytes):
    """An answer that is JSON already."""


def limit_of(params: Object, most: int) -> int:
    """Return how many objects are asked for: at least one, and at most so many."""
    return max(1, min(most, cast("int", params.get("limit", most))))
