"""The rooms of the daemon, as the operator's methods use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.agents.agents import Agents
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.agents.state import State
    from substrat.daemon.chats.reader import Chats
    from substrat.daemon.clones.clones import Clones
    from substrat.daemon.families.bell import Bell
    from substrat.daemon.families.families import Families
    from substrat.daemon.runs.runs import Runs
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.servers.objects import AgentObjects
    from substrat.daemon.turns.exec import ExecSessions
    from substrat.daemon.turns.turns import Turns


class Services(NamedTuple):
    """The rooms of the daemon that the operator's methods work on.

    Args:
        state: the agents, and the places of their files.
        agents: changes agents one by one.
        families: keeps their waits, needs, gates and the queue.
        bell: tells a person who needs them.
        sandboxes: prepares sandboxes.
        chats: the user's chats, and the agents'.
        clones: agents' private clones.
        runs: families from files.
        turns: their turns.
        exec_sessions: the operator's commands in agents' sandboxes.
        objects: makes the protocol's agent objects.
        stop: stops the daemon.
    """

    state: State
    agents: Agents
    families: Families
    bell: Bell
    sandboxes: Sandboxes
    chats: Chats
    clones: Clones
    runs: Runs
    turns: Turns
    exec_sessions: ExecSessions
    objects: AgentObjects
    stop: Callable[[], None]

    @property
    def registry(self) -> Registry:
        """The agents in memory."""
        return self.state.registry

    @property
    def requests(self) -> AgentRequests:
        """Changes agents."""
        return self.agents.requests
