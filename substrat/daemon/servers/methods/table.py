"""All methods of the operator socket, in the order of `docs/protocol.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.servers.methods import (
    agents,
    clones,
    daemon,
    events,
    forward,
    inbox,
    messages,
    network,
    prompts,
    queue,
    sessions,
    settings,
    spawn,
    stop,
    trees,
    turns,
    waits,
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
    settings.AgentRename,
    settings.AgentSet,
    forward.AgentForward,
    clones.AgentSetup,
    clones.AgentDiff,
    clones.AgentMerge,
    clones.AgentRestore,
    clones.AgentCheckout,
    trees.TreeList,
    trees.TreePrune,
    sessions.SessionList,
    sessions.SessionRead,
    events.AgentWhy,
    events.EventsRead,
    events.EventsSubscribe,
    events.EventsUnsubscribe,
    inbox.InboxList,
    inbox.InboxShow,
    inbox.InboxAnswer,
    inbox.InboxDismiss,
    messages.MessageList,
    messages.MessageDrop,
    waits.WaitList,
    queue.QueueList,
    queue.QueueGates,
    queue.QueueTry,
    daemon.DaemonStatus,
    daemon.DaemonCheck,
    daemon.DaemonShutdown,
)
BY_NAME = {kind.method: kind for kind in METHODS}
