"""Commands of the operator's in agents' sandboxes, with the caller's own descriptors; they are no turns, and no agent's.

A visit sees what the agent's next turn would see, at the side of a turn that may be running, in namespaces of its own. The
daemon starts it, not the client: so it is the same user's and has the same limits, whoever calls. It ends with its command,
with its caller and with the daemon, and takes with it whatever it left running.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from sandbox.bwrap import LOCK_FD, SETSID
from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.netfilter import upstream
from substrat.daemon.kernel import descriptors, process, sandbox_process, sockets
from substrat.daemon.network.filtered import TurnNetwork, telling
from substrat.daemon.sandboxes import launch_plan, protected_paths
from substrat.daemon.sandboxes.lost_mounts import ProtectedSandbox
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.layout import TurnDir
from substrat.daemon.state.storing import disk_is_full
from substrat.daemon.turns import agent_socket
from substrat.errors import InvalidParams, Refused, SandboxFailed, StateUnusable, StorageFailed
from substrat.paths import short_socket_path
from substrat.protocol.signals import FORWARDED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from substrat.core.agents.records import Agent, Process
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.cgroups import Cgroups, Group
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.network.filtered import Networks
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.sandboxes.prepare import PreparedSandbox, SandboxPreparer
    from substrat.daemon.sandboxes.protection import Protection
    from substrat.daemon.state.layout import AgentDir, Layout
    from substrat.daemon.state.trash import Trash
    from substrat.errors import SubstratError

log = structlog.get_logger("substrat.visits")

_STANDARD = 3  # input, output, error
_REACH_SECONDS = 10.0
_END_SECONDS = 10.0
_HOLD_PAUSE = 0.005
_CALLERS_SOCKET = re.compile(r"exec-\d+-[0-9a-f]+\.sock")  # as `substratctl` names it
_TERMINAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")


class Call(NamedTuple):
    """What a caller wants.

    Args:
        command: the program and its arguments, as seen from inside.
        descriptors: where the caller hands over its standard input, output and error.
        terminal: `TERM`, if they are a terminal of the command's own.
    """

    command: tuple[str, ...]
    descriptors: str
    terminal: str | None = None


def check(agent: Agent, call: Call) -> None:
    """Check that a call can be carried out.

    Raises:
        Refused: the agent has ended.
        InvalidParams: there is no command, or no such terminal.
        SandboxFailed: there is no way to give it a terminal.
    """
    if not call.command or any("\0" in word for word in call.command):
        raise InvalidParams("agent.exec: 'command' must name a program, and no word may have a null character")
    if call.terminal is not None and not _TERMINAL.fullmatch(call.terminal):
        raise InvalidParams(f"agent.exec: {call.terminal!r} is no kind of terminal: set TERM, for example to xterm")
    if not os.path.isabs(call.descriptors) or "\0" in call.descriptors:
        raise InvalidParams(f"agent.exec: 'descriptors' must be an absolute path, not {call.descriptors!r}")
    if call.terminal is not None and not os.access(SETSID, os.X_OK):
        raise SandboxFailed(f"the command can't have a terminal: there is no {SETSID}: apt install util-linux")
    if agent.phase == Phase.ENDED:
        raise Refused(f"{agent.name} has ended and has no sandbox any more: spawn another agent in {agent.workspace}")


class ExecSessions:
    """Runs the visits of one daemon.

    Args:
        registry: the agents.
        furnisher: what prepares their sandboxes.
        cgroups: what limits whole sandboxes.
        networks: those that are being served.
        places: the daemon's directories.
        watcher: inotify.
        trash: deletes directories.
        protection: what keeps protected paths read-only while commands run.
        findings: what a person has to look at.
        serve_door: serves an agent's socket until cancelled.
    """

    def __init__(
        self,
        registry: Registry,
        preparer: SandboxPreparer,
        cgroups: Cgroups,
        networks: Networks,
        places: Layout,
        watcher: Watcher,
        trash: Trash,
        protection: Protection,
        findings: Findings,
        serve_door: Callable[..., Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._preparer = preparer
        self._cgroups = cgroups
        self._networks = networks
        self._places = places
        self._watcher = watcher
        self._trash = trash
        self._protection = protection
        self._findings = findings
        self._serve_door = serve_door
        self._visited: Counter[str] = Counter()

    def check_none(self, agent: Agent) -> None:
        """Raise `Refused` if there is a visit to an agent."""
        if self._visited[agent.id]:
            raise Refused(f"a command of yours runs in the sandbox of {agent.name} (`substratctl exec`): end it first")

    def end_those_before(self) -> None:
        """End the visits of a daemon that was killed, and remove their files.

        They end with their daemon, except one that was killed before bubblewrap had asked the kernel for that.
        """
        try:
            left = os.listdir(self._places.exec_dir)
        except FileNotFoundError:
            left = []
        for visit in left:
            place = TurnDir(os.path.join(self._places.exec_dir, visit))
            try:
                if place.is_held():
                    sandbox_process.kill_holders(place.lock, LOCK_FD)
            except OSError as problem:
                log.warning("what a command left is odd", path=place.root, reason=problem.strerror)
            self._trash.discard(place.root)
        shutil.rmtree(self._places.exec_sockets, ignore_errors=True)

    async def run(self, agent: Agent, call: Call) -> int:
        """Run a command to its end.

        Returns:
            Its exit status, 128 and the signal's number if one ended it.

        Raises:
            SubstratError: it couldn't be started, or its caller has gone.
        """
        check(agent, call)
        caller = await self._reach(call.descriptors)
        place, own = self._places.exec_session(agent.id, secrets.token_hex(8))
        with (
            caller.stream.socket,
            _closing(caller.descriptors),
            self._visiting(agent, place, own),
            self._group_for(own) as group,
        ):
            network = self._network_of(agent, own, place.network_socket)
            with self._networks.serving(agent.id, network), ExitStack() as protected:
                furnished = await self._furnish(agent, place, own)
                held, renewed = _Held(), dict[str, int]()
                protected.enter_context(self._protection.guarding(ProtectedSandbox(
                    own.root, agent.id, None, agent.workspace, furnished.guard, furnished.kept, held, None, None, renewed,
                )))  # fmt: skip
                sandbox = held.sandbox = await self._launch(furnished, own, call, network, group, caller.descriptors)
                code = await self._stay(agent, sandbox, caller.stream, network, place)
                self._findings.record(
                    agent.id,
                    None,
                    await self._preparer.protector.news(agent, protected_paths.renewed(furnished.guard, renewed)),
                )
                return held.passed_on(code)

    async def _reach(self, path: str) -> _Caller:
        """Fetch the caller's descriptors; raises what `_reach` raises.

        A caller that was killed before it handed them over can't remove its socket, so it is removed here.
        """
        try:
            return await _reach(path)
        except BaseException:
            if _CALLERS_SOCKET.fullmatch(os.path.basename(path)) and os.path.dirname(path) == self._places.runtime:
                with suppress(OSError):
                    os.unlink(path)
            raise

    async def _launch(
        self,
        furnished: PreparedSandbox,
        own: TurnDir,
        call: Call,
        network: TurnNetwork | None,
        group: Group | None,
        standard: list[int],
    ) -> _Sandbox:
        command = (SETSID, "--ctty", "--", *call.command) if call.terminal else call.command
        prepared = await self._preparer.launch(furnished, network, group, command, tied=True)
        if call.terminal:
            prepared.environment["TERM"] = call.terminal
        log.info("visit", agent=furnished.agent.name, program=call.command[0])
        sandbox = self._start(prepared, standard, own)
        # From here on the sandbox alone has them: a terminal ends for the caller when nobody has it any more.
        _close(standard)
        return sandbox

    async def _furnish(self, agent: Agent, place: AgentDir, own: TurnDir) -> PreparedSandbox:
        try:
            return await self._preparer.prepare(agent, place, own.root)
        except OSError as problem:
            descriptors.refuse_shortage(problem)
            what = f" {problem.filename}" if problem.filename else ""
            said = f"the command's files can't be made:{what} {problem.strerror}"
            if disk_is_full(problem):
                raise StorageFailed(f"{said}; make room") from None
            raise SandboxFailed(f"{said}; look at what is in its place") from None

    @contextmanager
    def _visiting(self, agent: Agent, place: AgentDir, own: TurnDir) -> Iterator[None]:
        self._visited[agent.id] += 1
        try:
            with self._preparer.protector.placeholders.keeping(own.root, agent.workspace):
                yield
        finally:
            self._visited[agent.id] -= 1
            place.remove_sockets()
            self._trash.discard(own.root)

    def _network_of(self, agent: Agent, place: TurnDir, socket_path: str) -> TurnNetwork | None:
        if agent.policy.network is not Network.FILTERED:
            return None

        def note(kind: str, text: str) -> None:
            with self._registry.change("note taken"):
                self._registry.journal.record(DaemonEvent(agent.id, None, kind, text))

        # The list may have changed since the caller asked.
        allow = self._registry.find(agent.id).policy.allow
        through = upstream.read(self._registry.config.sandbox.upstream_proxy)
        return TurnNetwork(allow, place, socket_path, self._watcher, telling(agent.name, note), through)

    @contextmanager
    def _group_for(self, place: TurnDir) -> Iterator[Group | None]:
        group = self._cgroups.group(f"visit-{os.path.basename(place.root)}")
        try:
            yield group
        finally:
            if group is not None:
                group.remove()

    def _start(self, prepared: LaunchPlan, standard: list[int], place: TurnDir) -> _Sandbox:
        try:
            with launch_plan.descriptors(prepared, standard, place) as given:
                self._registry.points.before("visit started")
                started = process.start(prepared.command, prepared.environment, given)
                self._registry.points.after("visit started")
            return _Sandbox(started, process.open_own(started), place)
        except OSError as problem:
            descriptors.refuse_shortage(problem)
            if disk_is_full(problem):
                raise StorageFailed(f"the command's files can't be made: {problem.strerror}; make room") from None
            raise SandboxFailed(f"{prepared.command[0]} can't be started: {problem.strerror}") from None
        finally:
            prepared.close()

    async def _stay(
        self,
        agent: Agent,
        sandbox: _Sandbox,
        caller: trio.SocketStream,
        network: TurnNetwork | None,
        place: AgentDir,
    ) -> int:
        refused: SubstratError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_heed, caller, sandbox, nursery.cancel_scope)
                try:
                    await nursery.start(self._serve_door, agent.id, None, place.socket)
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


class _Sandbox(NamedTuple):
    """A visit's sandbox: its outer process, a pidfd of it, and its files."""

    outer: Process
    pidfd: int
    place: TurnDir

    def first_process(self) -> int | None:
        """Return the pid of the sandbox's first process, None while there is none or when it has ended."""
        inner = sandbox_process.read_status(self.place.read_status())[0]
        pidfd = sandbox_process.open_inner(self.outer, inner) if inner is not None else None
        if pidfd is None:
            return None
        os.close(pidfd)
        return inner

    def kill(self) -> None:
        """Kill the sandbox's first process, and with it all others."""
        inner = sandbox_process.read_status(self.place.read_status())[0]
        pidfd = sandbox_process.open_inner(self.outer, inner) if inner is not None else None
        if pidfd is not None:
            process.kill(pidfd)
            os.close(pidfd)

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the command; says whether there was one."""
        inner = sandbox_process.read_status(self.place.read_status())[0]
        pidfd = sandbox_process.open_inner(self.outer, inner) if inner is not None else None
        if pidfd is None or inner is None:
            return False
        try:
            return sandbox_process.signal_program(inner, number)
        finally:
            os.close(pidfd)

    async def release(self, watcher: Watcher) -> None:
        """Let bubblewrap's outer process end once its inner one has, though somebody outside may have stopped it."""
        inner = sandbox_process.open_inner(self.outer, await sandbox_process.reported(self.place, watcher))
        if inner is not None:
            try:
                await trio.lowlevel.wait_readable(inner)
            finally:
                os.close(inner)
        await sandbox_process.release(self.pidfd)

    async def end(self) -> None:
        """Kill what is still there, and come back when nothing is."""
        try:
            if process.is_running(self.outer):
                await sandbox_process.kill_sandbox_of(self.outer.pid, self.pidfd)
            await process.wait_exit(self.outer, self.pidfd)
        finally:
            os.close(self.pidfd)
        # The command may have ended before what it started did: the kernel kills that only now (--die-with-parent).
        inner = sandbox_process.read_status(self.place.read_status())[0]
        pidfd = sandbox_process.open_inner(self.outer, inner) if inner is not None else None
        if pidfd is not None:
            try:
                process.kill(pidfd)
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)


class _Held:
    """A command's sandbox for a look at protected files (`lost_mounts.Holder`)."""

    def __init__(self) -> None:
        self.sandbox: _Sandbox | None = None
        self._reason: str | None = None

    def first_process(self) -> int | None:
        """Return the pid of its first process, None while there is none or when it has ended."""
        return self.sandbox.first_process() if self.sandbox is not None else None

    async def hold(self) -> bool:
        """Stop all of it in memory; says whether that was possible."""
        while (first := self.first_process()) is not None:
            if await trio.to_thread.run_sync(sandbox_process.stop_all, first):
                return True
            await trio.sleep(_HOLD_PAUSE)
        return False

    def release(self) -> None:
        """Let it go on."""
        if (first := self.first_process()) is not None:
            sandbox_process.continue_all(first)

    def end(self, reason: str) -> None:
        """Kill it for a reason, which its caller is told."""
        self._reason = reason
        if self.sandbox is not None:
            self.sandbox.kill()

    def passed_on(self, code: int) -> int:
        """Return the command's exit status; raises `SandboxFailed` if it was killed here."""
        if self._reason is not None:
            raise SandboxFailed(f"the command was stopped: {self._reason}; `substratctl show` tells what was found")
        return code


async def _heed(caller: trio.SocketStream, sandbox: _Sandbox, everything: trio.CancelScope) -> None:
    """Pass the caller's signals on; end the visit when it has gone, or when there is no command yet to be signalled."""
    try:
        while data := await caller.receive_some(64):
            for number in data:
                if number in FORWARDED and not sandbox.send(signal.Signals(number)):
                    everything.cancel()
    except trio.BrokenResourceError:
        log.debug("a caller went away")
    everything.cancel()


class _Caller(NamedTuple):
    """A caller: the connection it is heard on, and the descriptors it has handed over."""

    stream: trio.SocketStream
    descriptors: list[int]


async def _reach(path: str) -> _Caller:
    """Fetch the caller's descriptors.

    Raises:
        InvalidParams: nobody of this user, or root, hands any over there.
        DescriptorsUsedUp: there are no descriptors left for them.
    """
    spelling, directory = short_socket_path(path)
    connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    caller = _Caller(trio.SocketStream(connection), [])
    with ExitStack() as undo:
        undo.callback(connection.close)
        undo.callback(_close, caller.descriptors)
        try:
            with trio.fail_after(_REACH_SECONDS):
                await connection.connect(spelling)
                caller.descriptors.extend(await sockets.receive_descriptors(connection, _STANDARD))
        except (OSError, trio.TooSlowError) as problem:
            if isinstance(problem, OSError):
                descriptors.refuse_shortage(problem)
            reason = getattr(problem, "strerror", None) or "nothing came"
            raise InvalidParams(f"agent.exec: no descriptors can be had from {path}: {reason}; try it again") from None
        finally:
            if directory is not None:
                os.close(directory)
        _check_caller(caller.stream, caller.descriptors, path)
        undo.pop_all()
    return caller


def _check_caller(stream: trio.SocketStream, descriptors: list[int], path: str) -> None:
    if sockets.peer_uid(stream) not in {os.geteuid(), 0} or len(descriptors) != _STANDARD:
        raise InvalidParams(f"agent.exec: no standard input, output and error of yours came from {path}: try it again")


@contextmanager
def _closing(descriptors: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        _close(descriptors)


def _close(descriptors: list[int]) -> None:
    """Close descriptors and forget them."""
    while descriptors:
        os.close(descriptors.pop())
