"""The operator socket: checks who connects, and carries out the methods of `methods.table`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.daemon.kernel import sockets
from substrat.daemon.servers import rpc
from substrat.daemon.servers.methods import table
from substrat.daemon.turns import exec_caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.servers.methods.request import OperatorRequest
    from substrat.daemon.servers.methods.services import Services

log = structlog.get_logger("substrat.operator")

MAX_CONNECTIONS = 512
"""Room for a follower of each of some hundred agents; each costs a descriptor and two tasks, so it ends somewhere."""


class OperatorServer:
    """Serves the operator socket."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def serve(
        self, listener: trio.SocketListener, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve the operator socket until cancelled."""
        task_status.started()
        await sockets.accept_forever(listener, MAX_CONNECTIONS, self.serve_stream)

    async def serve_stream(self, stream: trio.SocketStream, greeted: Callable[[], None]) -> None:
        """Serve one client, if it is the daemon's own user or root; `greeted` is called after its `hello`."""
        if (uid := sockets.peer_uid(stream)) not in {os.geteuid(), 0}:
            log.warning("refused a client of another user", uid=uid)
            return
        pid = sockets.peer_pid(stream)
        try:
            await rpc.ClientConnection(stream, self, greeted).serve()
        finally:
            # A caller of `agent.exec` that was killed can't remove its socket itself.
            exec_caller.remove_sockets(self._services.state.layout.runtime, pid)

    def find(self, method: str) -> type[OperatorRequest] | None:
        """Return the class of a method (`rpc.Methods`)."""
        return table.BY_NAME.get(method)

    async def perform(self, request: OperatorRequest, connection: rpc.ClientConnection) -> object:
        """Carry a request out and return its result (`rpc.Methods`)."""
        result = await request.perform(self._services, connection)
        self._services.registry.points.answering(request.method)
        return result
