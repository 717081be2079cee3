"""Prepares a sandbox: checks the machine, generates its files, protects its workspace, builds the launch command."""

from __future__ import annotations

import os
import shlex
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog
import trio

import mcp_server.hook
import mcp_server.relay
from sandbox import bwrap, host, launch, netrelay
from sandbox.spec import NetworkMode
from substrat import paths
from substrat.core.agents import environment
from substrat.core.agents.cgroup_limits import CgroupLimits
from substrat.core.agents.lifecycle import Phase
from substrat.core.programs.table import CURSOR, program_of
from substrat.daemon.agents import spawning
from substrat.daemon.agents.findings import Found
from substrat.daemon.kernel.files import close_all
from substrat.daemon.sandboxes import (
    authorities,
    build_spec,
    chat_places,
    clone_mounts,
    program,
    sources,
)
from substrat.daemon.sandboxes.generated import generate
from substrat.daemon.sandboxes.launch_plan import LaunchPlan
from substrat.daemon.sandboxes.machine import Machine
from substrat.daemon.sandboxes.person_git import PersonGitReader
from substrat.daemon.sandboxes.unreadable_paths import UnreadablePaths
from substrat.daemon.workspaces import checking, git_places
from substrat.daemon.workspaces.protector import WorkspaceProtector
from substrat.errors import SandboxFailed, StateUnusable, WorkspaceUnusable

if TYPE_CHECKING:
    from sandbox.spec import Bind, Mount, Spec
    from substrat.config import Config
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.findings import Found
    from substrat.daemon.agents.state import State
    from substrat.daemon.kernel.cgroups import Cgroups, Group
    from substrat.daemon.network.filtered import TurnNetwork
    from substrat.daemon.state.layout import AgentDir
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths
    from substrat.daemon.workspaces.user import User

log = structlog.get_logger("substrat.prepare")


class Explanation(NamedTuple):
    """How a turn would be started: a command that can be pasted, its environment, the agent program.

    `missing` are the protected paths that don't exist: a turn has placeholders there, which the command does without.
    """

    command: str
    environment: dict[str, str]
    program: str
    missing: tuple[str, ...]


class PreparedSandbox(NamedTuple):
    """A sandbox that can be launched.

    Args:
        agent: whose it is.
        agent_dir: the agent's directories.
        bubblewrap: the program that makes it.
        protected: the workspace's protected paths.
        notes: sentences to report, each with its event's kind.
        found: findings that a person must look at.
        network_mode: how it comes by its `filtered` network, if it has one.
        chat: the directory of the agent's session among the user's chats, if it is there.
        system: the mounts of the operating system.
        workspace: which directory the agent's workspace was when it was checked; None for a clone.
        lent: the mounts that show what the agent's clone borrows.
        further: mounts that only this sandbox has.
    """

    agent: Agent
    agent_dir: AgentDir
    bubblewrap: host.Bubblewrap
    protected: ProtectedPaths
    notes: tuple[tuple[str, str], ...]
    found: tuple[Found, ...]
    network_mode: NetworkMode | None = None
    chat: str | None = None
    system: tuple[Mount, ...] = ()
    workspace: checking.DirectoryId | None = None
    lent: tuple[Mount, ...] = ()
    further: tuple[Mount, ...] = ()


def _unreadable_note(environ: dict[str, str]) -> str:
    """Return the file in which the user's daemons list the unreadable paths, `-` if another user owns its directory."""
    try:
        own = paths.runtime_dir({name: value for name, value in environ.items() if name != "SUBSTRAT_RUNTIME_DIR"})
    except StateUnusable as problem:
        log.warning("unreadable paths are searched for at each start", reason=problem.message)
        return "-"
    return os.path.join(own, "unreadable.json")


class SandboxPreparer:
    """Prepares the sandboxes of one daemon, its agents' turns' and the operator's in them."""

    def __init__(self, state: State, user: User, cgroups: Cgroups) -> None:
        registry, layout, environ = state.registry, state.layout, state.environ
        self._state = state
        self._user = user
        self._chats = user.place(CURSOR.places.chats)
        self._cgroups = cgroups
        self.machine = Machine(registry)
        self.protector = WorkspaceProtector(registry, state.files, layout, user, environ)
        # In the user's own runtime directory, not this daemon's: the list is the same for all daemons of the machine.
        self.unreadable = UnreadablePaths(_unreadable_note(environ))
        self.person = PersonGitReader(state, user, self.unreadable.uncovered_mounts)
        self._bundles: tuple[str, ...] = ()
        self._writing = trio.Lock()
        self._left_out: dict[program.Program, frozenset[str]] = {}

    @property
    def _config(self) -> Config:
        return self._state.registry.config

    def reconfigured(self) -> None:
        """Forget the answers that the old configuration gave."""
        self.machine.forget()
        self.set_limits()

    def set_limits(self) -> None:
        """Set the limits of all sandboxes together."""
        given = self._config.limits
        memory = given.memory or host.machine_memory() // 8 * 7
        self._cgroups.prepare(CgroupLimits(memory, given.cpus, given.processes))

    def leave_out(self, agent: Agent, option: str) -> None:
        """Start the program of an agent that is there now without an option from now on; raises `AgentProgramMissing`."""
        agent_program = program.find(self._config.binary_of(agent.settings.program), of=program_of(agent))
        known = self._left_out.get(agent_program, frozenset())
        self._left_out = {**self._left_out, agent_program: known | {option}}

    async def write_authorities(self) -> None:
        """Write the file of all certificate authorities, if the configuration adds some."""
        if self._config.sandbox.ca:
            write = partial(authorities.write, self._config.sandbox.ca, self._state.layout.authorities)
            async with self._writing:
                self._bundles = await trio.to_thread.run_sync(write)

    async def explain(self, agent: Agent) -> Explanation:
        """Say how an agent's next turn would be started, by a command that runs while the agent is idle.

        Files that the agent's first turn would generate are generated now, because the command shows them.
        """
        bubblewrap = await self.machine.find_bubblewrap()
        shared, own, _ = await self.protector.shared_with(agent)
        found = await self.protector.scan(agent, shared, own)
        made = frozenset(self._state.registry.store.mount_points())
        found, missing = await self._state.files.run(agent.workspace, _without_placeholders, found, made)
        mode = await self.machine.network_mode(agent)
        agent_dir = self._state.layout.agent(agent.id)
        chat = await self._state.files.run(self._chats, chat_places.shared_chat, self._user, agent_dir, agent)
        await self._generate(agent, agent_dir, found, chat)
        await trio.to_thread.run_sync(self._make_shared, agent)
        system = await self.unreadable.system_mounts()
        prepared = PreparedSandbox(
            agent, agent_dir, bubblewrap, found,
            notes=(), found=(), network_mode=mode, chat=chat, system=system,
            lent=await self.lent_to(agent),
        )  # fmt: skip
        spec = self._spec(prepared)
        # The environment is not in the command, because a process's arguments can be read by everybody.
        command = shlex.join(launch.command(bubblewrap.path, spec))
        given = {*self._config.env_of(agent.settings.program), *dict(agent.settings.environment)}
        whole = {**dict(spec.environment), **dict(spec.variables)}
        secret = {name for name in whole if name in given or name.startswith(program_of(agent).private)}
        hidden = {name: "…" if name in secret else value for name, value in whole.items()}
        return Explanation(
            command,
            hidden,
            program.find(self._config.binary_of(agent.settings.program), of=program_of(agent)).path,
            missing,
        )

    async def _generate(self, agent: Agent, agent_dir: AgentDir, found: ProtectedPaths, chat: str | None) -> None:
        """Write the files that the sandbox of an agent without a turn shows; its first turn writes them again."""
        person = await self.person.read(agent)
        # Its first turn may have begun meanwhile, or the agent may have been removed.
        current = self._state.registry.get(agent.id)
        if current is not None and current.turn is None and current.phase != Phase.QUEUED:
            await self._state.files.run(agent.workspace, partial(
                generate, agent_dir, agent,
                parent=self._state.registry.name_of(agent.parent),
                limits=spawning.limits_of(self._state.registry, agent), user=self._user, python=program.find_python()[0],
                person=person, git_directories=_git_directories(agent, found),
                chat=os.path.basename(chat) if chat is not None else None, read_only=found.whole,
            ))  # fmt: skip

    async def prepare(self, agent: Agent, agent_dir: AgentDir, holder: str) -> PreparedSandbox:
        """Make everything that an agent's sandbox shows.

        Args:
            agent: the agent.
            agent_dir: its directories.
            holder: the turn, or whatever else the sandbox is for; what stands in the workspace is kept for it until it is
                released from `protector.placeholders`.

        Raises:
            SubstratError: a part of it can't be made; nothing is running.
        """
        bubblewrap = await self.machine.find_bubblewrap()
        mode = await self.machine.network_mode(agent)
        files, place = self._state.files, agent.workspace
        await self.write_authorities()
        identity_of = await files.run(place, _check_again, agent, agent_dir, self._user, self.protector.own_places)
        await trio.to_thread.run_sync(self._make_shared, agent)
        lent = await self.lent_to(agent)
        found, unprotected = await self.protector.protect(agent, holder)
        python = program.find_python()[0]
        system = await self.unreadable.system_mounts()
        person = await self.person.read(agent)
        own_dir = self._state.layout.agent(agent.id)  # a command's `agent_dir` is another one
        chat = await files.run(self._chats, chat_places.make_ready, self._user, own_dir, agent)
        self._state.registry.points.before("files made")
        left_out = await files.run(place, partial(
            generate, agent_dir, agent,
            parent=self._state.registry.name_of(agent.parent), limits=spawning.limits_of(self._state.registry, agent),
            user=self._user, python=python,
            person=person, git_directories=_git_directories(agent, found),
            chat=os.path.basename(chat) if chat is not None else None, workspace=identity_of, read_only=found.whole,
        ))  # fmt: skip
        self._state.registry.points.after("files made")
        notes = [("workspace:unprotected", one.text) for one in unprotected]
        if left_out is not None:
            notes.append(("workspace:left-out", left_out))
        return PreparedSandbox(
            agent, agent_dir, bubblewrap, found,
            notes=tuple(notes), found=unprotected, network_mode=mode, chat=chat, system=system,
            workspace=identity_of if agent.clone is None else None, lent=lent,
        )  # fmt: skip

    async def lent_to(self, agent: Agent) -> tuple[Mount, ...]:
        """Return the mounts that show what an agent's clone borrows, and make sure that the clone can be mounted."""
        if agent.clone is None:
            return ()
        prepare, empty = clone_mounts.prepare, self._state.layout.agent(agent.id).no_alternates
        return (await self._state.files.run(agent.workspace, prepare, agent.clone, self.protector.borrowing, empty)).mounts

    async def launch(
        self,
        prepared: PreparedSandbox,
        network: TurnNetwork | None,
        group: Group | None,
        command: tuple[str, ...] = (),
        *,
        tied: bool = False,
    ) -> LaunchPlan:
        """Build a sandbox's launch plan and open the sources that are bound by descriptor.

        Args:
            prepared: the sandbox.
            network: its `filtered` network, if it has one.
            group: its cgroup, if there can be one.
            command: the program that runs instead of the agent program, and its arguments.
            tied: whether it ends with the daemon.

        Raises:
            SubstratError: something of it has gone, or has become a link; nothing is running.
        """
        is_bounded = group is not None and "memory" in self._cgroups.controllers
        spec = self._spec(prepared, command, is_bounded=is_bounded)
        by_descriptor = prepared.bubblewrap.takes_descriptors
        started = launch.start(prepared.bubblewrap.path, spec, by_descriptor=by_descriptor, tied=tied)
        line = started.command
        if group is not None:
            given = self._config.sandbox
            group.make(CgroupLimits(host.memory(given.memory), given.cpus, given.processes))
            line = group.entering(line)
        version = program_of(prepared.agent).version_of(spec.command[0])
        agent = prepared.agent
        held = await self._state.files.open(
            agent.workspace, _open_sources, agent.workspace, prepared.workspace, started.held
        )
        if not by_descriptor:
            close_all(held)
            held = ()
        try:
            channel = network.open(prepared.network_mode or NetworkMode.TRANSPARENT) if network is not None else None
        except OSError as problem:
            close_all(held)
            raise SandboxFailed(
                f"its network can't be served: {problem.strerror}; look at {prepared.agent_dir.socket_dir}"
            ) from None
        without = program_of(prepared.agent).dispensable.difference(spec.command)
        return LaunchPlan(line, dict(spec.environment), started.options, version, channel, held, without)

    def _shared(self, agent: Agent) -> str:
        return self._state.layout.shared_by(self._state.registry.shared_of(agent))

    def _make_shared(self, agent: Agent) -> None:
        os.makedirs(self._shared(agent), mode=0o700, exist_ok=True)

    def _spec(self, prepared: PreparedSandbox, instead: tuple[str, ...] = (), *, is_bounded: bool = False) -> Spec:
        """Return a prepared sandbox, perhaps with another command; `is_bounded`: a cgroup limits the memory of it all."""
        agent = prepared.agent
        agent_program = program.find(self._config.binary_of(agent.settings.program), of=program_of(agent))
        python, python_needs = program.find_python()
        system = (*prepared.system, *self.unreadable.proc_mounts)
        facts = build_spec.HostFacts(
            user=self._user,
            program=agent_program,
            companion=os.path.realpath(mcp_server.relay.__file__),
            hook=os.path.realpath(mcp_server.hook.__file__),
            companion_needs=python_needs,
            system=system,
            bind_ro=self._config.agent.bind_ro,
            path=self._config.agent.path,
            variables=environment.checked(self._config.env_of(agent.settings.program)),
            authorities=self._state.layout.authorities if self._config.sandbox.ca else "",
            bundles=self._bundles,
            extended_bundle=authorities.extended_bundle(system),
            hidden=self.protector.own_places,
            memory_dir_bytes=self._config.sandbox.memory_dir_bytes,
            environ=self._state.environ,
            resolv_conf=os.path.realpath("/etc/resolv.conf"),
            limits=self._limits(is_bounded=is_bounded),
            python=python,
            relay=os.path.realpath(netrelay.__file__),
        )
        session = agent.session.id if agent.session is not None else None
        without = self._left_out.get(agent_program, frozenset())
        command = instead or program_of(agent).command(agent_program.path, agent.workspace, agent.model, session, without)
        mode = prepared.network_mode or NetworkMode.TRANSPARENT
        return build_spec.spec(
            agent, prepared.agent_dir, facts, command, prepared.protected, mode, prepared.chat, prepared.lent,
            prepared.further, shared=self._shared(agent),
        )  # fmt: skip

    def _limits(self, *, is_bounded: bool) -> tuple[tuple[str, int], ...]:
        if not os.access(bwrap.PRLIMIT, os.X_OK):
            raise SandboxFailed(f"a sandbox's limits can't be set: there is no {bwrap.PRLIMIT}: apt install util-linux")
        given = self._config.sandbox
        is_limited = given.process_memory and not is_bounded
        return host.limits(given.open_files, given.processes, host.memory(given.memory) if is_limited else None)


def _check_again(agent: Agent, agent_dir: AgentDir, user: User, closed: tuple[str, ...]) -> checking.DirectoryId | None:
    """Check that a workspace is as it was at the spawn, or make an agent's own one, and return which directory it is."""
    if agent.clone is not None:
        git_places.check_there(agent.clone.git_dir, agent.name)
        git_places.check_there(agent.clone.repository, agent.name)
    if agent.workspace == agent_dir.scratch:
        os.makedirs(agent_dir.scratch, mode=0o700, exist_ok=True)
    elif checking.check_workspace(agent.workspace, user, closed) != agent.workspace:
        raise WorkspaceUnusable(f"the workspace {agent.workspace} has become a link: put the directory back")
    return checking.identify(agent.workspace)


def _without_placeholders(found: ProtectedPaths, made: frozenset[str]) -> tuple[ProtectedPaths, tuple[str, ...]]:
    """Return a workspace's protected paths without those that only a turn makes exist, and these.

    A running turn's placeholders, such as `.envrc`, are there to be seen, but they go when it ends.
    """
    gone = (path for path in found.missing if not os.path.lexists(path))
    missing = tuple(dict.fromkeys((*gone, *(path for path in found.mounts if path in made))))

    def without(listed: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for path in listed if path not in missing)

    pinned, read_only = without(found.pinned), without(found.read_only)
    return msgspec.structs.replace(found, pinned=pinned, read_only=read_only, missing=without(found.missing)), missing


def _open_sources(workspace: str, prepared: checking.DirectoryId | None, mounts: tuple[Bind, ...]) -> tuple[int, ...]:
    """Open the sources that are bound by descriptor, and check that the workspace is the prepared directory."""
    held = sources.open_all(mounts)
    try:
        for mount, descriptor in zip(mounts, held, strict=True):
            if mount.target == workspace:
                checking.check_same(descriptor, prepared, mount.source)
    except WorkspaceUnusable:
        close_all(held)
        raise
    return held


def _git_directories(agent: Agent, found: ProtectedPaths) -> tuple[str, ...]:
    """Return where else than in its workspace's `.git` an agent's repository is."""
    if agent.clone is not None:
        return (f"{agent.clone.repository}/.git",)
    return found.own_git_dirs or found.git_dirs
