"""Fixtures of the tests that run real daemons: `daemon` has a home and directories, `running` is one that was started."""

import base64
import os
import stat

import pytest

from tests.support.daemon import DaemonFixture
from tests.system.obedient import OBEDIENT, Agent, prepare
from tests.system.small_disk import disk  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def _shared(tmp_path_factory):
    with DaemonFixture(tmp_path_factory.mktemp("shared")) as place:
        yield place.start()


@pytest.fixture
def shared(_shared):
    """One daemon for the tests of a file that change nothing of it but its agents."""
    _shared.clear()
    yield _shared
    _shared.close_streams()


@pytest.fixture
def daemon(tmp_path):
    """A daemon with directories of its own, which a test starts."""
    with DaemonFixture(tmp_path) as place:
        yield place


@pytest.fixture
def running(daemon):
    """A daemon that runs, whose agents are the stand-in."""
    return daemon.start()


@pytest.fixture
def lines():
    """Decode the base64 lines of events."""
    return lambda events: b"".join(base64.b64decode(event["line"]) for event in events)


@pytest.fixture
def mode():
    """The permission bits of a file."""
    return lambda path: stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def agent(daemon):
    """An agent that tries what a test orders, beside a person's git."""
    prepare(daemon)
    daemon.start(agent=daemon.program(OBEDIENT))
    return Agent(daemon)
