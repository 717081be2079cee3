"""Keeps the runs of families: `core.families.runs` decides what comes next, after each change of a run's agents.

A run is a row from its first moment on, with all that its file said, so a daemon that dies takes it up where it was: an
agent's start and the note that it was started are one commit. Each run that isn't over has a task, so that one that waits
for a large repository holds up no other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from substrat.core.agents.attention import AttentionKind
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.families import needs, results, runs
from substrat.core.families.plans import OnFail
from substrat.core.families.runs import End, Run, RunOutcome, Standing, Start
from substrat.daemon.agents import spawning
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.families.waiting import AT_WORK
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import LimitReached, NotFound, Refused, SandboxFailed, StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from substrat.core.agents.records import Agent
    from substrat.core.families.plans import Member, Plan
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.families.families import Families
    from substrat.daemon.runs.starting import MemberStart

log = structlog.get_logger("substrat.runs")

_AGAIN_S = 5.0
"""Seconds until the next try to start an agent."""
_TRIES = 3
"""Failed tries to start one agent after which it counts as failed; want of room doesn't count."""
_ASKS = {AttentionKind.ANSWER, AttentionKind.UNSAFE, AttentionKind.UNKEPT}
_HELD = {Phase.SUSPENDED, Phase.FROZEN}


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


class _Followed:
    """A run that isn't over, with the wake-up of its task; a daemon that dies loses all but the run.

    Args:
        run: the run, as it is stored.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.changed = Wakeup()
        self.moved = trio.Event()
        self.held: str | None = None
        """Why the next member isn't started yet."""
        self.is_short = False
        """Whether that is want of room, which a person has to make."""
        self.again_at = 0.0
        """When the next try may be, in seconds since the epoch."""
        self.tries = 0
        self.failed: dict[str, str] = {}
        """The members that can't be started, each with the reason."""

    def wake(self) -> None:
        """Let its task look at it, and those that follow it."""
        self.changed.set()
        self.tell()

    def tell(self) -> None:
        """Let those look at it that follow it."""
        self.moved.set()
        self.moved = trio.Event()


@attrs.define(eq=False)
class Runs:
    """The runs of one daemon."""

    _requests: AgentRequests
    _families: Families
    _start: MemberStart
    _open: dict[str, _Followed] = attrs.field(init=False, factory=dict)
    _of: dict[str, str] = attrs.field(init=False, factory=dict)
    """The names of the runs that aren't over, by the ids of their agents."""
    _running: dict[str, str] = attrs.field(init=False, factory=dict)
    """The turns of agents that run, by these when they changed last."""
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

    def _is_only_further(self, agent: Agent) -> bool:
        """Say whether an agent is in the same running turn as when it changed last, as after each line of its output."""
        turn = agent.turn.id if agent.phase is Phase.RUNNING and agent.turn is not None else None
        before = self._running.pop(agent.id, None)
        if turn is not None:
            self._running[agent.id] = turn
        return turn is not None and turn == before

    async def _go_on(self, followed: _Followed) -> None:
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

    async def _step(self, followed: _Followed) -> End | None:
        """Start the agents that can be started; returns the run's end, None while it goes on."""
        registry = self._requests.registry
        while (run := followed.run).ended_at is None:
            now = registry.now()
            step = runs.next_step(run, self._standings(followed), now)
            if isinstance(step, End):
                return step._replace(why=step.why or next(iter(followed.failed.values()), None))
            if step is None:
                followed.held = None
                if run.plan.timeout is not None:
                    registry.wake_at(run.started_at + run.plan.timeout)
                return None
            if now < followed.again_at or not await self._try(followed, step.member):
                registry.wake_at(max(followed.again_at, now))
                return None
        return None

    async def _try(self, followed: _Followed, member: Member) -> bool:
        """Start a member; returns False if that has to be tried again later."""
        name = f"{followed.run.name}.{member.name}"
        try:
            await self._start.start(followed.run, member, partial(self._note_start, followed, member))
        except (StorageFailed, LimitReached) as problem:
            room = problem.message if isinstance(problem, StorageFailed) else "limits.children or limits.agents is reached"
            followed.held, followed.is_short = f"{name} isn't started yet: {room}", True
        except SubstratError as problem:
            followed.tries += 1
            if not isinstance(problem, SandboxFailed | Refused) or followed.tries >= _TRIES:
                followed.failed[member.name] = f"{name} can't be started: {problem.message}"
                followed.held, followed.tries = None, 0
                return True
            followed.held, followed.is_short = f"{name} isn't started yet: {problem.message}", False
        else:
            followed.held, followed.tries, followed.again_at = None, 0, 0.0
            return True
        followed.again_at = self._requests.registry.now() + _AGAIN_S
        return False

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
            self._running.pop(agent_id, None)
        followed.wake()

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
                found = self._standings(followed).items()
                standings = {one: (stopped if now is Standing.WORKING else now).value for one, now in found}
                after = replace(after, result=self._result_of(run), standings=standings)
            registry.store.save_run(after)
            told = [agent for one in run.agents.values() if (agent := registry.get(one)) is not None]
            for agent in told[:1]:  # its first agent, which is the lead if it has one
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
            InvalidParams: a member's model can't be one.
        """
        registry = self._requests.registry
        for member in plan.members:
            if member.model is not None:
                spawning.check_model(member.model)
        names = {name.lower() for name in registry.store.run_names()}
        for agent in registry.agents:
            for name in (agent.name, agent.clone.former_name if agent.clone is not None else None):
                parts = (name or "").lower().split(".")
                names.update(".".join(parts[: number + 1]) for number in range(len(parts)))
        with registry.change("run started") as change:
            run = Run(runs.name_after(plan.name, names), file, workspace, plan, by, started_at=registry.now())
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
            for agent_id in run.agents.values():
                if self._requests.registry.get(agent_id) is not None:
                    ending += self._requests.end_family(agent_id, by)
        return ending

    async def moved(self, name: str) -> None:
        """Wait until a run that isn't over may stand otherwise."""
        if (followed := self._open.get(name)) is not None:
            await followed.moved.wait()

    # How they stand

    def status(self, run: Run) -> Status:
        """Return the state of a run; once it is over, as it was then."""
        if (followed := self._open.get(run.name)) is None:
            return Status({name: Standing(word) for name, word in run.standings.items()}, run.outcome, run.why)
        standings, why = self._standings(followed), followed.held or next(iter(followed.failed.values()), None)
        if not isinstance(runs.next_step(run, standings, self._requests.registry.now()), Start):
            return Status(standings, runs.outcome_of(run, standings), why)
        is_stuck = followed.held is not None and followed.is_short and Standing.WORKING not in standings.values()
        return Status(standings, RunOutcome.NEEDS_YOU if is_stuck else None, why)

    def _standings(self, followed: _Followed) -> dict[str, Standing]:
        run = followed.run
        on_fail = {member.name: member.on_fail for member in run.plan.members}
        found = {name: self._standing(agent_id, on_fail[name]) for name, agent_id in run.agents.items()}
        return found | dict.fromkeys(followed.failed, Standing.FAILED)

    def _standing(self, agent_id: str, on_fail: OnFail) -> Standing:
        registry, waiting, waits = self._requests.registry, self._families.waiting, self._families.waits
        agent = registry.get(agent_id)
        if agent is None:
            return Standing.SUCCEEDED if on_fail is OnFail.CONTINUE else Standing.FAILED
        if agent.phase is Phase.RUNNING:
            return Standing.WORKING
        if waiting.spent(agent_id) is not None:
            return Standing.OUT_OF_BUDGET
        found = [one for one in map(registry.get, waits.awaited(agent_id)) if one is not None]
        own = waits.open_of(agent_id)
        if any(STATE_OF[one.phase] in AT_WORK for one in found) or any(wait.deadline is not None for wait in own):
            return Standing.WORKING  # a wait with a deadline wakes it then
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
