"""Runs turns, one task each: its start, its sandbox to the end, and the steps of its end.

A task that breaks fails its own agent and nothing else: one `try` stands around all that comes before the end, and one
around each step of the end. The runner knows no step but the last, its own: `app` names the others and their order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from substrat.core.agents.records import Outcome
from substrat.core.agents.verdict import NOTHING_SEEN, Verdict, judge
from substrat.core.programs.table import program_of
from substrat.daemon.kernel import descriptors, sandbox_process
from substrat.daemon.turns import launch_failure, shortage, without_records
from substrat.daemon.turns.ending import EndedTurn, EndStep, broken
from substrat.daemon.turns.shortage import patiently
from substrat.daemon.workspaces import protected_paths
from substrat.daemon.workspaces.protector import writable
from substrat.errors import DescriptorsUsedUp, StorageFailed, SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Turn
    from substrat.daemon.agents.state import State
    from substrat.daemon.turns.running_turns import RunningTurns
    from substrat.daemon.turns.starting import TurnStarter
    from substrat.daemon.workspaces.placeholders import Placeholders

log = structlog.get_logger("substrat.runner")


@attrs.define(kw_only=True, eq=False)
class TurnRunner:
    """Runs the turns of one daemon.

    Args:
        state: the agents, and the places of their files.
        placeholders: the placeholders in workspaces, which a turn keeps from its start to its end.
        nursery: where the turns' tasks live.
        turns: the turns that run or are to be started.
        starter: starts a turn's sandbox and stays with it.
        end_steps: the steps of a turn's end, in their order.
    """

    _state: State
    _placeholders: Placeholders
    _nursery: trio.Nursery
    _turns: RunningTurns
    _starter: TurnStarter
    _end_steps: tuple[EndStep, ...]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the turns that are to be started, until cancelled."""
        while True:
            self._start_all()
            task_status.started()
            await self._turns.arrived.wait()
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
        self._placeholders.keep(turn.id, (agent.host_directory, *shared))
        self._nursery.start_soon(self._run, agent, turn)

    def _shared_before(self, agent: Agent, turn: Turn) -> tuple[str, ...]:
        """Return the directories in which a turn that runs already may have placeholders, beside its workspace."""
        place = self._state.layout.agent(agent.id).turn(turn.number)
        if turn.process is None and not place.is_held():
            return ()
        left = protected_paths.decode(place.read_protected())
        if left is None:
            return writable(agent)
        if agent.clone is None:
            self._state.registry.note_git(agent.workspace, left.git_dirs)
        return (*left.git_dirs, *writable(agent))

    async def _run(self, agent: Agent, turn: Turn) -> None:
        """Run a turn to its end; what breaks at a step is logged and keeps no other step, and no other turn, from its end.

        The end isn't reached when the daemon stops: then the sandbox, and what is mounted in it, goes on.
        """
        ended = await self._run_to_its_end(agent, turn)
        for step in self._end_steps:
            await self._contained(step, ended)
        self._start_all()

    async def _contained(self, step: EndStep, ended: EndedTurn) -> None:
        try:
            await step.take(ended)
        except Exception:
            log.exception("a turn's end broke", step=step.name, agent=ended.agent.name, turn=ended.turn.number)

    async def _run_to_its_end(self, agent: Agent, turn: Turn) -> EndedTurn:
        try:
            seen = await self._starter.run(agent, turn)
            if seen.result is not None and program_of(agent).needs_last_passage(seen.result.text):
                seen = seen._replace(last_passage=self._state.registry.journal.last_passage(agent.id, turn.id))
            return EndedTurn(agent, turn, seen, judge(seen, program_of(agent)))
        except SubstratError as problem:
            verdict = self._not_started(agent, turn, problem) or Verdict(Outcome.ERROR, problem.message)
            log.warning("turn not started", agent=agent.name, turn=turn.number, reason=verdict.error)
        except Exception as problem:
            verdict = self._not_started(agent, turn, problem) or broken("turn broke", agent, turn)
        ended = EndedTurn(agent, turn, NOTHING_SEEN, verdict)
        await self._contained(EndStep("kill the remains", self._kill_remains), ended)
        return ended

    def _not_started(self, agent: Agent, turn: Turn, problem: Exception) -> Verdict | None:
        """Return the verdict on a turn that found no descriptor or no room before it was started, None on any other."""
        now = self._state.registry.find(agent.id).turn
        has_process = now is None or now.id != turn.id or now.process is not None
        if has_process and not isinstance(problem, StorageFailed | DescriptorsUsedUp):
            return None
        lacked = launch_failure.shortage(problem)
        return Verdict(Outcome.ERROR, lacked.sentence, lacked.failure) if lacked is not None else None

    async def _kill_remains(self, ended: EndedTurn) -> None:
        """Leave no process behind when a turn's task broke, as soon as there are descriptors for that."""
        agent, turn = ended.agent, ended.turn
        place = self._state.layout.agent(agent.id).turn(turn.number)
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
        now = self._state.registry.find(agent.id).turn
        if now is not None and now.id == turn.id and now.process is not None:
            await patiently(partial(sandbox_process.kill_recorded, now.process))
