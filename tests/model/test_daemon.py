"""Random walks of a real daemon with real sandboxes and the stand-in, against the model; it is killed at any step.

After each step everything comes to rest, and then the daemon, its journal and /proc are compared with the model.
Where a daemon dies with requests in flight it may have carried out any of them: then there are several possible worlds,
and those that contradict the state found afterwards are dropped. That none is left is the failure.
"""

import contextlib
import itertools
import os
import re
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.model.conftest import DEEP
from tests.model.records import Refusal
from tests.model.reference import World
from tests.model.steps import Script, shortened, tokens_in, where
from tests.support.daemon import DaemonFixture
from tests.support.waiting import PATIENCE

QUOTED = "You were stopped in the middle"
MOST = 5

who = st.integers(0, MOST - 1)
scripts = st.sampled_from(["speak", "hold", "message", "spawn", "delegate", "exit"])
anybody = where(lambda walk: walk.world.agents)
holding = where(lambda walk: walk.world.running)


class Walk(RuleBasedStateMachine):
    """A daemon, and the worlds it may be in."""

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="substrat-model-")
        self.daemon = DaemonFixture(Path(self.temporary.name))
        self.work = self.daemon.workspace()
        self.daemon.start(config="[turns]\nstop_grace = 2.0\n")
        self.wire = self.daemon.wire()
        self.worlds = [World()]
        self.scripts = {}  # by token
        self.freed = set()
        self.count = 0
        self.kill = None
        self.events = []  # as a client that reads pages has them
        self.sent = []  # as a subscriber was sent them
        self.cursor = 0
        self.gone, self.log = set(), []
        self.follow()

    def teardown(self):
        try:
            if self.daemon.process.poll() is None:
                self.drain()
        finally:
            self.wire.socket.close()
            self.follower.socket.close()
            self.daemon.__exit__()
            self.temporary.cleanup()

    def drain(self):
        """Let all agents finish: all that was accepted has been told then, and nothing is left of them.

        Held turns go on one after the other, so that no two run at once (`prompt` says why).
        """
        self.kill = None
        for token, script in self.scripts.items():
            if script.kind == "hold":
                self.free(token)
                self.settle()
        # An item that waits for a resumed agent may make it fail again, so once is not enough.
        for _ in range(10):
            for agent in sorted(self.world.agents):
                if self.world.agents[agent].state in {"suspended", "failed"}:
                    self.ask("agent.resume", lambda world, agent=agent: world.resume(agent), agent=agent)
        assert {agent.state for agent in self.world.agents.values()} <= {"idle", "ended"}
        self.read()  # the events between the last look at them and the one at the states
        stored: list[dict] = []
        page: list[Any] = [None]
        while page:
            page = self.wire.call("events.read", since=stored[-1]["cursor"] if stored else 0)["events"]
            stored += page
        assert stored == [event for event in self.events if event["agent"] not in self.gone]
        for agent in sorted(self.world.agents):
            self.ask("agent.end", lambda world, agent=agent: world.end(agent), agent=agent)
            self.ask("agent.rm", lambda world, agent=agent: world.remove(agent), agent=agent)
        assert self.wire.call("agent.list") == []
        assert not list((self.daemon.state / "agents").glob("*"))
        assert not (self.work / ".cursor").exists()
        self.daemon.stop()
        assert not self.daemon.sandboxed()

    # The daemon

    def follow(self):
        self.follower = self.daemon.wire()
        self.follower.call("events.subscribe", since=self.sent[-1]["cursor"] if self.sent else 0)

    def restart(self, *, orderly=False):
        self.log.append("stop" if orderly else "kill -9")
        (self.daemon.stop if orderly else self.daemon.kill)()

    def start(self):
        self.log.append("start")
        self.wire.socket.close()
        self.follower.socket.close()
        self.daemon.start()
        self.wire = self.daemon.wire()
        self.follow()

    # Asking

    def ask(self, method, model, **params):
        """Make a request, and do the same to every possible world."""
        self.ask_all([(method, model, params)])

    def ask_all(self, requests, answered=None):
        """Make requests at once; when the daemon is to be killed, after so many answers."""
        kill, self.kill = self.kill, None
        answered = len(requests) if kill is None else kill["answered"] if answered is None else answered
        numbers = [self.wire.ask(method, **params) for method, _, params in requests]
        answers = self.answers(set(numbers), answered)
        for number, (method, model, params) in zip(numbers, requests, strict=True):
            sure = number in answers
            self.log.append(f"{method} {params} {'' if sure else '(in flight)'}")
            self.take(model, answers.get(number), sure=sure)
        if kill is not None:
            before = len(self.events)
            for world in self.worlds:
                self.play(world)
            # At any moment while the requests are carried out.
            self.wait(lambda: self.read() or len(self.events) >= before + kill["events"] or self.agrees())
            self.restart()
            self.start()
            # A turn that is being stopped looks as if it were running. Asking again tells, and a person would do it too.
            stops = {"agent.suspend", "agent.end"}
            for number, (method, model, params) in zip(numbers, requests, strict=True):
                if number not in answers and method in stops:
                    again = self.wire.ask(method, **params)
                    self.take(model, self.answers({again}, 1)[again], sure=True)
        self.settle()

    def answers(self, numbers, count):
        """The first answers, in whatever order they come: each the error's name, or None."""
        found: dict[int, str | None] = {}
        while len(found) < count:
            message = self.wire.receive()
            assert message is not None, self.story("the connection ended")
            assert message["id"] in numbers
            found[message["id"]] = message["error"]["data"]["type"] if "error" in message else None
        return found

    def take(self, model, error, *, sure):
        worlds = [] if sure else list(self.worlds)
        refused = []
        for world in self.worlds:
            changed = world.copy()
            try:
                model(changed)
            except Refusal as refusal:
                refused.append(refusal.name)
                if error == refusal.name:
                    worlds.append(world)
            else:
                if error is None:
                    worlds.append(changed)
        assert worlds, self.story(f"answered {error}, expected {refused or 'success'}")
        self.worlds = worlds

    # Coming to rest

    @property
    def world(self):
        return self.worlds[0]

    def settle(self):
        """Let every turn that isn't held come to its end, there and in the model, and compare."""
        for world in self.worlds:
            self.play(world)
        self.wait(lambda: self.read() or self.agrees())
        self.worlds = list({repr(vars(world)): world for world in self.worlds if self.world_agrees(world)}.values())
        self.follow_up()
        self.wait(self.processes_agree, "the processes are the turns that run")

    def play(self, world):
        while active := [agent for agent in world.running if not self.is_held(agent)]:
            agent = active[0]
            if agent.stopping is not None and agent.turn.knows:
                world.over(agent.name, "exit")
                continue
            world.knows(agent.name)
            how = "result"
            for item in agent.turn.items:
                script = self.scripts.get(item.tokens[0])
                if script is not None and not item.quoted and agent.stopping is None:
                    how = self.perform(world, agent.name, script) or how
            world.over(agent.name, how)
        for agent in world.running:
            world.knows(agent.name)

    def is_held(self, agent):
        for item in agent.turn.items:
            script = self.scripts.get(item.tokens[0])
            if script is not None and script.kind == "hold" and not item.quoted and item.tokens[0] not in self.freed:
                return agent.stopping is None
        return False

    def perform(self, world, name, script):
        with contextlib.suppress(Refusal):
            if script.kind == "message":
                world.message(name, script.arguments["to"], script.arguments["token"])
            elif script.kind in {"spawn", "delegate"}:
                world.spawn(script.arguments["name"], script.arguments["token"], name)
        with contextlib.suppress(Refusal):
            if script.kind == "delegate":
                world.wait(name, [script.arguments["name"]])
        return "exit" if script.kind == "exit" else None

    def read(self):
        """Read the events since the last time."""
        while page := self.wire.call("events.read", since=self.cursor)["events"]:
            cursors = [event["cursor"] for event in page]
            assert cursors == sorted(set(cursors)), self.story("cursors out of order")
            assert cursors[0] > self.cursor, self.story("a cursor came again")
            self.cursor = cursors[-1]
            self.events += page
        self.list = {agent["name"]: agent for agent in self.wire.call("agent.list")}

    def agrees(self):
        return any(map(self.world_agrees, self.worlds))

    def world_agrees(self, world):
        return self.seen() == self.expected(world)

    def seen(self):
        """Of each agent: its state, how much waits, for how many it waits, its parent, and the tokens that it was told."""
        names = {agent["id"]: name for name, agent in self.list.items()}
        told: dict[str, list[tuple[str, bool]]] = {name: [] for name in self.list}
        for event in self.events:
            if event["kind"] == "user" and event["agent"] in names:
                quoted = event["text"].startswith(QUOTED)
                told[names[event["agent"]]] += [(token, quoted) for token in tokens_in(event["text"], quoted=quoted)]
        return {
            name: (agent["state"], agent["unread"], agent["waits"], names.get(agent["parent"]), sorted(told[name]))
            for name, agent in self.list.items()
        }

    def expected(self, world):
        return {
            agent.name: (
                agent.state, agent.unread, len(world.waits_of(agent)), agent.parent,
                sorted((shortened(token), quoted) for tokens, quoted in agent.told for token in tokens),
            )
            for agent in world.agents.values()
        }  # fmt: skip

    def follow_up(self):
        """Read the subscriber's events: everything, once, in order."""
        last = self.sent[-1]["cursor"] if self.sent else 0
        while last < self.cursor:
            event = self.follower.event()
            assert event["cursor"] > last, self.story("a subscriber was sent an event twice")
            last = event["cursor"]
            self.sent.append(event)
        # Of removed agents a subscriber may have been sent more than a later reader finds.
        there = {agent["id"] for agent in self.list.values()}
        mine, theirs = ([e for e in events if e["agent"] in there] for events in (self.sent, self.events))
        assert mine[: len(theirs)] == theirs, self.story("a subscriber was sent other events than a reader reads")
        for agent in there:
            marks = [e["kind"] for e in theirs if e["agent"] == agent and e["kind"] in {"turn:started", "turn:ended"}]
            turns = [e["turn"] for e in theirs if e["agent"] == agent and e["kind"] == "turn:ended"]
            assert len(turns) == len(set(turns)), self.story("a turn ended twice")
            assert all(pair != ("turn:started", "turn:started") for pair in itertools.pairwise(marks)), self.story(
                "a turn began beside another"
            )

    def processes_agree(self):
        """Each running turn has one sandbox, and there is no other."""
        running = {(agent["id"], agent["turn"]["number"]) for agent in self.list.values() if agent["state"] == "running"}
        return self.sandboxes() == dict.fromkeys(running, 1)

    def sandboxes(self):
        """How many pid namespaces write the output of each turn."""
        found: dict[tuple[str, int], set[str]] = {}
        own = os.readlink("/proc/self/ns/pid")
        for pid in self.daemon.sandboxed():
            with contextlib.suppress(OSError):
                namespace = os.readlink(f"/proc/{pid}/ns/pid")
                for number in os.listdir(f"/proc/{pid}/fd"):
                    match = re.search(r"/agents/([^/]+)/turns/(\d+)/stdout$", os.readlink(f"/proc/{pid}/fd/{number}"))
                    if match:
                        found.setdefault((match[1], int(match[2])), set()).add(namespace)
        return {turn: len(namespaces - {own}) for turn, namespaces in found.items()}

    def wait(self, condition, awaited="agreement"):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(self.story(f"{awaited}: not in {PATIENCE:g} s"))
            time.sleep(0.01)

    def story(self, failure):
        """All that helps to understand a failure."""
        parts = [failure, "the steps were:", *self.log, f"seen:      {self.seen()}", f"processes: {self.sandboxes()}"]
        parts += [f"possible:  {self.expected(world)}" for world in self.worlds]
        parts += [
            "events:",
            *(f"{e['cursor']} {e['agent'][:8]} {e['kind']} {str(e['text'])[:150]!r}" for e in self.events[-40:]),
        ]
        return "\n".join([*parts, "the daemon's log:", self.daemon.log[-3000:]])

    # Choosing

    def pick(self, index):
        return sorted(self.world.agents)[index % len(self.world.agents)]

    def pick_running(self, index):
        return sorted(agent.name for agent in self.world.running)[index % len(self.world.running)]

    def token(self, name):
        self.count += 1
        return f"tok{self.count}@{name}"

    def prompt(self, name, kind, index=0):
        """A prompt for an agent, by its token and its text.

        An agent must be told the same whichever of two turns is faster. A child's report comes with its parent's next
        turn, and so does another family's message. Therefore a prompt that waits for its turn starts no other agent's
        turn, and agents write to their own families.
        """
        token = self.token(name)
        arguments = {}
        agent = self.world.agents.get(name)
        is_root = not name.startswith("c")
        if agent is not None and agent.state != "idle" and kind not in ({"hold", "exit"} if is_root else {"hold"}):
            kind = "speak"
        if kind == "message":
            family = sorted(other for other in self.world.agents if agent and self.is_family(agent, other))
            to = family[index % len(family)] if family else "nobody"
            arguments = {"to": to, "token": self.token(to)}
        elif kind in {"spawn", "delegate"}:
            child = f"c{self.count}"
            # Children have none of their own: a report of a child's child would be told twice.
            if not is_root or len(self.world.agents) >= MOST:
                kind = "speak"
            else:
                arguments = {"name": child, "token": self.token(child)}
                if kind == "delegate":
                    # So that it goes on when its parent's wait is registered.
                    arguments["script"] = self.scripts[arguments["token"]] = Script("hold", self.count)
        self.scripts[token] = Script(kind, self.count, **arguments)
        return token, self.scripts[token].text(token)

    def is_family(self, agent, other):
        return self.world.root(agent) == self.world.root(self.world.agents[other])

    # Steps

    @initialize(kinds=st.lists(scripts, min_size=1, max_size=3))
    def begin(self, kinds):
        """Most steps are about somebody, and Hypothesis leaves some rules out of each walk, `spawn` too."""
        for index, kind in enumerate(kinds):
            self.spawn(kind=kind, index=index)

    @rule(events=st.integers(0, 9), answered=st.booleans())
    @where(lambda walk: walk.kill is None)
    def the_daemon_is_killed_during_the_next_step(self, events, answered):
        """After so many events, or while the request is in flight."""
        self.kill = {"events": events if answered else 0, "answered": int(answered)}

    @rule(kind=scripts, index=who)
    @where(lambda walk: len(walk.world.agents) < MOST)
    def spawn(self, kind, index):
        name = f"a{self.count}"
        token, text = self.prompt(name, kind, index)
        params = {"workspace": str(self.work), "name": name, "prompt": text}
        self.ask("agent.spawn", lambda world: world.spawn(name, token), **params)

    @rule(index=who, kind=scripts, to=who)
    @anybody
    def send(self, index, kind, to):
        self.ask(*self.sending(self.pick(index), kind, to)[:2], **self.last)

    def sending(self, name, kind, to=0):
        token, text = self.prompt(name, kind, to)
        self.last = {"agent": name, "prompt": text}
        return "agent.send", lambda world: world.send(name, token), self.last

    @rule(index=who)
    @anybody
    def suspend(self, index):
        name = self.pick(index)
        self.ask("agent.suspend", lambda world: world.suspend(name), agent=name)

    @rule(index=who, kind=st.sampled_from([None, "speak", "hold"]))
    @anybody
    def resume(self, index, kind):
        name = self.pick(index)
        token, text = self.prompt(name, kind) if kind is not None else (None, None)
        self.ask("agent.resume", lambda world: world.resume(name, token), agent=name, prompt=text)

    @rule(index=who)
    @anybody
    def interrupt(self, index):
        name = self.pick(index)
        if self.kill is not None:
            # Asked twice it may hit two turns, so the test couldn't find out whether the first one was taken.
            self.kill["answered"] = 1
        self.ask("agent.interrupt", lambda world: world.interrupt(name), agent=name)

    @rule(index=who, family=st.booleans())
    @anybody
    def end(self, index, family):
        name = self.pick(index)
        self.ask("agent.end", lambda w: w.end_family(name) if family else w.end(name), agent=name, family=family)

    @rule(index=who)
    @anybody
    def remove(self, index):
        name = self.pick(index)
        self.gone_if_removed(name, self.list[name]["id"])

    def gone_if_removed(self, name, agent_id):
        self.ask("agent.rm", lambda world: world.remove(name), agent=name)
        if name not in self.list:
            self.gone.add(agent_id)

    @rule(kinds=st.lists(st.sampled_from(["send", "hold", "suspend", "resume", "end"]), min_size=2, max_size=4),
          answered=st.integers(0, 3))  # fmt: skip
    @where(lambda walk: len(walk.world.agents) > 1)
    def many_requests_and_a_kill(self, kinds, answered):
        """Each to another agent, because the effect of two on one agent depends on how far its turn is."""
        requests = []
        for name, kind in zip(sorted(self.world.agents), kinds, strict=False):
            if kind in {"send", "hold"}:
                requests.append(self.sending(name, "speak" if kind == "send" else "hold"))
            else:
                model = lambda world, name=name, kind=kind: getattr(world, kind)(name)  # noqa: E731
                requests.append((f"agent.{kind}", model, {"agent": name}))
        self.kill = {"events": 0, "answered": 0}
        self.ask_all(requests, min(answered, len(requests)))

    @rule(index=who, meanwhile=st.booleans())
    @holding
    def a_held_turn_goes_on(self, index, meanwhile):
        """With or without a daemon."""
        name = self.pick_running(index)
        self.without_a_daemon(meanwhile, lambda: self.free(self.world.agents[name].turn.items[0].tokens[0]))

    def free(self, token):
        self.log.append(f"{token} goes on")
        self.freed.add(token)
        (self.work / f"go-{self.scripts[token].number}").touch()

    @rule(index=who, meanwhile=st.booleans(), outer=st.booleans())
    @holding
    def a_sandbox_is_killed(self, index, meanwhile, outer):
        """With or without a daemon: bubblewrap's process outside, or those inside."""
        name = self.pick_running(index)
        agent = self.list[name]

        def kill():
            self.log.append(f"{name}'s sandbox is killed")
            own = os.readlink("/proc/self/ns/pid")
            turn = f"/agents/{agent['id']}/turns/{agent['turn']['number']}/"
            for pid in self.daemon.sandboxed():
                with contextlib.suppress(OSError):
                    outside = os.readlink(f"/proc/{pid}/ns/pid") == own
                    files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
                    if outside == outer and any(turn in path for path in files):
                        os.kill(pid, signal.SIGKILL)
            for world in self.worlds:
                world.over(name, "gone")

        self.without_a_daemon(meanwhile, kill)

    def without_a_daemon(self, really, action):
        if really:
            self.restart()
        action()
        if really:
            self.start()
        self.settle()

    @rule(orderly=st.booleans())
    @where(lambda walk: walk.log and walk.log[-1] != "start")
    def the_daemon_is_restarted(self, orderly):
        self.restart(orderly=orderly)
        self.start()
        self.settle()


def walks(count):
    return settings(
        max_examples=max(1, int(count * DEEP)), stateful_step_count=20,
        # Shrinking would take minutes, and the story is enough to see the cause.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.mark.timeout(300)
class TestWalk(Walk.TestCase):  # type: ignore[misc,valid-type]  # hypothesis makes it at run time
    """A few short walks."""

    settings = walks(2)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestManyWalks(Walk.TestCase):  # type: ignore[misc,valid-type]  # hypothesis makes it at run time
    """More of them."""

    settings = walks(12)
