"""Runs turns: one task for each running turn, with its sandbox, its network and its agent socket.

A task that breaks fails its own agent and nothing else: there is exactly one outer `try` around it.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.agents import cgroup_limits
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Outcome
from substrat.core.agents.turn_limits import TurnLimits, time_silent, time_used
from substrat.core.agents.verdict import NOTHING_SEEN, Verdict, judge
from substrat.core.programs.table import PROGRAM
from substrat.core.workspaces import git_hiding
from substrat.daemon.agents.findings import HIDDEN, UNPROTECTED, Found
from substrat.daemon.kernel import descriptors, sandbox_process
from substrat.daemon.kernel.cgroups import group_of
from substrat.daemon.state.storing import until_stored
from substrat.daemon.turns import agent_socket, damage, launch_failure, shortage, without_records
from substrat.daemon.turns.agent_network import network_of
from substrat.daemon.turns.preparation import TurnPreparation
from substrat.daemon.turns.running import RunningTurn
from substrat.daemon.turns.sandboxes import TURN
from substrat.daemon.turns.shortage import patiently
from substrat.daemon.workspaces import protected_paths
from substrat.daemon.workspaces.protector import writable
from substrat.errors import (
    DescriptorsUsedUp,
    SandboxFailed,
    StateUnusable,
    StorageFailed,
    SubstratError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from substrat.core.agents.cgroup_limits import CgroupUse, RanOut
    from substrat.core.agents.records import Agent, Process, Turn
    from substrat.core.agents.verdict import TurnObservation
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.wakeup import Wakeup
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.kernel.cgroups import Cgroups, Group
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.network.filtered import Networks, TurnNetwork
    from substrat.daemon.sandboxes.prepare import SandboxPreparer
    from substrat.daemon.state.layout import AgentDir, Layout, TurnDir
    from substrat.daemon.turns.running_turns import RunningTurns
    from substrat.daemon.turns.sandboxes import RunningSandboxes
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths
    from substrat.daemon.workspaces.protection import Protection

log = structlog.get_logger("substrat.runner")

_LOOK_AGAIN = 0.02
"""Seconds between looks whether a sandbox that holds its lock has reported itself, which takes milliseconds."""
_TRY_AGAIN = 5.0
"""Seconds until an account or an agent's socket that has failed is tried again: no event tells when it can succeed."""
_FREEZE_PATIENCE = 5.0
"""Seconds that a client waits for a freeze: stopping all processes takes milliseconds, unless the agent makes more."""


class TurnRunner:
    """Runs the turns of one daemon.

    Args:
        registry: the agents.
        accounting: records the turns.
        layout: the daemon's directories.
        preparer: prepares their sandboxes.
        groups: the sandboxes' cgroups.
        networks: those that are being served.
        watcher: inotify.
        nursery: where the turns' tasks live.
        sweep_wanted: asks for a sweep soon.
        protection: keeps protected paths read-only while turns run.
        findings: the findings that wait for a person.
        sessions: moves agents' chats.
        serve_agent: serves an agent's socket until cancelled.
        now: the clock, in seconds since the epoch.
        keep: keeps the work in an agent's clone at the end of a turn, given its id and number.
        turns: the turns that run or are to be started.
        refresh: brings the user's branches of now into an agent's clone.
        sandboxes: tells which sandboxes run.
    """

    def __init__(
        self,
        registry: Registry,
        accounting: Accounting,
        layout: Layout,
        preparer: SandboxPreparer,
        groups: Cgroups,
        networks: Networks,
        watcher: Watcher,
        nursery: trio.Nursery,
        sweep_wanted: Wakeup,
        protection: Protection,
        findings: Findings,
        sessions: Sessions,
        serve_agent: Callable[..., Awaitable[None]],
        now: Callable[[], float],
        turns: RunningTurns,
        keep: Callable[[str, tuple[str, int]], Awaitable[object]],
        refresh: Callable[[Agent], Awaitable[None]],
        sandboxes: RunningSandboxes,
    ) -> None:
        self._sandboxes = sandboxes
        self._registry = registry
        self._accounting = accounting
        self._layout = layout
        self._preparer = preparer
        self._groups = groups
        self._networks = networks
        self._watcher = watcher
        self._nursery = nursery
        self._sweep_wanted = sweep_wanted
        self._findings = findings
        self._protection = protection
        self._sessions = sessions
        self._preparation = TurnPreparation(
            registry, accounting, layout, preparer, groups, protection, findings, sessions, refresh
        )
        self._serve_agent = serve_agent
        self._now = now
        self._turns = turns
        self._keep = keep
        self._recorded = {agent.turn.id for agent in registry.agents if agent.turn is not None}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the turns that are to be started, until cancelled."""
        while True:
            self._start_all()
            task_status.started()
            await self._turns.next_to_start()
            task_status = trio.TASK_STATUS_IGNORED

    def _start_all(self) -> None:
        for agent, turn in self._turns.take_to_start():
            self._start(agent, turn)

    def _start(self, agent: Agent, turn: Turn) -> None:
        """Start a turn's task; an oddity in an earlier daemon's files concerns this turn alone."""
        try:
            shared = self._shared_before(agent, turn)
        except Exception:
            log.exception("a turn's files can't be looked at", agent=agent.name, turn=turn.number)
            shared = writable(agent)
        self._preparer.protector.placeholders.keep(turn.id, (agent.host_directory, *shared))
        self._nursery.start_soon(self._run, agent, turn)

    def _shared_before(self, agent: Agent, turn: Turn) -> tuple[str, ...]:
        """Return the directories in which a turn that runs already may have placeholders, beside its workspace."""
        place = self._layout.agent(agent.id).turn(turn.number)
        if turn.process is None and not place.is_held():
            return ()
        left = protected_paths.decode(place.read_protected())
        if left is None:
            return writable(agent)
        if agent.clone is None:
            self._registry.note_git(agent.workspace, left.git_dirs)
        return (*left.git_dirs, *writable(agent))

    # Questions about running turns

    async def frozen(self, agent: Agent) -> bool:
        """Wait until all of an agent's turn is stopped; returns whether it came to that."""
        running = self._turns.of(agent)
        with trio.move_on_after(_FREEZE_PATIENCE):
            if running is not None and self._registry.find(agent.id).phase == Phase.FROZEN:
                await running.frozen.wait()
                return True
        return False

    def has_begun(self, agent: Agent) -> bool:
        """Say whether the sandbox of an agent's turn has reported its first process."""
        running = self._turns.of(agent)
        return running is not None and running.has_begun

    def first_process(self, agent: Agent) -> int | None:
        """Return the pid of the first process in the sandbox of an agent's running turn, None while there is none."""
        running = self._turns.of(agent)
        return running.first_process() if running is not None else None

    def use(self, agent: Agent) -> CgroupUse | None:
        """Return the use of the sandbox of an agent's running turn, None where that isn't counted."""
        running = self._turns.of(agent)
        group = self._groups.group(running.turn) if running is not None else None
        return group.use() if group is not None and group.is_there else None

    # A turn's task

    async def _run(self, agent: Agent, turn: Turn) -> None:
        """Run a turn to its end; what breaks at a step is logged and keeps no other step, and no other turn, from its end.

        The end isn't reached when the daemon stops: then the sandbox, and what is mounted in it, goes on.
        """
        seen, verdict = await self._run_to_its_end(agent, turn)
        for step in (
            partial(self._look_after, agent, turn),
            partial(self._tell_shortage, turn, seen.ran_out),
            partial(self._settle_chat, turn, agent.id),
            partial(self._keep, agent.id, (turn.id, turn.number)),
        ):
            await self._contained(agent, turn, step)
        await self._account(agent, turn, seen, verdict)
        self._turns.accounted_for(turn.id)
        await self._contained(agent, turn, partial(self._clean_up, turn))

    async def _contained(self, agent: Agent, turn: Turn, step: Callable[[], Awaitable[object]]) -> None:
        try:
            await step()
        except Exception:
            log.exception("a turn's end broke", agent=agent.name, turn=turn.number)

    async def _account(self, agent: Agent, turn: Turn, seen: TurnObservation, verdict: Verdict) -> None:
        """Record a turn's end, as often as it takes: an agent whose turn has no task must not be `running` for ever."""
        while True:
            try:
                await until_stored(partial(self._accounting.turn_over, turn.id, verdict, seen))
            except Exception:
                # Perhaps because of what was seen of it, so the next try does without, and comes at once.
                pause = _TRY_AGAIN if seen is NOTHING_SEEN else 0
                seen, verdict = NOTHING_SEEN, _broken("a turn can't be accounted for", agent, turn)
                await trio.sleep(pause)
            else:
                return

    async def _clean_up(self, turn: Turn) -> None:
        """Release what a turn that is over has had."""
        try:
            self._groups.remove(turn.id)
            self._sweep_wanted.set()
            # The agent's next turn keeps the placeholders that this one leaves.
            self._start_all()
        finally:
            self._preparer.protector.placeholders.release(turn.id)
        await until_stored(self._preparer.protector.placeholders.remove_unneeded)

    async def _settle_chat(self, turn: Turn, agent: str) -> None:
        """Move the chat that the turn has begun to the user's chats; one that can't be moved is tried again."""
        said = await self._sessions.settle(self._registry.find(agent))
        if said is not None:
            await until_stored(partial(self._accounting.turn_note, turn.id, "session:refused", said, holds_up_end=True))

    async def _tell_shortage(self, turn: Turn, found: RanOut) -> None:
        """Tell which resources the turn ran out of, also when it succeeded all the same."""
        for told in (cgroup_limits.out_of_memory(found), cgroup_limits.refused_forks(found)):
            if told is not None:
                await until_stored(partial(self._accounting.turn_note, turn.id, "turn:ran-out", told, holds_up_end=True))

    async def _look_after(self, agent: Agent, turn: Turn) -> None:
        """Look at a workspace after a turn; an oddity in it, perhaps the agent's work, doesn't keep the turn running."""
        try:
            place = self._layout.agent(agent.id).turn(turn.number)
            before = protected_paths.decode(await patiently(place.read_protected))
            if before is not None:
                async with self._protection.putting_back:
                    pass  # what is found has its content of then, and the daemon may be changing that just now
                await self._remove_locks(agent, turn, before)
                await self._tell_news(agent, turn, before)
                # The person who waits for the turn may ask git next.
                await self._preparer.freshen_index(agent, before)
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("a workspace couldn't be looked at", agent=agent.name, turn=turn.number, error_id=error_id)
            text = f"what the turn has made couldn't be looked through ({error_id} in substratd's log): look yourself"
            await until_stored(partial(self._note_findings, turn, [Found(agent.workspace, text)], text))

    async def _remove_locks(self, agent: Agent, turn: Turn, before: ProtectedPaths) -> None:
        """Remove the locks of git's that the turn has left, so that other gits can write."""
        for lock in await self._preparer.protector.remove_locks(agent, before.unfinished):
            text = f"a git of the turn's was killed and had left {lock}, which is removed; its other work stays as it is"
            note = partial(self._accounting.turn_note, turn.id, "workspace:unlocked", text, holds_up_end=True)
            await until_stored(note)

    async def _tell_news(self, agent: Agent, turn: Turn, before: ProtectedPaths) -> None:
        """Tell which paths the turn has made that would have been protected, had they been there at its start.

        And by which git on the host hides changes, and files that were committed without a filter.
        """
        found, noted = await self._preparer.protector.find_changes(agent, before)
        found += await self._preparer.find_unfiltered(agent, before)
        for kind in dict.fromkeys(one.kind for one in found):
            some = [one for one in found if one.kind == kind]
            describe = {UNPROTECTED: protected_paths.describe_changes, HIDDEN: git_hiding.describe}.get(kind)
            text = describe([one.path for one in some]) if describe is not None else "; ".join(one.text for one in some)
            await until_stored(partial(self._note_findings, turn, some, text, kind))
        if noted:
            await until_stored(partial(self._note_new_findings, turn, noted))

    def _note_findings(self, turn: Turn, found: Sequence[Found], text: str, kind: str = UNPROTECTED) -> None:
        """Record findings of a turn's end, and tell them."""
        with self._registry.change("finding recorded", urgent=self._is_being_stopped(turn)):
            self._accounting.turn_note(turn.id, kind, text, holds_up_end=True)
            self._findings.record(turn.agent, turn.id, found)

    def _note_new_findings(self, turn: Turn, found: Sequence[Found]) -> None:
        """Record findings of a turn's end, and tell those that are new."""
        with self._registry.change("finding recorded", urgent=self._is_being_stopped(turn)):
            for one in self._findings.record(turn.agent, turn.id, found):
                self._accounting.turn_note(turn.id, UNPROTECTED, one.text, holds_up_end=True)

    def _is_being_stopped(self, turn: Turn) -> bool:
        """Say whether a turn's end must not wait for room on the disk."""
        now = self._registry.find(turn.agent).turn
        return now is not None and now.stop is not None

    async def _run_to_its_end(self, agent: Agent, turn: Turn) -> tuple[TurnObservation, Verdict]:
        try:
            seen = await self._run_turn(agent, turn)
            if seen.result is not None and PROGRAM.needs_last_passage(seen.result.text):
                seen = seen._replace(last_passage=self._registry.journal.last_passage(agent.id, turn.id))
            return seen, judge(seen)
        except SubstratError as problem:
            verdict = self._not_started(agent, turn, problem) or Verdict(Outcome.ERROR, problem.message)
            log.warning("turn not started", agent=agent.name, turn=turn.number, reason=verdict.error)
        except Exception as problem:
            verdict = self._not_started(agent, turn, problem) or _broken("turn broke", agent, turn)
        await self._contained(agent, turn, partial(self._kill_remains, agent, turn))
        return NOTHING_SEEN, verdict

    def _not_started(self, agent: Agent, turn: Turn, problem: Exception) -> Verdict | None:
        """Return the verdict on a turn that found no descriptor or no room before it was started, None on any other."""
        now = self._registry.find(agent.id).turn
        has_process = now is None or now.id != turn.id or now.process is not None
        if has_process and not isinstance(problem, StorageFailed | DescriptorsUsedUp):
            return None
        lacked = launch_failure.shortage(problem)
        return Verdict(Outcome.ERROR, lacked.sentence, lacked.failure) if lacked is not None else None

    async def _run_turn(self, agent: Agent, turn: Turn) -> TurnObservation:
        place = self._layout.agent(agent.id)
        turn_place = place.turn(turn.number)
        damages = await self._examine(agent, turn, place)
        started = turn.process
        is_own = turn_place.is_of(turn.id, unless_told=turn.id in self._recorded)
        if started is None and is_own and (started := await self._find_unrecorded(turn_place)):
            found = started  # it runs, so it must be recorded, however long that takes
            await until_stored(lambda: self._accounting.turn_spawned(turn.id, found))
        running = RunningTurn(
            turn.id, turn_place, turn.offset, self._accounting, self._watcher, self._limits(agent, turn, turn_place),
            self._registry.points, group=self._group_of(turn, started), frozen=turn.frozen_at is not None,
            showing=partial(self._sandboxes.showing, agent.id, TURN),
        )  # fmt: skip
        note = partial(self._accounting.network_decided, turn.id)
        network = network_of(self._registry, self._watcher, agent, turn_place, place.network_socket, note)
        self._turns.add(running)
        try:
            with self._networks.serving(agent.id, network):
                async with trio.open_nursery() as nursery:
                    outcome: TurnObservation | SubstratError | None = await self._start_serving(
                        nursery, agent, turn, place, started
                    )
                    if outcome is None:
                        if network is not None:
                            nursery.start_soon(network.serve, started, lambda: running.process)
                        outcome = await self._launch_or_adopt(running, started, agent, turn, turn_place, network)
                    nursery.cancel_scope.cancel()
        finally:
            self._turns.remove(turn.id)
        if isinstance(outcome, SubstratError):
            raise outcome
        told = "; ".join(found.sentence for found in damages if found.matters)
        return outcome._replace(damage=told or None)

    async def _start_serving(
        self, nursery: trio.Nursery, agent: Agent, turn: Turn, place: AgentDir, started: Process | None
    ) -> SubstratError | None:
        """Serve the agent's socket; a turn that runs already is looked after even if there is no room for its socket.

        Returns:
            Why a turn can't be started or taken up now, None when it can.
        """
        try:
            await nursery.start(self._serve_agent, agent.id, turn.id, place.socket)
        except (OSError, StateUnusable) as problem:
            refused = agent_socket.refusal(place.socket, problem)
            if started is None:
                return refused
            log.warning(
                "a turn goes on without its agent's socket", agent=agent.name, turn=turn.number, reason=refused.message
            )
            nursery.start_soon(self._serve_agent_later, agent, turn, place)
        return None

    async def _serve_agent_later(self, agent: Agent, turn: Turn, place: AgentDir) -> None:
        """Serve the agent's socket as soon as there is room for it; no event tells that."""
        while True:
            await trio.sleep(_TRY_AGAIN)
            with suppress(OSError, StateUnusable):
                await self._serve_agent(agent.id, turn.id, place.socket)

    async def _examine(self, agent: Agent, turn: Turn, place: AgentDir) -> list[damage.Damage]:
        """Report damage to a turn's files; a sandbox whose output can't be followed any more is killed."""
        found = damage.examine(turn, place, self._layout, self._now(), was_recorded=turn.id in self._recorded)
        for one in found:
            log.error("damaged", agent=agent.name, turn=turn.number, what=one.sentence)
            note = partial(self._accounting.turn_note, turn.id, "state:damaged", one.sentence, holds_up_end=True)
            await until_stored(note)
        if turn.process is not None and any(one.blind for one in found):
            sandbox_process.kill_recorded(turn.process)
        return found

    def _group_of(self, turn: Turn, started: Process | None) -> Group | None:
        """Return a turn's cgroup: the one that its sandbox is in, or the one it will be started in."""
        found = group_of(started.pid, turn.id) if started is not None else None
        return found or self._groups.group(turn.id)

    async def _find_unrecorded(self, place: TurnDir) -> Process | None:
        """Find the sandbox of a turn that a daemon started and didn't come to record.

        It may not have reported itself yet, but it holds the turn's lock from its first instant.
        """
        while True:
            held = place.is_held()
            found = sandbox_process.find_unrecorded(place.read_status(), place.stdout)
            if found is not None or not held:
                return found
            await trio.sleep(_LOOK_AGAIN)

    async def _launch_or_adopt(
        self,
        running: RunningTurn,
        started: Process | None,
        agent: Agent,
        turn: Turn,
        place: TurnDir,
        network: TurnNetwork | None,
    ) -> TurnObservation | SubstratError:
        """Run the turn; a refusal is returned, so that the nursery around doesn't wrap it."""
        try:
            with ExitStack() as protected:
                if started is not None:
                    await self._preparation.adopt(agent, turn, place, running, protected)
                    return await self._adopt(running, started)
                return await running.run(lambda: self._preparation.prepare(agent, turn, place, network, running, protected))
        except SubstratError as problem:
            return problem
        except OSError as problem:
            what = f" {problem.filename}" if problem.filename else ""
            said = f"the turn's files can't be made:{what} {problem.strerror}"
            short = shortage.error(problem, said)
            # A turn that runs already must not be tried again because the disk is full.
            if short is None or (started is not None and isinstance(short, StorageFailed)):
                return SandboxFailed(f"{said}; look at what is in its place")
            return short

    async def _adopt(self, running: RunningTurn, started: Process) -> TurnObservation:
        """Stay with a sandbox that runs already, as soon as there are descriptors for that."""
        while True:
            try:
                return await running.adopt(started)
            except OSError as problem:
                if not descriptors.is_short(problem):
                    raise
                log.error("waiting to adopt a turn", reason=descriptors.sentence(problem))  # noqa: TRY400
            await trio.sleep(shortage.PAUSE)

    def _limits(self, agent: Agent, turn: Turn, place: TurnDir) -> TurnLimits:
        turns, steady = self._registry.config.turns, self._registry.steady()
        time_limit = turns.time_limit if agent.time_limit is None else agent.time_limit
        silence_limit = turns.silence_limit if agent.silence_limit is None else agent.silence_limit
        left = time_limit - time_used(turn, steady) if time_limit else None
        printed_at = place.printed_since(turn.offset)
        silent = time_silent(turn, steady, self._now() - printed_at if printed_at is not None else None)
        output = self._registry.config.disk.turn_output
        silence, tool = silence_limit or None, turns.tool_limit or None
        return TurnLimits(turns.stop_grace, turns.result_grace, time_limit, left, silence, tool, silent, output)

    async def _kill_remains(self, agent: Agent, turn: Turn) -> None:
        """Leave no process behind when a turn's task broke, as soon as there are descriptors for that."""
        place = self._layout.agent(agent.id).turn(turn.number)
        while True:
            try:
                # In a thread, because it waits until they are gone.
                await trio.to_thread.run_sync(without_records.kill_left, place)
            except OSError as problem:
                if not descriptors.is_short(problem):
                    raise
                await trio.sleep(shortage.PAUSE)
            else:
                break
        now = self._registry.find(agent.id).turn
        if now is not None and now.id == turn.id and now.process is not None:
            await patiently(partial(sandbox_process.kill_recorded, now.process))


def _broken(what: str, agent: Agent, turn: Turn) -> Verdict:
    """Log the exception that is being handled, and return the verdict on a turn that broke by it."""
    error_id = secrets.token_hex(4)
    log.exception(what, agent=agent.name, turn=turn.number, error_id=error_id)
    return Verdict(Outcome.ERROR, f"an internal error, {error_id} in substratd's log")
