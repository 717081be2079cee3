"""Puts the prompt of a turn together from the items that it delivers, and says who gave its agent the task."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

from substrat.core.agents import prompts
from substrat.core.agents.lifecycle import Event
from substrat.core.agents.records import OPERATOR, Completion, Intent, ItemKind, left_unfinished
from substrat.core.agents.turn_check import CheckState
from substrat.daemon.agents import mail

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Item, Turn
    from substrat.core.agents.turn_check import TurnCheck
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.state.store import Store


def prompt_of(registry: Registry, turn: Turn) -> str:
    """Return the prompt of a turn, which delivers its items, after the words that Substrat has for the agent."""
    agent = registry.get(turn.agent)
    clone = agent.clone if agent is not None else None
    notice = f"{clone.notice}\n\n" if clone is not None and clone.notice and clone.notice_turn == turn.number else ""
    items = registry.store.items_of_turn(turn.id)
    prompt = "\n\n".join(item.text for item in items if item.kind is not ItemKind.MESSAGE)
    messages = [item for item in items if item.kind is ItemKind.MESSAGE]
    if not messages:
        return notice + prompt
    rank = partial(mail.rank_of, registry, agent) if agent is not None else lambda _: prompts.Rank.STRANGER
    delivery = prompts.delivery(messages, secrets.token_hex(4), turn.started_at, rank)
    return f"{notice}{prompt}\n\n{delivery}" if prompt else notice + delivery


def unfinished(registry: Registry, agent: Agent) -> str | None:
    """Return the prompt with which an agent goes on with its last turn, None if that turn came to its end."""
    turn = agent.turn
    if turn is None or not left_unfinished(turn, waiting=agent.waiting > 0):
        return None
    if not registry.store.items_of_turn(turn.id):
        return None  # its items wait again already
    if any(item.kind is ItemKind.CONTINUATION for item in registry.store.waiting_items(agent.id)):
        return None  # so does the prompt to go on
    prompt = prompt_of(registry, turn)
    return prompts.continuation(prompt) if turn.reported else prompt


def say_again(registry: Registry, change: Change, agent: Agent, cause: int | None) -> bool:
    """Give an agent that a message wakes the task of its last turn once more, if that never came to its program.

    Args:
        registry: the agents.
        change: the change in which it wakes.
        agent: the agent, whose last turn has failed.
        cause: the cursor of the event that wakes it.

    Returns:
        Whether there was such a task; the agent has work then.
    """
    if agent.turn is None or agent.turn.reported or (prompt := unfinished(registry, agent)) is None:
        return False
    change.add_item(agent, ItemKind.CONTINUATION, prompt, asker_of(registry, agent), Event.PROMPT, cause=cause)
    return True


def asker_of(registry: Registry, agent: Agent) -> tuple[str, str]:
    """Return who gave an agent the task of its last turn, by id and name: they are told when it is done after all."""
    turn = agent.turn
    if turn is not None and left_unfinished(turn, waiting=agent.waiting > 0):
        return asker(registry, turn)
    return OPERATOR, OPERATOR


def items_behind(store: Store, turn: Turn) -> list[Item]:
    """Return the items that a turn delivered, and those of the turns before it whose work it has gone on with."""
    items, number = store.items_of_turn(turn.id), turn.number
    while number > 1:
        (before,) = store.turns_after(turn.agent, number - 2, 1)
        if not before.unsettled:
            break
        items, number = [*store.items_of_turn(before.id), *items], number - 1
    return items


def held(store: Store, turn: Turn, check: TurnCheck | None) -> Turn | None:
    """Return the turn before one if what its agent gave there to `complete` holds: it was given no other task since.

    Args:
        store: the state.
        turn: the turn.
        check: the agent's check; the words that its failure sends the agent back with are no other task.
    """
    if turn.number == 1:
        return None
    is_retry = check is not None and check.state is CheckState.AGAIN and check.turn == turn.number - 1
    items = store.items_of_turn(turn.id)
    if not is_retry and any(item.kind is not ItemKind.MESSAGE or item.intent is Intent.REQUEST for item in items):
        return None
    (before,) = store.turns_after(turn.agent, turn.number - 2, 1)
    if not before.unsettled and store.open_requests(turn.agent):
        return None  # one that it has taken from its inbox: those of before are settled
    return before if before.completion in {Completion.SUCCEEDED, Completion.FAILED} else None


def asker(registry: Registry, turn: Turn) -> tuple[str, str]:
    """Return who gave an agent the task of a turn, by id and name."""
    for item in items_behind(registry.store, turn):
        if item.kind is not ItemKind.MESSAGE:
            return item.sender, item.sender_name
    return OPERATOR, OPERATOR
