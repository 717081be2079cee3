"""Keeps agents' reminders in the state and delivers each when it is due, also after a restart of the daemon.

All reminders share the daemon's one timer (`timer.py`), which is set to the next one that is due.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import reminding
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import SYSTEM
from substrat.core.agents.reminding import Reminder
from substrat.errors import LimitReached, NotFound

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry

MOST = 100
"""Reminders of one agent: `whoami` lists them all, and all agents' are looked through for the next one that is due."""


class ReminderWish(NamedTuple):
    """A reminder as an agent wishes for it: `in_s`, `at` or `every_s` say when (`reminding`)."""

    text: str
    in_s: float | None = None
    at: str | None = None
    every_s: float | None = None
    times: int | None = None
    until: str | None = None


class Reminders:
    """Keeps the agents' reminders."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def add(self, agent: Agent, wish: ReminderWish) -> tuple[int, float]:
        """Take a reminder on.

        Args:
            agent: who is to be reminded.
            wish: the reminder.

        Returns:
            The reminder's number, and when it is due in seconds since the epoch.

        Raises:
            LimitReached: the agent has too many, or the text is too long.
            InvalidParams: its time makes no sense.
        """
        limit = self._registry.config.limits.message_bytes
        if len(wish.text.encode("utf-8", "replace")) > limit:
            raise LimitReached(f"a reminder may have {limit} bytes: write the rest to a file")
        until = reminding.moment(wish.until) if wish.until is not None else None
        due = reminding.first_due(self._registry.now(), wish.in_s, wish.at, wish.every_s)
        reminding.check_period(due, wish.every_s, wish.times, until)
        if agent.waiting >= self._registry.config.limits.waiting_items:
            raise LimitReached(f"{agent.name} has {agent.waiting} messages waiting: read them first")
        if len(self._store.reminders(agent.id)) >= MOST:
            raise LimitReached(f"{agent.name} has {MOST} reminders already: cancel some")
        with self._registry.change("reminder added") as change:
            reminder = Reminder(0, agent.id, due, wish.text, wish.every_s, wish.times, until)
            number = self._store.add_reminder(reminder)
            change.after(partial(self._registry.wake_at, due))
        return number, due

    def cancel(self, agent: Agent, number: int) -> None:
        """Forget a reminder; raises `NotFound` if the agent has no such reminder."""
        if number not in {reminder.id for reminder in self._store.reminders(agent.id)}:
            raise NotFound(f"{agent.name} has no reminder {number}")
        with self._registry.change("reminder cancelled"):
            self._store.forget_reminder(number)

    def tell_due(self, now: float) -> float | None:
        """Put due reminders into inboxes, and return when the next one is due (`due.end_due`)."""
        for reminder in self._store.reminders(due=now):
            with self._registry.change("reminder due") as change:
                coming = reminding.following(reminder, now)
                if coming is None:
                    self._store.forget_reminder(reminder.id)
                else:
                    self._store.save_reminder(coming)
                agent = self._registry.get(reminder.agent)
                if agent is not None and agent.phase not in {Phase.ENDING, Phase.ENDED}:
                    self._deliver(change, agent, reminder)
        return next((reminder.due for reminder in self._store.reminders()), None)

    def _deliver(self, change: Change, agent: Agent, reminder: Reminder) -> None:
        text = f"You wanted to be reminded: {reminder.text}"
        if reminder.every is not None and self._store.is_waiting(agent.id, SYSTEM, text):
            return  # one that comes every hour doesn't pile up while its agent is suspended
        change.tell(agent, text, f"reminder:{reminder.id}")
