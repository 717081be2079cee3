"""Performs the agents' MCP tool calls, for the caller that the socket names, and words their answers."""

from __future__ import annotations

import json
import re
import secrets
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from mcp_server import tools
from sandbox.spec import Network
from substrat.core.agents import result_schema
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.prompts import head, shown, timestamp
from substrat.core.agents.records import GROUPS, OPERATOR, Completion, Intent, Priority
from substrat.core.families import budget
from substrat.core.families.waits import WaitMode
from substrat.core.programs.table import named
from substrat.daemon.agents import mail, pools, spawning
from substrat.daemon.agents.inbox import Question
from substrat.daemon.agents.reminders import ReminderWish
from substrat.daemon.agents.spawning import SHARE, ChildPlace, SpawnRequest
from substrat.daemon.families.agent_lists import AgentLists
from substrat.daemon.families.messages import Messages
from substrat.daemon.families.steering import Steering
from substrat.daemon.families.task_tools import TaskTools
from substrat.daemon.state.layout import SHARED_IN_SANDBOX
from substrat.errors import InvalidParams, PolicyDenied, Refused, SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Item
    from substrat.daemon.agents.inbox import Inbox
    from substrat.daemon.agents.reminders import Reminders
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.families.families import Families

    _ForOneself = (
        tools.Complete | tools.ReportStatus | tools.AskOperator | tools.CancelQuestion | tools.RemindMe
        | tools.CancelReminder
    )  # fmt: skip

    Ready = tuple[ChildPlace | SubstratError, ...] | str | None

log = structlog.get_logger("substrat.tools")

_OPERATORS = re.compile(r"substratctl|cursor-agent models|(?<!\S)`?--[a-z]")
"""What only the operator has: commands, and options of a command line."""
_KEY = re.compile(r" \([a-z]+\.[a-z_]+\)")
_SHOWN_QUESTION = 200
"""Characters of a question that `whoami` repeats."""


class _Refusal(str):
    """An answer that is an error, although what its call has recorded is kept."""

    __slots__ = ()


def failure(problem: Exception, tool: str, agent: str) -> tuple[str, bool]:
    """Return the answer of a call that an exception has ended, from its handler."""
    if isinstance(problem, SubstratError | tools.BadArguments):
        return for_model(str(problem)), True
    error_id = secrets.token_hex(4)
    log.exception("a tool broke", tool=tool, agent=agent, error_id=error_id)
    return f"{tool} failed inside Substrat; the operator finds it in the log as {error_id}", True


def for_model(text: str) -> str:
    """Return an error without the remedy that is the operator's alone, and without names of configuration keys.

    For example `there are 9 agents already (limits.agents): `substratctl rm` some` ends after `already`.
    """
    said = _KEY.sub("", text)
    if (found := _OPERATORS.search(said)) is None:
        return said
    ends = [end.start() for end in re.finditer(r"[:;,] ", said[: found.start()])]
    return f"{said[: ends[-1]] if ends else 'that is refused'}; ask_operator if you need it"


class ToolCalls:
    """Performs the agents' tool calls."""

    def __init__(self, requests: AgentRequests, families: Families, reminders: Reminders, inbox: Inbox) -> None:
        self._requests = requests
        self._families = families
        self._reminders = reminders
        self._inbox = inbox
        self._messages = Messages(requests)
        self.lists = AgentLists(requests.registry, families.waits, families.queue)
        self._steering = Steering(requests, families.waits)
        self._task_tools = TaskTools(requests.registry, families.tasks)

    def perform(
        self,
        agent: str,
        turn: str | None,
        name: str,
        arguments: dict[str, Any] | None,
        identity: str | None,
        ready: Ready = None,
    ) -> tuple[str, bool]:
        """Perform one call: its effect and its answer are committed together, a repeated one gets the same answer.

        A tool that only reads is answered anew each time.

        Args:
            agent: the caller's id, from the socket.
            turn: the caller's turn; None: a command of the operator's calls; it ends with the daemon and repeats no call.
            name: the tool.
            arguments: the model's arguments.
            identity: the same for a repeated call as for the first; None when the client has none.
            ready: the part of the call that took time: where each child works, or why it can't; or `get_agent`'s answer.

        Returns:
            The answer's text, and whether it is an error.
        """
        store = self._requests.registry.store
        repeatable = None
        if turn is not None and identity is not None and name not in tools.ONLY_READ:
            repeatable = agent, turn, identity
        try:
            if repeatable is not None and (known := store.answered_call(*repeatable)) is not None:
                text, is_error = json.loads(known)
                return text, is_error
            call = tools.parse(name, arguments)
            if name in tools.ONLY_READ:
                return self._do(self.caller(agent), call, ready), False
            with self._requests.registry.change(f"tool called: {name}"):
                text = self._do(self.caller(agent), call, ready)
                if repeatable is not None:
                    store.add_call(*repeatable, json.dumps([text, isinstance(text, _Refusal)]))
        except Exception as problem:
            return failure(problem, name, agent)
        return str(text), isinstance(text, _Refusal)

    def has_answered(self, agent: str, turn: str | None, identity: str | None) -> bool:
        """Say whether a call is the repetition of one that was answered."""
        known = turn is not None and identity is not None
        return known and self._requests.registry.store.answered_call(agent, turn or "", identity or "") is not None

    def caller(self, agent_id: str) -> Agent:
        """Return the agent that calls; raises `Refused` if it has ended."""
        caller = self._requests.find(agent_id)
        if caller.phase == Phase.ENDED:  # a command of the operator's may go on after its agent's end
            raise Refused(f"{caller.name} has ended, so nothing can be done in its name")
        return caller

    def _do(self, caller: Agent, call: tools.Tool, ready: Ready) -> str:
        match call:
            case tools.Whoami():
                return self._whoami(caller)
            case tools.ListAgents(scope):
                return _json(agents=self.lists.others(caller, scope))
            case tools.GetAgent(name):
                return ready if isinstance(ready, str) else _json(**self.lists.one(caller, name))
            case tools.SendMessage():
                return self._send_message(caller, call)
            case tools.CheckInbox(peek, message):
                if message is not None:
                    whole = self._requests.message_for(caller.id, message)
                    return _json(messages=[self._message(caller, whole, is_whole=True)])
                return self._check_inbox(caller, peek=peek)
            case tools.SpawnAgent():
                return self._spawn_agents(caller, tools.children_of(call), ready if isinstance(ready, tuple) else ())
            case tools.WaitAgents(names, mode, timeout_s, note):
                return self._families.waits.register(caller, names, WaitMode(mode), timeout_s, note)[1]
            case tools.InterruptAgent(name, text, names):
                return self._steering.interrupt(caller, _all_of(name, names), text)
            case tools.EndAgent(name, reason, names):
                return self._steering.end(caller, _all_of(name, names), reason)
            case tools.AddTasks() | tools.ClaimTask() | tools.FinishTask() | tools.ListTasks():
                return self._task_tools.do(caller, call)
            case _:
                return self._do_for_oneself(caller, call)

    def _do_for_oneself(self, caller: Agent, call: _ForOneself) -> str:
        """Perform a call that concerns no other agent."""
        match call:
            case tools.Complete(result, status, files):
                result = result_schema.unfenced(result) if caller.settings.result_schema is not None else result
                listed = "".join(f"\n- {file}" for file in files)
                text = f"{result}\n\nFiles:{listed}" if files else result
                self._requests.complete(caller.id, result, text, Completion(status))
                return "noted: it is told when this turn ends, so end it now"
            case tools.ReportStatus(text):
                self._requests.report_status(caller.id, text)
                return "noted"
            case tools.AskOperator(text, options, default, deadline_s):
                number = self._inbox.ask(caller, Question(text, options, default, deadline_s))
                return f"question {number} waits for the operator; the answer starts your next turn"
            case tools.CancelQuestion(question):
                return f"question {self._inbox.take_back(caller, question)} is taken back"
            case tools.RemindMe(text, in_s, at, every_s, times, until):
                wish = ReminderWish(text, in_s, at, every_s, times, until)
                number, due = self._reminders.add(caller, wish)
                return f"reminder {number} is due at {timestamp(due)}"
            case tools.CancelReminder(reminder):
                self._reminders.cancel(caller, reminder)
                return f"reminder {reminder} is cancelled"

    def _limits(self, caller: Agent, call: tools.SpawnAgent) -> dict[str, object]:
        """Return the limits of a child that its parent gives it; raises `PolicyDenied` for more than the parent has."""
        found: dict[str, object] = {}
        if call.time_limit_s is not None:
            spawning.check_time_limit(self._requests.registry, caller, call.time_limit_s)
            found["time_limit"] = call.time_limit_s
        if call.priority is not None:
            priority, order = Priority(call.priority), list(Priority)
            if order.index(priority) < order.index(caller.settings.priority):
                raise PolicyDenied(f"priority can be {caller.settings.priority} at most, as for you, not {priority}")
            found["priority"] = priority
        return found

    def _whoami(self, caller: Agent) -> str:
        registry = self._requests.registry
        store, policy = registry.store, caller.policy
        budgets = [{"of": one.name, "left": own.left} for one, own in pools.of(registry, caller)]
        return _json(
            name=caller.name,
            id=caller.id,
            role="root" if caller.parent is None else "child",
            workspace=caller.workspace,
            shared=SHARED_IN_SANDBOX,
            model=caller.model,
            **({"check": caller.settings.check} if caller.settings.check is not None else {}),
            network={"kind": policy.network.value, "allows": policy.allow},
            limits=spawning.limits_of(registry, caller),
            **({"budgets": budgets} if budgets else {}),
            parent=registry.name_of(caller.parent) or OPERATOR,
            children=[agent.name for agent in registry.children(caller.id) if agent.phase != Phase.ENDED],
            unread=store.unread_by_sender(caller.id),
            questions=[{"id": item.id, "text": item.text[:_SHOWN_QUESTION]} for item in store.questions_of(caller.id)],
            reminders=[
                {"id": reminder.id, "due": timestamp(reminder.due), "text": reminder.text}
                for reminder in store.reminders(caller.id)
            ],
            waits=[
                {
                    "id": wait.id,
                    "names": wait.awaited,
                    "mode": wait.mode.value,
                    "note": wait.note,
                    "until": timestamp(wait.deadline) if wait.deadline is not None else None,
                }
                for wait in self._families.waits.open_of(caller.id)
            ],
        )

    def _send_message(self, caller: Agent, call: tools.SendMessage) -> str:
        """Send a message; one that every addressee refused is an error, and is kept for people to see."""
        intent = Intent(call.intent) if call.intent is not None else None
        sent = self._messages.send(caller, call.to, call.text, intent, call.reply_to)
        receipts = [receipt._replace(problem=for_model(receipt.problem)) for receipt in sent]
        if any(receipt.number is not None for receipt in receipts):
            return "\n".join(map(str, receipts))
        return _Refusal("\n".join(map(str, receipts)) if call.to in GROUPS else receipts[0].problem)

    def _check_inbox(self, caller: Agent, *, peek: bool) -> str:
        items = self._requests.peek_inbox(caller.id) if peek else self._requests.take_inbox(caller.id)
        unread = self._requests.unread(self._requests.find(caller.id))
        messages = [self._message(caller, item) for item in items]
        return _json(messages=messages, **({"unread": unread} if unread else {}))

    def _message(self, caller: Agent, item: Item, *, is_whole: bool = False) -> dict[str, object]:
        """Return a message as `check_inbox` hands it out."""
        registry = self._requests.registry
        rank = mail.rank_of(registry, caller, item)
        text = item.text if is_whole else shown(item, rank)
        return {"id": item.id, "head": head(item, rank, registry.now()), "text": text}

    def _spawn_agents(
        self, caller: Agent, calls: tuple[tools.SpawnAgent, ...], places: tuple[ChildPlace | SubstratError, ...]
    ) -> str:
        """Start children, and return what is told of each; raises the problem where there is no other."""
        told: list[str] = []
        problems: list[SubstratError] = []
        for call, place in zip_longest(calls, places):
            try:
                if isinstance(place, SubstratError):
                    raise place
                told.append(self._spawn_agent(caller, call, place))
            except SubstratError as problem:
                told.append(f"{call.name or 'a child without a name'}: refused: {for_model(str(problem))}")
                problems.append(problem)
        if len(problems) == len(told):
            raise problems[0]
        then = "start the others, then " if len(calls) == 1 else ""
        return "\n".join(told) + f"; {then}wait_agents once and end your turn"

    def _spawn_agent(self, caller: Agent, call: tools.SpawnAgent, place: ChildPlace | None) -> str:
        """Start a child, and return what is told of it."""
        if place is None and (caller.clone is not None or (call.workspace or SHARE) != SHARE):
            raise RuntimeError("nobody has chosen where the child works")
        network = Network(call.network) if call.network is not None else None
        place = place or ChildPlace(SHARE, "in your workspace")
        # Not in a directory below: the parent could put a link in its place while the child's sandbox is made.
        request = SpawnRequest(
            caller.workspace, call.name, call.model, network, call.prompt, clone=place.clone, scratch=place.scratch,
            only=call.allow,
            settings=caller.settings.of_child(
                **self._limits(caller, call),
                program=named(call.program).id if call.program is not None else caller.settings.program,
                instructions=call.instructions or "", result_schema=_schema(call.result_schema), check=_check(call.check),
            ),
            needs=self._families.needs.checked(caller, call.needs), budget=budget.checked(call.budget or {}),
        )  # fmt: skip
        child = self._requests.spawn(request, caller)
        waits = [f"until {' and '.join(call.needs)} succeeded"] if child.needs else []
        waits += ["until its clone is made"] if place.clone is not None else []
        when = f"queued {' and '.join(waits)}" if waits else "started"
        where = f"it works {place.words} (workspace: {place.kind})"
        return f"agent {child.name} is {when}; {where}"


def _all_of(name: str | None, names: tuple[str, ...]) -> list[str]:
    """Return the names that a call gives in one argument or the other, each once; raises `InvalidParams` without any."""
    if found := list(dict.fromkeys((*([name] if name is not None else []), *names))):
        return found
    raise InvalidParams("name or names is missing: say which of your descendants")


def _check(command: str | None) -> str | None:
    """Return a child's check; raises `InvalidParams` if no shell can run it."""
    if command is not None and "\0" in command:
        raise InvalidParams("check has a NUL, which no shell command has: leave it out")
    return command


def _schema(schema: dict[str, Any] | None) -> str | None:
    """Return the schema of a child's result as it is stored; raises `InvalidParams` if it can't be used."""
    if schema is None:
        return None
    if (problem := result_schema.problem(schema)) is not None:
        raise InvalidParams(f"result_schema: {problem}")
    text = json.dumps(schema)
    if len(text) > result_schema.LONGEST:
        raise InvalidParams(f"result_schema may have {result_schema.LONGEST} bytes, not {len(text)}")
    return text


def _json(**members: object) -> str:
    return msgspec.json.encode(members).decode()
