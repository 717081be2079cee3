"""The operator's methods as the clients need them; `make generate` writes it from the daemon's Structs.

Standard library only: `substratctl` imports this at every start.
"""

from __future__ import annotations

METHODS = (
    "hello",
    "agent.spawn",
    "agent.send",
    "agent.list",
    "agent.show",
    "agent.wait",
    "agent.wait_message",
    "agent.suspend",
    "agent.resume",
    "agent.interrupt",
    "agent.end",
    "agent.rm",
    "agent.explain",
    "agent.exec",
    "agent.turns",
    "agent.usage",
    "agent.network",
    "agent.accept",
    "session.list",
    "session.read",
    "events.read",
    "events.subscribe",
    "events.unsubscribe",
    "inbox.list",
    "inbox.show",
    "inbox.answer",
    "inbox.dismiss",
    "daemon.status",
    "daemon.check",
    "daemon.shutdown",
)
WAITING = frozenset({
    "agent.wait",
    "agent.wait_message",
    "agent.suspend",
    "agent.interrupt",
    "agent.end",
    "agent.exec",
    "session.list",
    "session.read",
    "daemon.shutdown",
})  # fmt: skip
"""Methods whose answers may take long; the others of a connection are carried out one after the other."""
