"""Keeps the runs of families: `core.families.runs` decides what comes next, after each change of a run's agents.

A run is a row from its first moment on, with all that its file said, so a daemon that dies takes it up where it was: an
agent's start and the note that it was started are one commit. Each run that isn't over has a task, so that one that waits
for a large repository holds up no other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from substrat.core.agents.attention import AttentionKind
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.families import needs, results, runs
from substrat.core.families.runs import End, Run, RunOutcome, Standing, Start
from substrat.daemon.agents import spawning
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import LimitReached, NotFound, Refused, SandboxFailed, StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from substrat.core.agents.records import Agent
    from substrat.core.families.runs import Member, OnFail, Plan
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.families.families import Families
    from substrat.daemon.runs.starting import MemberStart

log = structlog.get_logger("substrat.runs")

_AGAIN_S = 5.0
"""Seconds until an agent is started once more that there was no room for, or that couldn't be started just now."""
_TRIES = 3
"""How often something that may pass keeps an agent from being started, until its run has failed."""
_ASKS = {AttentionKind.ANSWER, AttentionKind.UNSAFE, AttentionKind.UNKEPT}
_HELD = {Phase.SUSPENDED, Phase.FROZEN}
_AT_WORK = {"queued", "running"}


class _Followed:
    """A run that isn't over, and what its task is woken by.

    Args:
        run: the run, as it is stored.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.changed = Wakeup()
        self.moved = trio.Event()
        self.held: str | None = None
        self.tries = 0


@attrs.define(eq=False)
class Runs:
    """The runs of one daemon."""

    _requests: AgentRequests
    _families: Families
    _start: MemberStart
    _open: dict[str, _Followed] = attrs.field(init=False, factory=dict)
    _of: dict[str, str] = attrs.field(init=False, factory=dict)
    """The names of the runs that aren't over, by the ids of their agents."""
    _begun: Wakeup = attrs.field(init=False, factory=Wakeup)

    async def run(self) -> None:
        """Take each run on that isn't over, until cancelled."""
        registry = self._requests.registry
        for run in registry.store.open_runs():
            self._follow(run)
        registry.observe(self._note_change)
        followed: set[str] = set()
        async with trio.open_nursery() as nursery:
            while True:
                self._begun.clear()
                for name in self._open.keys() - followed:
                    nursery.start_soon(self._go_on, self._open[name])
                followed = set(self._open)
                await self._begun.wait()

    def _follow(self, run: Run) -> None:
        self._open[run.name] = _Followed(run)
        self._of.update(dict.fromkeys(run.agents.values(), run.name))
        self._begun.set()

    def look(self) -> None:
        """Look at the runs again: a time may have come, or a limit have changed."""
        for followed in self._open.values():
            followed.changed.set()

    def _note_change(self, agents: Iterable[str]) -> None:
        """Wake the tasks of the runs whose agents have changed, or ones that descend from these."""
        if not self._open:
            return
        registry = self._requests.registry
        for agent_id in agents:
            agent = registry.get(agent_id)
            above = registry.lineage(agent) if agent is not None else [agent_id]
            for name in {self._of[one] for one in above if one in self._of}:
                self._open[name].changed.set()

    async def _go_on(self, followed: _Followed) -> None:
        """Do what a run needs until it is over; what breaks ends this run alone."""
        name = followed.run.name
        try:
            while name in self._open:
                followed.changed.clear()
                if (end := await self._step(followed)) is not None:
                    await until_stored(partial(self._end, name, end))
                followed.moved.set()
                followed.moved = trio.Event()
                if end is None:
                    await followed.changed.wait()
        except Exception:
            log.exception("a run broke", run=name)
            end = End(RunOutcome.FAILED, "an internal error: substratd's log has it")
            await until_stored(partial(self._end, name, end, is_known=False))

    async def _step(self, followed: _Followed) -> End | None:
        """Start the agents that can be started; returns how the run ends, None while it doesn't."""
        registry, followed.held = self._requests.registry, None
        while followed.run.ended_at is None:
            run, now = followed.run, registry.now()
            step = runs.next_step(run, self._standings(run), now)
            if isinstance(step, End):
                if step.outcome is RunOutcome.TIMEOUT:
                    self._suspend(run)
                return step
            if step is None:
                if run.plan.timeout is not None:
                    registry.wake_at(run.started_at + run.plan.timeout)
                return None
            if (end := await self._try(followed, step.member)) is not None or followed.held is not None:
                return end
        return None

    async def _try(self, followed: _Followed, member: Member) -> End | None:
        """Start a member; returns the end of the run if that can't be, and notes in `held` what may pass."""
        name = f"{followed.run.name}.{member.name}"
        followed.held = None
        try:
            await self._start.start(followed.run, member, partial(self._note_start, followed, member))
        except SubstratError as problem:
            is_passing = isinstance(problem, StorageFailed | LimitReached)
            followed.tries += not is_passing
            if not is_passing and not (isinstance(problem, SandboxFailed | Refused) and followed.tries < _TRIES):
                return End(RunOutcome.FAILED, f"{name} can't be started: {problem.message}")
            followed.held = f"{name} isn't started yet: {problem.message}"
            self._requests.registry.wake_at(self._requests.registry.now() + _AGAIN_S)
        else:
            followed.tries = 0
        return None

    def _note_start(self, followed: _Followed, member: Member, change: Change, agent: Agent) -> None:
        run = followed.run
        if run.ended_at is not None:
            raise Refused("the run was ended meanwhile")
        after = replace(run, agents={**run.agents, member.name: agent.id})
        self._requests.registry.store.save_run(after)
        change.after(partial(self._take_over, followed, after))
        kind = "run:step" if run.agents else "run:started"
        text = f"{len(after.agents)} of {len(run.plan.members)} agents of the run {run.name} have been started"
        change.record(DaemonEvent(agent.id, None, kind, text, {"run": run.name, "file": run.file}))

    def _take_over(self, followed: _Followed, run: Run) -> None:
        """Take a committed change of a run over into memory."""
        followed.run = run
        if run.ended_at is None:
            self._of.update(dict.fromkeys(run.agents.values(), run.name))
            return
        self._open.pop(run.name, None)
        for agent_id in run.agents.values():
            self._of.pop(agent_id, None)
        followed.changed.set()
        followed.moved.set()

    def _members_and_below(self, run: Run) -> Iterator[Agent]:
        """Return the agents of a run, and all that descend from them, each once."""
        registry, seen = self._requests.registry, set[str]()
        for agent_id in run.agents.values():
            agent = registry.get(agent_id)
            for one in registry.family(agent) if agent is not None else ():
                if one.id not in seen:
                    seen.add(one.id)
                    yield one

    def _suspend(self, run: Run) -> None:
        """Suspend what works for a run whose time is over; once more, if a daemon dies in between."""
        for agent in list(self._members_and_below(run)):
            if STATE_OF[agent.phase] in _AT_WORK:
                with suppress(SubstratError):
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
                standings = {member: standing.value for member, standing in self._standings(run).items()}
                after = replace(after, result=self._result_of(run), standings=standings)
            registry.store.save_run(after)
            told = [agent for one in run.agents.values() if (agent := registry.get(one)) is not None]
            for agent in told[:1]:  # the lead, where there is one
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
            plan: what its file says, checked.
            file: the file's path, for people.
            workspace: the directory that the family works on.
            by: who starts it (`records.BY_OPERATOR`).

        Raises:
            InvalidParams: a member's model can't be one.
        """
        registry = self._requests.registry
        for member in plan.members:
            if member.model is not None:
                spawning.check_model(member.model)
        names = {run.name for run in registry.store.runs()}
        for agent in registry.agents:
            parts = agent.name.split(".")
            names.update(".".join(parts[: number + 1]) for number in range(len(parts)))
        with registry.change("run started") as change:
            run = Run(runs.name_after(plan.name, names), file, workspace, plan, by, started_at=registry.now())
            registry.store.save_run(run)
            change.after(partial(self._follow, run))
        return run

    def end(self, name: str) -> list[Agent]:
        """Declare a run over that isn't; returns its agents and those below that haven't ended, which the caller ends."""
        self._end(name, End(RunOutcome.FAILED, "it was ended by the operator"))
        return [agent for agent in self._members_and_below(self.find(name)) if agent.phase is not Phase.ENDED]

    async def moved(self, name: str) -> None:
        """Wait until a run that isn't over may stand otherwise."""
        if (followed := self._open.get(name)) is not None:
            await followed.moved.wait()

    # How they stand

    def standings(self, run: Run) -> dict[str, Standing]:
        """Return how the members of a run stand whose agents were started; once it is over, how they did then."""
        if run.ended_at is not None:
            return {name: Standing(standing) for name, standing in run.standings.items()}
        return self._standings(run)

    def outcome(self, run: Run) -> RunOutcome | None:
        """Return how a run stands that doesn't go on by itself; None: it does."""
        if run.ended_at is not None:
            return run.outcome
        standings = self._standings(run)
        followed = self._open.get(run.name)
        if isinstance(runs.next_step(run, standings, self._requests.registry.now()), Start):
            is_held = followed is not None and followed.held is not None and Standing.WORKING not in standings.values()
            return RunOutcome.NEEDS_YOU if is_held else None
        return runs.outcome_of(run, standings)

    def why(self, run: Run) -> str | None:
        """Return the sentence about a run that has failed, or that can't start an agent; None: there is none."""
        followed = self._open.get(run.name)
        return run.why if followed is None else followed.held

    def _standings(self, run: Run) -> dict[str, Standing]:
        on_fail = {member.name: member.on_fail for member in run.plan.members}
        return {name: self._standing(agent_id, on_fail[name]) for name, agent_id in run.agents.items()}

    def _standing(self, agent_id: str, on_fail: OnFail) -> Standing:
        registry, waiting, waits = self._requests.registry, self._families.waiting, self._families.waits
        agent = registry.get(agent_id)
        if agent is None:
            return Standing.FAILED
        if waiting.spent(agent_id) is not None:
            return Standing.OUT_OF_BUDGET
        found = [one for one in map(registry.get, waits.awaited(agent_id)) if one is not None]
        if any(STATE_OF[one.phase] in _AT_WORK for one in found):
            return Standing.WORKING
        own = waits.open_of(agent_id)
        if any(wait.deadline is not None for wait in own):
            return Standing.WORKING  # it is woken then
        (attention,) = self._families.overview.attentions([agent])
        if own or agent.phase in _HELD or attention.kind in _ASKS:
            return Standing.NEEDS_YOU
        turn = registry.store.turn(agent.turn.id) if agent.turn is not None else None
        met = needs.state_of(agent, turn, has_finished=True).met
        return runs.standing_of(met, on_fail, is_accepted=turn is not None and agent.accepted_turn == turn.id)

    def result_of(self, run: Run) -> str:
        """Return a run's result: its lead's last words, or else all of its agents', in the file's order."""
        return run.result if run.ended_at is not None else self._result_of(run)

    def _result_of(self, run: Run) -> str:
        plan = run.plan
        if plan.lead is not None:
            return self._words(run, plan.lead)
        said = [(member.name, self._words(run, member.name)) for member in plan.members]
        return "\n\n".join(f"{run.name}.{name}: {words}" for name, words in said if words)

    def _words(self, run: Run, member: str) -> str:
        registry = self._requests.registry
        agent = registry.get(run.agents.get(member))
        turn = registry.store.turn(agent.turn.id) if agent is not None and agent.turn is not None else None
        return results.text_of(turn).strip()
