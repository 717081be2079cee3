"""Makes the `filtered` network of an agent's sandbox, from the allow-list and the configuration as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.spec import Network
from substrat.core.netfilter import upstream
from substrat.daemon.network.filtered import TurnNetwork, event_recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.state.layout import TurnDir


def network_of(
    registry: Registry,
    watcher: Watcher,
    agent: Agent,
    place: TurnDir,
    socket_path: str,
    note: Callable[[str, str, str | None], None],
) -> TurnNetwork | None:
    """Return the network of a sandbox, None for an agent whose network isn't `filtered`.

    Args:
        registry: the agents.
        watcher: inotify.
        agent: whose sandbox it is.
        place: the directory of the turn or command.
        socket_path: where the socket of its proxy form lies.
        note: records a decision, as for `event_recorder`.
    """
    if agent.policy.network is not Network.FILTERED:
        return None
    # The list may have changed since the turn began, or since the caller of a command asked.
    allow = registry.find(agent.id).policy.allow
    through = upstream.read(registry.config.sandbox.upstream_proxy)
    return TurnNetwork(allow, place, socket_path, watcher, event_recorder(agent.name, note), through)
