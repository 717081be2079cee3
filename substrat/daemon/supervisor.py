"""The agents in memory and everything that changes them: decide, commit, act; the shells around it only carry.

Each public method that isn't async runs without an await: it reads memory, asks `core`, commits one transaction and then
replaces the records in memory. What has to be done afterwards (start a task, stop a turn) is done after the commit.
"""

from __future__ import annotations

import re
import secrets
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import structlog
import trio

from substrat.core import prompts, stream
from substrat.core.cursor import is_session_id
from substrat.core.lifecycle import RUNNING_PHASES, STATE_OF, Command, Event, Phase, step
from substrat.core.records import (
    OPERATOR,
    RESERVED_NAMES,
    SUSPENDED,
    SYSTEM,
    Agent,
    Item,
    ItemKind,
    Outcome,
    Policy,
    Session,
    Turn,
    left_unfinished,
)
from substrat.daemon.journal import Told
from substrat.daemon.store import READ_IN_TOOL
from substrat.errors import (
    InvalidParams,
    LimitReached,
    NameTaken,
    NotFound,
    PolicyDenied,
    Refused,
    StorageFailed,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator

    from sandbox.spec import Network
    from substrat.core.ndjson import Line
    from substrat.core.records import Process
    from substrat.core.verdict import Seen, Verdict
    from substrat.daemon.config import Config
    from substrat.daemon.journal import Journal
    from substrat.daemon.store import Store

log = structlog.get_logger("substrat.supervisor")

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_STATUS = 500
_MAX_RESULT = 1024 * 1024
_REASONS = {Phase.SUSPENDING: SUSPENDED, Phase.INTERRUPTING: "interrupted", Phase.ENDING: "ended"}


class Wish(NamedTuple):
    """What a new agent is to be; None means the configured default or a made-up name."""

    workspace: str
    name: str | None = None
    model: str | None = None
    network: Network | None = None
    prompt: str | None = None


class Runner(Protocol):
    """What the supervisor needs of whoever runs turns; `runner.py` does it with processes."""

    def start(self, agent: Agent, turn: Turn) -> None:
        """Start a task for a turn; it may already have a process."""

    def stop(self, turn_id: str, reason: str) -> None:
        """Ask for a running turn to be stopped."""

    def session_stored(self, agent: Agent) -> bool:
        """Say whether an agent's session is on disk."""

    def check_resumable(self, agent: Agent) -> None:
        """Raise if the agent's session can't be continued."""

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files."""


class _Change:
    """What a change under way will have changed once it is committed."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.removed: set[str] = set()
        self.after: list[Callable[[], None]] = []
        self.admit = False


class Supervisor:
    """All agents of one daemon.

    Args:
        store: the state.
        journal: the events.
        config: the configuration in force; replaced by `reconfigure`.
        now: the clock, in seconds since the epoch.
    """

    def __init__(self, store: Store, journal: Journal, config: Config, now: Callable[[], float]) -> None:
        self.store = store
        self.journal = journal
        self.config = config
        self._now = now
        self._agents: dict[str, Agent] = {agent.id: agent for agent in store.agents()}
        self._ids: dict[str, str] = {agent.name: agent.id for agent in self._agents.values()}
        self._change: _Change | None = None
        self._changed: dict[str, trio.Event] = {}
        self._runner: Runner | None = None
        self._turns = {
            agent.turn.id: agent.id
            for agent in self._agents.values()
            if agent.turn is not None and agent.turn.outcome is None
        }

    # Reading

    @property
    def agents(self) -> Collection[Agent]:
        """Every agent, oldest first."""
        return self._agents.values()

    @property
    def running(self) -> int:
        """How many turns are running."""
        return sum(agent.phase in RUNNING_PHASES for agent in self._agents.values())

    def find(self, name: str) -> Agent:
        """Return the agent with a name or an id.

        Raises:
            NotFound: there is none.
        """
        agent = self._current(self._ids.get(name, name))
        if agent is None:
            raise NotFound(f"there is no agent {name!r}: `substratctl ls` shows those there are")
        return agent

    def name_of(self, agent_id: str | None) -> str | None:
        """Return an agent's name, None when it is gone."""
        agent = self._agents.get(agent_id or "")
        return agent.name if agent else None

    def _current(self, agent_id: str) -> Agent | None:
        if self._change is not None:
            if agent_id in self._change.removed:
                return None
            if agent_id in self._change.agents:
                return self._change.agents[agent_id]
        return self._agents.get(agent_id)

    # Changing

    @contextmanager
    def change(self) -> Iterator[None]:
        """One change: committed whole, then in memory, then acted upon; inside another one it is part of that one.

        Raises:
            StorageFailed: it couldn't be committed; nothing has changed.
        """
        if self._change is not None:
            yield
            return
        change = self._change = _Change()
        try:
            with self.journal.transaction():
                yield
        finally:
            self._change = None
        for agent in change.agents.values():
            self._agents[agent.id] = agent
            self._ids[agent.name] = agent.id
        for agent_id in change.removed:
            agent = self._agents.pop(agent_id)
            del self._ids[agent.name]
        for agent_id in (*change.agents, *change.removed):
            self._changed.pop(agent_id, trio.Event()).set()
        for action in change.after:
            action()
        if change.admit:
            self.admit()

    def _put(self, agent: Agent) -> Agent:
        assert self._change is not None
        self.store.save_agent(agent)
        self._change.agents[agent.id] = agent
        return agent

    def _step(self, agent: Agent, event: Event) -> Agent:
        """Take a lifecycle step and note what it commands."""
        assert self._change is not None
        phase, commands = step(agent.phase, event, waiting=agent.waiting > 0, name=agent.name)
        agent = self._put(replace(agent, phase=phase))
        turn = agent.turn
        for command in commands:
            match command:
                case Command.ADMIT:
                    self._change.admit = True
                case Command.STOP_TURN if turn is not None:
                    turn = replace(turn, stop=_REASONS[phase])
                    self.store.save_turn(turn)
                    agent = self._put(replace(agent, turn=turn))
                    self._after_stop(turn.id, _REASONS[phase])
                case Command.START_TURN if turn is not None:
                    self._after_start(agent, turn)
        return agent

    def _after_stop(self, turn_id: str, reason: str) -> None:
        assert self._change is not None
        runner = self._runner
        if runner is not None:
            self._change.after.append(lambda: runner.stop(turn_id, reason))

    def _after_start(self, agent: Agent, turn: Turn) -> None:
        assert self._change is not None
        runner = self._runner
        if runner is not None:
            self._change.after.append(lambda: runner.start(agent, turn))

    # The life of an agent

    def spawn(self, wish: Wish, parent: Agent | None = None) -> Agent:
        """Create an agent and queue its first prompt, if there is one.

        Args:
            wish: what it is to be; the workspace has been checked.
            parent: the agent that asks, or None for the operator.

        Raises:
            NameTaken: another agent has the name.
            InvalidParams: the name can't be one.
            PolicyDenied: it would have more than its parent.
            LimitReached: there are too many.
        """
        self._check_room(parent)
        name = wish.name if wish.name is not None else self._new_name()
        self._check_name(name)
        if wish.network is not None:
            policy = Policy(wish.network)
        else:
            policy = parent.policy if parent else Policy(self.config.sandbox.network)
        if parent is not None and not parent.policy.allows(policy):
            raise PolicyDenied(
                f"a child can't have the network {policy.network.value!r} when its parent {parent.name} has "
                f"{parent.policy.network.value!r}"
            )
        model = wish.model or (parent.model if parent else self.config.agent.model)
        agent = Agent(
            id=str(uuid.uuid4()), name=name, phase=Phase.IDLE, workspace=wish.workspace, model=model, policy=policy,
            created_at=self._now(), parent=parent.id if parent else None,
        )  # fmt: skip
        with self.change():
            self._put(agent)
            by = f"agent {parent.name}" if parent else "the operator"
            self.journal.tell(Told(agent.id, None, "agent:spawned", f"{name} spawned by {by} in {agent.workspace}"))
            if wish.prompt is not None:
                self._add(agent, ItemKind.PROMPT, wish.prompt, parent, Event.PROMPT)
        return self.find(agent.id)

    def send(self, name: str, prompt: str) -> tuple[Agent, int]:
        """Queue a prompt from the operator.

        Returns:
            The agent and the inbox item's number.
        """
        with self.change():
            item = self._add(self.find(name), ItemKind.PROMPT, prompt, None, Event.PROMPT)
        return self.find(name), item

    def message(self, sender: Agent, to: str, text: str) -> int:
        """Put a message from one agent into another's inbox, or the operator's.

        Returns:
            The inbox item's number.

        Raises:
            NotFound: no such addressee.
            LimitReached: the message is too long or the inbox full.
        """
        if len(text.encode("utf-8", "replace")) > self.config.limits.message_bytes:
            raise LimitReached(f"a message may have {self.config.limits.message_bytes} bytes: write it to a file instead")
        with self.change():
            if to == OPERATOR:
                item = self.store.add_item(Item(0, None, ItemKind.MESSAGE, sender.id, sender.name, text, self._now()))
                self.journal.tell(Told(sender.id, self._turn_id(sender), "message:sent", f"to the operator: {text}"))
                return item
            addressee = self.find(to)
            if addressee.id == sender.id:
                raise Refused(f"{sender.name} can't send a message to itself")
            item = self._add(addressee, ItemKind.MESSAGE, text, sender, Event.MAIL)
            self.journal.tell(
                Told(sender.id, self._turn_id(sender), "message:sent", f"to {addressee.name}: {text}"),
                Told(addressee.id, None, "message:received", f"from {sender.name}: {text}"),
            )
        return item

    def take_inbox(self, name: str) -> list[Item]:
        """Hand out the messages that wait for an agent, once."""
        agent = self.find(name)
        items = [item for item in self.store.waiting_items(agent.id) if item.kind is ItemKind.MESSAGE]
        if items:
            with self.change():
                self.store.deliver(items, READ_IN_TOOL)
                self._put(replace(agent, waiting=agent.waiting - len(items)))
        return items

    def report_status(self, name: str, text: str) -> None:
        """Note what an agent says it is doing."""
        agent = self.find(name)
        text = text[:_MAX_STATUS]
        with self.change():
            self._put(replace(agent, status=text))
            self.journal.tell(Told(agent.id, self._turn_id(agent), "agent:status", text))

    def suspend(self, name: str) -> Agent:
        """Ask for an agent to be suspended; `wait_settled` tells when its process is gone."""
        return self._request(name, Event.SUSPEND, "agent:suspended", {Phase.SUSPENDED})

    def interrupt(self, name: str) -> Agent:
        """Ask for an agent's turn to be stopped."""
        return self._request(name, Event.INTERRUPT, "", set())

    def end(self, name: str) -> Agent:
        """Ask for an agent to be finished."""
        return self._request(name, Event.END, "agent:ended", {Phase.ENDED})

    def _request(self, name: str, event: Event, kind: str, when: set[Phase]) -> Agent:
        before = self.find(name)
        with self.change():
            after = self._step(before, event)
            if after.phase != before.phase and after.phase in when:
                self.journal.tell(Told(after.id, None, kind, kind.partition(":")[2]))
        return after

    def resume(self, name: str, prompt: str | None) -> tuple[Agent, int | None]:
        """Let an agent go on where it stopped.

        Returns:
            The agent, and the number of the inbox item that makes it go on; None when nothing was left to do.

        Raises:
            Refused: it has ended or is just being stopped.
            SessionMissing: its chat isn't where it was recorded.
        """
        agent = self.find(name)
        if agent.phase not in {Phase.SUSPENDED, Phase.FAILED}:
            with self.change():
                self._step(agent, Event.RESUME)
                item = self._add(self.find(name), ItemKind.PROMPT, prompt, None, Event.PROMPT) if prompt else None
            return self.find(name), item
        if self._runner is not None:
            self._runner.check_resumable(agent)
        unfinished = prompt or self._unfinished(agent)
        with self.change():
            item = None
            if unfinished is not None:
                item = self.store.add_item(
                    Item(0, agent.id, ItemKind.CONTINUATION, OPERATOR, OPERATOR, unfinished, self._now())
                )
                agent = self._put(replace(agent, waiting=agent.waiting + 1))
            self._step(agent, Event.RESUME)
            self.journal.tell(Told(agent.id, None, "agent:resumed", "resumed"))
        return self.find(name), item

    def _unfinished(self, agent: Agent) -> str | None:
        """Return what to say to an agent whose last turn didn't come to its end, or None if it did."""
        turn = agent.turn
        if turn is None or not left_unfinished(turn, waiting=agent.waiting > 0):
            return None
        prompt = self.prompt_of(turn)
        return prompts.continuation(prompt) if turn.reported else prompt

    def prompt_of(self, turn: Turn) -> str:
        """Return the prompt a turn was given, as far as it can be told from what it delivered."""
        items = self.store.items_of_turn(turn.id)
        if len(items) == 1 and items[0].kind is not ItemKind.MESSAGE:
            return items[0].text
        return prompts.delivery(items, secrets.token_hex(4))

    def remove(self, name: str) -> None:
        """Forget an agent.

        Raises:
            Refused: a turn of it is running.
        """
        agent = self.find(name)
        if agent.phase in RUNNING_PHASES:
            raise Refused(f"{agent.name} is running: `substratctl end {agent.name}` first")
        with self.change():
            assert self._change is not None
            self.store.forget_agent(agent.id)
            for child in [other for other in self._agents.values() if other.parent == agent.id]:
                self._put(replace(child, parent=None))
            self._change.removed.add(agent.id)
            self._change.agents.pop(agent.id, None)
            self._change.after.append(lambda: self.journal.forget(agent.id))
            runner = self._runner
            if runner is not None:
                self._change.after.append(lambda: runner.forget(agent))

    def _add(self, agent: Agent, kind: ItemKind, text: str, sender: Agent | None, event: Event) -> int:
        """Put something into an agent's inbox and let its lifecycle know."""
        if agent.waiting >= self.config.limits.waiting_items:
            raise LimitReached(f"{agent.name} has {agent.waiting} messages waiting: let it work first")
        who = (sender.id, sender.name) if sender else (OPERATOR, OPERATOR)
        number = self.store.add_item(Item(0, agent.id, kind, *who, text, self._now()))
        self._step(replace(agent, waiting=agent.waiting + 1), event)
        return number

    def _check_room(self, parent: Agent | None) -> None:
        limits = self.config.limits
        if len(self._agents) >= limits.agents:
            raise LimitReached(f"there are {len(self._agents)} agents already: `substratctl rm` some")
        if parent is None:
            return
        children = [agent for agent in self._agents.values() if agent.parent == parent.id and agent.phase != Phase.ENDED]
        if len(children) >= limits.children:
            raise LimitReached(f"{parent.name} has {len(children)} children already, which is the limit")
        depth, ancestor = 1, parent
        while ancestor.parent is not None and (above := self._agents.get(ancestor.parent)) is not None:
            depth, ancestor = depth + 1, above
        if depth > limits.depth:
            raise LimitReached(f"{parent.name} is in generation {depth - 1} and can't spawn: the limit is {limits.depth}")

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidParams(f"{name!r} can't be a name: use up to 64 letters, digits, dots, dashes and underscores")
        if name.lower() in RESERVED_NAMES or is_session_id(name.lower()):
            raise InvalidParams(f"the name {name!r} is reserved: choose another")
        if name in self._ids:
            raise NameTaken(f"there is an agent {name!r} already: choose another name, or `substratctl rm {name}` it")

    def _new_name(self) -> str:
        number = len(self._agents) + 1
        while f"agent-{number}" in self._ids:
            number += 1
        return f"agent-{number}"

    def _turn_id(self, agent: Agent) -> str | None:
        return agent.turn.id if agent.turn is not None and agent.turn.outcome is None else None

    # Turns

    def attach(self, runner: Runner) -> None:
        """Take up work: hand turns that an earlier daemon left to the runner, and start those that wait."""
        self._runner = runner
        for agent in list(self._agents.values()):
            if agent.phase in RUNNING_PHASES and agent.turn is not None:
                runner.start(agent, agent.turn)
                if agent.turn.stop is not None:
                    runner.stop(agent.turn.id, agent.turn.stop)
        self.admit()

    def admit(self) -> None:
        """Start the turns of agents that wait, as many as may run at once, longest waiting first."""
        if self._runner is None:
            return
        room = self.config.turns.max_running - self.running
        queued = [agent for agent in self._agents.values() if agent.phase == Phase.QUEUED]
        for agent in queued[: max(0, room)]:
            try:
                self._start_turn(agent)
            except StorageFailed as problem:
                # What was accepted stays queued; the next change tries again.
                log.error("turn not started", agent=agent.name, reason=problem.message)  # noqa: TRY400 - it says it all
                return

    def _start_turn(self, agent: Agent) -> None:
        waiting = self.store.waiting_items(agent.id)
        items = _next_delivery(waiting)
        number = agent.turn.number + 1 if agent.turn is not None else 1
        turn = Turn(str(uuid.uuid4()), agent.id, number, self._now())
        self._turns[turn.id] = agent.id
        with self.change():
            self.store.save_turn(turn)
            self.store.deliver(items, turn.id)
            self._step(replace(agent, turn=turn, waiting=agent.waiting - len(items)), Event.START)

    def turn_spawned(self, turn: str, started: Process) -> None:
        """Note a turn's process (`Books`)."""
        agent = self._agent_of(turn)
        number = agent.turn.number if agent is not None and agent.turn is not None else 0
        self._update_turn(turn, told=("turn:started", f"turn {number} started"), process=started)

    def turn_lines(self, turn: str, lines: list[tuple[Line, stream.Event]], offset: int) -> None:
        """Note what an agent wrote, the session's id above all (`Books`)."""
        agent = self._agent_of(turn)
        if agent is None or agent.turn is None:
            return
        with self.change():
            self.journal.append(agent.id, turn, lines)
            reported = agent.turn.reported
            for _, event in lines:
                if event.kind == "system:init":
                    reported = True
                    agent = self._note_session(agent, stream.session_of(event))
            assert agent.turn is not None
            updated = replace(agent.turn, offset=offset, reported=reported)
            self.store.save_turn(updated)
            self._put(replace(agent, turn=updated))

    def turn_truncated(self, turn: str, size: int, expected: int) -> None:
        """Note that an agent cut its own output (`Books`)."""
        text = f"the agent cut its own output from {expected} to {size} bytes; what was there is lost"
        self._update_turn(turn, told=("turn:output-truncated", text))

    def turn_time_is_up(self, turn: str) -> None:
        """Stop a turn that has run into its time limit (`Books`)."""
        if self._runner is not None:
            self._update_turn(turn, stop="time limit")
            self._runner.stop(turn, "time limit")

    def turn_note(self, turn: str, kind: str, text: str) -> None:
        """Tell something about a running turn."""
        self._update_turn(turn, told=(kind, text))

    def _update_turn(self, turn: str, told: tuple[str, str] | None = None, **changes: object) -> None:
        agent = self._agent_of(turn)
        if agent is None or agent.turn is None:
            return
        with self.change():
            updated = replace(agent.turn, **changes)  # type: ignore[arg-type]
            self.store.save_turn(updated)
            self._put(replace(agent, turn=updated))
            if told is not None:
                self.journal.tell(Told(agent.id, turn, told[0], told[1]))

    def turn_over(self, turn_id: str, verdict: Verdict, seen: Seen) -> None:
        """Account for a turn that has ended.

        Args:
            turn_id: the turn.
            verdict: what became of it.
            seen: what was seen of it.
        """
        agent = self._agent_of(turn_id)
        if agent is None or agent.turn is None:
            return
        turn = replace(
            agent.turn, outcome=verdict.outcome, error=verdict.error, ended_at=self._now(), exit_code=seen.exit_code,
            result=_shortened(seen.result.text) if seen.result and verdict.outcome is Outcome.SUCCESS else None,
            usage=seen.result.usage if seen.result else None,
        )  # fmt: skip
        with self.change():
            self.store.save_turn(turn)
            agent = replace(agent, turn=turn)
            if agent.session is not None and self._runner is not None and self._runner.session_stored(agent):
                agent = replace(agent, session=replace(agent.session, stored=True))
            agent = self._step(self._put(agent), _EVENT_OF[verdict.outcome])
            said = f": {verdict.error}" if verdict.error else ""
            took = (turn.ended_at or 0) - turn.started_at
            self.journal.tell(
                Told(
                    agent.id, turn.id, "turn:ended", f"turn {turn.number} {verdict.outcome.value} after {took:.1f} s{said}"
                )
            )
            if agent.phase in {Phase.SUSPENDED, Phase.ENDED}:
                self.journal.tell(Told(agent.id, None, f"agent:{agent.phase}", str(agent.phase)))
            self._report_to_parent(agent, turn)
        self._turns.pop(turn_id, None)

    def _report_to_parent(self, agent: Agent, turn: Turn) -> None:
        """Tell an agent what became of the prompt it gave a child."""
        for item in self.store.items_of_turn(turn.id):
            asker = self._current(item.sender) if item.kind is ItemKind.PROMPT else None
            if asker is None or asker.phase == Phase.ENDED or asker.waiting >= self.config.limits.waiting_items:
                continue
            assert turn.outcome is not None
            text = prompts.child_report(agent.name, turn.number, turn.outcome.value, turn.result or turn.error or "")
            text = text[: self.config.limits.message_bytes]
            self.store.add_item(Item(0, asker.id, ItemKind.MESSAGE, SYSTEM, SYSTEM, text, self._now()))
            self._step(replace(asker, waiting=asker.waiting + 1), Event.MAIL)
            self.journal.tell(Told(asker.id, None, "message:received", f"from Substrat: {text}"))

    def _note_session(self, agent: Agent, session: str | None) -> Agent:
        """Store the session's id the moment it is seen, if it can be one and nobody else's."""
        known = agent.session.id if agent.session else None
        if session is None or session == known:
            return agent
        turn = self._turn_id(agent)
        if not is_session_id(session):
            self.journal.tell(Told(agent.id, turn, "session:refused", f"{session[:80]!r} is no session id"))
            return agent
        if any(other.session and other.session.id == session for other in self._agents.values()):
            self.journal.tell(Told(agent.id, turn, "session:refused", f"session {session} belongs to another agent"))
            return agent
        if known is not None:
            self.journal.tell(Told(agent.id, turn, "session:changed", f"resumed {known}, but the agent is in {session}"))
        return self._put(replace(agent, session=Session(session)))

    def _agent_of(self, turn: str) -> Agent | None:
        """Return the agent of a turn that hasn't ended."""
        return self._current(self._turns.get(turn, ""))

    # Waiting

    async def wait_states(self, names: Iterable[str], states: Collection[str] | None) -> list[Agent]:
        """Wait until each agent is in one of the states; None means neither queued nor running.

        Raises:
            NotFound: an agent isn't there, or was removed meanwhile.
        """
        wanted = states if states else {"idle", "suspended", "failed", "ended"}
        found = []
        for agent_id in [self.find(name).id for name in names]:
            while STATE_OF[(agent := self.find(agent_id)).phase] not in wanted:
                await self._next_change(agent_id)
            found.append(agent)
        return found

    async def wait_settled(self, name: str) -> Agent:
        """Wait until no turn of an agent is being stopped."""
        agent_id = self.find(name).id
        while (agent := self.find(agent_id)).phase in _REASONS:
            await self._next_change(agent_id)
        return agent

    async def wait_item(self, name: str, item: int | None) -> Agent:
        """Wait until the turn that delivered an inbox item has ended.

        Returns:
            The agent, with that turn as its turn.

        Raises:
            NotFound: no such item.
            Refused: the item will never get a turn, because the agent has ended.
        """
        agent_id = self.find(name).id
        item = item if item is not None else self.store.newest_prompt(agent_id)
        while True:
            where = self.store.item_turn(item) if item is not None else None
            if where is None or where[0] != agent_id:
                raise NotFound(f"{name} was given no such prompt")
            agent = self.find(agent_id)
            turn = self.store.turn(where[1]) if where[1] not in {None, READ_IN_TOOL} and where[1] is not None else None
            if turn is not None and turn.outcome is not None:
                return replace(agent, turn=turn)
            if turn is None and agent.phase == Phase.ENDED:
                raise Refused(f"{agent.name} has ended before it came to this prompt")
            await self._next_change(agent_id)

    async def _next_change(self, agent_id: str) -> None:
        await self._changed.setdefault(agent_id, trio.Event()).wait()


_EVENT_OF = {
    Outcome.SUCCESS: Event.TURN_SUCCEEDED,
    Outcome.INTERRUPTED: Event.TURN_STOPPED,
    Outcome.ERROR: Event.TURN_FAILED,
    Outcome.TIMED_OUT: Event.TURN_FAILED,
    Outcome.LOST: Event.TURN_FAILED,
}


def _shortened(text: str) -> str:
    """Bound what an agent object carries; the whole text is in the turn's output."""
    return text if len(text) <= _MAX_RESULT else f"{text[:_MAX_RESULT]}… [cut: {len(text)} characters]"


def _next_delivery(waiting: list[Item]) -> list[Item]:
    """Choose what the next turn delivers: a prompt alone, or all messages up to the next prompt."""
    if waiting[0].kind is not ItemKind.MESSAGE:
        return waiting[:1]
    batch = []
    for item in waiting:
        if item.kind is not ItemKind.MESSAGE:
            break
        batch.append(item)
    return batch


async def bounded(seconds: float | None, what: str, wait: Callable[[], Awaitable[T]]) -> T:
    """Await something for at most some seconds.

    Raises:
        WaitTimedOut: it didn't happen in time.
    """
    with trio.move_on_after(seconds if seconds is not None else float("inf")):
        return await wait()
    raise WaitTimedOut(f"timed out after {seconds:g} s waiting for {what}; it goes on")
