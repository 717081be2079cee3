"""What tests of the client share: the CLI tests' daemons, and a look at what is left open."""

import gc
import os
import warnings

import pytest

from tests.cli.conftest import _environment, agent, event, fake, real_daemon

__all__ = ["_environment", "agent", "event", "fake", "real_daemon"]


@pytest.fixture(autouse=True)
def _nothing_left_open():
    """An unclosed socket or channel warns when it is collected."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    # A scripted daemon's end of the connection may still be open.
    assert len(os.listdir("/proc/self/fd")) <= before + 6
