"""A sandbox whose protection breaks is ended, and none waits for another; more in tests/system/test_protection.py."""

import os
import resource
import signal
import subprocess
from typing import Any

import pytest
import trio

from substrat.daemon.kernel import procfs
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox, lost
from substrat.daemon.workspaces.placeholders import Placeholders
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from substrat.daemon.workspaces.protection import Protection
from tests.support.waiting import wait_until


class Broken:
    """A sandbox that can't be looked at."""

    def __init__(self):
        self.ended = trio.Event()

    def first_process(self):
        raise ValueError("odd")

    def end(self, reason):
        assert "protection broke" in reason.detail
        self.ended.set()


async def test_a_sandbox_that_cannot_be_looked_at_is_ended_and_the_others_stay_protected(house, tmp_path):
    house.spawn("anna", "go")
    anna = house.agent("anna")
    protection = Protection(house.registry, Placeholders(house.registry))
    guard = ProtectedPaths(missing=(str(tmp_path / ".envrc"),))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(protection.run)
            for name in ("one", "two"):  # the second: the task that looks is still there
                broken: Any = Broken()
                sandbox = ProtectedSandbox(name, anna.id, None, guard, (), broken, lambda *_: None)
                with protection.protecting(sandbox):
                    (tmp_path / ".envrc").write_text("x")
                    (tmp_path / ".envrc").unlink()
                    await broken.ended.wait()
            nursery.cancel_scope.cancel()
    protection.close()


@pytest.fixture
def pid():
    """The pid of a process that has a child, as a sandbox's first one that is set up."""
    first = subprocess.Popen(["/bin/sh", "-c", "sleep 60; true"], start_new_session=True)
    wait_until(lambda: procfs.children(first.pid), "the child")
    yield first.pid
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()


def test_only_a_sandbox_that_has_ended_has_lost_nothing(tmp_path, pid):
    path = tmp_path / ".envrc"
    path.write_text("x")
    guard = ProtectedPaths(missing=(str(path),))
    assert lost(guard, pid) == [str(path)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # a daemon that is short of descriptors
    try:
        with pytest.raises(OSError, match="Too many open files"):
            lost(guard, pid)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert lost(guard, pid) == []
