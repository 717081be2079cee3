"""Performs the agents' MCP tool calls, for the caller that the socket names, and words their answers."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from mcp_server import tools
from sandbox.spec import Network
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.agents.prompts import sender, timestamp
from substrat.core.agents.records import OPERATOR
from substrat.daemon.agents.spawning import SpawnRequest
from substrat.errors import NotFound, Refused, SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.inbox import Inbox
    from substrat.daemon.agents.reminders import Reminders
    from substrat.daemon.agents.requests import AgentRequests

log = structlog.get_logger("substrat.tools")

_ONLY_READ = frozenset(tools.name_of(tool) for tool in tools.TOOLS if tool.hints.reads_only)
"""Tools that commit nothing, and whose answers aren't kept for a repeated call: they have no effect, and may be long."""


class ToolCalls:
    """Performs the agents' tool calls.

    Args:
        requests: changes the agents.
        reminders: keeps their reminders.
        inbox: takes their questions.
    """

    def __init__(self, requests: AgentRequests, reminders: Reminders, inbox: Inbox) -> None:
        self._requests = requests
        self._reminders = reminders
        self._inbox = inbox

    def perform(
        self, agent: str, turn: str | None, name: str, arguments: dict[str, Any] | None, identity: str | None
    ) -> tuple[str, bool]:
        """Perform one call: its effect and its answer are committed together, a repeated one gets the same answer.

        A tool that only reads is answered anew each time.

        Args:
            agent: the caller's id, from the socket.
            turn: the caller's turn; None: a command of the operator's calls; it ends with the daemon and repeats no call.
            name: the tool.
            arguments: the model's arguments.
            identity: the same for a repeated call as for the first; None when the client has none.

        Returns:
            The answer's text, and whether it is an error.
        """
        store = self._requests.registry.store
        repeatable = None
        if turn is not None and identity is not None and name not in _ONLY_READ:
            repeatable = agent, turn, identity
        try:
            if repeatable is not None and (known := store.answered_call(*repeatable)) is not None:
                text, is_error = json.loads(known)
                return text, is_error
            call = tools.parse(name, arguments)
            if name in _ONLY_READ:
                return self._do(self._caller(agent), call), False
            with self._requests.registry.change(f"tool called: {name}"):
                text = self._do(self._caller(agent), call)
                if repeatable is not None:
                    store.add_call(*repeatable, json.dumps([text, False]))
        except (SubstratError, tools.BadArguments) as problem:
            return str(problem), True
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("a tool broke", tool=name, agent=agent, error_id=error_id)
            return f"{name} failed inside Substrat; the operator finds it in the log as {error_id}", True
        return text, False

    def _caller(self, agent_id: str) -> Agent:
        caller = self._requests.find(agent_id)
        if caller.phase == Phase.ENDED:  # a command of the operator's may go on after its agent's end
            raise Refused(f"{caller.name} has ended, so nothing can be done in its name")
        return caller

    def _do(self, caller: Agent, call: tools.Tool) -> str:
        match call:
            case tools.Whoami():
                return self._whoami(caller)
            case tools.ListAgents():
                return self._list_agents(caller)
            case tools.SendMessage(to, text):
                return self._send_message(caller, to, text)
            case tools.CheckInbox():
                return self._check_inbox(caller)
            case tools.SpawnAgent():
                return self._spawn_agent(caller, call)
            case tools.ReportStatus(text):
                self._requests.report_status(caller.id, text)
                return "noted"
            case tools.AskOperator(question):
                number = self._inbox.ask(caller, question)
                return f"question {number} waits for the operator; the answer starts your next turn"
            case tools.RemindMe(text, seconds):
                number, due = self._reminders.add(caller, text, seconds)
                return f"reminder {number} is due at {timestamp(due)}"
            case tools.CancelReminder(reminder):
                self._reminders.cancel(caller, reminder)
                return f"reminder {reminder} is cancelled"

    def _whoami(self, caller: Agent) -> str:
        children = [agent.name for agent in self._requests.registry.agents if agent.parent == caller.id]
        return _json(
            name=caller.name,
            id=caller.id,
            workspace=caller.workspace,
            model=caller.model,
            network=caller.policy.network.value,
            parent=self._requests.registry.name_of(caller.parent) or OPERATOR,
            children=children,
            unread=caller.waiting,
            reminders=[
                {"id": reminder.id, "due": timestamp(reminder.due), "text": reminder.text}
                for reminder in self._reminders.of(caller)
            ],
        )

    def _list_agents(self, caller: Agent) -> str:
        others = [
            {
                "name": agent.name,
                "state": STATE_OF[agent.phase],
                "parent": self._requests.registry.name_of(agent.parent) or OPERATOR,
                "status": agent.status,
            }
            for agent in self._requests.registry.agents
            if agent.id != caller.id and agent.phase != Phase.ENDED
        ]
        return _json(agents=others)

    def _send_message(self, caller: Agent, to: str, text: str) -> str:
        if to == "parent":
            to = self._requests.registry.name_of(caller.parent) or OPERATOR
        try:
            number = self._requests.message(caller, to, text)
        except NotFound:
            raise NotFound(f"there is no agent {to!r}: list_agents shows those there are") from None
        return f"message {number} to {to} is accepted"

    def _check_inbox(self, caller: Agent) -> str:
        items = self._requests.take_inbox(caller.id)
        more = self._requests.find(caller.id).waiting
        return _json(
            messages=[
                {"id": item.id, "from": sender(item), "time": timestamp(item.time), "text": item.text} for item in items
            ],
            **({"unread": more} if more else {}),
        )

    def _spawn_agent(self, caller: Agent, call: tools.SpawnAgent) -> str:
        network = Network(call.network) if call.network is not None else None
        # Not in a directory below: the parent could put a link in its place while the child's sandbox is made.
        child = self._requests.spawn(SpawnRequest(caller.workspace, call.name, call.model, network, call.prompt), caller)
        return f"agent {child.name} is started; a message will tell you when it has finished"


def _json(**members: object) -> str:
    return msgspec.json.format(msgspec.json.encode(members), indent=1).decode()
