"""Composes the parts of the daemon that change agents one by one: their records, requests, settings and mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.agents.accounting import Accounting
from substrat.daemon.agents.allow_list import AllowLists
from substrat.daemon.agents.inbox import Inbox
from substrat.daemon.agents.reminders import Reminders
from substrat.daemon.agents.requests import AgentRequests
from substrat.daemon.agents.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.network.filtered import Networks


class Agents:
    """The agents of one daemon, each by itself.

    Args:
        registry: the agents.
        networks: those that are being served.
        leave_out: has the agent program started without an option from now on.
    """

    def __init__(self, registry: Registry, networks: Networks, leave_out: Callable[[Agent, str], None]) -> None:
        self.accounting = Accounting(registry, leave_out)
        self.requests = AgentRequests(registry)
        self.inbox, self.reminders = Inbox(registry), Reminders(registry)
        self.allow_lists = AllowLists(registry, networks)
        self.settings = Settings(registry, self.allow_lists)
