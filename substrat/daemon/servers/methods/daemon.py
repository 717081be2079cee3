"""The methods of the daemon itself, and `hello`, which opens a conversation with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat import __version__
from substrat.daemon.servers import metrics
from substrat.daemon.servers.methods.request import Integer, Last, OperatorRequest, about
from substrat.errors import UnsupportedVersion
from substrat.protocol import framing

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class HelloRequest(OperatorRequest, frozen=True):
    """Opens the conversation, see [the greeting](#the-greeting). It MAY be repeated."""

    method: ClassVar[str] = "hello"

    protocol: Annotated[Integer, about("the newest version the client speaks")]
    client: Annotated[
        str | None, about("who is calling, in a few words; events name `web` and `ssh:HOST` as such, others as `ctl`")
    ] = None

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        if self.protocol < framing.PROTOCOL_VERSION:
            raise UnsupportedVersion(
                f"this daemon speaks protocol {framing.PROTOCOL_VERSION}, the client only up to {self.protocol}: "
                "upgrade the client"
            )
        connection.greet(self.client)
        return {
            "protocol": framing.PROTOCOL_VERSION,
            "server": f"substratd {__version__}",
            "pid": os.getpid(),
            "state_dir": services.state.layout.state,
        }


class NotifyTest(OperatorRequest, frozen=True):
    """Runs `notify.command` with one made-up agent, as it is run when an agent needs a person.

    Fails with `NotAvailable` when none is configured, and with `NotifyFailed` and its words when it fails.
    """

    method: ClassVar[str] = "notify.test"
    waits: ClassVar[bool] = True

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        await services.bell.test()
        return None


class DaemonStatus(OperatorRequest, frozen=True):
    """Says how the daemon is."""

    method: ClassVar[str] = "daemon.status"

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        registry, reserve = services.registry, services.registry.store.reserve
        return {
            "version": __version__,
            "pid": os.getpid(),
            "state_dir": services.state.layout.state,
            "runtime_dir": services.state.layout.runtime,
            "agents": len(registry.agents),
            "running": registry.running,
            "network": registry.config.sandbox.network.value,
            "filtered": mode.value if (mode := services.sandboxes.preparer.machine.filtered) is not None else None,
            "waiting_for": services.families.queue.closed,
            "cgroups": sorted(services.sandboxes.cgroups.controllers) if services.sandboxes.cgroups.are_there else None,
            "damaged": registry.store.damaged_agents(),
            "reserve": reserve.held if reserve is not None and reserve.is_possible else None,
        }


class DaemonMetrics(OperatorRequest, frozen=True):
    """Returns numbers for monitoring.

    `turns`, `turn_seconds`, `queue_seconds`, `tokens`, `tool_calls`, `messages` and `network` are totals since the state
    began, or since it was upgraded to a version that keeps them. They only grow: neither a restart nor `agent.rm` nor the
    retention of old turns changes them. All other numbers are those of now.
    """

    method: ClassVar[str] = "daemon.metrics"

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return await metrics.gather(services.registry, services.families)


class DaemonCheck(OperatorRequest, frozen=True):
    """Says whether agents can run under this daemon: it makes a sandbox to find out."""

    method: ClassVar[str] = "daemon.check"

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return {
            "obstacle": await services.sandboxes.checks.obstacle(),
            "environment": services.sandboxes.checks.surroundings(),
            "programs": sorted({agent.settings.program for agent in services.registry.agents}),
        }


class DaemonShutdown(OperatorRequest, frozen=True):
    """Stops the daemon."""

    method: ClassVar[str] = "daemon.shutdown"
    waits: ClassVar[bool] = True

    suspend: Annotated[bool, about("suspend every agent first; default: false")] = False

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        if self.suspend:
            await services.families.suspend_all(services.requests)
        return Last(None, services.stop)
