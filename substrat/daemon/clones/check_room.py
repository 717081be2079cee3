"""Runs checks of merged work in a room like the agent's: its clone's files as they are, with the merged commit in them.

The room is an overlay, so ignored files (`node_modules`, `.venv`, what the set-up has made) are there without a copy, each
change goes to a directory that is thrown away, and uncommitted files aren't there. It stands at the person's own path, with
the agent's variables, `agent.path`, `agent.bind_ro` and, read-only, its `~/.cache`; it has no network and no login. The
ignored files are the agent's: a check judges the work of an honest agent.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from typing import TYPE_CHECKING

import trio

from sandbox import host
from sandbox.spec import Bind, Overlay, Tmpfs
from substrat.core.workspaces import checks
from substrat.daemon.agents import disk_gate
from substrat.daemon.clones.git_sandbox import said
from substrat.daemon.sandboxes import build_spec, clone_mounts, oneshot
from substrat.daemon.sandboxes.oneshot import TookTooLong
from substrat.errors import Refused, SubstratError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandbox.host import Bubblewrap
    from sandbox.spec import Mount
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.checks import Check
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.git_sandbox import GitSandbox
    from substrat.daemon.sandboxes.machine import Machine
    from substrat.daemon.sandboxes.unreadable_paths import UnreadablePaths
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.state.trash import Trash
    from substrat.daemon.workspaces.protector import WorkspaceProtector
    from substrat.daemon.workspaces.user import User

# Puts commit $1 in the place of what the agent has there. git takes unchanged files for such by their contents, so they
# keep their times and aren't copied; one `f` of `clean` would leave nested repositories.
_PUT = """\
rm -f .git/index .git/index.lock || exit
alias git='git -c core.sparseCheckout=false'
git read-tree "$1" && { git update-index -q --refresh; git reset -q --hard "$1"; } && git clean -qffd
"""
# The same for a bubblewrap that has no overlay: $1 is the commit, and nothing is there but its files.
_PUT_ALONE = 'git --work-tree=. read-tree "$1" && git --work-tree=. checkout-index -a -f'
_PREFIX = "check-"
_LOOK_SECONDS = 1.0
"""Seconds between two looks at the disk: no event tells that it is nearly full."""
_VARIABLES = "/run/substrat/variables"
_RUN = f'set -a; . {_VARIABLES}; set +a; exec 2>&1; exec /bin/sh -c "$1"'
_REPOSITORY = "/run/substrat/repository"


class CheckRoom:
    """Runs the checks of one daemon.

    Args:
        registry: the agents.
        sandbox: runs git.
        machine: finds bubblewrap.
        unreadable: finds the paths of the operating system that are hidden.
        layout: the daemon's directories.
        user: who agents are.
        protector: knows the objects that clones may borrow, and the daemon's own directories.
        trash: removes directories.
    """

    def __init__(
        self,
        registry: Registry,
        sandbox: GitSandbox,
        machine: Machine,
        unreadable: UnreadablePaths,
        layout: Layout,
        user: User,
        protector: WorkspaceProtector,
        trash: Trash,
    ) -> None:
        self._registry = registry
        self._sandbox = sandbox
        self._machine = machine
        self._unreadable = unreadable
        self._layout = layout
        self._user = user
        self._protector = protector
        self._trash = trash

    async def check(self, agent: Agent, clone: Clone, commit: str, command: str) -> Check:
        """Run a command on a commit's files, while no sandbox can write in the clone.

        Args:
            agent: the agent.
            clone: its clone.
            commit: the commit, which is in the person's repository.
            command: the command, for a shell.

        Raises:
            Refused: the files can't be put there, and the message is git's; or the disk is nearly full.
            SubstratError: there can be no sandbox.
        """
        place = await trio.to_thread.run_sync(self._make, agent)
        try:
            return await self._while_disk_lasts(clone, lambda: self._check(agent, clone, place, commit, command))
        finally:
            self._trash.discard(place)

    async def _check(self, agent: Agent, clone: Clone, place: str, commit: str, command: str) -> Check:
        bubblewrap, why_empty = await self._machine.find_bubblewrap(), None
        if not bubblewrap.has_overlay:
            why_empty = f"bubblewrap {'.'.join(map(str, bubblewrap.version))} has no --overlay, which came with 0.11"
        elif not await trio.to_thread.run_sync(os.path.isdir, clone.tree):
            why_empty = f"the clone of {clone.name} is gone"
        shown = await self._show(clone, place, commit, is_empty=why_empty is not None)
        check = await self._run(bubblewrap, (*self._surroundings(agent, place), *shown), clone, command)
        return check if why_empty is None else check._replace(text=f"{check.text} (without ignored files: {why_empty})")

    async def _while_disk_lasts(self, clone: Clone, work: Callable[[], Awaitable[Check]]) -> Check:
        """Do the work of a check unless the disk is nearly full; it ends before any turn must, because it can run again."""
        found: Check | SubstratError | None = None
        short: str | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal short
                while True:
                    short = disk_gate.shortage(self._layout.trees, self._registry.config.disk.free)
                    if short is not None:
                        nursery.cancel_scope.cancel()
                    await trio.sleep(_LOOK_SECONDS)

            nursery.start_soon(watch)
            try:
                found = await work()
            except SubstratError as problem:  # returned, so that the nursery doesn't wrap it
                found = problem
            nursery.cancel_scope.cancel()
        if found is None:
            raise Refused(f"the check of {clone.name}'s work was ended: {short}")
        if isinstance(found, SubstratError):
            raise found
        return found

    def forget_earlier(self) -> None:
        """Remove the rooms that a killed daemon has left."""
        for name in os.listdir(self._layout.trees) if os.path.isdir(self._layout.trees) else ():
            if name.startswith(_PREFIX):
                self._trash.discard(f"{self._layout.trees}/{name}")

    async def _show(self, clone: Clone, place: str, commit: str, *, is_empty: bool) -> tuple[Mount, ...]:
        """Put a commit's files into a room, and return the mounts that show them."""
        files: Mount = Bind(f"{place}/upper", clone.repository, writable=True)
        if not is_empty:
            files = Overlay(clone.repository, clone.tree, f"{place}/upper", f"{place}/work")
        objects = await trio.to_thread.run_sync(clone_mounts.find_objects, clone, self._protector.borrowing)
        empty = f"{self._layout.trees}/empty"
        shown: tuple[Mount, ...] = (Tmpfs("/run", 1 << 20), *clone_mounts.object_mounts(objects, empty), files)
        script, variables = _PUT, {}
        repository = (Bind(clone.git_dir, _REPOSITORY, held=True),) if is_empty else ()
        if is_empty:
            script, variables = _PUT_ALONE, {"GIT_DIR": _REPOSITORY, "GIT_INDEX_FILE": "/tmp/index"}  # noqa: S108 - its own
        line = ("/bin/sh", "-c", script, "sh", commit)
        done = await self._sandbox.run(line, (*shown, *repository), clone.repository, variables=variables)
        if done.status:
            raise Refused(f"{clone.name}'s merged files can't be put where its check is to run: {said(done)}")
        return shown

    async def _run(self, bubblewrap: Bubblewrap, mounts: tuple[Mount, ...], clone: Clone, command: str) -> Check:
        config = self._registry.config
        seconds, line = config.clone.check_seconds, ("/bin/sh", "-c", _RUN, "sh", command)
        variables = {"HOME": self._user.home, "PATH": ":".join((*config.agent.path, build_spec.PATH))}
        memory = host.memory(config.sandbox.memory) if config.sandbox.process_memory else None
        limits = host.limits(config.sandbox.open_files, config.sandbox.processes, memory)
        try:
            done = await oneshot.run(
                bubblewrap, line, mounts, clone.repository, await self._unreadable.paths(), seconds,
                limits=limits, variables=variables,
            )  # fmt: skip
        except TookTooLong as late:
            return checks.judged(command, None, late.output, seconds)
        return checks.judged(command, done.status, done.output, seconds)

    def _make(self, agent: Agent) -> str:
        """Make the room's directories, and the file of variables, which others would see among arguments."""
        os.makedirs(self._layout.trees, mode=0o700, exist_ok=True)
        place = tempfile.mkdtemp(prefix=_PREFIX, dir=self._layout.trees)
        for name in ("upper", "work"):
            os.mkdir(f"{place}/{name}")
        given = {**self._registry.config.agent.env, **dict(agent.environment)}
        with open(f"{place}/variables", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
        return place

    def _surroundings(self, agent: Agent, place: str) -> tuple[Mount, ...]:
        """Return the home, and what the configuration shows to agents."""
        config, size, home = self._registry.config.agent, self._registry.config.sandbox.memory_dir_bytes, self._user.home
        shown = tuple(dict.fromkeys((*config.bind_ro, *config.path)))
        return (
            Tmpfs(home, size, 0o700),
            Tmpfs("/tmp", size, 0o1777),  # noqa: S108 - its own
            Bind(self._layout.agent(agent.id).cache, f"{home}/.cache", optional=True),
            *(Bind(path, path, optional=True) for path in shown),
            *build_spec.covers(shown, self._protector.own_places),
            Bind(f"{place}/variables", _VARIABLES),
        )
