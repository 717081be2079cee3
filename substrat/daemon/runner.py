"""Runs turns: one task a running turn, with its sandbox and its agent socket; what they mean is the supervisor's.

A task that breaks fails its own agent and nothing else: there is exactly one outer `try` around it.
"""

from __future__ import annotations

import os
import secrets
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox.spec import Network
from substrat.core import cgroups, cursor, failures
from substrat.core.lifecycle import Phase
from substrat.core.records import Outcome
from substrat.core.verdict import NOTHING_SEEN, Verdict, judge
from substrat.daemon import damage, guard, process, workspace
from substrat.daemon.cgroups import group_of
from substrat.daemon.furnisher import writable
from substrat.daemon.netns import TurnNetwork, telling
from substrat.daemon.turn import Pace, RunningTurn, disk_is_full, stored
from substrat.errors import (
    SandboxFailed,
    SessionMissing,
    StorageFailed,
    SubstratError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.cgroups import RanOut, Use
    from substrat.core.records import Agent, Process, Turn
    from substrat.core.verdict import Seen
    from substrat.daemon.cgroups import Cgroups, Group
    from substrat.daemon.furnisher import Furnisher
    from substrat.daemon.guard import Guard
    from substrat.daemon.launch import Launch
    from substrat.daemon.netns import Networks
    from substrat.daemon.places import AgentPlace, Places, TurnPlace
    from substrat.daemon.registry import Registry
    from substrat.daemon.sweeper import Sweeper
    from substrat.daemon.turnbook import TurnBook
    from substrat.daemon.watch import Watcher
    from substrat.daemon.workspace import User

log = structlog.get_logger("substrat.runner")

_LOOK_AGAIN = 0.02
_FREEZE_PATIENCE = 5.0


class TurnRunner:
    """Runs the turns of one daemon.

    Args:
        registry: the agents.
        book: who is told what turns do.
        places: the daemon's directories.
        furnisher: what prepares their sandboxes.
        groups: what limits whole sandboxes.
        networks: those that are being served.
        user: who agents are.
        watcher: inotify.
        nursery: where the turns' tasks live.
        sweeper: what deletes files.
        serve_door: serves an agent's socket until cancelled.
        now: the clock, in seconds since the epoch.
    """

    def __init__(
        self,
        registry: Registry,
        book: TurnBook,
        places: Places,
        furnisher: Furnisher,
        groups: Cgroups,
        networks: Networks,
        user: User,
        watcher: Watcher,
        nursery: trio.Nursery,
        sweeper: Sweeper,
        serve_door: Callable[..., Awaitable[None]],
        now: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._book = book
        self._places = places
        self._furnisher = furnisher
        self._groups = groups
        self._networks = networks
        self._user = user
        self._watcher = watcher
        self._nursery = nursery
        self._sweeper = sweeper
        self._serve_door = serve_door
        self._now = now
        self._running: dict[str, RunningTurn] = {}
        self._stopping: dict[str, str] = {}

    # Runner

    def start(self, agent: Agent, turn: Turn) -> None:
        """Start a turn's task."""
        place = self._places.agent(agent.id).turn(turn.number)
        left = guard.decode(place.read_guard()) if turn.process is not None or place.is_held() else None
        shared = (*left.shared, *writable(agent)) if left is not None else ()
        self._furnisher.stand_ins.keep(turn.id, (agent.workspace, *shared))
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

    async def frozen(self, agent: Agent) -> bool:
        """Wait until all of an agent's turn is stopped; returns whether it came to that."""
        running = self._running.get(agent.turn.id) if agent.turn is not None else None
        with trio.move_on_after(_FREEZE_PATIENCE):
            while running is not None and self._registry.find(agent.id).phase == Phase.FROZEN:
                await running.frozen.wait()
                return True
        return False

    def use(self, agent: Agent) -> Use | None:
        """Return what the sandbox of an agent's running turn has, None where that isn't counted."""
        group = self._groups.group(agent.turn.id) if agent.turn is not None and agent.turn.id in self._running else None
        return group.use() if group is not None and group.is_there else None

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
        """Start the agent program without an option from now on; return whether that is news."""
        return self._furnisher.leave_out(option)

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files; a sweep does what is cut short here."""
        self._registry.points.before("files removed")
        self._places.agent(agent.id).remove_door()
        self._sweeper.discard(self._places.agent(agent.id).root)
        self._registry.points.after("files removed")

    # A turn's task

    async def _run(self, agent: Agent, turn: Turn) -> None:
        try:
            seen, verdict = await self._run_to_its_end(agent, turn)
            # Not reached when the daemon stops: then the sandbox, and what is mounted in it, goes on.
            left = guard.decode(self._places.agent(agent.id).turn(turn.number).read_guard())
            if left is not None:
                await self._tell_news(agent, turn, left)
                # Whoever waits for the turn may ask git next.
                await self._furnisher.freshen_index(agent, left)
            await self._tell_shortage(turn, seen.ran_out)
            await stored(lambda: self._book.turn_over(turn.id, verdict, seen))
            if (group := self._groups.group(turn.id)) is not None:
                group.remove()
            self._sweeper.wake()
            self._furnisher.stand_ins.release(turn.id)
            await stored(self._furnisher.stand_ins.remove_unneeded)
        except Exception:
            # Whatever it is, it is this agent's; the others and the daemon go on.
            log.exception("a turn's end broke", agent=agent.name, turn=turn.number)

    async def _tell_shortage(self, turn: Turn, found: RanOut) -> None:
        """Tell what the turn hadn't enough of, also when it went well all the same."""
        for told in (cgroups.out_of_memory(found), cgroups.refused_forks(found)):
            if told is not None:
                await stored(partial(self._book.turn_note, turn.id, "turn:ran-out", told))

    async def _tell_news(self, agent: Agent, turn: Turn, before: Guard) -> None:
        """Tell what the turn has made that would have been protected, had it been there."""
        told = await self._furnisher.news(agent, before)
        if told is not None:
            await stored(partial(self._book.turn_note, turn.id, "workspace:unprotected", told))

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
            group=self._group_of(turn, started), frozen=turn.frozen_at is not None,
        )  # fmt: skip
        network = self._network_of(agent, turn, turn_place)
        self._running[turn.id] = running
        if turn.id in self._stopping:
            running.stop(self._stopping.pop(turn.id))
        try:
            with self._networks.serving(agent.id, network):
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._serve_door, agent.id, turn.id, place.socket)
                    if network is not None:
                        nursery.start_soon(network.serve, started, lambda: running.process)
                    outcome = await self._launch_or_adopt(running, started, agent, turn, turn_place, network)
                    nursery.cancel_scope.cancel()
        finally:
            del self._running[turn.id]
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

    def _group_of(self, turn: Turn, started: Process | None) -> Group | None:
        """Return a turn's cgroup: the one that its sandbox is in, or the one it will be started in."""
        found = group_of(started.pid, turn.id) if started is not None else None
        return found or self._groups.group(turn.id)

    def _network_of(self, agent: Agent, turn: Turn, place: TurnPlace) -> TurnNetwork | None:
        if agent.policy.network is not Network.FILTERED:
            return None

        tell = telling(partial(self._book.turn_note, turn.id))
        # The list may have changed since the turn began.
        allow = self._registry.find(agent.id).policy.allow
        return TurnNetwork(allow, place, self._places.agent(agent.id).network_socket, self._watcher, tell)

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
        furnished = await self._furnisher.furnish(agent, self._places.agent(agent.id), turn.id)
        for kind, note in furnished.notes:
            self._book.turn_note(turn.id, kind, note)
        self._registry.points.before("prompt written")
        await trio.to_thread.run_sync(place.make, self._book.prompt_of(turn), guard.encode(furnished.guard), furnished.form)
        self._registry.points.after("prompt written")
        return await self._furnisher.launch(furnished, network, self._groups.group(turn.id))

    def _pace(self, turn: Turn) -> Pace:
        turns = self._registry.config.turns
        passed = (turn.frozen_at or self._now()) - turn.started_at - turn.paused
        left = turns.time_limit - passed if turns.time_limit else None
        heard_at = turn.thawed_at or turn.started_at
        output = self._registry.config.disk.turn_output
        return Pace(turns.stop_grace, turns.result_grace, left, turns.silence_limit or None, heard_at, output)

    def _kill_remains(self, agent: Agent, turn: Turn) -> None:
        """Leave no process behind when a turn's task broke."""
        place = self._places.agent(agent.id).turn(turn.number)
        started = process.find_unrecorded(place.read_status(), place.stdout)
        inner, _ = process.read_status(place.read_status())
        pidfd = process.open_inner(started, inner) if started is not None and inner is not None else None
        if pidfd is not None:
            process.kill(pidfd)
            os.close(pidfd)
