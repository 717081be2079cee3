"""Takes a value that must be there out of one that may be None."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return the value; where it is None the test fails."""
    assert value is not None
    return value
