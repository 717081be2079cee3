"""The one way to wait in tests: for a condition, never for a time."""

import time

PATIENCE = 20.0
"""Seconds after which a condition that isn't true fails its test; no test that passes comes near it."""


def wait_until(condition, what="the condition", patience=PATIENCE):
    """Wait until a condition is true, and return its value.

    Args:
        condition: a function; it is called every hundredth of a second.
        what: the condition in words, for the failure.
        patience: seconds; the bound only ends a test that fails.
    """
    deadline = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.01)
    return value
