"""Runs the operator's commands in agents' sandboxes (`substratctl exec`), with the caller's own descriptors.

A command sees what the agent's next turn would see, beside a turn that may be running, in namespaces of its own. The daemon
starts it, not the client, so it has the same user and limits, whichever client asks. It ends with its program, with its
caller and with the daemon, and takes with it the processes that it left running.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox.bwrap import LOCK_FD, SETSID
from substrat.daemon.kernel import process, sandbox_process
from substrat.daemon.sandboxes import launch_plan, protected_paths
from substrat.daemon.sandboxes.lost_mounts import ProtectedSandbox
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.layout import TurnDir
from substrat.daemon.turns import agent_socket, shortage
from substrat.daemon.turns.agent_network import network_of
from substrat.daemon.turns.exec_caller import check, close, closing, reach
from substrat.daemon.turns.exec_sandbox import ExecSandbox, HeldExec
from substrat.errors import Refused, SandboxFailed, StateUnusable
from substrat.protocol.signals import FORWARDED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.cgroups import Cgroups, Group
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.network.filtered import Networks, TurnNetwork
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.sandboxes.prepare import PreparedSandbox, SandboxPreparer
    from substrat.daemon.sandboxes.protection import Protection
    from substrat.daemon.state.layout import AgentDir, Layout
    from substrat.daemon.state.trash import Trash
    from substrat.daemon.turns.exec_caller import Caller, ExecRequest
    from substrat.errors import SubstratError

log = structlog.get_logger("substrat.exec")

_END_SECONDS = 10.0
"""A killed sandbox is gone in milliseconds; a caller doesn't wait longer for one that the kernel can't end."""
_CALLERS_SOCKET = re.compile(r"exec-\d+-[0-9a-f]+\.sock")
"""Names of callers' sockets, for example `exec-4711-9f3c.sock`, as `substratctl` makes them."""


class ExecSessions:
    """Runs the commands of one daemon.

    Args:
        registry: the agents.
        preparer: prepares their sandboxes.
        cgroups: the sandboxes' cgroups.
        networks: the networks that are being served.
        layout: the daemon's directories.
        watcher: inotify.
        trash: deletes directories.
        protection: keeps protected paths read-only while commands run.
        findings: the findings that wait for a person.
        serve_agent: serves an agent's socket until cancelled.
    """

    def __init__(
        self,
        registry: Registry,
        preparer: SandboxPreparer,
        cgroups: Cgroups,
        networks: Networks,
        layout: Layout,
        watcher: Watcher,
        trash: Trash,
        protection: Protection,
        findings: Findings,
        serve_agent: Callable[..., Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._preparer = preparer
        self._cgroups = cgroups
        self._networks = networks
        self._layout = layout
        self._watcher = watcher
        self._trash = trash
        self._protection = protection
        self._findings = findings
        self._serve_agent = serve_agent
        self._running: Counter[str] = Counter()

    def check_none(self, agent: Agent) -> None:
        """Raise `Refused` if a command runs in an agent's sandbox."""
        if self._running[agent.id]:
            raise Refused(f"a command of yours runs in the sandbox of {agent.name} (`substratctl exec`): end it first")

    def end_those_before(self) -> None:
        """End the commands of a daemon that was killed, and remove their files.

        They end with their daemon, except one that was killed before bubblewrap had asked the kernel for that.
        """
        try:
            left = os.listdir(self._layout.exec_dir)
        except FileNotFoundError:
            left = []
        for session in left:
            place = TurnDir(os.path.join(self._layout.exec_dir, session))
            try:
                if place.is_held():
                    sandbox_process.kill_holders(place.lock, LOCK_FD)
            except OSError as problem:
                log.warning("what a command left is odd", path=place.root, reason=problem.strerror)
            self._trash.discard(place.root)
        shutil.rmtree(self._layout.exec_sockets, ignore_errors=True)

    async def run(self, agent: Agent, request: ExecRequest) -> int:
        """Run a command to its end.

        Returns:
            Its exit status, 128 and the signal's number if one ended it.

        Raises:
            SubstratError: it couldn't be started, or its caller has gone.
        """
        check(agent, request)
        caller = await self._reach(request.descriptors)
        place, own = self._layout.exec_session(agent.id, secrets.token_hex(8))
        with (
            caller.stream.socket,
            closing(caller.descriptors),
            self._counted(agent, place, own),
            self._group_for(own) as group,
        ):
            note = partial(self._note, agent.id)
            network = network_of(self._registry, self._watcher, agent, own, place.network_socket, note)
            with self._networks.serving(agent.id, network), ExitStack() as protected:
                parts = await self._prepare(agent, place, own)
                held, renewed = HeldExec(), dict[str, int]()
                watched = ProtectedSandbox(
                    name=own.root, agent=agent.id, turn=None, workspace=agent.workspace, protected=parts.protected,
                    copies=parts.copies, control=held, held_mark=None, save=None, replaced=renewed,
                )  # fmt: skip
                protected.enter_context(self._protection.protecting(watched))
                sandbox = held.sandbox = await self._launch(parts, own, request, network, group, caller.descriptors)
                code = await self._stay(agent, sandbox, caller.stream, network, place)
                self._findings.record(
                    agent.id,
                    None,
                    await self._preparer.protector.find_changes(
                        agent, protected_paths.with_inodes(parts.protected, renewed)
                    ),
                )
                return held.passed_on(code)

    async def _reach(self, path: str) -> Caller:
        """Fetch the caller's descriptors; raises the same errors as `reach`.

        A caller that was killed before it handed them over can't remove its socket, so it is removed here.
        """
        try:
            return await reach(path)
        except BaseException:
            if _CALLERS_SOCKET.fullmatch(os.path.basename(path)) and os.path.dirname(path) == self._layout.runtime:
                with suppress(OSError):
                    os.unlink(path)
            raise

    async def _launch(
        self,
        parts: PreparedSandbox,
        own: TurnDir,
        request: ExecRequest,
        network: TurnNetwork | None,
        group: Group | None,
        standard: list[int],
    ) -> ExecSandbox:
        command = (SETSID, "--ctty", "--", *request.command) if request.terminal else request.command
        prepared = await self._preparer.launch(parts, network, group, command, tied=True)
        if request.terminal:
            prepared.environment["TERM"] = request.terminal
        log.info("exec", agent=parts.agent.name, program=request.command[0])
        sandbox = self._start(prepared, standard, own)
        # From here on the sandbox alone has them: a terminal ends for the caller when its last descriptor is closed.
        close(standard)
        return sandbox

    async def _prepare(self, agent: Agent, place: AgentDir, own: TurnDir) -> PreparedSandbox:
        try:
            return await self._preparer.prepare(agent, place, own.root)
        except OSError as problem:
            what = f" {problem.filename}" if problem.filename else ""
            said = f"the command's files can't be made:{what} {problem.strerror}"
            raise shortage.error(problem, said) or SandboxFailed(f"{said}; look at what is in its place") from None

    @contextmanager
    def _counted(self, agent: Agent, place: AgentDir, own: TurnDir) -> Iterator[None]:
        self._running[agent.id] += 1
        try:
            with self._preparer.protector.placeholders.keeping(own.root, agent.workspace):
                yield
        finally:
            self._running[agent.id] -= 1
            place.remove_sockets()
            self._trash.discard(own.root)

    def _note(self, agent: str, kind: str, text: str) -> None:
        with self._registry.change("note taken") as change:
            change.record(DaemonEvent(agent, None, kind, text))

    @contextmanager
    def _group_for(self, place: TurnDir) -> Iterator[Group | None]:
        group = self._cgroups.group(f"visit-{os.path.basename(place.root)}")
        try:
            yield group
        finally:
            if group is not None:
                group.remove()

    def _start(self, prepared: LaunchPlan, standard: list[int], place: TurnDir) -> ExecSandbox:
        try:
            with launch_plan.descriptors(prepared, standard, place) as given:
                self._registry.points.before("visit started")
                started = process.start(prepared.command, prepared.environment, given)
                self._registry.points.after("visit started")
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
        caller: trio.SocketStream,
        network: TurnNetwork | None,
        place: AgentDir,
    ) -> int:
        refused: SubstratError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_heed, caller, sandbox, nursery.cancel_scope)
                try:
                    await nursery.start(self._serve_agent, agent.id, None, place.socket)
                except (OSError, StateUnusable) as problem:
                    refused = agent_socket.refusal(place.socket, problem)
                else:
                    if network is not None:
                        nursery.start_soon(network.serve, None, lambda: sandbox.outer)
                    nursery.start_soon(sandbox.release, self._watcher)
                    await trio.lowlevel.wait_readable(sandbox.pidfd)
                nursery.cancel_scope.cancel()
        finally:
            self._registry.points.before("visit ended")
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_SECONDS):
                await sandbox.end()
            self._registry.points.after("visit ended")
        if refused is not None:
            raise refused
        code = sandbox_process.read_status(sandbox.place.read_status())[1]
        if code is None:
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
