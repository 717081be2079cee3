"""Composes what stands above single agents: waits, needs, gates and the queue, which follow up the agents' changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.lifecycle import RUNNING_PHASES, Phase
from substrat.daemon.agents.follow_ups import FollowUps
from substrat.daemon.families.account_gates import AccountGates
from substrat.daemon.families.admission import Admission
from substrat.daemon.families.budgets import Budgets
from substrat.daemon.families.checks import Checks
from substrat.daemon.families.needs import Needs
from substrat.daemon.families.overview import Overview
from substrat.daemon.families.queue import Queue
from substrat.daemon.families.reports import Reports
from substrat.daemon.families.targets import Targets
from substrat.daemon.families.tasks import Tasks
from substrat.daemon.families.waiting import Waiting
from substrat.daemon.families.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.config import Config
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.disk_gate import DiskGate
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.kernel.files import Files


_SUSPENDABLE = frozenset({Phase.IDLE, Phase.QUEUED, Phase.CHECKING, Phase.RUNNING, Phase.INTERRUPTING, Phase.FROZEN})


class Families:
    """What stands above one daemon's agents.

    Args:
        registry: the agents, whose changes it follows up from now on.
        files: reads repositories.
        disk_gate: holds turns back while the disk is nearly full.
        login_of: names the login of an agent under a configuration (`Logins.of`).
    """

    def __init__(
        self, registry: Registry, files: Files, disk_gate: DiskGate, login_of: Callable[[Agent, Config], str]
    ) -> None:
        self._registry = registry
        self.gates = AccountGates(registry, login_of)
        self.waits = Waits(registry)
        self.needs = Needs(registry, self.waits)
        self.tasks = Tasks(registry, self.waits)
        self.budgets = Budgets(registry)
        self.queue = Queue(registry, self.gates, self.needs, self.budgets, disk_gate)
        self.admission = Admission(registry, self.queue, self.gates, self.budgets, self.waits, disk_gate=disk_gate)
        self.targets = Targets(registry, files)
        self.checks = Checks(registry, self.waits)
        self.overview = Overview(registry, self.queue, self.waits, self.targets, self.checks, budgets=self.budgets)
        self.waiting = Waiting(registry, self.waits, self.overview, self.budgets)
        self._reports = Reports(registry, self.waits)
        registry.follow_ups = FollowUps(
            tool_called=(self.gates.tool_called, self.budgets.tool_called),
            turn_ended=(self.gates.turn_over, self.checks.turn_over, self.budgets.turn_over),
            work_ended=(self._reports.tell,),
            question_closed=(self.checks.question_closed,),
            taken=(self.waits.delivered,),
            removing=(self.waits.before_removal,),
            settle=(self._settle,),
            apply=(self.waits.apply, self.needs.apply, self.queue.apply),
            admit=(self.admission.admit, self.budgets.look),
        )

    def _settle(self, change: Change) -> None:
        """Decide the tasks, needs and waits that a change has decided, until none decides another; wake parents."""
        self.tasks.settle(change)
        self.waits.note_stalled(change)
        self.needs.settle(change)
        while self.waits.settle(change):
            self.needs.settle(change)
        self._reports.settle(change)

    def take_up(self) -> None:
        """Take up the turns and needs that an earlier daemon left, then admit agents from now on."""
        self._registry.take_up()
        self.tasks.look_at_all()
        self.needs.look_at_all()
        self._reports.look_at_all()
        self.admission.open()
        self._registry.admit()

    async def suspend_all(self, requests: AgentRequests) -> None:
        """Begin no further turn, suspend all agents, and wait until none of them runs."""
        self.admission.close()
        for agent in self._registry.index.in_phases(_SUSPENDABLE):
            requests.suspend(agent.id, together=True)
        for agent in self._registry.index.in_phases(RUNNING_PHASES):
            await self.waiting.settled(agent.id)
