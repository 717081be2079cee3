"""A model of Substrat's promises about agents, as a small program: agents, states, inboxes, deliveries.

It is written from docs/protocol.md and the words in docs/lifecycle.md and imports nothing of Substrat, so that a mistake
there can't be a mistake here too. It has no time, process or disk: turns begin as soon as they may, and end when told to.

Texts are known by *tokens*: a prompt or message is one word that occurs nowhere else, so that in whatever an agent was
told one can see what that was made of.
"""

import copy
from dataclasses import dataclass, field
from itertools import takewhile

STOPPING = {"suspend": "suspended", "interrupt": None, "end": "ended"}
"""Where an agent goes when its turn was stopped; None: on with what waits for it."""


class Refusal(Exception):
    """A request that must be answered with an error of this name, and change nothing."""

    def __init__(self, name):
        super().__init__(name)
        self.name = name


@dataclass(eq=False)
class Item:
    """Something an agent is to be told.

    A continuation repeats the prompt of the last turn: its `tokens` are that turn's. `asker` is the agent that is
    told how the prompt's turn ended; `sender` is the one that sent a message, and `awaited` whether it awaits an answer.
    """

    number: int
    kind: str  # prompt, continuation or message
    tokens: tuple
    quoted: bool = False
    asker: str | None = None
    intent: str | None = None
    sender: "Agent | None" = field(default=None, repr=False)
    awaited: bool = False

    @property
    def starts_turn(self):
        return self.intent != "inform"

    @property
    def rank(self):
        """Continuations come first, the rest in the order of its acceptance."""
        return self.kind != "continuation", self.number


@dataclass
class Turn:
    number: int
    items: list
    stop: str | None = None
    knows: bool = False  # whether the agent program has begun, and so was told its prompt
    acted: bool = False
    outcome: str | None = None

    @property
    def tokens(self):
        return [token for item in self.items for token in item.tokens]


@dataclass(eq=False)
class Agent:
    name: str
    parent: str | None = None
    state: str = "idle"
    stopping: str | None = None
    inbox: list = field(default_factory=list)
    turn: Turn | None = None
    told: list = field(default_factory=list)  # the tokens of each turn that knew its prompt, and whether they were quoted
    tries: int = 0
    retry: bool = False  # waits for the time to try again
    given: list = field(default_factory=list)  # the items it was given
    begun: int = 0  # when its newest turn began, by the count of all turns

    def sees(self):
        """The facts that `agent.show` tells."""
        outcome = self.turn.outcome if self.turn else None
        return self.state, self.unread, self.turn.number if self.turn else 0, outcome

    @property
    def unread(self):
        return sum(item.starts_turn for item in self.inbox)


class World:
    """All agents of one daemon.

    Args:
        room: how many turns run at once.
        waiting: how much may wait for one agent.
        children: how many living children an agent may have.
        depth: how many generations agents may spawn.
        agents: how many agents there may be.
    """

    def __init__(self, *, room=256, waiting=1000, children=16, depth=4, agents=10_000):
        self.room, self.waiting, self.children, self.depth, self.most = room, waiting, children, depth, agents
        self.agents = {}
        self.operator = []  # the tokens of messages to the operator
        self.numbers = 0
        self.turns = 0
        self.commits = None  # how many more commits succeed; None: all
        self.beginnings = []  # (agent, turn number) in the order in which they began

    def copy(self):
        return copy.deepcopy(self)

    # Requests. Each either raises `Refusal` and changes nothing, or is done.

    def spawn(self, name, token=None, parent=None):
        if len(self.agents) >= self.most:
            raise Refusal("LimitReached")
        if parent is not None:
            self.check_family(parent)
        if name in self.agents:
            raise Refusal("NameTaken")
        self.commit()
        self.agents[name] = Agent(name, parent)
        if token is not None:
            self.accept(self.agents[name], "prompt", token, asker=parent, sender=self.agents.get(parent))
        self.begin_turns()

    def check_family(self, parent):
        living = [agent for agent in self.agents.values() if agent.parent == parent and agent.state != "ended"]
        if len(living) >= self.children:
            raise Refusal("LimitReached")
        generation, above = 1, self.agents[parent].parent
        while above is not None:
            generation, above = generation + 1, self.agents[above].parent
        if generation > self.depth:
            raise Refusal("LimitReached")

    def send(self, name, token):
        agent = self.find(name)
        if len(agent.inbox) >= self.waiting:
            raise Refusal("LimitReached")
        self.check_takes(agent)
        self.commit()
        self.accept(agent, "prompt", token)
        self.begin_turns()

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
        if len(agent.inbox) >= self.waiting:
            self.commit()  # the refusal is kept, for a person who asks why two agents that write to each other stop
            self.begin_turns()
            raise Refusal("LimitReached")
        self.check_takes(agent)
        self.commit()
        if answered is not None:
            answered.awaited = False
        self.accept(agent, "message", token, intent=intent, sender=by)
        self.begin_turns()

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

    def interrupt(self, name):
        agent = self.find(name)
        if agent.state != "running" or agent.stopping in {"suspend", "end"}:
            raise Refusal("Refused")
        self.commit()
        self.stop(agent, "interrupt")

    def end(self, name):
        agent = self.find(name)
        self.commit()
        if agent.state == "running":
            self.stop(agent, "end")
        else:
            agent.state = "ended"
            self.drop(agent)
        self.begin_turns()

    def drop(self, agent):
        """Tell the agents that await an answer of one that works no more that there will be none."""
        given = sorted(agent.given, key=lambda item: item.number)
        items = [item for item in [*given, *sorted(agent.inbox, key=lambda item: item.rank)] if item.awaited]
        agent.inbox = []
        for item in items:
            item.awaited = False
            self.tell(item.sender, f"dropped:{agent.name}")

    def tell(self, asker, token):
        if self.agents.get(asker.name) is asker and asker.state != "ended" and asker.stopping != "end":
            self.accept(asker, "message", token)

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
                asker = next((item.asker for item in agent.turn.items if item.kind != "message"), None)
                if token is None:
                    # A continuation that the agent never heard is said again as it was.
                    quoted = agent.turn.knows or any(item.quoted for item in agent.turn.items)
                    tokens = tuple(agent.turn.tokens)
            self.commit()
            if tokens:
                self.put(agent, Item(self.number(), "continuation", tokens, quoted, asker, sender=self.agents.get(asker)))
            agent.tries, agent.retry = 0, False
            self.settle(agent)
        elif token is not None:
            if len(agent.inbox) >= self.waiting:
                raise Refusal("LimitReached")
            self.commit()
            self.accept(agent, "prompt", token)
        else:
            self.commit()
        self.begin_turns()

    def left_unfinished(self, agent):
        """Whether the last turn is gone on with, see `agent.resume`."""
        turn = agent.turn
        if turn is None or turn.outcome == "success" or not turn.items:
            return False
        if turn.stop == "suspend":
            return True
        # A prompt that failed before the agent's eyes is forgotten as soon as something newer waits.
        return turn.outcome != "interrupted" and not (turn.knows and agent.inbox)

    def remove(self, name):
        agent = self.find(name)
        if agent.state == "running":
            raise Refusal("Refused")
        self.commit()
        self.drop(agent)
        del self.agents[name]
        for child in self.agents.values():
            if child.parent == name:
                child.parent = None
        self.begin_turns()

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
        stopping, agent.stopping = agent.stopping, None
        if how == "passes" and turn.outcome == "error" and stopping is None and not turn.acted and agent.tries < 5:
            agent.inbox += turn.items
            agent.given = [item for item in agent.given if item not in turn.items]
            turn.items = []
            agent.state, agent.retry, agent.tries = "queued", True, agent.tries + 1
        else:
            agent.tries = 0
            if stopping is not None and STOPPING[stopping] is not None:
                agent.state = STOPPING[stopping]
            elif stopping is None and turn.outcome != "success":
                agent.state = "failed"
            else:
                self.settle(agent)
            self.report(agent, turn)
            if agent.state == "ended":
                self.drop(agent)
        self.begin_turns()

    def report(self, child, turn):
        """Tell the agent that gave a child its prompt, and those that await an answer, how the turn ended.

        A turn that was only suspended isn't over.
        """
        if turn.stop == "suspend" and turn.outcome == "interrupted":
            return
        for item in turn.items:
            asker = self.agents.get(item.asker) if item.kind != "message" else None
            if asker is not None:
                self.tell(asker, f"report:{child.name}:{turn.number}")
        for item in sorted(child.given, key=lambda item: item.number):
            if item.awaited:
                item.awaited = False
                self.tell(item.sender, f"answer:{child.name}")

    def later(self):
        """So much time passes that each turn that waits to be tried again may begin."""
        for agent in self.agents.values():
            agent.retry = False
        self.begin_turns()

    # How it is done

    def find(self, name):
        if name not in self.agents:
            raise Refusal("NotFound")
        return self.agents[name]

    def number(self):
        self.numbers += 1
        return self.numbers

    def commit(self):
        """The state is written; when that fails nothing has changed."""
        if self.commits is not None:
            self.commits -= 1
            if self.commits < 0:
                raise Refusal("StorageFailed")

    def accept(self, agent, kind, token, asker=None, **more):
        self.put(agent, Item(self.number(), kind, (token,), asker=asker, awaited=more.get("intent") == "request", **more))
        if more.get("intent") == "inform":
            return
        if kind == "prompt":
            agent.tries, agent.retry = 0, False
        if agent.state == "idle" or (agent.state == "failed" and kind == "prompt"):
            agent.state = "queued"

    def put(self, agent, item):
        agent.inbox.append(item)

    def settle(self, agent):
        agent.state = "queued" if any(item.starts_turn for item in agent.inbox) else "idle"

    @property
    def running(self):
        return [agent for agent in self.agents.values() if agent.state == "running"]

    def begin_turns(self):
        """Let agents that wait begin, as many as there is room for.

        First one of the family whose last turn began longest ago; in it the one that has waited longest.
        """
        while len(self.running) < self.room:
            ready = [agent for agent in self.agents.values() if agent.state == "queued" and not agent.retry]
            if not ready:
                return
            try:
                self.commit()
            except Refusal:
                return  # it stays queued, the next change tries again
            self.begin(min(ready, key=lambda agent: (self.last_of_family(agent), self.waits_since(agent))))

    def root(self, agent):
        while agent.parent is not None:
            agent = self.agents[agent.parent]
        return agent.name

    def last_of_family(self, agent):
        return max(other.begun for other in self.agents.values() if self.root(other) == self.root(agent))

    def waits_since(self, agent):
        return min(item.number for item in agent.inbox if item.starts_turn)

    def begin(self, agent):
        items = sorted(agent.inbox, key=lambda item: item.rank)
        first = next(item for item in items if item.starts_turn)
        if first.kind == "message":
            batch = list(takewhile(lambda item: item.kind == "message", items))
        else:
            batch = [first, *(item for item in items if not item.starts_turn)]
        agent.given += batch
        agent.inbox = [item for item in agent.inbox if item not in batch]
        agent.turn = Turn(agent.turn.number + 1 if agent.turn else 1, batch)
        agent.state = "running"
        self.turns += 1
        agent.begun = self.turns
        self.beginnings.append((agent.name, agent.turn.number))
