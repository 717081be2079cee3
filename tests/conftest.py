"""What all tests share: their surroundings, Hypothesis's profiles, and that they are collected once.

This is read before any module of tests and before pytest's workers start. `settings(...)` in a module inherits from the
profile that is loaded by then; `--hypothesis-profile fuzz` chooses the other one.
"""

import gc

import pytest
from hypothesis import settings

from tests.support import descriptors, leftovers, surroundings
from tests.support.waiting import wait_until

leftovers.watch()
surroundings.arrange()

# No deadlines: a busy machine is no bug. Where CI is set Hypothesis loads a profile of its own; these aren't built on it.
base = settings(settings.get_profile("default"), deadline=None, print_blob=True, database=None)
settings.register_profile("gate", base, derandomize=True)
settings.register_profile("fuzz", base, derandomize=False)
settings.load_profile("gate")


@pytest.fixture(scope="session")
def until():
    """`wait_until`, the one way to wait."""
    return wait_until


def pytest_configure(config):
    config.pluginmanager.register(descriptors.Look())


def pytest_sessionstart(session):
    leftovers.note(str(session.config._tmp_path_factory.getbasetemp()))


def pytest_collection_finish():
    """Thousands of tests live as long as the run: no collection of garbage looks at them again, nor does one come often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
