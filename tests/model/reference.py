"""A model of Substrat's promises about agents, as a small program: agents, states, inboxes, deliveries.

It is written from docs/protocol.md and the words in docs/lifecycle.md and imports nothing of Substrat, so that a mistake
there can't be a mistake here too. It has no time, process or disk: turns begin as soon as they may, and end when told to.

Texts are known by *tokens*: a prompt or message is one word that occurs nowhere else, so that in whatever an agent was
told one can see what that was made of. A message of Substrat's has tokens that say what it tells: `report:kid:2:success`,
and the wake of a wait one for each agent that was waited for, `member:kid:idle:2:success`, and those of the reports on
their earlier turns.
"""

import copy
from itertools import takewhile

from tests.model.admission import PAUSES, Admission
from tests.model.checks import Checks
from tests.model.records import Agent, Item, Refusal, Turn
from tests.model.reports import Reports
from tests.model.waits import Waits

STOPPING = {"suspend": "suspended", "interrupt": None, "end": "ended"}
"""Where an agent goes when its turn was stopped; None: on with what waits for it."""


class World(Admission, Checks, Reports, Waits):
    """All agents of one daemon.

    Args:
        room: how many turns run at once.
        waiting: how much may wait for one agent.
        children: how many children of an agent may be at work.
        depth: how many generations agents may spawn.
        agents: how many agents there may be.
    """

    def __init__(self, *, room=256, waiting=1000, children=16, depth=4, agents=10_000):
        self.room, self.waiting, self.children, self.depth, self.most = room, waiting, children, depth, agents
        self.agents = {}
        self.operator = []  # the tokens of messages to the operator
        self.questions = []  # the agents whose questions to the operator are open
        self.waits = []
        self.numbers = 0
        self.turns = 0
        self.commits = None  # how many more commits succeed; None: all
        self.beginnings = []  # (agent, turn number) in the order in which they began

    def copy(self):
        return copy.deepcopy(self)

    # Requests. Each either raises `Refusal` and changes nothing, or is done.

    def spawn(self, name, token=None, parent=None, needs=(), retries=None):
        needed = [self.check_needed(parent, one) for one in needs]
        if len(self.agents) >= self.most:
            raise Refusal("LimitReached")
        if parent is not None:
            self.check_family(parent)
        if name in self.agents:
            raise Refusal("NameTaken")
        self.commit()
        self.agents[name] = Agent(name, parent, needs=needed, retries=retries)
        if token is not None:
            self.accept(self.agents[name], "prompt", token, sender=self.agents.get(parent))
        self.follow_up()

    def check_needed(self, parent, name):
        agent = self.find(name)
        if agent in self.lineage(self.agents[parent]):
            raise Refusal("Refused")
        if self.root(agent) != self.root(self.agents[parent]):
            raise Refusal("PolicyDenied")
        return agent

    def check_family(self, parent):
        at_work = [agent for agent in self.agents.values() if agent.parent == parent and not self.has_finished(agent)]
        if len(at_work) >= self.children:
            raise Refusal("LimitReached")
        if len(self.lineage(self.agents[parent])) > self.depth:
            raise Refusal("LimitReached")

    def send(self, name, token):
        agent = self.find(name)
        if len(agent.inbox) >= self.waiting:
            raise Refusal("LimitReached")
        self.check_takes(agent)
        self.commit()
        self.accept(agent, "prompt", token)
        self.follow_up()

    def message(self, sender, name, token, intent="request"):
        if name == "operator":
            self.commit()
            self.operator.append(token)
            return
        agent, answered = self.find(name), None
        by = self.find(sender)
        if intent == "reply" and (answered := self.newest_given(by, agent)) is None:
            raise Refusal("NotFound")
        if name == sender:
            raise Refusal("Refused")
        wakes = agent.state == "failed" and intent != "inform"
        if wakes and by not in self.lineage(agent)[1:]:
            raise Refusal("Refused")
        if len(agent.inbox) >= self.waiting or (wakes and agent.fails_alike):
            self.commit()  # the refusal is kept, for a person who asks why two agents that write to each other stop
            self.begin_turns()
            raise Refusal("LimitReached")
        self.check_takes(agent)
        self.commit()
        # Of another family, only an answer that is awaited starts a turn.
        wakes = self.root(by) == self.root(agent) or (answered is not None and answered.awaited)
        if answered is not None:
            answered.awaited = False
        starts_turn, decided = wakes and intent != "inform", agent.state == "failed"
        if starts_turn and decided and self.say_again(agent):
            starts_turn, agent.tries, agent.retry, agent.state = False, 0, False, "queued"
        self.accept(agent, "message", token, intent=intent, sender=by, starts_turn=starts_turn, decided=decided)
        self.follow_up()

    def newest_given(self, agent, sender):
        """The newest item that an agent was given by another."""
        items = [item for item in agent.given if item.sender is sender]
        return max(items, key=lambda item: item.number, default=None)

    def check_takes(self, agent):
        if agent.state == "ended" or agent.stopping == "end":
            raise Refusal("Refused")

    def suspend(self, name):
        agent = self.find(name)
        if agent.state == "ended" or agent.stopping == "end":
            raise Refusal("Refused")
        self.commit()
        if agent.state == "running":
            self.stop(agent, "suspend")
        else:
            agent.state = "suspended"
            if self.decide_waits() | self.wake_parents():
                self.follow_up()

    def interrupt(self, name):
        agent = self.find(name)
        is_checked = agent.checking and agent.state == "queued"
        if not is_checked and (agent.state != "running" or agent.stopping in {"suspend", "end"}):
            raise Refusal("Refused")
        self.commit()
        if is_checked:
            self.stop_check(agent)
            self.go_on(agent)
            self.follow_up()
        else:
            self.stop(agent, "interrupt")

    def end(self, name):
        agent = self.find(name)
        self.commit()
        self.finish(agent)
        self.follow_up()

    def end_family(self, name):
        """An agent and all that descend from it, the deepest first."""
        family = [self.find(name)]
        for one in family:
            family += self.children_of(one)
        if living := [agent for agent in reversed(family) if agent.state != "ended"]:
            self.commit()
            for agent in living:
                self.finish(agent)
            self.follow_up()

    def finish(self, agent):
        if agent.state == "running":
            self.stop(agent, "end")
        else:
            if agent.checking:
                self.stop_check(agent)
            agent.state = "ended"
            self.drop(agent)

    def drop(self, agent):
        """Tell the agents that await an answer of one that works no more that there will be none; it asks nothing more."""
        given = sorted(agent.given, key=lambda item: item.number)
        items = [item for item in [*given, *sorted(agent.inbox, key=lambda item: item.rank)] if item.awaited]
        agent.inbox = []
        self.questions = [asker for asker in self.questions if asker is not agent]
        for item in items:
            item.awaited = False
            self.tell(item.sender, f"dropped:{agent.name}")

    def tell(self, agent, *tokens, **more):
        if self.works(agent):
            self.accept(agent, "message", *tokens, **more)

    def stop(self, agent, how):
        # A turn that is being stopped already keeps the reason it is stopped for; only where the agent goes changes.
        if agent.stopping is None:
            agent.turn.stop = how
        agent.stopping = how

    def resume(self, name, token=None):
        agent = self.find(name)
        if agent.state == "ended" or agent.stopping in {"suspend", "end"}:
            raise Refusal("Refused")
        if agent.state in {"suspended", "failed"}:
            asker = None
            tokens, quoted = ((token,), False) if token is not None else ((), False)
            if self.left_unfinished(agent):
                asker = next((item.sender for item in agent.turn.tasks), None)
                if token is None and not self.goes_on_already(agent):
                    # A continuation that the agent never heard is said again as it was.
                    quoted = agent.turn.knows or any(item.quoted for item in agent.turn.items)
                    tokens = tuple(agent.turn.tokens)
            self.commit()
            if tokens:
                self.put(agent, Item(self.number(), "continuation", tokens, quoted, sender=asker))
            else:
                self.check_again(agent)
            agent.tries, agent.retry = 0, False
            self.go_on(agent)
        elif token is not None:
            if len(agent.inbox) >= self.waiting:
                raise Refusal("LimitReached")
            self.commit()
            self.accept(agent, "prompt", token)
        else:
            self.commit()
        self.follow_up()

    def say_again(self, agent):
        """Give an agent that a message wakes the task of its last turn again, if it never heard that one."""
        if agent.turn is None or agent.turn.knows or not self.left_unfinished(agent) or self.goes_on_already(agent):
            return False
        asker = next((item.sender for item in agent.turn.tasks), None)
        quoted = any(item.quoted for item in agent.turn.items)
        self.put(agent, Item(self.number(), "continuation", tuple(agent.turn.tokens), quoted, sender=asker))
        return True

    def left_unfinished(self, agent):
        """Whether the last turn is gone on with, see `agent.resume`."""
        turn = agent.turn
        if turn is None or turn.outcome == "success" or not turn.items:
            return False
        if turn.stop in PAUSES:
            return True
        # A prompt that failed before the agent's eyes is forgotten as soon as something newer waits.
        return turn.outcome != "interrupted" and not (turn.knows and agent.unread)

    def remove(self, name):
        agent = self.find(name)
        if agent.state == "running":
            raise Refusal("Refused")
        self.commit()
        if agent.checking:
            self.stop_check(agent)
        self.waits = [wait for wait in self.waits if wait.agent is not agent]
        for wait in self.waits:
            # Its last result is kept for those who wait for it.
            known = agent.turn is None or any(report[:2] == (agent, agent.turn.number) for report in wait.reports)
            if agent in wait.members and not known:
                wait.reports.append((agent, agent.turn.number, self.result_of(agent)))
        self.drop(agent)
        for child in self.children_of(agent):
            child.parent = None
        del self.agents[name]
        self.follow_up()

    def check_inbox(self, name):
        """The agent reads its messages itself; returns their tokens."""
        agent = self.find(name)
        read = [item for item in sorted(agent.inbox, key=lambda item: item.rank) if item.kind == "message"]
        if read:
            self.commit()
            agent.inbox = [item for item in agent.inbox if item not in read]
            agent.given += read
            agent.told += [(item.tokens, False) for item in read]
        return [token for item in read for token in item.tokens]

    def take_back(self, name, index):
        """The operator takes back something that waits for an agent."""
        agent = self.find(name)
        item = sorted(agent.inbox, key=lambda item: item.rank)[index]
        self.commit()
        agent.inbox.remove(item)
        if agent.state == "queued" and not agent.unread and not agent.checking:
            agent.state, agent.tries, agent.retry = "idle", 0, False
        if item.awaited:
            self.tell(item.sender, "dropped:the operator")
        self.follow_up()

    # Turns

    def knows(self, name):
        """The agent program has said that it has begun."""
        agent = self.agents[name]
        self.commit()
        if not agent.turn.knows:
            agent.turn.knows = True
            agent.told += [(item.tokens, item.quoted) for item in agent.turn.items]

    def acts(self, name):
        """The agent has called a tool, which can't be called back."""
        self.commit()
        self.agents[name].turn.acted = True
        self.spend(self.agents[name], "tool_calls")
        if self.is_out(self.agents[name], "tool_calls"):
            self.begin_turns()

    def completes(self, name, status, token):
        """The agent gives its result, and calls its work succeeded or failed."""
        self.commit()
        turn = self.agents[name].turn
        turn.completed, turn.result = status, [token]

    def time_is_up(self, name):
        agent = self.agents[name]
        if agent.turn.stop is None:
            self.commit()
            agent.turn.stop = "time limit"

    def over(self, name, how):
        """The turn's process is gone: how is `result`, `exit`, `gone` (no exit status) or `passes` (by itself)."""
        agent = self.agents[name]
        turn = agent.turn
        self.commit()
        if how == "result":
            turn.outcome = "success"
        elif turn.stop == "time limit":
            turn.outcome = "timed_out"
        elif turn.stop is not None:
            turn.outcome = "interrupted"
        else:
            turn.outcome = "lost" if how == "gone" else "error"
        # A request that it has taken from its inbox is another task; those of before are answered.
        if turn.completed is None and (turn.goes_on or not any(item.awaited for item in agent.given)):
            turn.completed, turn.result = turn.held
        stopping, agent.stopping = agent.stopping, None
        if how == "passes" and turn.outcome == "error" and stopping is None and not turn.acted and agent.tries < 5:
            agent.inbox += turn.items
            agent.given = [item for item in agent.given if item not in turn.items]
            turn.items, turn.unsettled = [], True
            agent.state, agent.retry, agent.tries = "queued", True, agent.tries + 1
        elif turn.stop == "budget" and turn.outcome != "success" and stopping is None:
            self.pause(agent)
        else:
            agent.tries = 0
            agent.ends.append((turn.outcome, how if turn.outcome == "error" else None))
            self.turn_over(agent, stopping)
            if stopping is not None and STOPPING[stopping] is not None:
                agent.state = STOPPING[stopping]
            elif stopping is None and turn.outcome != "success":
                agent.state = "failed"
                if self.is_urged(agent) and not agent.fails_alike:
                    self.say_again(agent)
                    agent.state = "queued"
            else:
                self.go_on(agent)
            if not agent.checking:
                self.report(agent, turn)
            if agent.state == "ended":
                self.drop(agent)
        self.follow_up()

    def later(self):
        """So much time passes that each turn that waits to be tried again may begin, and the time of waits is over."""
        for agent in self.agents.values():
            agent.retry = False
        for wait in self.waits:
            wait.due = wait.timed
        self.begin_turns()
        self.end_due()

    # What a change decides for others, as a part of it

    def follow_up(self):
        while self.decide_needs() or self.decide_waits():
            pass
        self.wake_parents()
        self.begin_turns()

    def wake_parents(self):
        """Wake those whose children are all at rest with what was gathered for them; says whether there were any."""
        woken = False
        for agent in self.agents.values():
            gathered = [item for item in agent.inbox if item.gathered and not item.starts_turn]
            if self.works(agent) and all(self.has_finished(one) or self.is_held(one) for one in self.children_of(agent)):
                for item in gathered:
                    item.starts_turn = woken = True
                if gathered and agent.state == "idle":
                    agent.state = "queued"
        return woken

    # How it is done

    def find(self, name):
        if name not in self.agents:
            raise Refusal("NotFound")
        return self.agents[name]

    def is_there(self, agent):
        return self.agents.get(agent.name) is agent

    def works(self, agent):
        return self.is_there(agent) and agent.state != "ended" and agent.stopping != "end"

    def children_of(self, agent):
        return [child for child in self.agents.values() if child.parent == agent.name]

    def lineage(self, agent):
        """An agent and all above it."""
        found = [agent]
        while found[-1].parent is not None:
            found.append(self.agents[found[-1].parent])
        return found

    def number(self):
        self.numbers += 1
        return self.numbers

    def commit(self):
        """The state is written; when that fails nothing has changed."""
        if self.commits is not None:
            self.commits -= 1
            if self.commits < 0:
                raise Refusal("StorageFailed")

    def accept(self, agent, kind, *tokens, decided=False, **more):
        """Put something into an agent's inbox; a prompt is decided by a person or the parent, as an answer is."""
        self.put(agent, Item(self.number(), kind, tokens, awaited=more.get("intent") == "request", **more))
        if not more.get("starts_turn", True):
            return
        decided = decided or kind == "prompt"
        if decided:
            agent.tries, agent.retry = 0, False
        if agent.state == "idle" or (agent.state == "failed" and decided):
            agent.state = "queued"

    def put(self, agent, item):
        agent.inbox.append(item)

    def go_on(self, agent):
        agent.state = "queued" if agent.checking or any(item.starts_turn for item in agent.inbox) else "idle"

    @property
    def running(self):
        return [agent for agent in self.agents.values() if agent.state == "running"]

    def begin(self, agent):
        items = sorted(agent.inbox, key=lambda item: item.rank)
        first = next(item for item in items if item.starts_turn)
        if first.kind == "message":
            batch = list(takewhile(lambda item: item.kind == "message", items))
        else:
            batch = [first, *(item for item in items if not item.starts_turn)]
        agent.given += batch
        agent.inbox = [item for item in agent.inbox if item not in batch]
        last = agent.turn
        before = last.before + last.items if last is not None and last.unsettled else []
        agent.turn = Turn(last.number + 1 if last is not None else 1, batch, before=before)
        is_retry = last is not None and agent.judged[:2] == (last.number, "again")
        if last is not None and (is_retry or all(item.kind == "message" and item.intent != "request" for item in batch)):
            agent.turn.held, agent.turn.goes_on = (last.completed, last.result), last.unsettled
        agent.state = "running"
        self.turns += 1
        agent.begun = self.turns
        self.beginnings.append((agent.name, agent.turn.number))
