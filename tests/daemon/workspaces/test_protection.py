"""A sandbox whose protection breaks is ended, and none waits for another; more in tests/system/test_protection.py."""

import os
import resource
import signal
import subprocess
from contextlib import ExitStack, closing
from typing import Any

import pytest
import trio

from substrat.core.workspaces.protection import ABSENT, Treatment
from substrat.daemon.agents.findings import Findings
from substrat.daemon.kernel import procfs
from substrat.daemon.state.layout import Layout
from substrat.daemon.workspaces import copies
from substrat.daemon.workspaces.consequences import Consequences
from substrat.daemon.workspaces.judgement import Judgement, is_outdated
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox, unprotected
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


class Running:
    """A sandbox with a process, in which nothing is mounted any more."""

    def __init__(self, pid):
        self.pid = pid
        self.held, self.ended = trio.Event(), trio.Event()

    def first_process(self):
        return self.pid

    async def hold(self):
        self.held.set()
        return True

    def release(self):
        pass

    def end(self, reason):
        self.pid = None
        self.ended.set()


def test_a_judgement_is_outdated_once_its_file_has_changed(tmp_path):
    path = tmp_path / ".envrc"
    path.write_text("half")
    judged = [Judgement(str(path), ABSENT, copies.take(str(path)), Treatment.REACHED)]
    assert not is_outdated(judged)
    path.write_text("half, and the rest")
    assert is_outdated(judged)
    path.unlink()
    assert is_outdated(judged)


async def test_a_sandbox_that_cannot_be_looked_at_is_ended_and_the_others_stay_protected(house, tmp_path):
    house.spawn("anna", "go")
    anna = house.agent("anna")
    places = Layout(str(tmp_path / "state"), str(tmp_path / "run"))
    unused: Any = None
    protection = Protection(house.registry, Consequences(house.registry, Findings(house.registry), places), places, unused)
    guard = ProtectedPaths(missing=(str(tmp_path / ".envrc"),))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(protection.run)
            for name in ("one", "two"):  # the second: the task that looks is still there
                broken: Any = Broken()
                sandbox = ProtectedSandbox(name, anna.id, None, str(tmp_path), guard, {}, broken, None, None, {})
                with protection.protecting(sandbox):
                    (tmp_path / ".envrc").write_text("x")
                    (tmp_path / ".envrc").unlink()
                    await broken.ended.wait()
            nursery.cancel_scope.cancel()
    protection.close()
    assert [finding.path for finding in house.agent("anna").findings] == [str(tmp_path)]


@pytest.fixture
def pid():
    """The pid of a process that has a child, as a sandbox's first one that is set up."""
    first = subprocess.Popen(["/bin/sh", "-c", "sleep 60; true"], start_new_session=True)
    wait_until(lambda: procfs.children(first.pid), "the child")
    yield first.pid
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()


def test_only_a_sandbox_that_has_ended_has_lost_nothing(tmp_path, pid):
    lost = tmp_path / ".envrc"
    lost.write_text("x")
    guard = ProtectedPaths(missing=(str(lost),))
    unused: Any = None
    sandbox = ProtectedSandbox("one", "id", None, str(tmp_path), guard, {}, unused, None, None, {})
    assert unprotected(sandbox, pid) == [str(lost)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # a daemon that is short of descriptors
    try:
        with pytest.raises(OSError, match="Too many open files"):
            unprotected(sandbox, pid)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert unprotected(sandbox, pid) == []


async def test_another_sandbox_is_stopped_in_memory_while_git_is_asked(house, tmp_path, pid):
    """An agent may make git slow, by a FIFO in the place of an object for example."""
    house.spawn("anna", "go")
    anna, files = house.agent("anna"), [tmp_path / name / ".envrc" for name in ("slow", "other")]
    controls: list[Any] = [Running(pid), Running(pid)]

    async def known(noted, sandbox, found):
        if controls[1].held.is_set():
            return []
        files[1].write_text("x")
        await controls[1].held.wait()
        return []

    places = Layout(str(tmp_path / "state"), str(tmp_path / "run"))
    consequences = Consequences(house.registry, Findings(house.registry), places)
    with closing(Protection(house.registry, consequences, places, known)) as protection, ExitStack() as stack:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(protection.run)
                for file, control in zip(files, controls, strict=True):
                    file.parent.mkdir()
                    guard = ProtectedPaths(missing=(str(file),))
                    own = ProtectedSandbox(
                        file.parent.name, anna.id, None, anna.workspace, guard, {}, control, None, None, {}
                    )
                    stack.enter_context(protection.protecting(own))
                files[0].write_text("x")
                await controls[0].ended.wait()
                await controls[1].ended.wait()
                nursery.cancel_scope.cancel()
