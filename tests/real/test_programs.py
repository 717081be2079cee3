"""The real claude and codex where something fails, and beside each other; tests/system/test_programs.py has more."""

from functools import partial

import pytest

from tests.support import waiting
from tests.support.npm_programs import configure, npm
from tests.system.test_programs import BUSY

__all__ = ["configure", "npm"]

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]


wait_until = partial(waiting.wait_until, patience=200)
"""Several agents' programs start at once, and each of their failures takes its time."""


@pytest.fixture(params=["claude", "codex"])
def program(request):
    return request.param


def test_a_turn_goes_on_when_the_daemon_is_killed(daemon, configure, program):
    work, config = daemon.workspace(), configure(program)
    daemon.start(config=config)
    daemon.ok("spawn", "anna", "--program", program, "-w", work, f"{BUSY}/tool whoami")
    wait_until((work / "begun").exists, "the turn")
    daemon.kill()
    daemon.start(config=config)
    (work / "end").touch()
    first = daemon.wait("anna")
    assert (first["turn"]["number"], first["turn"]["result"]) == (1, "prompts seen: 1")
    daemon.ok("send", "anna", "go on", "--wait")
    assert daemon.show("anna")["turn"]["result"] == "prompts seen: 2"
