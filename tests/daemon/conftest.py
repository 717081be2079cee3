"""What tests of the daemon's rooms share: a clock that only goes when asked, a store, agents."""

import itertools

import pytest
from hypothesis import settings

from sandbox.spec import Network
from substrat.core.lifecycle import Phase
from substrat.core.records import Agent, Policy
from substrat.daemon.store import Store

settings.register_profile("substrat", deadline=None, print_blob=True)
settings.load_profile("substrat")


class Clock:
    """Seconds since the epoch; each look is a moment later, so that nothing happens at the same time."""

    def __init__(self):
        self.time = 1_700_000_000.0

    def __call__(self):
        self.time += 0.125
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    opened = Store(str(tmp_path / "substrat.db"))
    yield opened
    opened.close()


@pytest.fixture
def new_agent():
    """Make agents' records."""
    numbers = itertools.count(1)

    def make(name=None, **changes):
        number = next(numbers)
        given = {
            "id": f"00000000-0000-4000-8000-{number:012}", "name": name or f"agent-{number}", "phase": Phase.IDLE,
            "workspace": "/w", "model": "auto", "policy": Policy(Network.HOST), "created_at": 1000.0 + number,
        }  # fmt: skip
        return Agent(**{**given, **changes})

    return make
