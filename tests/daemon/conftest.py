"""Fixtures for the tests of the daemon's layers: a clock that only goes when asked, a store, agents."""

import contextlib
import itertools
import json
import os
import sqlite3

import pytest

from sandbox import host
from sandbox.spec import Network
from substrat import config
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.agents.records import Agent, AgentSettings
from substrat.core.agents.rights import Policy
from substrat.core.agents.verdict import TurnObservation, judge
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Splitter
from substrat.core.programs.program import TurnResult
from substrat.core.programs.table import CURSOR
from substrat.daemon.agents.accounting import Accounting
from substrat.daemon.agents.disk_gate import DiskGate
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.logins import Logins
from substrat.daemon.agents.registry import Registry
from substrat.daemon.agents.requests import AgentRequests
from substrat.daemon.agents.spawning import SpawnRequest
from substrat.daemon.agents.turn_prompts import prompt_of
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.families.families import Families
from substrat.daemon.state.events import Journal
from substrat.daemon.state.quarantine import set_aside
from substrat.daemon.state.store import Store
from substrat.daemon.workspaces.user import User
from tests.daemon.workspaces.repositories import git
from tests.support import database
from tests.support.files_here import FilesHere


@pytest.fixture(scope="module")
def bubblewrap():
    """The bubblewrap of this machine; where no sandbox can be made, the test is skipped."""
    found = host.find_bubblewrap()
    if found is None or host.sandbox_obstacle(found) is not None:
        pytest.skip("no sandbox can be made here")
    return found


@pytest.fixture
def files():
    return FilesHere()


@pytest.fixture
def user(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return User("me", os.geteuid(), os.getegid(), str(home))


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def repository(work):
    git(work, "init", "-q", "-b", "main")
    git(work, "commit", "-q", "--allow-empty", "-m", "first")
    (work / ".git" / "hooks").mkdir(exist_ok=True)
    return work


class Clock:
    """Seconds since the epoch; each look is a moment later, so that nothing happens at the same time."""

    def __init__(self):
        self.time = 1_700_000_000.0
        self.gone = 0.0
        """Seconds that the steady clock doesn't know of: the machine slept, or the clock was set."""

    def __call__(self):
        self.time += 0.125
        return self.time

    def steady(self):
        return self() - 1_699_900_000.0 - self.gone

    def leap(self, seconds):
        """Let the machine sleep, or set the clock."""
        self.time += seconds
        self.gone += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    database.lay_down(tmp_path / "substrat.db")
    opened = Store(str(tmp_path / "substrat.db"))
    yield opened
    opened.close()


@pytest.fixture
def new_agent():
    """Make agents' records."""
    numbers = itertools.count(1)

    def make(name=None, **changes):
        number = next(numbers)
        given = {
            "id": f"00000000-0000-4000-8000-{number:012}", "name": name or f"agent-{number}", "phase": Phase.IDLE,
            "workspace": "/w", "model": "auto", "policy": Policy(Network.HOST), "created_at": 1000.0 + number,
        }  # fmt: skip
        return Agent(**{**given, **changes})

    return make


class FakeRunner:
    """Runs nothing: it notes the calls."""

    def __init__(self):
        self.started = []
        self.stopped = []
        self.admissions = []
        self.forgotten = []
        self.left_out = []
        self.frozen = []
        self.thawed = []
        self.clones_wanted = False

    def start(self, agent, turn):
        assert turn.outcome is None
        self.started.append((agent.name, turn.id))

    def stop(self, turn_id, reason):
        self.stopped.append((turn_id, reason))

    def freeze(self, turn_id):
        self.frozen.append(turn_id)

    def thaw(self, turn_id):
        self.thawed.append(turn_id)

    def admit_at(self, when):
        self.admissions.append(when)

    def leave_out(self, agent, option):
        self.left_out.append(option)

    def forget(self, agent):
        self.forgotten.append(agent.id)

    def prepare_clones(self):
        self.clones_wanted = True

    @property
    def done(self):
        """Everything that was asked, for comparing."""
        return [list(part) for part in (self.started, self.stopped, self.admissions, self.forgotten)]


class FragileStore(Store):
    """A store whose commits fail when a test wants that."""

    failing: object = False
    """An object that is true if the next commit is to fail."""

    @contextlib.contextmanager
    def transaction(self, *, urgent=False):
        outermost, before = not self._in_transaction, self.connection.total_changes
        with super().transaction(urgent=urgent):
            yield
            # A transaction that has changed nothing needs no room.
            if outermost and self.failing and self.connection.total_changes != before:
                raise sqlite3.OperationalError("disk I/O error")


class AgentsFixture:
    """A daemon's agents without sockets and processes."""

    def __init__(self, path, clock, free=lambda _path: 1 << 60, **settings):
        self.path = path
        self.clock = clock
        database.lay_down(path)
        self.store = FragileStore(path)
        self.config = config.parse(settings)
        self.free = free
        self.runner = FakeRunner()
        self.logins = Logins("/nowhere", {})
        self.open()

    def open(self, *, attached=True):
        """Begin anew from the stored rows, as a restarted daemon does."""
        set_aside(self.store, self.clock())
        self.journal = Journal(self.store, lambda _agent, _turn: None, self.clock)
        wake_at = self.runner.admit_at
        self.registry = Registry(
            self.store,
            self.journal,
            self.config,
            self.clock,
            self.clock.steady,
            Failpoints({}),
            wake_at,
            self.runner,
        )
        disk_gate = DiskGate("/state", self.clock, wake_at, self.free, lambda: None)
        self.families = Families(self.registry, FilesHere(), disk_gate, self.logins.of)
        self.admission = self.families.admission
        self.book = Accounting(self.registry, self.runner.leave_out)
        self.supervisor = AgentRequests(self.registry)
        if attached:
            self.families.take_up()
            end_due(self.registry, self.families.waits.end_due)

    def restart(self, *, attached=True):
        """Begin anew with another runner."""
        self.runner = FakeRunner()
        self.open(attached=attached)

    def agent(self, name):
        return self.registry.find(name)

    def state(self, name):
        return STATE_OF[self.agent(name).phase]

    def turn(self, name):
        return self.agent(name).turn

    def spawn(self, name=None, prompt=None, parent=None, **wish):
        above = self.agent(parent) if parent else None
        own = {key: wish.pop(key) for key in tuple(wish) if key in AgentSettings.__slots__}
        settings = above.settings.of_child(**own) if above else AgentSettings(**own)
        wished = SpawnRequest(wish.pop("workspace", "/w"), name, prompt=prompt, settings=settings, **wish)
        return self.supervisor.spawn(wished, above)

    def prompt(self, name):
        """The prompt of the agent's turn."""
        return prompt_of(self.registry, self.turn(name))

    def write(self, name, *bodies):
        """Let an agent's program write lines."""
        turn = self.turn(name)
        lines = list(Splitter(turn.offset).feed(b"".join(json.dumps(body).encode() + b"\n" for body in bodies)))
        offset = lines[-1].offset + lines[-1].length + 1
        self.book.turn_lines(turn.id, [(line, stream.decode(line)) for line in lines], offset, {})

    def begin(self, name, session=None):
        """Let an agent's program say its session."""
        session = session or f"00000000-0000-4000-9000-{len(self.runner.started):012}"
        self.write(name, {"type": "system", "subtype": "init", "session_id": session, "model": "Auto"})
        return session

    def finish(self, name, text="done", usage=None, **seen_else):
        """Let an agent's turn succeed."""
        result = TurnResult(text, is_error=False, usage=usage)
        seen = TurnObservation(result, 0, None, "", anything=True, **seen_else)
        self.book.turn_over(self.turn(name).id, judge(seen, CURSOR), seen)

    def fall(self, name, *, exit_code=1, stop=None, errors="", without=()):
        """Let an agent's turn end without a result; it was started without some options."""
        stop = stop if stop is not None else self.turn(name).stop
        seen = TurnObservation(None, exit_code, stop, errors, anything=True, without=frozenset(without))
        self.book.turn_over(self.turn(name).id, judge(seen, CURSOR), seen)

    def told(self, name, kind=None):
        """The events of an agent, as (kind, text)."""
        found = [json.loads(event.json) for event in self.journal.page(0, self.agent(name).id, 10_000)]
        return [(event["kind"], event["text"]) for event in found if kind in {None, event["kind"]}]


@pytest.fixture
def new_agents(tmp_path, clock):
    """Make the rooms of agents with settings of the test's own."""
    made: list[AgentsFixture] = []

    def make(*free, **settings):
        made.append(AgentsFixture(str(tmp_path / f"agents-{len(made)}.db"), clock, *free, **settings))
        return made[-1]

    yield make
    for agents in made:
        agents.store.close()


@pytest.fixture
def agents(new_agents):
    return new_agents()
