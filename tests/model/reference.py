"""A model of Substrat's promises about agents, as a small program: agents, states, inboxes, deliveries.

It is written from docs/protocol.md and the words in docs/lifecycle.md and imports nothing of Substrat, so that a mistake
there can't be a mistake here too. It has no time, process or disk: turns begin as soon as they may, and end when told to.

Texts are known by *tokens*: a prompt or message is one word that occurs nowhere else, so that in whatever an agent was
told one can see what that was made of.
"""

import copy
from dataclasses import dataclass, field

STOPPING = {"suspend": "suspended", "interrupt": None, "end": "ended"}
"""Where an agent goes when its turn was stopped; None: on with what waits for it."""


class Refusal(Exception):
    """A request that must be answered with an error of this name, and change nothing."""

    def __init__(self, name):
        super().__init__(name)
        self.name = name


@dataclass
class Item:
    """Something an agent is to be told.

    A continuation tells again what the last turn was about: its `tokens` are that turn's. `asker` is the agent that is
    told how the prompt's turn ended.
    """

    number: int
    kind: str  # prompt, continuation or message
    tokens: tuple
    quoted: bool = False
    asker: str | None = None

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


@dataclass
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

    def sees(self):
        """What `agent.show` tells."""
        outcome = self.turn.outcome if self.turn else None
        return self.state, len(self.inbox), self.turn.number if self.turn else 0, outcome


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
        self.commits = None  # how many more commits succeed; None: all
        self.beginnings = []  # (agent, turn number) in the order in which they began

    def copy(self):
        return copy.deepcopy(self)

    # What is asked. Each either raises `Refusal` and changes nothing, or is done.

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
            self.accept(self.agents[name], "prompt", token, asker=parent)
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

    def message(self, sender, name, token):
        if name == "operator":
            self.commit()
            self.operator.append(token)
            return
        agent = self.find(name)
        if name == sender:
            raise Refusal("Refused")
        if len(agent.inbox) >= self.waiting:
            raise Refusal("LimitReached")
        self.check_takes(agent)
        self.commit()
        self.accept(agent, "message", token)
        self.begin_turns()

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
                self.put(agent, Item(self.number(), "continuation", tokens, quoted, asker))
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
        # What an agent saw fail is forgotten as soon as something newer waits.
        return turn.outcome != "interrupted" and not (turn.knows and agent.inbox)

    def remove(self, name):
        agent = self.find(name)
        if agent.state == "running":
            raise Refusal("Refused")
        self.commit()
        del self.agents[name]
        for child in self.agents.values():
            if child.parent == name:
                child.parent = None

    def check_inbox(self, name):
        """The agent reads its messages itself; returns their tokens."""
        agent = self.find(name)
        read = [item for item in sorted(agent.inbox, key=lambda item: item.rank) if item.kind == "message"]
        if read:
            self.commit()
            agent.inbox = [item for item in agent.inbox if item not in read]
            agent.told += [(item.tokens, False) for item in read]
        return [token for item in read for token in item.tokens]

    # What becomes of turns

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
        self.begin_turns()

    def report(self, child, turn):
        """Whoever gave a child its prompt is told what became of it; a turn that was only suspended isn't over."""
        if turn.stop == "suspend" and turn.outcome == "interrupted":
            return
        for item in turn.items:
            asker = self.agents.get(item.asker) if item.kind != "message" else None
            if asker is not None and asker.state != "ended" and asker.stopping != "end":
                self.accept(asker, "message", f"report:{child.name}:{turn.number}")

    def later(self):
        """So much time passes that what waits to be tried again is."""
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

    def accept(self, agent, kind, token, asker=None):
        self.put(agent, Item(self.number(), kind, (token,), asker=asker))
        if kind == "prompt":
            agent.tries, agent.retry = 0, False
        if agent.state == "idle" or (agent.state == "failed" and kind == "prompt"):
            agent.state = "queued"

    def put(self, agent, item):
        agent.inbox.append(item)

    def settle(self, agent):
        agent.state = "queued" if agent.inbox else "idle"

    @property
    def running(self):
        return [agent for agent in self.agents.values() if agent.state == "running"]

    def begin_turns(self):
        """Let agents that wait begin, whoever has waited longest first, as many as there is room for."""
        ready = [agent for agent in self.agents.values() if agent.state == "queued" and not agent.retry]
        for agent in sorted(ready, key=lambda agent: min(item.number for item in agent.inbox)):
            if len(self.running) >= self.room:
                return
            try:
                self.commit()
            except Refusal:
                return  # it stays queued, the next change tries again
            self.begin(agent)

    def begin(self, agent):
        items = sorted(agent.inbox, key=lambda item: item.rank)
        batch = items[:1]
        if batch[0].kind == "message":
            for item in items[1:]:
                if item.kind != "message":
                    break
                batch.append(item)
        agent.inbox = [item for item in agent.inbox if item not in batch]
        agent.turn = Turn(agent.turn.number + 1 if agent.turn else 1, batch)
        agent.state = "running"
        self.beginnings.append((agent.name, agent.turn.number))
