"""Keeps the runs of families: `core.families.runs` decides what comes next, after each change of a run's agents.

A run is a row from its first moment on, with all that its file said, so a daemon that dies takes it up where it was: an
agent's start and the note that it was started are one commit. Each run that isn't over has a task, so that one that waits
for a large repository holds up no other.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.families import plans, runs
from substrat.core.families.runs import End, Next, Run, RunOutcome, Standing, Step
from substrat.daemon.agents import spawning
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.families.waiting import AT_WORK
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.runs import landing, standings
from substrat.daemon.runs.standings import Standings
from substrat.daemon.runs.steps import Followed, Steps
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import LimitReached, NotFound, Refused, SandboxFailed, StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from substrat.core.agents.records import Agent
    from substrat.core.families.plans import Plan
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.clones.landing import Landings
    from substrat.daemon.families.families import Families
    from substrat.daemon.runs.starting import Members

log = structlog.get_logger("substrat.runs")

_AGAIN_S = 5.0
"""Seconds until the next try of a step, for example to start an agent."""
_TRIES = 3
"""Failed tries of one step after which its agent counts as failed; want of room doesn't count."""
_IN_WORDS = {
    Step.LIST: "be listed", Step.MAKE: "be started", Step.START: "be started", Step.RETURN: "give its result back",
    Step.ASK_AGAIN: "be asked again",
}  # fmt: skip
_STARTS = {Step.MAKE, Step.START}
_FULL = "limits.agents, limits.children, limits.family or limits.depth leaves it no room"
_PASSES = (SandboxFailed, Refused, NoAnswer)
"""Errors that may pass by themselves."""


class Status(NamedTuple):
    """The state of a run.

    Args:
        standings: how its members stand that were started, or can't be.
        outcome: its outcome; None: it goes on by itself.
        why: a sentence about a member that isn't started yet, or can't be; None: there is none.
    """

    standings: Mapping[str, Standing]
    outcome: RunOutcome | None
    why: str | None


@attrs.define(eq=False)
class Runs:
    """The runs of one daemon."""

    _requests: AgentRequests
    _families: Families
    _members: Members
    _landings: Landings
    _steps: Steps = attrs.field(init=False)
    _standings: Standings = attrs.field(init=False)
    _open: dict[str, Followed] = attrs.field(init=False, factory=dict)
    _of: dict[str, str] = attrs.field(init=False, factory=dict)
    """The names of the runs that aren't over, by the ids of their agents."""
    _running: dict[str, str] = attrs.field(init=False, factory=dict)
    """The turns of agents that run, by these when they changed last."""
    _begun: Wakeup = attrs.field(init=False, factory=Wakeup)

    def __attrs_post_init__(self) -> None:
        self._steps = Steps(self._requests, self._members, self._families.tasks, self._take_over)
        self._standings = Standings(self._requests.registry, self._families)

    async def run(self) -> None:
        """Take each run on that isn't over, until cancelled."""
        registry = self._requests.registry
        for run in registry.store.open_runs():
            self._follow(run)
        registry.observe(self._note_change)
        self._families.tasks.observe(self._note_task)
        followed: set[str] = set()
        async with trio.open_nursery() as nursery:
            while True:
                self._begun.clear()
                for name in self._open.keys() - followed:
                    nursery.start_soon(self._go_on, self._open[name])
                followed = set(self._open)
                await self._begun.wait()

    def _follow(self, run: Run) -> None:
        self._open[run.name] = Followed(run)
        self._of.update(dict.fromkeys(run.ids, run.name))
        self._begun.set()

    def look(self) -> None:
        """Look at the runs again: a time may have come, or a limit have changed."""
        for followed in self._open.values():
            followed.wake()

    def _note_change(self, agents: Iterable[str]) -> None:
        """Wake the runs of agents that have changed, of those above them, and of those that wait for them."""
        registry = self._requests.registry
        for agent_id in agents if self._open else ():
            agent = registry.get(agent_id)
            if agent is not None and self._is_only_further(agent):
                continue
            waiting = [wait.agent for wait in self._families.waits.about(agent_id)]
            found = [one for one in map(registry.get, {agent_id, *waiting}) if one is not None]
            above = {agent_id, *(one for each in found for one in registry.lineage(each))}
            for name in {self._of[one] for one in above if one in self._of}:
                self._open[name].wake()

    def _note_task(self, family: str) -> None:
        """Wake the run whose tasks have changed, if those of a family are a run's."""
        if (name := self._of.get(family)) is not None:
            self._open[name].wake()

    def _is_only_further(self, agent: Agent) -> bool:
        """Say whether an agent is in the same running turn as when it changed last, as after each line of its output."""
        turn = agent.turn.id if agent.phase is Phase.RUNNING and agent.turn is not None else None
        before = self._running.pop(agent.id, None)
        if turn is not None:
            self._running[agent.id] = turn
        return turn is not None and turn == before

    async def _go_on(self, followed: Followed) -> None:
        """Take the steps of a run until it is over; an error ends this run alone."""
        name = followed.run.name
        try:
            while name in self._open:
                followed.changed.clear()
                end = await self._step(followed)
                if end is not None and end.outcome is RunOutcome.TIMEOUT:
                    await until_stored(partial(self._suspend, followed.run))
                if end is not None:
                    await until_stored(partial(self._end, name, end))
                else:
                    followed.tell()
                    await followed.changed.wait()
        except Exception:
            log.exception("a run broke", run=name)
            end = End(RunOutcome.FAILED, "an internal error: substratd's log has it")
            await until_stored(partial(self._end, name, end, is_known=False))

    async def _step(self, followed: Followed) -> End | None:
        """Take the steps that can be taken; returns the run's end, None while it goes on."""
        registry = self._requests.registry
        while (run := followed.run).ended_at is None:
            now = registry.now()
            step = runs.next_step(run, self._standings.of(followed), now)
            if isinstance(step, End):
                return step._replace(why=step.why or next(iter(followed.failed.values()), None))
            if step is None:
                followed.held = None
                if run.plan.timeout is not None:
                    registry.wake_at(run.started_at + run.plan.timeout)
                return None
            if not self._members.is_ready(run, step.member):
                followed.held, followed.is_short = f"the clone of {run.name}.{run.plan.lead} isn't ready yet", False
                return None
            if now < followed.again_at or not await self._try(followed, step):
                registry.wake_at(max(followed.again_at, now))
                return None
        return None

    async def _try(self, followed: Followed, step: Next) -> bool:
        """Take a step; returns False if that has to be tried again later."""
        run, name, words = followed.run, f"{followed.run.name}.{step.member.name}", _IN_WORDS[step.step]
        if followed.tried != step:
            followed.tried, followed.tries = step, 0
        left = (
            run.started_at + run.plan.timeout - self._requests.registry.now() if run.plan.timeout is not None else math.inf
        )
        try:
            with trio.move_on_after(max(0.0, left)) as followed.scope:
                await self._steps.take(followed, step)
        except (StorageFailed, LimitReached) as problem:
            is_full = isinstance(problem, LimitReached) and step.step in _STARTS  # its words are for a parent
            followed.held, followed.is_short = f"{name} can't {words} yet: {_FULL if is_full else problem.message}", True
        except SubstratError as problem:
            followed.tries += 1
            if not isinstance(problem, _PASSES) or followed.tries >= _TRIES:
                followed.failed[step.member.name] = f"{name} can't {words}: {problem.message}"
                followed.held, followed.tries = None, 0
                return True
            followed.held, followed.is_short = f"{name} can't {words} yet: {problem.message}", False
        else:
            followed.held, followed.tries, followed.again_at = None, 0, 0.0
            return True
        followed.again_at = self._requests.registry.now() + _AGAIN_S
        return False

    def _take_over(self, followed: Followed, run: Run) -> None:
        """Take a committed change of a run over into memory."""
        followed.run = run
        if run.ended_at is None:
            self._of.update(dict.fromkeys(run.ids, run.name))
            return
        self._open.pop(run.name, None)
        if followed.scope is not None:
            followed.scope.cancel()  # a step that waits, for example for the command of an `each`
        for agent_id in run.ids:
            self._of.pop(agent_id, None)
            self._running.pop(agent_id, None)
        followed.wake()

    def _members_and_below(self, run: Run) -> Iterator[Agent]:
        """Return the agents of a run, and all that descend from them, each once."""
        registry, seen = self._requests.registry, set[str]()
        for agent_id in run.ids:
            agent = registry.get(agent_id)
            for one in registry.family(agent) if agent is not None else ():
                if one.id not in seen:
                    seen.add(one.id)
                    yield one

    def _suspend(self, run: Run) -> None:
        """Suspend the agents of a run whose time is over; after a crash the next daemon does it again."""
        for agent in list(self._members_and_below(run)):
            if STATE_OF[agent.phase] in AT_WORK:
                with suppress(NotFound, Refused):
                    self._requests.suspend(agent.id, run.by)

    def _end(self, name: str, end: End, *, is_known: bool = True) -> None:
        """Store the end of a run; `is_known` says whether its agents can be asked for how they stand."""
        registry = self._requests.registry
        if (followed := self._open.get(name)) is None:
            return
        run = followed.run
        with registry.change("run ended") as change:
            after = replace(run, ended_at=registry.now(), outcome=end.outcome, why=end.why)
            if is_known:
                # Agents that work are being stopped: a person has ended the run, or suspends them for its time.
                stopped = Standing.NEEDS_YOU if end.outcome is RunOutcome.TIMEOUT else Standing.FAILED
                found = self._standings.of(followed).standings.items()
                stood = {one: (stopped if now is Standing.WORKING else now).value for one, now in found}
                after = replace(after, result=standings.result_of(registry, run), standings=stood)
            if end.outcome is RunOutcome.SUCCEEDED:
                told = landing.settle(change, registry, self._landings, run)
                after = replace(after, why="; ".join(filter(None, (run.why, told))) or None)
            registry.store.save_run(after)
            members = [agent for one in run.ids if (agent := registry.get(one)) is not None]
            for agent in members[:1]:  # its first agent, which is the lead if it has one
                text = end.why or f"the run {name} has {end.outcome}"
                change.record(DaemonEvent(agent.id, None, "run:ended", text, {"run": name, "outcome": end.outcome.value}))
            change.after(partial(self._take_over, followed, after))

    # Requests

    def find(self, name: str) -> Run:
        """Return the run of a family; raises `NotFound`."""
        if (followed := self._open.get(name)) is not None:
            return followed.run
        if (found := self._requests.registry.store.run(name)) is None:
            raise NotFound(f"there is no run {name!r}: `substratctl runs` shows those there are")
        return found

    def begin(self, plan: Plan, file: str, workspace: str, by: str) -> Run:
        """Store a run, whose agents start then.

        Args:
            plan: the content of its file, checked.
            file: the file's path, for people.
            workspace: the directory that the family works on.
            by: who starts it (`records.BY_OPERATOR`).

        Raises:
            InvalidParams: a member's model can't be one, or there are too many members.
        """
        registry, plan = self._requests.registry, plans.counted(plan)
        self._members.check_size(plan)
        for member in plan.members:
            if member.model is not None:
                spawning.check_model(member.model)
        names = {name.lower() for name in registry.store.run_names()}
        for agent in registry.agents:
            for name in (agent.name, agent.clone.former_name if agent.clone is not None else None):
                parts = (name or "").lower().split(".")
                names.update(".".join(parts[: number + 1]) for number in range(len(parts)))
        with registry.change("run started") as change:
            name = runs.name_after(plan.name, names)
            run = Run(name, file, workspace, plan, by, started_at=registry.now())
            registry.store.save_run(run)
            change.after(partial(self._follow, run))
        return run

    def end(self, name: str, by: str) -> list[Agent]:
        """End a run, unless it is over, and its agents in the same commit; returns those that hadn't ended.

        Args:
            name: its name.
            by: who asks (`records.BY_OPERATOR`).

        Raises:
            NotFound: there is no such run.
        """
        run = self.find(name)
        ending: list[Agent] = []
        with self._requests.registry.change("run ended"):
            self._end(name, End(RunOutcome.FAILED, "it was ended by the operator"))
            for agent_id in run.ids:
                if self._requests.registry.get(agent_id) is not None:
                    ending += self._requests.end_family(agent_id, by)
        return ending

    async def moved(self, name: str) -> None:
        """Wait until a run that isn't over may stand otherwise."""
        if (followed := self._open.get(name)) is not None:
            await followed.moved.wait()

    # How they stand

    def status(self, run: Run) -> Status:
        """Return the state of a run; once it is over, and that is stored, as it was then."""
        if (followed := self._open.get(run.name)) is None:
            return Status({name: Standing(word) for name, word in run.standings.items()}, run.outcome, run.why)
        stand, why = self._standings.of(followed), followed.held or next(iter(followed.failed.values()), None)
        step = runs.next_step(run, stand, self._requests.registry.now())
        if not isinstance(step, Next):
            return Status(stand.standings, runs.outcome_of(run, stand.standings) if step is None else None, why)
        is_stuck = followed.held is not None and followed.is_short and Standing.WORKING not in stand.standings.values()
        return Status(stand.standings, RunOutcome.NEEDS_YOU if is_stuck else None, why)

    def result_of(self, run: Run) -> str:
        """Return a run's result: its lead's last words, or else all of its agents', in the file's order."""
        return run.result if run.ended_at is not None else standings.result_of(self._requests.registry, run)
