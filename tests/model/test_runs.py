"""Random walks of runs: any family, whose agents end in any way, comes to an end, whenever the daemon dies."""

import json
import shutil
import tempfile
from dataclasses import replace
from typing import Any

import trio
import trio.testing
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from substrat.core.agents.lifecycle import STATE_OF
from substrat.core.agents.records import Completion, Outcome
from substrat.core.families import plans
from substrat.core.families.plans import Member, OnFail, Plan
from substrat.core.families.runs import RunOutcome
from substrat.daemon.runs.runs import Runs
from substrat.errors import InvalidParams, StorageFailed
from tests.daemon.conftest import AgentsFixture
from tests.daemon.runs.members import FakeMembers
from tests.model.conftest import DEEP, Clock, Countdown

SCHEMA = json.dumps({"properties": {"agrees": {"type": "boolean"}}, "required": ["agrees"]})
AT_WORK = {"queued", "running"}


STEPS = ("ends", "ends", "ends", "ends", "ends", "ends", "fails", "suspend", "resume", "dies")
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), min_size=12, max_size=24)


@st.composite
def families(draw):
    """A family of two to five members: needs, a lead, one that is listed, a judge."""
    members = [Member("m0", "x", on_fail=draw(st.sampled_from(OnFail)))]
    for number in range(1, draw(st.integers(1, 3))):
        needs = tuple(f"m{one}" for one in sorted(draw(st.sets(st.integers(0, number - 1), max_size=2))))
        members.append(Member(f"m{number}", "x", on_fail=draw(st.sampled_from(OnFail)), needs=needs))
    if draw(st.booleans()):
        author = draw(st.sampled_from(members[-2:])).name
        members.append(Member(
            "judge", "x", needs=(author,), returns_to=author, rounds=draw(st.integers(1, 3)), result_schema=SCHEMA,
            on_fail=draw(st.sampled_from((OnFail.STOP, OnFail.CONTINUE))),
        ))  # fmt: skip
    elif draw(st.booleans()):
        members[0] = replace(members[0], each="ls")
    lead = draw(st.none() | st.sampled_from([member.name for member in members]))
    plan = Plan("f", tuple(members), lead=lead)
    try:
        return plans.checked(plan)
    except InvalidParams:
        assume(False)


class Walk:
    """The run of a family, in a daemon without processes that may die at any commit."""

    def __init__(self, data, directory):
        self.data = data
        self.plan, self.steps = data.draw(families()), data.draw(steps)
        self.agents = AgentsFixture(f"{directory}/substrat.db", Clock(), limits={"children": 8})
        self.log = [repr(self.plan)]
        self.person: dict[str, int] = {}
        """How many prompts a person has given each agent."""

    async def live(self, act):
        """Let a daemon live for as long as some steps take."""
        members: Any = FakeMembers(self.agents)
        landings: Any = None
        self.runs = Runs(self.agents.supervisor, self.agents.families, members, landings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runs.run)
            await trio.testing.wait_all_tasks_blocked()
            if not self.agents.store.runs():
                self.runs.begin(self.plan, "f.toml", "/w", "ctl")
            await self.rest()
            await act()
            nursery.cancel_scope.cancel()

    async def rest(self):
        """Let everything come to rest, and look at it."""
        await trio.testing.wait_all_tasks_blocked()
        if not self.agents.store.failing:
            self.check()

    @property
    def run(self):
        return self.runs.find("f")

    def at_work(self):
        """The agents with a turn that runs."""
        return sorted(agent.name for agent in self.agents.registry.agents if STATE_OF[agent.phase] == "running")

    def check(self):
        run = self.run
        names = [agent.name for agent in self.agents.registry.agents]
        assert len(names) == len(set(names)), self.log
        states = {STATE_OF[agent.phase] for agent in self.agents.registry.agents}
        status = self.runs.status(run)
        if run.ended_at is None:
            is_waited_for = bool(states & AT_WORK) or status.outcome in {RunOutcome.NEEDS_YOU, RunOutcome.OUT_OF_BUDGET}
            assert is_waited_for, ("it hangs", self.log, status)
        elif run.outcome is RunOutcome.SUCCEEDED:
            assert run.standings.keys() == {member.name for member in run.plan.members}, self.log
        for member in run.plan.members:
            self.check_member(run, member)

    def check_member(self, run, member):
        agent_id = run.agents.get(member.name)
        if agent_id is None:
            return
        # Whoever has a task has it after those that it needs have ended a turn.
        for need in member.needs:
            assert (one := self.agents.registry.get(run.agents.get(need))) is not None, self.log
            assert "turn:ended" in {kind for kind, _ in self.agents.told(one.name)}, (member, self.log)
        if member.returns_to is not None:
            times = run.returned[member.name].times if member.name in run.returned else 0
            assert times < member.rounds, self.log
            tasks = self.agents.told(f"f.{member.returns_to}", "prompt:queued")
            is_lead_last = member.returns_to == run.plan.lead and run.plan.is_lead_last
            assert len(tasks) == times + is_lead_last + self.person.get(f"f.{member.returns_to}", 0), self.log

    async def some_steps(self):
        """What happens until the daemon dies, perhaps at a commit of its last step."""
        while self.steps:
            how, number = self.steps.pop()
            if how == "dies":
                self.agents.store.failing = Countdown(number % 4)
                self.log.append("from here on commits fail")
                await self.step("ends", number)
                return
            await self.step(how, number)

    async def step(self, how, number):
        held = sorted(agent.name for agent in self.agents.registry.agents if STATE_OF[agent.phase] == "suspended")
        names = held if how == "resume" else self.at_work()
        if not names or self.run.ended_at is not None:
            return
        name = names[number % len(names)]
        self.log.append(f"{name}: {how} {number}")
        try:
            self.act(name, how, agrees=number > 7)
        except StorageFailed:
            self.log.append("not stored")
        await self.rest()

    def act(self, name, how, *, agrees=True):
        agents = self.agents
        if how == "suspend":
            agents.supervisor.suspend(name)
            agents.fall(name)
        elif how == "resume":
            agents.supervisor.resume(name, None)
        elif how == "fails":
            agents.fall(name)
        else:
            result = json.dumps({"agrees": agrees})
            agents.begin(name)
            if any(f"f.{member.name}" == name and member.returns_to for member in self.plan.members):
                agents.supervisor.complete(name, result, result, Completion.SUCCEEDED)
            agents.finish(name)

    async def to_the_end(self):
        """A person lets all that waits go on, everybody succeeds and agrees: then the run is over."""
        for _ in range(60):
            if self.run.ended_at is not None:
                return
            for agent in list(self.agents.registry.agents):
                if STATE_OF[agent.phase] == "suspended":
                    self.act(agent.name, "resume")
                elif STATE_OF[agent.phase] == "failed":
                    self.agents.supervisor.send(agent.name, "once more")
                    self.person[agent.name] = self.person.get(agent.name, 0) + 1
            self.agents.clock.time += 6
            self.runs.look()
            await self.rest()
            for name in self.at_work():
                self.act(name, "ends")
                await self.rest()
        raise AssertionError(("the run goes on for ever", self.log, self.runs.status(self.run)))

    async def walk(self):
        while self.steps:
            await self.live(self.some_steps)
            self.agents.store.failing = False
            self.log.append("the daemon dies")
            self.agents.restart()
        await self.live(self.to_the_end)
        if not any(": fails" in line for line in self.log) and not any(one.returns_to for one in self.plan.members):
            assert self.run.outcome is RunOutcome.SUCCEEDED, self.log
        if self.run.outcome is RunOutcome.SUCCEEDED:
            for name, standing in self.run.standings.items():
                agent = self.agents.registry.get(self.run.agents[name])
                member = next(one for one in self.run.plan.members if one.name == name)
                has_ended_well = agent is not None and self.agents.turn(agent.name).outcome is Outcome.SUCCESS
                assert standing == "succeeded", self.log
                assert has_ended_well or member.on_fail is OnFail.CONTINUE, self.log


@settings(max_examples=int(150 * DEEP), deadline=None)
@given(st.data())
def test_any_run_comes_to_an_end_whenever_the_daemon_dies(data):
    directory = tempfile.mkdtemp(prefix="substrat-model-")
    walk = None
    try:
        walk = Walk(data, directory)
        trio.run(walk.walk, clock=trio.testing.MockClock(autojump_threshold=0.01))
    finally:
        if walk is not None:
            walk.agents.store.close()
        shutil.rmtree(directory)
