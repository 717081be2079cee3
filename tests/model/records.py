"""What the model knows of items, turns, agents and waits, and how it refuses."""

from collections import Counter
from dataclasses import dataclass, field


class Refusal(Exception):
    """A request that must be answered with an error of this name, and change nothing."""

    def __init__(self, name):
        super().__init__(name)
        self.name = name


@dataclass(eq=False)
class Item:
    """Something an agent is to be told.

    A continuation repeats the prompt of the last turn: its `tokens` are that turn's. `sender` is the agent that sent a
    message, or that is told how a prompt's turn ended; `awaited` says whether a message's sender awaits an answer. A report
    is `about` a turn: its agent and number.
    """

    number: int
    kind: str  # prompt, continuation or message
    tokens: tuple
    quoted: bool = False
    intent: str | None = None
    sender: "Agent | None" = field(default=None, repr=False)
    awaited: bool = False
    about: tuple | None = field(default=None, repr=False)
    wakes: bool = False
    starts_turn: bool = True
    gathered: bool = False  # it starts a turn once all children of its agent are at rest

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
    completed: str | None = None  # how the agent calls its work
    result: list = field(default_factory=list)  # the token of the result that it gives itself
    before: list = field(default_factory=list)  # the items of the turns whose work it goes on with
    unsettled: bool = False  # its work goes on in a later turn
    goes_on: bool = False  # with the work of the turn before
    held: tuple = (None, [])  # `completed` and `result` of the turn before, if it was given no other task since

    @property
    def tokens(self):
        return [token for item in self.items for token in item.tokens]

    @property
    def tasks(self):
        """The items whose work it is that were given by agents."""
        return [item for item in self.before + self.items if item.kind != "message" and item.sender is not None]


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
    needs: list = field(default_factory=list, repr=False)  # the agents that must succeed before its first turn
    retries: int | None = None  # how often it is sent back when its check fails; None: it has no check
    judged: tuple = (0, "passed", 0)  # the turn whose work was checked last, how that stands, how often it failed in a row
    limits: dict = field(default_factory=dict)  # of its budget: how many turns and tool calls it has
    used: Counter = field(default_factory=Counter)  # of these, by itself and all below it
    ends: list = field(default_factory=list)  # how its turns ended, without those that were tried again

    def sees(self):
        """The facts that `agent.show` tells."""
        outcome = self.turn.outcome if self.turn else None
        return self.state, self.unread, self.turn.number if self.turn else 0, outcome

    @property
    def checking(self):
        return self.judged[1] == "waiting"

    @property
    def fails_alike(self):
        return len(self.ends) > 2 and len(set(self.ends[-3:])) == 1 and self.ends[-1][0] not in {"success", "interrupted"}

    @property
    def unread(self):
        return sum(item.starts_turn for item in self.inbox)


@dataclass(eq=False)
class Wait:
    """An open wait: an agent is to be woken when all or any of others have finished.

    Its `reports` are (agent, number of its turn, tokens); it is `due` when its time is over and its agent isn't woken yet.
    """

    agent: Agent = field(repr=False)
    members: list = field(repr=False)
    mode: str
    timed: bool
    reports: list = field(default_factory=list, repr=False)
    due: bool = False

    def sees(self):
        """What `wait.list` tells."""
        return self.agent.name, sorted(member.name for member in self.members), self.mode
