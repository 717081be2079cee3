"""The parts of the daemon that the operator's methods work on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.agents.allow_list import AllowLists
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.inbox import Inbox
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.agents.settings import Settings
    from substrat.daemon.chats.reader import Chats
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.clones.clones import Clones
    from substrat.daemon.clones.renaming import Renaming
    from substrat.daemon.families.bell import Bell
    from substrat.daemon.families.families import Families
    from substrat.daemon.kernel.cgroups import Cgroups
    from substrat.daemon.sandboxes.prepare import SandboxPreparer
    from substrat.daemon.sandboxes.running import RunningSandboxes
    from substrat.daemon.sandboxes.spawn_checks import SpawnChecks
    from substrat.daemon.servers.objects import AgentObjects
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.turns.exec import ExecSessions
    from substrat.daemon.turns.questions import TurnQuestions


class Services(NamedTuple):
    """The parts of the daemon that the operator's methods work on.

    Args:
        requests: changes agents.
        families: keeps their waits, needs, gates and the queue.
        objects: makes the protocol's agent objects.
        turns: answers questions about running turns.
        preparer: prepares sandboxes.
        checks: checks what a spawn asks for.
        cgroups: limits whole sandboxes.
        layout: the daemon's directories.
        chats: the user's chats.
        sessions: moves agents' chats to the user's.
        inbox: the operator's inbox.
        allow_lists: the hosts that `filtered` networks let through.
        exec_sessions: the operator's commands in agents' sandboxes.
        findings: findings in workspaces that wait for a person.
        clones: agents' private clones.
        renaming: gives agents other names.
        settings: changes their settings.
        sandboxes: tells which of their sandboxes run.
        bell: tells a person who needs them.
        stop: stops the daemon.
    """

    requests: AgentRequests
    families: Families
    objects: AgentObjects
    turns: TurnQuestions
    preparer: SandboxPreparer
    checks: SpawnChecks
    cgroups: Cgroups
    layout: Layout
    chats: Chats
    sessions: Sessions
    inbox: Inbox
    allow_lists: AllowLists
    exec_sessions: ExecSessions
    findings: Findings
    clones: Clones
    renaming: Renaming
    settings: Settings
    sandboxes: RunningSandboxes
    bell: Bell
    stop: Callable[[], None]

    @property
    def registry(self) -> Registry:
        """The agents in memory."""
        return self.requests.registry
