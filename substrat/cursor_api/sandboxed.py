"""A run in a sandbox of the Substrat daemon, over a connection of its own."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from substrat import errors, paths
from substrat.cursor_api import decode
from substrat.cursor_api.model import DEFAULT_BINARY, AgentEvent, EventType
from substrat.cursor_api.shell import BLOCKING, finish

if TYPE_CHECKING:
    from typing import Self

    from substrat.client.events import TaskConnection
    from substrat.cursor_api.command import RunRequest
    from substrat.cursor_api.model import AgentConfig
    from substrat.cursor_api.run_record import RunRecord
    from substrat.cursor_api.shell import BlockingConnection, Shell

    Connection = TaskConnection | BlockingConnection


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

    async def ensure(self, connection: Connection) -> None:
        """Create the agent if there is none yet. Its name is the daemon's choice."""
        if self.agent is None:
            spawned = await _call(connection, "agent.spawn", workspace=self._workspace, model=self._model, clone=False)
            self.agent = str(spawned["id"])

    async def interrupt(self, shell: Shell) -> None:
        """Stop its turn, if there is one. One that still waits for its start can't be withdrawn, so the agent is ended."""
        if self.agent is None:
            return
        with suppress(errors.NotFound):
            try:
                await self._ask(shell, "agent.interrupt")
            except errors.Refused:
                if (await self._ask(shell, "agent.show"))["state"] == "queued":
                    await self._ask(shell, "agent.end")

    async def remove(self, shell: Shell) -> None:
        """End and forget the agent, if there is one."""
        if self.agent is not None:
            with suppress(errors.NotFound):
                await self._ask(shell, "agent.end", "agent.rm")
            self.agent = None

    def abandon(self) -> None:
        """Remove it, blocking, and ignore the daemon's refusal."""
        with suppress(errors.SubstratError):
            finish(self.remove(BLOCKING))

    async def _ask(self, shell: Shell, *methods: str) -> dict[str, Any]:
        """Call methods over a connection of their own, because the turn's may be in use; return the last answer."""
        connection = await shell.connect(self.socket)
        try:
            for method in methods:
                answer = await _call(connection, method, agent=self.agent)
            return answer
        finally:
            await connection.aclose()  # noqa: ASYNC102 - it closes at once


class Sandboxed:
    """One prompt and its turn's events.

    Args:
        shell: how its steps wait.
        sandbox_agent: the agent; created with the first prompt.
        request: the prompt and its options.
        keep: whether the agent stays after the turn.

    Raises:
        NotAvailable: the request has an option that a sandboxed run doesn't have.
    """

    process = None

    def __init__(self, shell: Shell, sandbox_agent: SandboxAgent, request: RunRequest, *, keep: bool) -> None:
        if request.mode is not None:
            raise errors.NotAvailable("a sandboxed agent has no modes: ask for what it shall do in the prompt")
        self._shell = shell
        self._sandbox_agent = sandbox_agent
        self._request = request
        self._keep = keep
        self._decoder = decode.Decoder()
        self._wait = 0
        self._cursor = 0
        self._rest: deque[AgentEvent] = deque()
        self._turn: dict[str, Any] | None = None
        self._timed_out = False
        self._closed = False

    async def begin(self) -> Self:
        """Hand over the prompt and follow its turn."""
        self._connection = connection = await self._shell.connect(self._sandbox_agent.socket)
        begun = False
        try:
            # A run that is cancelled meanwhile needs the agent's id, to remove it.
            await self._shell.shielded(self._sandbox_agent.ensure(connection))
            agent = self._sandbox_agent.agent
            self._cursor = int((await _call(connection, "events.subscribe", agent=agent))["cursor"])
            sent = await _call(connection, "agent.send", agent=agent, prompt=self._request.prompt)
            params = {"agent": agent, "message": sent["message"], "timeout": self._request.timeout}
            self._wait = await connection.submit("agent.wait_message", params)
            begun = True
        finally:
            if not begun:
                with suppress(errors.SubstratError):
                    await self._shell.shielded(self.close())  # noqa: ASYNC102 - it shields
        return self

    async def next(self) -> AgentEvent | None:
        """Wait for the turn's next event; None when it is over."""
        while self._turn is None:
            told = await self._connection.next_event(self._wait)
            if told is None:
                await self._ended()
            elif (event := self._decoded(_object(told["event"]))) is not None:
                return event
        return self._rest.popleft() if self._rest else None

    async def settle(self) -> None:
        """Do nothing: the daemon sees to a program that has answered."""

    async def cancel(self, number: int) -> None:
        """Interrupt the turn."""
        await self._sandbox_agent.interrupt(self._shell)

    async def close(self) -> None:
        """Give up the connection, and the agent unless it stays; a turn that goes on is stopped."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._leave()
        finally:
            await self._connection.aclose()  # noqa: ASYNC102 - it closes at once

    def abandon(self) -> None:
        """Close, blocking, and ignore the daemon's refusal."""
        if not self._closed:
            self._closed = True
            self._shell = BLOCKING
            self._connection.abandon()
            with suppress(errors.SubstratError):
                finish(self._leave())

    async def _leave(self) -> None:
        if not self._keep:
            await self._sandbox_agent.remove(self._shell)
        elif self._turn is None:
            await self._sandbox_agent.interrupt(self._shell)

    def conclude(self, record: RunRecord) -> AgentEvent | None:
        """Account for a turn that is over; returns the event of a failure that the stream didn't tell."""
        if record.final is not None:
            return None
        if self._timed_out:
            return record.fail(f"Request timed out after {self._request.timeout:g} s")
        turn = self._turn or {}
        problem = turn.get("error") or f"the turn ended as {turn.get('outcome') or 'unknown'} without a result"
        return record.fail(str(problem))

    async def _ended(self) -> None:
        """Take in how the turn ended, and its last events, which may come later than that."""
        try:
            self._turn = _object(_object(await self._connection.answer(self._wait))["turn"])
        except errors.WaitTimedOut:
            self._timed_out = True
            self._turn = {}
        except (errors.Refused, errors.NotFound) as problem:
            # Another client has ended or removed the agent.
            self._turn = {"error": problem.message}
        if self._timed_out:
            await self._sandbox_agent.interrupt(self._shell)
        with suppress(errors.NotFound):
            await self._read_rest()

    async def _read_rest(self) -> None:
        agent = self._sandbox_agent.agent
        while (page := await _call(self._connection, "events.read", agent=agent, since=self._cursor))["events"]:
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


async def _call(connection: Connection, method: str, **params: object) -> dict[str, Any]:
    return _object(await connection.answer(await connection.submit(method, params)))


def _object(result: object) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise errors.SubstratError("the daemon's answer has another form than expected; are both of one version?")
    return result
