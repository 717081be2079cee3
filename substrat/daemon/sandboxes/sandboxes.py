"""Composes the parts of the daemon that all its sandboxes are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.kernel.cgroups import find_cgroups
from substrat.daemon.network.filtered import Networks
from substrat.daemon.sandboxes.prepare import SandboxPreparer
from substrat.daemon.sandboxes.running import RunningSandboxes
from substrat.daemon.sandboxes.spawn_checks import SpawnChecks
from substrat.daemon.workspaces.protection import Protection

if TYPE_CHECKING:
    from substrat.daemon.agents.state import State
    from substrat.daemon.workspaces.user import User


class Sandboxes:
    """The sandboxes of one daemon."""

    def __init__(self, state: State, user: User) -> None:
        self.user = user
        self.cgroups = find_cgroups()
        self.networks = Networks()
        self.running = RunningSandboxes()
        self.preparer = SandboxPreparer(state, user, self.cgroups)
        self.preparer.set_limits()
        self.checks = SpawnChecks(state, user, self.preparer)
        self.protection = Protection(state.registry, state.files, self.preparer.protector.placeholders)
