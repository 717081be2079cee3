"""A run in a sandbox of the Substrat daemon: the conversation with the daemon as steps for either client.

A *step* is one use of the connection. The functions here are generators that yield steps and are sent their outcomes, so
that the blocking and the Trio client share every decision and differ only in `drive`.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from substrat import errors, paths
from substrat.cursor_api import decode
from substrat.cursor_api.model import DEFAULT_BINARY, AgentEvent, EventType

if TYPE_CHECKING:
    from collections.abc import Generator

    from substrat.cli.connection import Connection
    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.model import AgentConfig
    from substrat.cursor_api.run_record import RunRecord

T = TypeVar("T")


class OperatorCall(NamedTuple):
    """Make a request and wait for its answer."""

    method: str
    params: dict[str, object]


class Submit(NamedTuple):
    """Make a request; its number is the outcome."""

    method: str
    params: dict[str, object]


class Next(NamedTuple):
    """Wait for a notification, or for the answer to a request; its parameters, or None, are the outcome."""

    until: int


class OperatorAnswer(NamedTuple):
    """Take the answer that has come to a request."""

    number: int


Step = OperatorCall | Submit | Next | OperatorAnswer
if TYPE_CHECKING:
    Steps = Generator[Step, Any, T]


class SandboxAgent:
    """The agent of one run, or of a conversation that keeps it.

    Args:
        config: the agent's options; one that a sandboxed agent can't have is refused.

    Raises:
        NotAvailable: the configuration has an option that the daemon decides.
    """

    def __init__(self, config: AgentConfig) -> None:
        refused = {
            "api_key": (config.api_key is not None, "set CURSOR_API_KEY in the daemon's environment"),
            "headers": (bool(config.headers), "the daemon passes none"),
            "agent_binary": (config.agent_binary != DEFAULT_BINARY, "name it in the daemon's configuration"),
        }
        for field, (asked, remedy) in refused.items():
            if asked:
                raise errors.NotAvailable(f"AgentConfig.{field} has no effect on a sandboxed agent: {remedy}")
        self._workspace = config.workspace_path() or os.getcwd()
        self._model = config.model
        self.socket = paths.operator_socket()
        self.agent: str | None = None

    def ensure(self) -> Steps[str]:
        """Create the agent if there is none yet, and return its id. Its name is the daemon's choice."""
        if self.agent is None:
            params: dict[str, object] = {"workspace": self._workspace, "model": self._model, "clone": False}
            self.agent = str(_object((yield OperatorCall("agent.spawn", params)))["id"])
        return self.agent

    def remove(self) -> Steps[None]:
        """End and forget the agent, if there is one."""
        agent, self.agent = self.agent, None
        if agent is not None:
            try:
                yield OperatorCall("agent.end", {"agent": agent})
                yield OperatorCall("agent.rm", {"agent": agent})
            except errors.NotFound:
                return


class SandboxedTurn:
    """One prompt and its turn's events.

    Args:
        sandbox_agent: the agent; created with the first prompt.
        request: the prompt and its options.

    Raises:
        NotAvailable: the request has an option that a sandboxed run doesn't have.
    """

    def __init__(self, sandbox_agent: SandboxAgent, request: RunRequest) -> None:
        if request.mode is not None:
            raise errors.NotAvailable("a sandboxed agent has no modes: ask for what it shall do in the prompt")
        self._sandbox_agent = sandbox_agent
        self._request = request
        self._decoder = decode.Decoder()
        self._wait = 0
        self._cursor = 0
        self._rest: deque[AgentEvent] = deque()
        self._turn: dict[str, Any] | None = None
        self.timed_out = False

    def begin(self) -> Steps[None]:
        """Hand over the prompt and follow its turn."""
        agent = yield from self._sandbox_agent.ensure()
        self._cursor = int(_object((yield OperatorCall("events.subscribe", {"agent": agent})))["cursor"])
        sent = _object((yield OperatorCall("agent.send", {"agent": agent, "prompt": self._request.prompt})))
        params = {"agent": agent, "message": sent["message"], "timeout": self._request.timeout}
        self._wait = yield Submit("agent.wait_message", params)

    def read(self) -> Steps[AgentEvent | None]:
        """Wait for the turn's next event; None when it is over."""
        while self._turn is None:
            told = yield Next(self._wait)
            if told is None:
                yield from self._ended()
            elif (event := self._decoded(told["event"])) is not None:
                return event
        return self._rest.popleft() if self._rest else None

    def interrupt(self) -> Steps[None]:
        """Stop the turn. One that still waits for its start can't be withdrawn, so its agent is ended."""
        agent = self._sandbox_agent.agent
        if agent is None:
            return
        try:
            yield OperatorCall("agent.interrupt", {"agent": agent})
        except errors.Refused:
            if _object((yield OperatorCall("agent.show", {"agent": agent})))["state"] == "queued":
                yield OperatorCall("agent.end", {"agent": agent})
        except errors.NotFound:
            return

    def leave(self) -> Steps[None]:
        """Stop the turn if it goes on; the agent stays."""
        if self._turn is None:
            yield from self.interrupt()

    def conclude(self, record: RunRecord) -> AgentEvent | None:
        """Account for a turn that is over; returns the event of a failure that the stream didn't tell."""
        if record.final is not None:
            return None
        if self.timed_out:
            return record.fail(f"Request timed out after {self._request.timeout:g} s")
        turn = self._turn or {}
        problem = turn.get("error") or f"the turn ended as {turn.get('outcome') or 'unknown'} without a result"
        return record.fail(str(problem))

    def _ended(self) -> Steps[None]:
        """Take in how the turn ended, and its last events, which may come later than that."""
        try:
            self._turn = _object(_object((yield OperatorAnswer(self._wait)))["turn"])
        except errors.WaitTimedOut:
            self.timed_out = True
            self._turn = {}
            yield from self.interrupt()
        except (errors.Refused, errors.NotFound) as problem:
            # Somebody else has ended or removed the agent.
            self._turn = {"error": problem.message}
        try:
            yield from self._read_rest()
        except errors.NotFound:
            return

    def _read_rest(self) -> Steps[None]:
        while True:
            page = _object((yield OperatorCall("events.read", {"agent": self._sandbox_agent.agent, "since": self._cursor})))
            if not page["events"]:
                return
            found = [self._decoded(event) for event in page["events"]]
            self._rest.extend(event for event in found if event is not None)

    def _decoded(self, event: dict[str, Any]) -> AgentEvent | None:
        """Decode an agent's own line; the daemon's events about the agent are none of its stream."""
        if event["cursor"] <= self._cursor:
            return None
        self._cursor = event["cursor"]
        if isinstance(event["raw"], dict):
            return self._decoder.body(event["raw"])
        if event["kind"] not in _AGENTS_OWN:
            return None
        return decode.raw_event(event["text"] or "") if (event["text"] or "").strip() else None


_AGENTS_OWN = frozenset({decode.RAW, *(kind.value for kind in EventType)})
"""Kinds of events that are lines of the agent even without an object: no JSON, too long to be sent, or removed."""


def drive(connection: Connection, steps: Steps[T]) -> T:
    """Perform steps on a blocking connection and return their value."""
    outcome: Any = None
    problem: errors.SubstratError | None = None
    while True:
        try:
            step = steps.send(outcome) if problem is None else steps.throw(problem)
        except StopIteration as done:
            found: T = done.value
            return found
        outcome, problem = None, None
        try:
            outcome = _perform(connection, step)
        except errors.SubstratError as caught:
            problem = caught


def check_session(session_id: str | None) -> None:
    """Refuse to resume a chat by its id.

    Raises:
        NotAvailable: there is an id.
    """
    if session_id:
        raise errors.NotAvailable(
            "a sandboxed query can't resume a chat by its session_id, because the chat is no agent's of this program: "
            "use one ConversationSession for all its prompts, or 'substratctl send' to the agent that has the chat"
        )


def _perform(connection: Connection, step: Step) -> object:
    match step:
        case OperatorCall(method, params):
            return connection.call(method, **params)
        case Submit(method, params):
            return connection.submit(method, params)
        case Next(until):
            return connection.next_event(until)[0]
        case OperatorAnswer(number):
            return connection.take_answer(number)


def _object(result: object) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise errors.SubstratError("the daemon's answer has another form than expected; are both of one version?")
    return result
