"""Makes the private clones of agents that want one, each before the agent's first turn, and sets them up.

A clone is made beside its place and then renamed, so one that is there is whole. What a killed daemon has begun is thrown
away by the next one and made again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import attrs
import msgspec
import structlog
import trio

from sandbox.spec import Bind, Mount, Tmpfs
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import ItemKind, by_agent
from substrat.core.programs.table import CURSOR
from substrat.core.workspaces.clone_lacks import unfilled_text
from substrat.core.workspaces.clone_life import PREPARING, CloneEvent
from substrat.core.workspaces.clones import Clone, Stage
from substrat.daemon.clones.git_sandbox import clone_program, said
from substrat.daemon.clones.keeping import Size
from substrat.daemon.sandboxes import build_spec, clone_mounts
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.daemon.workspaces import git_places
from substrat.errors import SandboxFailed, SubstratError
from substrat.inside.clone.git import CHECKOUT, REPOSITORY, TREE

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.state import State
    from substrat.daemon.agents.wakeup import Wakeup
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.clones.setting_up import SettingUp
    from substrat.daemon.families.waits import Waits
    from substrat.daemon.sandboxes.person_git import PersonGitReader
    from substrat.daemon.workspaces.git_places import GitPlaces

log = structlog.get_logger("substrat.making")

_AT_ONCE = 2
"""Clones made at once: each writes a whole work tree, which keeps one disk busy."""
_SECONDS = 600.0
"""A work tree of some gigabytes is written in minutes; the agent is `queued` meanwhile."""
_README = """\
These are the private clones of Substrat's agents, a directory each. Agents write everything here, the git configuration
too: don't run git, an editor or a build in them. `substratctl diff NAME` shows the work, `substratctl checkout NAME DIR`
gives you a copy that is safe to work in, and `substratctl clones` says whose each one is.
"""


class Made(msgspec.Struct, frozen=True):
    """The answer of the task `make`."""

    base: str | None
    has_setup: bool
    size: Size | None


class Unfilled(msgspec.Struct, frozen=True):
    """The answer of the task `look`."""

    empty: int
    pointers: int


@attrs.define(kw_only=True, eq=False)
class Making:
    """Makes the clones of one daemon's agents."""

    _state: State
    _waits: Waits
    _repositories: Repositories
    _wanted: Wakeup
    _keeping: Keeping
    _setting_up: SettingUp
    _person: PersonGitReader
    _plain: set[str] = attrs.field(init=False, factory=set)
    _busy: dict[str, trio.CancelScope] = attrs.field(init=False, factory=dict)
    _done: dict[str, trio.Event] = attrs.field(init=False, factory=dict)

    async def run(self) -> None:
        """Make clones until cancelled."""
        limiter = trio.CapacityLimiter(_AT_ONCE)
        async with trio.open_nursery() as nursery:
            while True:
                self._wanted.clear()
                for agent in self._state.registry.agents:
                    if self._is_to_begin(agent):
                        self._busy[agent.id], self._done[agent.id] = trio.CancelScope(), trio.Event()
                        nursery.start_soon(self._prepare, agent.id, limiter)
                for agent_id, scope in self._busy.items():
                    if (found := self._state.registry.get(agent_id)) is None or found.phase == Phase.ENDED:
                        scope.cancel()
                await self._wanted.wait()

    def _is_to_begin(self, agent: Agent) -> bool:
        return _is_wanting(agent) and agent.id not in self._busy and self._state.registry.holds.reason(agent.id) is None

    async def stop(self, agent_id: str) -> None:
        """Stop making or setting up an agent's clone, and wait until nothing of that runs any more."""
        if agent_id in self._busy:
            self._busy[agent_id].cancel()
            await self._done[agent_id].wait()

    async def _prepare(self, agent_id: str, limiter: trio.CapacityLimiter) -> None:
        """Bring one agent's clone to its end, ready or failed; an oddity fails this agent alone."""
        try:
            with self._busy[agent_id]:
                while (agent := self._state.registry.get(agent_id)) is not None and _is_wanting(agent):
                    await self._next_stage(agent, limiter)
        finally:
            del self._busy[agent_id]
            self._done.pop(agent_id).set()
            self._plain.discard(agent_id)
            self._wanted.set()

    async def _next_stage(self, agent: Agent, limiter: trio.CapacityLimiter) -> None:
        assert agent.clone is not None
        try:
            if agent.clone.stage is Stage.WANTED:
                async with limiter:
                    made = await self._make(agent, agent.clone)
                await until_stored(lambda: self._made(agent.id, made))
            else:
                done = await self._set_up(agent, agent.clone)
                await until_stored(lambda: self._ready(agent.id, done))
        except SubstratError as problem:
            message = problem.message
        except Exception as problem:
            log.exception("a clone can't be made", agent=agent.name)
            message = f"an internal error ({type(problem).__name__}), see substratd's log"
        else:
            return
        await until_stored(lambda: self._failed(agent.id, message))

    # Making

    async def _make(self, agent: Agent, clone: Clone) -> Clone:
        """Make a clone in its place; raises `SubstratError`."""
        base = clone.base
        if clone.source is not None and (parent := self._state.registry.get(clone.source)) is not None and base is None:
            base = await self._head_of(parent)
        places = await self._repositories.places(clone.workspace)
        being_made = f"{clone.tree}.new"
        await trio.to_thread.run_sync(self._clear, clone.tree, being_made)
        self._state.trash.sweep_soon()
        lfs = (await self._person.read(agent)).lfs
        request = {**_request(clone, places), "task": "make", "base": base, "wip": clone.with_wip, "lfs": lfs}
        self._state.registry.points.before("tree made")
        made = msgspec.json.decode(await self._do(being_made, places, request, with_wip=clone.with_wip), type=Made)
        await trio.to_thread.run_sync(os.rename, being_made, clone.tree)
        self._state.registry.points.after("tree made")
        if not made.has_setup:
            self._plain.add(agent.id)
        if base is not None:
            self._state.registry.points.before("base noted")
            await self._repositories.update_refs(clone.git_dir, {clone.ref("base"): (base, None)})
            self._state.registry.points.after("base noted")
        return replace(clone, base=made.base, with_wip=made.base != base, kept=replace(clone.kept, size=made.size))

    async def _head_of(self, parent: Agent) -> str | None:
        """Keep the work of a child's parent, and return its head."""
        kept = await self._keeping.keep(parent.id)
        if kept is None:
            raise SandboxFailed(f"the work of its parent {parent.name} can't be kept, so there is nothing to start at")
        return kept.head

    def _clear(self, tree: str, being_made: str) -> None:
        """Throw away a begun clone, and make the empty directory of the new one."""
        for directory in (self._state.layout.trees, os.path.dirname(tree)):
            prepare_directory(directory)
        for path in (tree, being_made):
            self._state.trash.put(path)
        os.mkdir(being_made, 0o700)

    def _empty(self) -> str:
        """Return the path of an empty file that lies beside the trees."""
        path = os.path.join(self._state.layout.trees, "empty")
        with open(path, "a", encoding="utf-8"):
            return path

    async def _do(
        self, tree: str | None, places: GitPlaces, request: dict[str, object], *, with_wip: bool = False
    ) -> bytes:
        """Have a task done on a tree, None for a look at the repository, and return the answer."""
        given = self._state.registry.config.agent
        mounts: tuple[Mount, ...] = (
            Bind(tree, TREE, writable=True, held=True) if tree is not None else Tmpfs(TREE, 1 << 20),
            Bind(places.common, REPOSITORY, held=True),
            *await self._repositories.lent(places, self._empty()),
            *((Bind(places.top, CHECKOUT, held=True),) if with_wip else ()),
            # git-lfs may be there, as in the sandbox that keeps the clone's work.
            *(Bind(path, path, optional=True) for path in dict.fromkeys((*given.bind_ro, *given.path))),
        )
        line, shown = clone_program(request)
        variables = {"PATH": ":".join((*given.path, build_spec.PATH))}
        done = await self._repositories.sandbox.run(line, (*shown, *mounts), seconds=_SECONDS, variables=variables)
        if done.status:
            raise SandboxFailed(f"the clone of {places.top} can't be made: {said(done)}")
        return done.output

    # Setting up

    async def _set_up(self, agent: Agent, clone: Clone) -> str | None:
        """Set a clone up, and return what was done, None for nothing; raises `SubstratError`."""
        if agent.id in self._plain:
            return None
        self._state.registry.points.before("clone set up")
        done = await self._setting_up.set_up(agent, clone, self._empty())
        self._state.registry.points.after("clone set up")
        return done

    # A spawn

    async def unfilled(self, agent: Agent) -> str | None:
        """Name the empty submodules and pointers of an agent's new clone, as the end of a sentence about it; None: none."""
        clone = agent.clone
        if clone is None or clone.base is None:
            return None
        lfs = (await self._person.read(agent)).lfs
        try:
            places = await self._repositories.places(clone.workspace)
            await trio.to_thread.run_sync(prepare_directory, self._state.layout.trees)
            request = {**_request(clone, places), "task": "look", "base": clone.base, "lfs": lfs}
            found = msgspec.json.decode(await self._do(None, places, request), type=Unfilled)
        except SubstratError as problem:
            log.info("whether a clone has empty submodules isn't known", agent=agent.name, reason=problem.message)
            return None
        links = (await self._state.files.run(places.top, git_places.modules, places.common)).links
        return unfilled_text(clone.repository, found.empty, found.pointers, [f"{places.common}/{name}" for name in links])

    # A turn's start

    async def refresh(self, agent: Agent) -> None:
        """Bring the user's branches and the descendants' kept heads of now into a clone; raises `SubstratError`."""
        if agent.clone is None:
            return
        places = await self._repositories.places(agent.clone.workspace)
        await trio.to_thread.run_sync(prepare_directory, self._state.layout.trees)
        descendants = self._state.registry.family(agent)[1:]
        heads = {one.clone.name: one.clone.kept.head for one in descendants if one.clone is not None}
        known = {name: head for name, head in heads.items() if head is not None}
        request = {**_request(agent.clone, places), "task": "refresh", "agents": known}
        await self._do(agent.clone.tree, places, request)

    async def renew(self, clone: Clone) -> None:
        """Make the git directory of a clone anew, at its last kept head, where it is gone; raises `SubstratError`."""
        if await trio.to_thread.run_sync(_has_git_directory, clone.tree):
            return
        places = await self._repositories.places(clone.workspace)
        await self._do(clone.tree, places, {**_request(clone, places), "base": clone.kept.head, "task": "renew"})

    # Commits

    def _made(self, agent_id: str, made: Clone) -> None:
        agent = self._state.registry.get(agent_id)
        if agent is None or agent.phase == Phase.ENDED:
            return
        with self._state.registry.change("clone made") as change:
            change.step_clone(made, CloneEvent.MADE)
            at = f" at {made.base[:12]}" if made.base else ""
            text = f"its clone of {made.repository} is made: branch {made.branch}{at}"
            change.record(DaemonEvent(agent.id, None, "clone:created", text))

    def _ready(self, agent_id: str, done: str | None) -> None:
        agent = self._state.registry.get(agent_id)
        if agent is None or agent.clone is None:
            return
        with self._state.registry.change("clone set up") as change:
            change.step_clone(agent.clone, CloneEvent.SET_UP)
            if done is not None:
                change.record(DaemonEvent(agent.id, None, "clone:setup", done))

    def _failed(self, agent_id: str, message: str) -> None:
        agent = self._state.registry.get(agent_id)
        if agent is None or agent.clone is None:
            return
        kind = "clone:setup-failed"
        with self._state.registry.change("clone failed") as change:
            agent = replace(agent, clone=change.step_clone(replace(agent.clone, error=message), CloneEvent.FAILED))
            (failed,) = change.record(DaemonEvent(agent.id, None, kind, message))
            change.step(agent, Event.UNPREPARED)
            self._tell_parent(change, agent, message, failed)

    def _tell_parent(self, change: Change, agent: Agent, message: str, failed: int) -> None:
        """Tell the parent that has given a child its task that it has nowhere to work, unless a wait tells it."""
        waiting = self._state.registry.store.waiting_items(agent.id)
        asked = {item.sender for item in waiting if item.kind is not ItemKind.MESSAGE}
        parent = self._state.registry.get(agent.parent)
        if parent is None or parent.id not in asked or parent.phase in {Phase.ENDING, Phase.ENDED}:
            return
        if self._waits.awaits(parent, agent):
            return
        text = f"Your child agent {agent.name} has nowhere to work: {message}"
        change.tell(parent, text, by_agent(agent), failed, gathers=True)


def _request(clone: Clone, places: GitPlaces) -> dict[str, object]:
    """Return the members of a request that say how a clone is made."""
    return {
        "branch": clone.branch, "objects": [place for place, _ in clone_mounts.shown_objects(places.objects)],
        "cursor": _cursor(clone), "modules": git_places.modules(places.common).lent,
        "own": os.path.relpath(places.own, places.common), "top_cursor": CURSOR.places.workspace,
    }  # fmt: skip


def _cursor(clone: Clone) -> str:
    """Return the directory that is mounted over in each turn, from the top of the clone."""
    return os.path.relpath(os.path.join(clone.workspace, CURSOR.places.workspace), clone.repository)


def _has_git_directory(tree: str) -> bool:
    """Say whether a clone has what git takes for its directory (gitrepository-layout(5)); nothing in it is read."""
    git = f"{tree}/.git"
    if os.path.islink(git) or not os.path.isdir(git):
        return False
    return os.path.lexists(f"{git}/HEAD") and os.path.isdir(f"{git}/objects") and os.path.isdir(f"{git}/refs")


def _is_wanting(agent: Agent) -> bool:
    """Say whether something is to be done for an agent's clone."""
    return agent.clone is not None and agent.clone.stage in PREPARING and agent.phase != Phase.ENDED


def prepare_directory(directory: str) -> None:
    """Make the directory of all trees, with a README for a person who finds it."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    readme = os.path.join(directory, "README")
    if not os.path.exists(readme):
        with open(readme, "w", encoding="utf-8") as file:
            file.write(_README)
