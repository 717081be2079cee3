"""Runs the operator's commands in agents' sandboxes (`substratctl exec`), and clones' set-ups, with given descriptors.

A command sees what the agent's next turn would see, beside a turn that may be running, in namespaces of its own. The daemon
starts it, not the client, so it has the same user and limits, whichever client asks. It ends with its program, with its
caller and with the daemon, and takes with it the processes that it left running.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from sandbox.bwrap import LOCK_FD, SETSID
from substrat.daemon.agents.findings import roots_of
from substrat.daemon.kernel import process, sandbox_process
from substrat.daemon.sandboxes import launch_plan
from substrat.daemon.sandboxes.running import COMMAND
from substrat.daemon.sandboxes.sources import SourceGone
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.layout import TurnDir
from substrat.daemon.turns import agent_socket, exec_caller, shortage
from substrat.daemon.turns.agent_network import network_of
from substrat.daemon.turns.exec_caller import check, close, closing, reach
from substrat.daemon.turns.exec_sandbox import ExecSandbox, WatchedExec
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox
from substrat.errors import Refused, SandboxFailed, StateUnusable
from substrat.protocol.signals import FORWARDED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from sandbox.spec import Mount
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.state import State
    from substrat.daemon.kernel.cgroups import Group
    from substrat.daemon.network.filtered import TurnNetwork
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.sandboxes.prepare import PreparedSandbox
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.state.layout import AgentDir
    from substrat.daemon.turns.exec_caller import ExecRequest
    from substrat.errors import SubstratError

log = structlog.get_logger("substrat.exec")

_END_SECONDS = 10.0
"""A killed sandbox is gone in milliseconds; a caller doesn't wait longer for one that the kernel can't end."""
_TRIES = 3
"""How often a command's sandbox is prepared when a person's git removes a file of it meanwhile."""


class _Command(NamedTuple):
    """A command, the kind of its terminal if it has one, and its mounts and variables besides those of a turn."""

    words: tuple[str, ...]
    terminal: str | None = None
    mounts: tuple[Mount, ...] = ()
    variables: Mapping[str, str] = {}


@attrs.define(kw_only=True, eq=False)
class ExecSessions:
    """Runs the commands of one daemon.

    Args:
        state: the agents, and the places of their files.
        sandboxes: prepares and protects their sandboxes.
        serve_agent: serves an agent's socket until cancelled.
    """

    _state: State
    _sandboxes: Sandboxes
    _serve_agent: Callable[..., Awaitable[None]]
    _running: Counter[str] = attrs.field(init=False, factory=Counter)

    def check_none(self, agent: Agent) -> None:
        """Raise `Refused` if a command runs in an agent's sandbox."""
        if self._running[agent.id]:
            raise Refused(f"a command of yours runs in the sandbox of {agent.name} (`substratctl exec`): end it first")

    def end_those_before(self) -> None:
        """End the commands of a daemon that was killed, and remove their files.

        They end with their daemon, except one that was killed before bubblewrap had asked the kernel for that.
        """
        try:
            left = os.listdir(self._state.layout.exec_dir)
        except FileNotFoundError:
            left = []
        for session in left:
            place = TurnDir(os.path.join(self._state.layout.exec_dir, session))
            try:
                if place.is_held():
                    sandbox_process.kill_holders(place.lock, LOCK_FD)
            except OSError as problem:
                log.warning("what a command left is odd", path=place.root, reason=problem.strerror)
            self._state.trash.discard(place.root)
        shutil.rmtree(self._state.layout.exec_sockets, ignore_errors=True)
        exec_caller.remove_sockets(self._state.layout.runtime)

    async def run(self, agent: Agent, request: ExecRequest) -> int:
        """Run a command to its end.

        Returns:
            Its exit status, 128 and the signal's number if one ended it.

        Raises:
            SubstratError: it couldn't be started, or its caller has gone.
        """
        check(agent, request)
        caller = await reach(request.descriptors)
        with caller.stream.socket, closing(caller.descriptors), self._counted(agent.id) as now:
            check(now, request)
            return await self._run(now, _Command(request.command, request.terminal), caller.descriptors, caller.stream)

    async def run_own(
        self, agent: Agent, command: tuple[str, ...], log: int, mounts: tuple[Mount, ...], variables: Mapping[str, str]
    ) -> int:
        """Run a command of the daemon's own, a clone's set-up, to its end; when this is cancelled the command ends.

        Args:
            agent: the agent.
            command: the program and its arguments, as seen from inside.
            log: becomes its standard output and error; it is closed here.
            mounts: its further mounts.
            variables: further variables of its environment.

        Returns:
            Its exit status, 128 and the signal's number if one ended it.

        Raises:
            SubstratError: it couldn't be started.
        """
        standard = [log]
        with closing(standard):
            standard.append(os.dup(log))
            standard.insert(0, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            return await self._run(agent, _Command(command, None, mounts, variables), standard, None)

    async def _run(self, agent: Agent, command: _Command, standard: list[int], stream: trio.SocketStream | None) -> int:
        """Run a command with its standard descriptors, which are closed as soon as it has them."""
        for _ in range(_TRIES - 1):
            with suppress(SourceGone):  # nothing was started
                return await self._try(agent, command, standard, stream)
        return await self._try(agent, command, standard, stream)

    async def _try(self, agent: Agent, command: _Command, standard: list[int], stream: trio.SocketStream | None) -> int:
        async with self._state.registry.closures.entered(agent):
            return await self._try_inside(agent, command, standard, stream)

    async def _try_inside(
        self, agent: Agent, command: _Command, standard: list[int], stream: trio.SocketStream | None
    ) -> int:
        place, own = self._state.layout.exec_session(agent.id, secrets.token_hex(8))
        note = partial(self._note, agent.id)
        async with self._files(agent, place, own):
            network = network_of(self._state.registry, self._state.watcher, agent, own, place.network_socket, note)
            with self._group_for(own) as group, self._sandboxes.networks.serving(agent.id, network):
                parts = await self._prepare(agent, place, own)
                watched = WatchedExec()
                guarded = ProtectedSandbox(
                    own.root, agent.id, None, parts.protected, control=watched, roots=roots_of(agent), save=lambda *_: None
                )
                async with self._sandboxes.protection.protecting(guarded):
                    sandbox = watched.sandbox = await self._launch(parts, own, command, network, group, standard)
                    code = await self._stay(agent, sandbox, stream, network, place)
                changed, noted = await self._sandboxes.preparer.protector.find_changes(agent, parts.protected)
                self._state.findings.record(agent.id, None, (*changed, *noted))
                return watched.passed_on(code)

    async def _launch(
        self,
        parts: PreparedSandbox,
        own: TurnDir,
        command: _Command,
        network: TurnNetwork | None,
        group: Group | None,
        standard: list[int],
    ) -> ExecSandbox:
        words = (SETSID, "--ctty", "--", *command.words) if command.terminal else command.words
        prepared = await self._sandboxes.preparer.launch(
            parts._replace(further=command.mounts), network, group, words, tied=True
        )
        prepared.environment.update(command.variables)
        if command.terminal:
            prepared.environment["TERM"] = command.terminal
        log.info("exec", agent=parts.agent.name, program=command.words[0])
        sandbox = self._start(prepared, standard, own)
        # From here on the sandbox alone has them: a terminal ends for the caller when its last descriptor is closed.
        close(standard)
        return sandbox

    async def _prepare(self, agent: Agent, place: AgentDir, own: TurnDir) -> PreparedSandbox:
        try:
            return await self._sandboxes.preparer.prepare(agent, place, own.root)
        except OSError as problem:
            what = f" {problem.filename}" if problem.filename else ""
            said = f"the command's files can't be made:{what} {problem.strerror}"
            raise shortage.error(problem, said) or SandboxFailed(f"{said}; look at what is in its place") from None

    @contextmanager
    def _counted(self, agent_id: str) -> Iterator[Agent]:
        """Count a command, and give its agent as it is now; raises `Refused` if that is held, `NotFound` if it is gone."""
        agent = self._state.registry.find(agent_id)
        self._state.registry.holds.check(agent_id)
        if (obstacle := self._state.registry.closures.obstacle(agent)) is not None:
            raise Refused(f"{obstacle}: try again when that is over")
        self._running[agent_id] += 1
        try:
            yield agent
        finally:
            self._running[agent_id] -= 1

    @asynccontextmanager
    async def _files(self, agent: Agent, place: AgentDir, own: TurnDir) -> AsyncIterator[None]:
        """Keep a command's placeholders in the workspace for a while, and remove its files in the end."""
        try:
            async with self._sandboxes.preparer.protector.placeholders.keeping(own.root, agent.host_directory):
                yield
        finally:
            place.remove_sockets()
            self._state.trash.discard(own.root)

    def _note(self, agent: str, kind: str, text: str, _refused: str | None) -> None:
        with self._state.registry.change("note taken") as change:
            change.record(DaemonEvent(agent, None, kind, text))

    @contextmanager
    def _group_for(self, place: TurnDir) -> Iterator[Group | None]:
        name = f"visit-{os.path.basename(place.root)}"
        try:
            yield self._sandboxes.cgroups.group(name)
        finally:
            self._sandboxes.cgroups.remove(name)

    def _start(self, prepared: LaunchPlan, standard: list[int], place: TurnDir) -> ExecSandbox:
        try:
            with launch_plan.descriptors(prepared, standard, place) as given:
                self._state.registry.points.before("visit started")
                started = process.start(prepared.command, prepared.environment, given)
                self._state.registry.points.after("visit started")
            return ExecSandbox(started, process.open_own(started), place)
        except OSError as problem:
            short = shortage.error(problem, f"the command's files can't be made: {problem.strerror}")
            raise short or SandboxFailed(f"{prepared.command[0]} can't be started: {problem.strerror}") from None
        finally:
            prepared.close()

    async def _stay(
        self,
        agent: Agent,
        sandbox: ExecSandbox,
        caller: trio.SocketStream | None,
        network: TurnNetwork | None,
        place: AgentDir,
    ) -> int:
        refused: SubstratError | None = None
        try:
            async with trio.open_nursery() as nursery:
                if caller is not None:
                    nursery.start_soon(_heed, caller, sandbox, nursery.cancel_scope)
                try:
                    await nursery.start(self._serve_agent, agent.id, None, place.socket)
                except (OSError, StateUnusable) as problem:
                    refused = agent_socket.refusal(place.socket, problem)
                else:
                    if network is not None:
                        nursery.start_soon(network.serve, None, lambda: sandbox.outer)
                    showing = partial(self._sandboxes.running.showing, agent.id, COMMAND)
                    nursery.start_soon(sandbox.release, self._state.watcher, showing)
                    await trio.lowlevel.wait_readable(sandbox.pidfd)
                nursery.cancel_scope.cancel()
        finally:
            self._state.registry.points.before("visit ended")
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_SECONDS):
                await sandbox.end()
            self._state.registry.points.after("visit ended")
        if refused is not None:
            raise refused
        reports = sandbox.place.read_status()
        code = sandbox_process.read_status(reports)[1]
        # Where late mounts fail, the status is that of the program that has waited for them.
        if code is None or not sandbox_process.is_mounted(reports):
            raise SandboxFailed(
                "the sandbox couldn't be made, and what made it has said why: `substratctl doctor` looks for the cause"
            )
        return code


async def _heed(caller: trio.SocketStream, sandbox: ExecSandbox, everything: trio.CancelScope) -> None:
    """Pass the caller's signals on; end the command when it has gone, or when there is no command yet to be signalled."""
    try:
        while data := await caller.receive_some(64):
            for number in data:
                if number in FORWARDED and not sandbox.send(signal.Signals(number)):
                    everything.cancel()
    except trio.BrokenResourceError:
        log.debug("a caller went away")
    everything.cancel()
