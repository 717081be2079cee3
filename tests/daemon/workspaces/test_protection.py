"""A sandbox whose protection breaks is ended, and none waits for another; more in tests/system/test_protection.py."""

import os
import resource
import signal
import subprocess
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import trio

from substrat.core.agents.lifecycle import Phase
from substrat.daemon.kernel import procfs
from substrat.daemon.workspaces import protection as treated
from substrat.daemon.workspaces.lost_mounts import Look, ProtectedSandbox, lost
from substrat.daemon.workspaces.placeholders import Placeholders
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from substrat.daemon.workspaces.protection import Protection
from tests.daemon.agents.test_frozen_together import freeze
from tests.support.waiting import wait_until

PATH = "/w/.envrc"


class Broken:
    """A sandbox that can't be looked at."""

    def __init__(self):
        self.ended = trio.Event()

    def first_process(self):
        raise ValueError("odd")

    def end(self, reason):
        assert "protection broke" in reason.detail
        self.ended.set()


@pytest.fixture
async def protection(agents, files):
    with closing(Protection(agents.registry, files, Placeholders(agents.registry, files))) as made:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            yield made
            nursery.cancel_scope.cancel()


async def test_a_sandbox_that_cannot_be_looked_at_is_ended_and_the_others_stay_protected(agents, protection, tmp_path):
    agents.spawn("anna", "go")
    guard = ProtectedPaths(missing=(str(tmp_path / ".envrc"),))
    for name in ("one", "two"):  # the second: the task that looks is still there
        broken: Any = Broken()
        sandbox = ProtectedSandbox(name, agents.agent("anna").id, None, guard, (), broken, lambda *_: None)
        with trio.fail_after(10):
            async with protection.protecting(sandbox):
                (tmp_path / ".envrc").write_text("x")
                (tmp_path / ".envrc").unlink()
                await broken.ended.wait()


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


class Held:
    """A sandbox that stops, while a person freezes or resumes its turn."""

    def __init__(self, pid, freeze=lambda: None, *, stopped=True):
        self.pid, self.freeze, self.stopped = pid, freeze, stopped
        self.released, self.ended = trio.Event(), trio.Event()

    def first_process(self):
        return self.pid

    def is_stopped(self):
        return self.stopped

    async def hold(self):
        self.freeze()
        return True

    def release(self):
        self.released.set()

    def end(self, _reason):
        self.ended.set()


async def protect(agents, protection, held, done):
    """Protect a path of the sandbox of anna's turn, as the next daemon does, until something is done."""
    agent, turn, guard = agents.agent("anna").id, agents.turn("anna").id, ProtectedPaths(missing=(PATH,))
    sandbox = ProtectedSandbox(turn, agent, turn, guard, (), held, lambda *_: None)
    with trio.fail_after(10):
        async with protection.protecting(sandbox, adopted=True):
            await done.wait()


@pytest.mark.parametrize("is_stopped", [True, False], ids=["to the last process", "of which processes still run"])
@pytest.mark.parametrize("is_before", [False, True], ids=["while it is held", "before, and is resumed meanwhile"])
async def test_a_replaced_path_is_told_unless_the_turn_was_frozen_before(
    agents, protection, pid, monkeypatch, is_before, is_stopped
):
    agents.spawn("anna", "go")
    agents.begin("anna")
    gone = [PATH]
    monkeypatch.setattr(treated, "lost", lambda *_: [gone.pop()] if gone else [])
    monkeypatch.setattr(treated, "look", lambda *_: Look([PATH], False, {}, {}))
    if is_before:
        agents.supervisor.freeze("anna")
    act = partial(agents.supervisor.resume, "anna", None) if is_before else partial(agents.supervisor.freeze, "anna")
    held: Any = Held(pid, act, stopped=is_stopped)
    await protect(agents, protection, held, held.released)
    is_known = is_before and is_stopped
    assert agents.agent("anna").phase == (Phase.RUNNING if is_known else Phase.FROZEN)
    assert agents.turn("anna").replaced == (None if is_known else (PATH,))
    assert (PATH in agents.told("anna", "agent:frozen")[-1][1]) is not is_known


async def test_a_frozen_turn_that_is_ended_keeps_the_paths_for_which_it_was_frozen(agents, protection, pid, monkeypatch):
    freeze(agents, "anna", "/w/.vscode")
    monkeypatch.setattr(treated, "lost", lambda *_: [])
    monkeypatch.setattr(treated, "look", lambda *_: Look([PATH], True, {}, {}))
    monkeypatch.setattr(treated, "replaced", lambda _: [PATH])
    held: Any = Held(pid)
    await protect(agents, protection, held, held.ended)
    assert agents.turn("anna").replaced == ("/w/.vscode", PATH)


async def test_more_paths_than_an_urgent_commit_may_write_are_told_as_the_workspace(agents, protection, pid, monkeypatch):
    """Each later stop of the turn writes them again, on a full disk too."""
    many = [f"/w/{number}/{'d' * 1000}/.envrc" for number in range(1000)]
    agents.spawn("anna", "go")
    agents.begin("anna")
    monkeypatch.setattr(treated, "lost", lambda *_: [])
    monkeypatch.setattr(treated, "look", lambda *_: Look(many, False, {}, {}))
    monkeypatch.setattr(treated, "replaced", lambda _: many)
    held: Any = Held(pid)
    await protect(agents, protection, held, held.released)
    *some, rest = agents.turn("anna").replaced
    assert some == many[: len(some)]
    assert rest == agents.agent("anna").workspace
    assert 1 < len("".join(some)) < 16 * 1024
    assert max(len(event.json) for event in agents.journal.page(0, agents.agent("anna").id, 100)) < 32 * 1024
