"""Random walks of tasks: each is one agent's, nobody waits in vain, all come to an end, whenever the daemon dies."""

import shutil
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.families.tasks import OPEN, NewTask, Status, TaskState
from substrat.errors import Refused, StorageFailed
from tests.daemon.conftest import AgentsFixture
from tests.model.conftest import DEEP, Clock, Countdown

WORKERS = ("lead", "w1", "w2", "w3")
LABELS = (None, None, "red")
ACTS = (
    "claim", "claim", "wait", "wait", "wait", "finish", "finish", "give up", "end turn", "end turn", "fail", "suspend",
    "resume", "end", "remove", "skip", "retry", "add", "prompt", "die",
)  # fmt: skip
steps = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 3), st.integers(0, 7)), min_size=15, max_size=40)


class Walk:
    """A family whose tasks are claimed, finished and lost in any order, in a daemon without processes."""

    def __init__(self, data, directory):
        self.agents = AgentsFixture(f"{directory}/substrat.db", Clock())
        self.agents.spawn("lead", "work")
        for name in WORKERS[1:]:
            self.agents.spawn(name, "work", parent="lead")
        self.root, self.tasks, self.steps = self.agents.agent("lead").id, self.agents.families.tasks, data.draw(steps)
        self.log = list[str]()
        needs = data.draw(st.lists(st.sets(st.integers(0, 7), max_size=2), min_size=2, max_size=8))
        for number, of in enumerate(needs):
            self.add(number, [f"n{one}" for one in sorted(of) if one < number], data.draw(st.sampled_from(LABELS)))

    def add(self, number, needs, label):
        new = NewTask("x", id=f"n{number}", needs=tuple(needs), label=label, attempts=1 + number % 3)
        self.agents.families.tasks.add(self.agents.agent("lead"), [new], self.root)

    def known(self):
        return {task.id: task for task in self.agents.store.tasks(self.root)}

    def check(self):
        known, claimed = self.known(), dict[str, str]()
        for task in known.values():
            below = {known[need].state for need in task.needs}
            if task.state is TaskState.CLAIMED:
                agent = self.agents.registry.get(task.claimed_by)
                assert agent is not None, self.log
                assert agent.phase not in {Phase.FAILED, Phase.ENDED}, (task, self.log)
                assert claimed.setdefault(agent.id, task.id) == task.id, ("two for one", self.log)
            if task.state in {TaskState.READY, TaskState.CLAIMED, TaskState.SUCCEEDED}:
                assert below <= {TaskState.SUCCEEDED}, (task, self.log)
            elif task.state is TaskState.BLOCKED:
                assert below & set(OPEN), ("it waits for nothing", task, self.log)
                assert not below & {TaskState.FAILED, TaskState.SKIPPED}, (task, self.log)
            elif task.state is TaskState.SKIPPED and task.status is None:
                assert below & {TaskState.FAILED, TaskState.SKIPPED}, (task, self.log)
            assert task.attempts <= task.max_attempts, self.log
            assert (task.finished_at is None) == (task.state in OPEN), (task, self.log)
        for wait in self.agents.families.waits.for_tasks():
            agent = self.agents.registry.get(wait.agent)
            assert agent is not None, self.log
            mine = [task for task in known.values() if wait.label in {None, task.label}]
            if agent.phase in {Phase.IDLE, Phase.RUNNING, Phase.QUEUED} and agent.id not in claimed:
                assert not any(task.state is TaskState.READY for task in mine), ("it waits beside work", wait, self.log)
                assert any(task.state in OPEN for task in mine), ("it waits for nothing", wait, self.log)

    def act(self, how, name, number):
        agents, tasks = self.agents, self.agents.families.tasks
        agent = next((one for one in agents.registry.agents if one.name == name), None)
        is_running = agent is not None and STATE_OF[agent.phase] == "running"
        match how:
            case "claim" | "wait" if agent is not None and is_running:
                tasks.claim(agent, None, LABELS[number % 3], waits=how == "wait")
            case "finish" | "give up" if agent is not None and is_running:
                tasks.finish(agent, None, Status.SUCCEEDED if how == "finish" else Status.FAILED, "")
            case "end turn" if is_running:
                agents.finish(name)
            case "fail" if is_running:
                agents.fall(name)
            case "suspend" if agent is not None and STATE_OF[agent.phase] in {"running", "idle"}:
                agents.supervisor.suspend(name)
                if is_running:
                    agents.fall(name)
            case "resume" if agent is not None and STATE_OF[agent.phase] == "suspended":
                agents.supervisor.resume(name, None)
            case "prompt" if agent is not None and agent.phase is not Phase.ENDED:
                agents.supervisor.send(name, "more")
            case "end" if agent is not None and name == "w3" and not is_running:
                agents.supervisor.end(name)
            case "remove" if agent is not None and agent.phase is Phase.ENDED:
                agents.supervisor.remove(name)
            case "skip":
                tasks.skip(agents.agent("lead"), self.some(number), "ctl")
            case "retry":
                tasks.retry(agents.agent("lead"), self.some(number), "ctl")
            case "add":
                known = self.known()
                self.add(len(known), [self.some(number)], None)

    def some(self, number):
        known = [*self.known()]
        return known[number % len(known)]

    def step(self, how, name, number):
        self.log.append(f"{name}: {how} {number}")
        if how == "die":
            self.agents.store.failing = Countdown(number % 3)
            return
        try:
            self.act(how, name, number)
        except Refused as refused:
            self.log.append(str(refused))
        except StorageFailed:
            self.log.append("not stored: the daemon dies")
            self.agents.store.failing = False
            self.agents.restart()
        if not self.agents.store.failing:
            self.check()

    def there(self):
        return [agent.name for agent in self.agents.registry.agents if agent.phase is not Phase.ENDED]

    def to_the_end(self):
        """Everybody goes on and does what is left: then all tasks are finished, and nobody waits."""
        self.agents.store.failing = False
        self.agents.restart()
        for _ in range(60):
            for name in self.there():
                self.act("resume", name, 0)
                if self.agents.state(name) in {"idle", "failed"}:
                    self.act("prompt", name, 0)
                if self.agents.store.task_of(self.agents.agent(name).id) is not None:
                    self.act("finish", name, 0)
                else:
                    self.act("claim", name, 0)
                self.check()
            if not any(task.state in OPEN for task in self.known().values()):
                break
        else:
            raise AssertionError(("tasks are left", self.known(), self.log))
        assert self.agents.families.waits.for_tasks() == [], self.log

    def walk(self):
        self.check()
        for how, worker, number in self.steps:
            self.step(how, WORKERS[worker], number)
        self.to_the_end()


@settings(max_examples=int(150 * DEEP), deadline=None)
@given(st.data())
def test_tasks_come_to_an_end_once_whenever_the_daemon_dies(data):
    directory = tempfile.mkdtemp(prefix="substrat-model-")
    walk = None
    try:
        walk = Walk(data, directory)
        walk.walk()
    finally:
        if walk is not None:
            walk.agents.store.close()
        shutil.rmtree(directory)
