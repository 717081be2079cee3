"""The one way to wait in tests: for a condition, never for a time."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import FileDescriptorLike

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a condition that isn't true fails its test: a machine that others use may stand still for twenty."""


def wait_until(condition: Callable[[], T], what: str = "the condition", patience: float = PATIENCE) -> T:
    """Wait until a condition is true, and return its value.

    Args:
        condition: a function; it is called some thirty times a second.
        what: the condition in words, for the failure.
        patience: seconds; the bound only ends a test that fails.
    """
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.03)
    return value


def is_readable(file: FileDescriptorLike, within: float | None = 0.0) -> bool:
    """Say whether there is something to read, or its end, within so many seconds; None: wait as long as it takes.

    select(2) knows no descriptors beyond 1,023, and a worker that runs thousands of tests may have that many.
    """
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if within is None else within * 1000))
