"""The red team's daemon is the system tests'."""

import pytest

from tests.redteam.hostile import PROGRAM
from tests.system.conftest import _shared, daemon, shared

__all__ = ["_shared", "daemon", "shared"]


@pytest.fixture
def hostile(daemon):
    """A daemon whose agents do what their prompts say, as Python."""
    return daemon.start(agent=daemon.program(PROGRAM))
