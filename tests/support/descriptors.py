"""Fails each test that leaves descriptors open in the process that runs the tests.

They would pile up until a later test, which does nothing wrong, has more than it can bear: select(2) knows none beyond
1,023, and the limit of open files ends the rest.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import link

if TYPE_CHECKING:
    from collections.abc import Generator

_lasting: set[tuple[str, str]] = set()


def opened() -> set[tuple[str, str]]:
    """This process's descriptors: their numbers, and where they lead."""
    found = {(number, link(f"/proc/self/fd/{number}")) for number in os.listdir("/proc/self/fd")}
    return {entry for entry in found if entry[1]}  # the one that listed them is gone


def keep(*descriptors: int) -> None:
    """Let descriptors last longer than the test that has opened them."""
    _lasting.update((str(number), link(f"/proc/self/fd/{number}")) for number in descriptors)


class Look:
    """Compares the descriptors after each test with those before it."""

    def __init__(self) -> None:
        self._before: set[tuple[str, str]] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        self._before = opened()
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        before = opened() if fixturedef.scope != "function" else None
        result = yield
        if before is not None:
            _lasting.update(opened() - before)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        yield
        if self._left():
            gc.collect()  # what only a cycle holds is left to the collector
            if left := self._left():
                pytest.fail(f"left open: {sorted(left)}", pytrace=False)

    def _left(self) -> set[tuple[str, str]]:
        return opened() - self._before - _lasting
