"""A workspace on a file system that stands still holds up its own agent, and nobody else."""

import os

import pytest

from tests.support.dead_mount import mounted
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")]


@pytest.fixture
def dead(daemon):
    """The workspace of the idle agent anna, whose server stands still; bob works elsewhere."""
    directory = daemon.directory / "dead"
    directory.mkdir()
    daemon.start()
    with mounted(directory) as mount:
        daemon.ok("spawn", "anna", "-w", directory, "--in-place")
        daemon.spawn("bob", daemon.workspace(), "/say hi")
        mount.stand_still()
        yield directory
        assert daemon.process.pid not in mount.pids(), "it touched the workspace itself"


def test_a_workspace_that_does_not_answer_is_named_and_the_others_go_on(daemon, dead):
    daemon.ok("send", "anna", "/say hi")
    daemon.ok("send", "bob", "/say hi", "--wait", "--timeout", "20")
    wait_until(lambda: daemon.show("anna")["state"] == "failed", "the end of anna's turn")
    assert f"{dead} doesn't answer" in daemon.ctl("show", "anna").out
    for words in (("spawn", "carl", "-w", dead), ("sessions", "-w", dead)):
        refused = daemon.ctl(*words)
        assert (refused.code, f"{dead} doesn't answer" in refused.error) == (1, True), refused
    daemon.ok("end", "anna")
    daemon.ok("rm", "anna")


def test_a_daemon_stops_and_the_next_one_starts_beside_it(daemon, dead):
    daemon.ok("send", "anna", "/say hi")
    daemon.stop()
    daemon.start()
    daemon.ok("send", "bob", "/say hi", "--wait", "--timeout", "20")
    wait_until(lambda: daemon.show("anna")["state"] == "failed", "the end of anna's turn")


def test_chats_that_do_not_answer_are_named_and_the_daemon_goes_on(daemon):
    chats = daemon.home / ".cursor" / "chats"
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), "/say hi")
    with mounted(chats) as mount:
        mount.stand_still()
        daemon.ok("send", "anna", "/say hi")
        wait_until(lambda: daemon.show("anna")["state"] == "failed", "the end of anna's turn")
        assert f"{chats} doesn't answer" in daemon.ctl("show", "anna").out
        for words in (("resume", "anna"), ("sessions", "-w", daemon.show("anna")["workspace"])):
            refused = daemon.ctl(*words)
            assert (refused.code, f"{chats} doesn't answer" in refused.error) == (1, True), refused
        before = daemon.process.pid
        daemon.stop()
        daemon.start()
        assert daemon.show("anna")["state"] == "failed"
        assert mount.pids().isdisjoint({before, daemon.process.pid}), "it touched the chats itself"
    daemon.ok("resume", "anna")
    daemon.wait("anna")
