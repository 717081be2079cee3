"""All methods of the operator socket, in the order of `docs/protocol.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.servers.methods import (
    agents,
    daemon,
    events,
    inbox,
    network,
    prompts,
    sessions,
    spawn,
    stop,
    turns,
)

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.request import OperatorRequest

METHODS: tuple[type[OperatorRequest], ...] = (
    daemon.HelloRequest,
    spawn.AgentSpawn,
    prompts.AgentSend,
    agents.AgentList,
    agents.AgentShow,
    prompts.AgentWait,
    prompts.AgentWaitMessage,
    stop.AgentSuspend,
    prompts.AgentResume,
    stop.AgentInterrupt,
    stop.AgentEnd,
    agents.AgentRm,
    agents.AgentExplain,
    turns.AgentExec,
    turns.AgentTurns,
    turns.AgentUsage,
    network.AgentNetwork,
    agents.AgentAccept,
    sessions.SessionList,
    sessions.SessionRead,
    events.EventsRead,
    events.EventsSubscribe,
    events.EventsUnsubscribe,
    inbox.InboxList,
    inbox.InboxShow,
    inbox.InboxAnswer,
    inbox.InboxDismiss,
    daemon.DaemonStatus,
    daemon.DaemonCheck,
    daemon.DaemonShutdown,
)
BY_NAME = {kind.method: kind for kind in METHODS}
