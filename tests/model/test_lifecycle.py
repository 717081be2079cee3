"""Random walks through the lifecycle, against the model: no process runs, commits fail and daemons die at any step."""

import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from substrat.core.agents.records import Completion, Intent
from substrat.core.agents.stop_reason import took_too_long
from substrat.core.agents.verdict import TurnObservation, judge
from substrat.core.families.waits import WaitMode
from substrat.core.programs.program import TurnResult
from substrat.core.programs.table import CURSOR
from substrat.core.workspaces import checks
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.inbox import Inbox, Question
from substrat.daemon.families.budgets import Wish
from substrat.daemon.families.messages import Messages
from substrat.errors import LimitReached, SubstratError
from tests.daemon.conftest import AgentsFixture
from tests.model.beginnings import BEGINNINGS, CALLED, CHECKED, FAMILY, FOUND, TURNED
from tests.model.conftest import DEEP, Clock, Countdown, tokens_in
from tests.model.records import Refusal
from tests.model.reference import World

LIMITS = {"waiting_items": 4, "children": 2, "depth": 2, "agents": 5}
ROOM = 2
PASSES = "RetriableError: [unavailable] PING timed out"
QUOTED = "You were stopped in the middle"

REQUESTS = [
    "send with a prompt", "send with a prompt", "suspend", "suspend", "resume", "resume", "resume with a prompt",
    "interrupt", "end", "end family", "remove", "answer", "dismiss", "take back", "budget turns", "budget tool_calls",
    "budget none",
]  # fmt: skip
TURNS = [
    "begin", "begin", "begin", "act", "time is up", "inbox", "ask", "ask", "complete", "complete", "result", "result",
    "result", "exit", "exit", "gone", "passes", "passes",
]  # fmt: skip

who = st.integers(0, 3)
some = st.none() | st.lists(who, min_size=1, max_size=2)


class Lifecycle(RuleBasedStateMachine):
    """The daemon's agents and the model, asked the same things."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="substrat-model-")
        self.agents = AgentsFixture(f"{self.directory}/substrat.db", Clock(), turns={"max_running": ROOM}, limits=LIMITS)
        self.world = World(
            room=ROOM, waiting=LIMITS["waiting_items"], children=LIMITS["children"], depth=LIMITS["depth"],
            agents=LIMITS["agents"],
        )  # fmt: skip
        self.count = 0
        self.commits = None
        self.dies = False
        self.seen = []  # the events of a client that is always a little behind
        self.gone = set()

    def teardown(self):
        try:
            self.read(100_000)
            self.drain()
            self.restart()
            self.agrees()
            self.read(100_000)
        finally:
            self.agents.store.close()
            shutil.rmtree(self.directory)

    def drain(self):
        """Let all agents work until nothing waits: then each item that was accepted has been told."""
        self.commits, self.dies = None, False
        while self.world.questions:
            self.operator(index=0, kind="dismiss")
        for name in [agent.name for agent in self.world.agents.values() if agent.limits]:
            self.budget(name, "none")
        while {agent.state for agent in self.world.agents.values()} - {"idle", "ended"}:
            for index, name in enumerate(sorted(self.world.agents)):
                # An agent that this one needs may have been interrupted: then a person must decide.
                self.request(index=index, kind="end" if self.world.agents[name].needs else "resume")
            while self.world.checked:
                self.verdict(outcome="passed", index=0)
            self.much_later()
            while self.world.running:
                for agent in list(self.world.running):
                    self.tell_begin(agent.name)
                    self.tell_end(agent.name, "result")
                    self.agrees()
        for agent in self.world.agents.values():
            assert agent.state != "idle" or not any(item.starts_turn for item in agent.inbox)
            assert not [item for item in agent.given if item.awaited], "each request has an answer"
        assert not self.world.waits, "each wait is over"

    def do(self, daemon, model):
        """Ask both the same, and compare their answers."""
        commits, self.commits = self.commits, None
        if commits is not None:
            self.agents.store.failing = Countdown(commits)
            self.world.commits = commits
        admissions = len(self.agents.runner.admissions)
        expected, answer = self.answer_of(model), self.answer_of(daemon)
        self.agents.store.failing, self.world.commits = False, None
        assert answer == expected
        if commits is None:
            return
        if self.dies:
            self.dies = False
            self.restart()
            return
        before = self.happened()
        self.world.begin_turns()
        self.world.end_due()
        if self.happened() != before:
            # An agent waits only because the disk was full. No other event may ever come, so the daemon must look again.
            assert len(self.agents.runner.admissions) > admissions
            self.ring()

    def happened(self):
        stopped = sum(agent.turn.stop is not None for agent in self.world.running)
        return len(self.world.beginnings), len(self.world.waits), stopped

    def answer_of(self, request):
        try:
            request()
        except Refusal as refusal:
            return refusal.name
        except SubstratError as error:
            return type(error).__name__
        return None

    def later_there(self):
        self.agents.clock.time += 1000
        self.ring()

    def ring(self):
        """Act as the daemon's timer."""
        self.agents.registry.admit()
        end_due(self.agents.registry, self.agents.families.waits.end_due)

    def pick(self, index):
        return sorted(self.world.agents)[index % len(self.world.agents)]

    def pick_running(self, index):
        return sorted(agent.name for agent in self.world.running)[index % len(self.world.running)]

    def token(self):
        self.count += 1
        return f"tok{self.count}"

    anybody = precondition(lambda self: self.world.agents)
    anybody_running = precondition(lambda self: self.world.running)

    # Faults

    @rule(commits=st.integers(0, 2), dies=st.booleans())
    def during_the_next_step_a_commit_fails(self, commits, dies):
        """So many commits succeed and the next ones fail, or the daemon is killed in place of the first that would fail."""
        self.commits, self.dies = commits, dies

    @rule()
    def restart(self):
        self.agents.restart()
        self.world.beginnings = [(agent.name, agent.turn.number) for agent in self.running_in_order()]
        self.world.begin_turns()
        self.world.end_due()
        stopping = sorted(agent.turn.stop for agent in self.world.running if agent.turn.stop is not None)
        words = {
            "suspend": "suspended",
            "interrupt": "interrupted",
            "end": "ended",
            "budget": "budget",
            "time limit": "time limit of 5 s",
        }
        told = (str(reason).partition(":")[0] for _, reason in self.agents.runner.stopped)
        assert sorted(told) == sorted(words[stop] for stop in stopping)

    def running_in_order(self):
        """Return the agents whose turns a new daemon takes up, in the order of `ls`."""
        running = {agent.name: agent for agent in self.world.running}
        return [running[agent.name] for agent in self.agents.registry.agents if agent.name in running]

    # Steps. Few rules with many kinds: Hypothesis leaves out whole rules to go deeper with the others.

    @initialize(steps=st.sampled_from(BEGINNINGS))
    def take(self, steps):
        for step, index, others in steps:
            self.agrees()
            match step.partition(" "):
                case "spawn", _, "checked":
                    self.spawn(kind="child", index=index, needs=others, retries=1)
                case "verdict", _, outcome:
                    self.verdict(outcome=outcome, index=index)
                case "spawn", _, kind:
                    self.spawn(kind=kind, index=index, needs=others)
                case "wait", _, mode:
                    self.wait(index=index, others=others, mode=mode.split()[0], timed="for ever" not in mode)
                case "message", _, intent:
                    self.message(sender=index, index=others, intent=intent)
                case "turn" | "request" as rule, _, kind:
                    getattr(self, rule)(kind=kind, index=index)
                case rule, _, _:
                    getattr(self, rule)()

    @rule(kind=st.sampled_from(["idle", "prompt", "prompt", "child", "child", "child", "taken"]), index=who, needs=some,
          retries=st.none() | st.integers(0, 1))  # fmt: skip
    def spawn(self, kind, index, needs, retries=None):
        name, parent = f"a{self.count}", None
        if kind == "taken" and self.world.agents:
            name = self.pick(index)
        elif kind == "child" and self.world.running:
            parent = self.pick_running(index)
        needs = sorted({self.pick(need) for need in needs or ()}) if parent is not None else []
        token = self.token() if kind != "idle" else None
        self.do(
            lambda: self.spawn_there(name, token, parent, needs, retries),
            lambda: self.world.spawn(name, token, parent, needs, retries),
        )

    def spawn_there(self, name, token, parent, needs, retries):
        needed = self.agents.families.needs.checked(self.agents.agent(parent), needs) if needs else ()
        own = {"check": "make", "retries": retries} if retries is not None else {}
        self.agents.spawn(name, token, parent=parent, needs=needed, **own)

    @anybody
    @rule(kind=st.sampled_from(REQUESTS), index=who)
    def request(self, kind, index):
        if kind in {"answer", "dismiss", "take back"}:
            self.operator(kind, index)
            return
        if kind.startswith("budget "):
            self.budget(self.pick(index), kind.removeprefix("budget "))
            return
        kind, _, prompt = kind.replace("end family", "end_family").partition(" with ")
        name = self.pick(index)
        given = [self.token()] if prompt else [None] if kind == "resume" else []
        gone = self.agents.agent(name).id
        self.do(
            lambda: getattr(self.agents.supervisor, kind)(name, *given), lambda: getattr(self.world, kind)(name, *given)
        )
        if name not in self.world.agents:
            self.gone.add(gone)

    def budget(self, name, key):
        wish = Wish(clear=True) if key == "none" else Wish(more={key: 1.0})
        self.do(lambda: self.agents.families.budgets.change(name, wish, "ctl"), lambda: self.world.budget(name, key))

    def operator(self, kind, index):
        inbox, questions, name = Inbox(self.agents.registry), len(self.world.questions), self.pick(index)
        items = self.agents.store.waiting_items(self.agents.agent(name).id)
        if kind == "take back" and items:
            index %= len(items)
            self.do(
                lambda: Messages(self.agents.supervisor).drop(self.agents.agent(name), items[index].id),
                lambda: self.world.take_back(name, index),
            )
        elif kind != "take back" and questions:
            index %= questions
            given = [self.token()] if kind == "answer" else []
            number = inbox._store.operator_items(0, 100)[index].id
            self.do(
                lambda: getattr(inbox, kind)(number, *given),
                lambda: getattr(self.world, kind)(index, *given),
            )

    @anybody_running
    @rule(sender=who, index=who, intent=st.sampled_from(["request", "request", "inform", "reply"]))
    def message(self, sender, index, intent):
        sender, name, token = self.pick_running(sender), self.pick(index), self.token()
        self.do(
            lambda: self.send_message(sender, name, token, Intent(intent)),
            lambda: self.world.message(sender, name, token, intent),
        )

    def send_message(self, sender, name, token, intent):
        (receipt,) = Messages(self.agents.supervisor).send(self.agents.agent(sender), name, token, intent, None)
        if receipt.number is None:
            raise LimitReached(receipt.problem)

    @anybody_running
    @rule(index=who, others=some, mode=st.sampled_from(["all", "all", "any"]), timed=st.booleans())
    def wait(self, index, others, mode, timed):
        name, said, tokens = self.pick_running(index), [], []
        names = [self.pick(other) for other in others] if others is not None else None
        self.do(
            lambda: said.append(self.register(name, names, mode, 500.0 if timed else None)),
            lambda: tokens.append(self.world.wait(name, names, mode, timed)),
        )
        assert said == [result and sorted(result) for result in tokens]

    def register(self, name, names, mode, timeout_s):
        """Let an agent wait, and return the tokens of the results if it is over already."""
        agent = self.agents.agent(name)
        opened, said = self.agents.families.waits.register(agent, names, WaitMode(mode), timeout_s, None)
        return tokens_in(said) if opened is None else None

    @anybody_running
    @rule(kind=st.sampled_from(TURNS), index=who)
    def turn(self, kind, index):
        name = self.pick_running(index)
        match kind:
            case "begin":
                self.tell_begin(name)
            case "act":
                call = {"type": "tool_call", "subtype": "started", "call_id": "c"}
                body = {**call, "tool_call": {"shellToolCall": {"args": {}}}}
                self.do(lambda: self.agents.write(name, body), lambda: self.world.acts(name))
            case "time is up":
                turn = self.agents.turn(name).id
                self.do(
                    lambda: self.agents.book.turn_limit_reached(turn, took_too_long(5)), lambda: self.world.time_is_up(name)
                )
            case "inbox":
                self.check_inbox(name)
            case "ask":
                question = Question("may I?")
                self.do(
                    lambda: Inbox(self.agents.registry).ask(self.agents.agent(name), question), lambda: self.world.ask(name)
                )
            case "complete":
                token, status = self.token(), ["failed", "succeeded", "succeeded"][index % 3]
                self.do(
                    lambda: self.agents.supervisor.complete(name, token, token, Completion(status)),
                    lambda: self.world.completes(name, status, token),
                )
            case _:
                self.tell_end(name, kind)

    def check_inbox(self, name):
        items, tokens = [], []
        self.do(
            lambda: items.extend(self.agents.supervisor.take_inbox(name)),
            lambda: tokens.extend(self.world.check_inbox(name)),
        )
        assert sorted(token for item in items for token in tokens_in(item.text)) == sorted(tokens)

    def tell_begin(self, name):
        session = f"00000000-0000-4000-9000-{int(name[1:]):012}"
        self.do(lambda: self.agents.begin(name, session), lambda: self.world.knows(name))

    def tell_end(self, name, how):
        turn = self.agents.turn(name)
        result = TurnResult("done", is_error=False, usage=None) if how == "result" else None
        code, errors = None if how == "gone" else 1, PASSES if how == "passes" else ""
        seen = TurnObservation(result, code, turn.stop, errors, anything=True)
        self.do(lambda: self.agents.book.turn_over(turn.id, judge(seen, CURSOR), seen), lambda: self.world.over(name, how))

    checked = precondition(lambda self: self.world.checked)

    @checked
    @rule(outcome=st.sampled_from(["passed", "failed", "failed", "broken"]), index=who)
    def verdict(self, outcome, index):
        name, token = self.world.checked[index % len(self.world.checked)], self.token()
        agent, status = self.agents.agent(name), {"passed": 0, "failed": 2, "broken": 127}[outcome]
        found = checks.judged("make", status, f"{token}\nthe last line\n".encode(), 60)
        self.do(
            lambda: self.agents.families.checks.judge(agent.id, agent.checked.turn, found),
            lambda: self.world.judge(name, outcome, token),
        )

    @rule()
    def much_later(self):
        self.do(self.later_there, self.world.later)

    # The conditions after each step

    @invariant()
    def agrees(self):
        there = {agent.name: agent for agent in self.agents.registry.agents}
        assert there.keys() == self.world.agents.keys()
        stored = {agent.name: agent for agent in self.agents.store.agents()}
        assert stored == there
        for name, agent in there.items():
            expected = self.world.agents[name]
            outcome = agent.turn.outcome and agent.turn.outcome.value if agent.turn else None
            number = agent.turn.number if agent.turn else 0
            assert (self.agents.state(name), agent.waiting, number, outcome) == expected.sees(), name
            assert self.agents.registry.name_of(agent.parent) == expected.parent
            assert (agent.phase == "checking") == (name in self.world.checked)
            if expected.state == "running":
                prompt = self.agents.prompt(name)
                assert tokens_in(prompt) == sorted(expected.turn.tokens), name
                assert prompt.startswith(QUOTED) == any(item.quoted for item in expected.turn.items)
        waits = self.agents.families.waits.listed()
        assert [wait for wait in self.agents.store.pending_waits() if wait.is_open] == waits
        seen = [(self.agents.registry.name_of(wait.agent), sorted(wait.names), wait.mode.value) for wait in waits]
        assert seen == [wait.sees() for wait in self.world.waits]
        assert len(self.agents.store.operator_items()) == len(self.world.questions)
        names = [name for name, _ in self.agents.runner.started]
        assert names == [name for name, _ in self.world.beginnings]

    @invariant()
    def events_are_sent_in_order_and_once(self):
        self.read(3)

    def read(self, most):
        """Read on from the client's own cursor, which no restart invalidates."""
        cursor = self.seen[-1].cursor if self.seen else 0
        page = self.agents.journal.page(cursor, None, most)
        cursors = [event.cursor for event in page]
        assert cursors == sorted(set(cursors))
        assert not cursors or cursors[0] > cursor
        self.seen += page
        if most > 3:
            stored = [event.cursor for event in self.agents.store.events_after(0, None, 100_000)]
            assert stored == [event.cursor for event in self.seen if event.agent not in self.gone]


def walks(count):
    return settings(
        max_examples=max(1, int(count * DEEP)), stateful_step_count=50,
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip


class TestLifecycle(Lifecycle.TestCase):  # type: ignore[misc,valid-type]  # hypothesis makes it at run time
    """A few thousand steps."""

    settings = walks(40)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestLifecycleDeeply(Lifecycle.TestCase):  # type: ignore[misc,valid-type]  # hypothesis makes it at run time
    """Many more."""

    settings = walks(600)


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_found_by_a_walk(steps):
    """Several were found once in many walks."""
    walked([*FAMILY, *((*step, None)[:3] for step in steps)])


def test_checks_in_a_walk():
    """One that is sent back once fails by its second failure, also over a restart, and is checked again by `resume`."""
    failed = ("verdict failed", 0, None)
    again = [failed, ("restart", 0, None), ("turn result", 1, None), failed]
    broken = [("request resume", 1, None), ("verdict broken", 0, None), ("request resume", 1, None)]
    walked([*CHECKED, *again, *broken])
    asked = [*CHECKED[:2], ("turn ask", 1, None), ("turn result", 1, None)]
    walked([*asked, ("request dismiss", 0, None), failed, ("turn result", 1, None), ("verdict passed", 0, None)])
    walked([*asked, ("request suspend", 1, None), ("request dismiss", 0, None), ("request resume", 1, None), failed])
    for stop in ("interrupt", "end", "remove", "suspend"):
        walked([*CHECKED, (f"request {stop}", 1, None)])
        walked([*CHECKED[:2], ("wait all", 0, [1]), *CHECKED[2:], (f"request {stop}", 1, None)])


def test_budgets_in_a_walk():
    """Stopped turns are gone on with once, when there is more; turns of children count, and wait likewise."""
    stopped = [*CALLED, ("turn exit", 1, None), ("turn exit", 0, None)]
    more = ("request budget tool_calls", 0, None)
    walked([*stopped, more, ("turn begin", 0, None), ("turn result", 0, None), ("turn result", 0, None)])
    walked([*stopped, ("request suspend", 1, None), ("request resume", 1, None), more, ("turn begin", 1, None)])
    walked([*stopped, ("restart", 0, None), ("request end", 1, None), more])
    walked([*CALLED, ("restart", 0, None), ("turn gone", 1, None), more])
    walked([*CALLED, ("turn result", 1, None), ("request suspend", 0, None), ("turn exit", 0, None), more])
    for step in ("budget turns", "budget none", "suspend", "end family", "interrupt"):
        walked([*TURNED, (f"request {step}", 0, None), ("turn result", 0, None)])
    walked([*TURNED, ("turn result", 0, None), ("request remove", 0, None)])


def walked(steps):
    walk = Lifecycle()
    walk.take(steps=steps)
    walk.agrees()
    walk.teardown()
