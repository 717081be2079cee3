"""Limits agents' messages: how many may wait for one addressee, and which of them may start its turns, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents import retry
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.prompts import Rank
from substrat.core.agents.records import OPERATOR, SYSTEM, Intent, ItemKind
from substrat.errors import LimitReached, Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Item
    from substrat.daemon.agents.registry import Registry


def starts_turn(registry: Registry, sender: Agent, addressee: Agent, intent: Intent, reply_to: int | None) -> bool:
    """Say whether a message starts a turn of its addressee: no agent of another family makes one work, unless it answers.

    Args:
        registry: the agents.
        sender: who writes.
        addressee: to whom.
        intent: what the message is for.
        reply_to: the number of the message that it answers.
    """
    if intent is Intent.INFORM or registry.root_of(sender).id == registry.root_of(addressee).id:
        return intent is not Intent.INFORM
    return any(request.id == reply_to for request in registry.store.open_requests(sender.id))


def check(registry: Registry, sender: Agent, addressee: Agent | None, *, wakes: bool = True) -> None:
    """Find out whether an agent may write to another, or to the operator (None).

    Args:
        registry: the agents.
        sender: who writes.
        addressee: to whom.
        wakes: whether the message starts a turn.

    Raises:
        LimitReached: too many of its messages wait there already, or the addressee was woken too often.
    """
    limits, store = registry.config.limits, registry.store
    whom, where = (addressee.name, addressee.id) if addressee is not None else ("the operator", None)
    if (count := store.waiting_from(sender.id, where)) >= limits.waiting_from_one:
        raise LimitReached(f"{count} messages of {sender.name} wait for {whom} already: write again when they are read")
    if addressee is None and store.waiting_from(None, None) >= limits.waiting_items:
        raise LimitReached(f"{limits.waiting_items} questions and messages wait for the operator already")
    if addressee is not None and wakes and (until := asleep_until(registry, addressee)) is not None:
        raise LimitReached(
            f"messages alone have started the last {limits.wakes} turns of {addressee.name}: it takes none for "
            f"{max(1.0, until - registry.now()):.0f} s (limits.wakes), unless the operator prompts it"
        )


def check_failed(registry: Registry, sender: Agent, addressee: Agent) -> None:
    """Find out whether an agent may start a turn of another, if that has failed.

    Raises:
        Refused: only the addressee's ancestors and the operator may.
        LimitReached: it has failed alike again and again.
    """
    name = addressee.name
    if addressee.phase is not Phase.FAILED:
        return
    if sender.id not in registry.lineage(addressee)[1:]:
        parent = registry.name_of(addressee.parent)
        who = f"its parent {parent} or the operator" if parent is not None else "the operator"
        raise Refused(f"{name} has failed: a message of {who} lets it work again; an inform of yours comes with that")
    if _fails_alike(registry, addressee):
        error = ((addressee.turn and addressee.turn.error) or "").partition("\n")[0][:200]
        raise LimitReached(
            f"the last {retry.EQUAL_FAILURES} turns of {name} have failed alike ({error!r}): "
            "give its task to another child, or ask the operator"
        )


def event_of(addressee: Agent) -> Event:
    """Return what a message that was let through is to its addressee: one that has failed works again."""
    return Event.PROMPT if addressee.phase is Phase.FAILED else Event.MAIL


def goes_on(registry: Registry, agent: Agent) -> bool:
    """Say whether an agent whose turn has just failed goes on with a message of an ancestor's that came meanwhile."""
    above = registry.lineage(agent)[1:]
    waiting = registry.store.waiting_items(agent.id) if above else []
    waits = any(item.kind is ItemKind.MESSAGE and item.starts_turn and item.sender in above for item in waiting)
    return waits and not _fails_alike(registry, agent)


def _fails_alike(registry: Registry, agent: Agent) -> bool:
    return retry.fails_alike(registry.store.newest_ends(agent.id, retry.EQUAL_FAILURES))


def rank_of(registry: Registry, agent: Agent, item: Item) -> Rank:
    """Return the rank of a message's sender before the agent that it is for; one that was removed is a stranger."""
    if item.sender in {OPERATOR, SYSTEM}:
        return Rank.OPERATOR if item.sender == OPERATOR else Rank.SUBSTRAT
    if item.sender == agent.parent:
        return Rank.PARENT
    sender = registry.get(item.sender)
    if sender is not None and sender.parent == agent.id:
        return Rank.CHILD
    is_family = sender is not None and registry.root_of(sender).id == registry.root_of(agent).id
    return Rank.FAMILY if is_family else Rank.STRANGER


def asleep_until(registry: Registry, agent: Agent) -> float | None:
    """Return until when messages start no turn of an agent, in seconds since the epoch; None: they may now."""
    limits, store = registry.config.limits, registry.store
    if not limits.wakes or agent.turn is None or agent.turn.number < limits.wakes:
        return None
    first = store.woken_by_mail(agent.id, limits.wakes, OPERATOR)
    if first is None or first + limits.wake_window <= registry.now():
        return None
    return None if store.waits_from_a_person(agent.id, OPERATOR) else first + limits.wake_window
