"""Keeps agents' waits: registers them, finds those that are over in each change, wakes their agents once.

Whether a wait is over is asked at the end of each change, in its transaction: a child's last turn and its parent's wake are
committed together, so no death of the daemon comes between them.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from substrat.core.agents import excerpts, turn_check
from substrat.core.agents.lifecycle import STATE_OF, WORKING_PHASES, Event, Phase
from substrat.core.agents.records import SYSTEM, Closed, Item, ItemKind, by_agent, open_turn_id
from substrat.core.families import results, waits
from substrat.core.families.waits import Ending, Report, Wait, WaitMode
from substrat.daemon.families.wait_members import members_of
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, LimitReached, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from substrat.core.agents.records import Agent, Turn
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry

MOST = 16
"""Open waits of one agent: a model that registers more has lost count, and each change of a member looks at all of them."""
LONGEST_S = 366 * 86400.0
"""Seconds, a year, as for reminders."""
_TIMELESS = float("-inf")
"""The time at which no wait has passed its deadline: a change ends waits, and the timer those whose time is over."""


class Waits:
    """The waits of one daemon's agents, in memory as in the state."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._waits: dict[int, Wait] = {}
        self._concerning: dict[str, set[int]] = {}
        self._for_tasks: set[int] = set()
        for wait in self._store.pending_waits():
            self._keep(wait)

    # Reading

    def of(self, agent_id: str) -> list[Wait]:
        """Return an agent's waits, oldest first: those that are open, and those whose wake no turn has delivered yet."""
        return [wait for wait in self.about(agent_id) if wait.agent == agent_id]

    def open_of(self, agent_id: str) -> list[Wait]:
        """Return an agent's open waits, oldest first."""
        return [wait for wait in self.of(agent_id) if wait.is_open]

    def awaits(self, agent: Agent, other: Agent) -> list[Wait]:
        """Return the open waits of an agent for another."""
        return [wait for wait in self.open_of(agent.id) if other.id in wait.members]

    def for_tasks(self) -> list[Wait]:
        """Return the open waits for tasks, as the change under way has left them, oldest first."""
        changed = self._registry.changed_waits
        numbers = sorted(self._for_tasks | changed.keys()) if self._for_tasks or changed else ()
        found = (changed[number] if number in changed else self._waits[number] for number in numbers)
        return [wait for wait in found if wait is not None and wait.is_open and wait.mode is WaitMode.TASK]

    def listed(self) -> list[Wait]:
        """Return all open waits as last committed, oldest first."""
        return [self._waits[number] for number in sorted(self._waits) if self._waits[number].is_open]

    def waiting(self) -> set[str]:
        """Return the agents with open waits, by id."""
        return {wait.agent for wait in self._waits.values() if wait.is_open}

    def live_of(self, agent_id: str) -> list[Wait]:
        """Return an agent's open waits that may end by themselves, oldest first.

        A wait for a task may while anybody of the family works: else nobody makes one ready.
        """
        open_ones = self.open_of(agent_id)
        if all(wait.mode is not WaitMode.TASK for wait in open_ones) or self._at_work_beside(agent_id):
            return open_ones
        return [wait for wait in open_ones if wait.mode is not WaitMode.TASK]

    def _at_work_beside(self, agent_id: str) -> str | None:
        """Return one of an agent's family that works, by id; None: nobody does."""
        registry, agent = self._registry, self._registry.get(agent_id)
        if agent is None:
            return None
        root = registry.root_of(agent).id
        for one in itertools.chain(registry.changed_agents, registry.index.any_in(WORKING_PHASES)):
            found = registry.get(one.id)
            if found is None or found.phase not in WORKING_PHASES or (found.phase is Phase.QUEUED and found.needs):
                continue
            if registry.root_of(found).id == root:
                return found.id
        return None

    def finished(self, members: Iterable[str]) -> set[str]:
        """Return those of some agents that have finished, by id."""
        done = [member for member in members if self._is_finished(member, asks=False)]
        return {*done} - self._askers(done)

    def held(self, members: Sequence[str]) -> set[str]:
        """Return those of some agents that haven't finished and go on only when a person acts, by id."""
        found = [member for member in members if self._is_held(member, asks=True)]
        askers = self._askers(found)
        return {member for member in found if self._is_held(member, asks=member in askers)}

    def _is_held(self, agent_id: str, *, asks: bool) -> bool:
        agent, own = self._registry.get(agent_id), self.live_of(agent_id)
        if agent is not None and own and agent.phase in {Phase.IDLE, Phase.FAILED}:  # it goes on when one of those does
            members = {member for wait in own for member in wait.members}
            lasts = all(wait.deadline is None and wait.mode is not WaitMode.TASK for wait in own)
            return lasts and self.held([*members]) == members
        return waits.is_held(agent, has_open_wait=bool(own), asks=asks)

    def _askers(self, agents: Sequence[str]) -> set[str]:
        """Return those of some agents that have asked the operator something; often there is no agent to look up."""
        ids = [one for one in agents if (agent := self._registry.get(one)) is not None and agent.phase != Phase.ENDED]
        return self._store.askers(ids) if ids else set()

    def _is_finished(self, agent_id: str, *, asks: bool) -> bool:
        return waits.is_finished(self._registry.get(agent_id), has_open_wait=bool(self.live_of(agent_id)), asks=asks)

    def awaited(self, agent_id: str) -> list[str]:
        """Return an agent and all that it waits for, and that those wait for, by id; for a task one that works."""
        found, seen = [agent_id], {agent_id}
        for one in found:  # it grows while it is walked
            for wait in self.open_of(one):
                worker = self._at_work_beside(one) if wait.mode is WaitMode.TASK else None
                fresh = [member for member in (*wait.members, worker) if member is not None and member not in seen]
                found += fresh
                seen.update(fresh)
        return found

    def about(self, agent_id: str) -> list[Wait]:
        """Return the waits in which an agent waits or is waited for, as the change under way has left them."""
        changed = self._registry.changed_waits
        numbers = self._concerning.get(agent_id, ())
        if not numbers and not changed:
            return []  # as for most agents of a long list
        found = {number: self._waits[number] for number in numbers if number not in changed}
        found |= {
            number: wait
            for number, wait in changed.items()
            if wait is not None and (wait.agent == agent_id or agent_id in wait.members)
        }
        return [found[number] for number in sorted(found)]

    # Registering

    def register(
        self, agent: Agent, names: Sequence[str] | None, mode: WaitMode, timeout_s: float | None, note: str | None
    ) -> tuple[Wait | None, str]:
        """Let an agent wait for others.

        Args:
            agent: the agent that waits.
            names: the others; None: its children.
            mode: whether all must have finished, or one.
            timeout_s: seconds after which it is woken in any case.
            note: words that come back with the wake.

        Returns:
            The wait, and what is to be told of it; None, and the results, if it is over already. Names that can't be waited
            for are told one by one, and the others waited for.

        Raises:
            NotFound: no such agent.
            Refused: it would wait for itself or an ancestor alone, or in a circle.
            LimitReached: it has too many waits.
            InvalidParams: its deadline is too far off, or its note too long.
        """
        registry = self._registry
        if timeout_s is not None and not 0 < timeout_s <= LONGEST_S:
            raise InvalidParams(f"timeout_s can be more than 0 and up to {LONGEST_S:g} seconds, not {timeout_s:g}")
        if note is not None and len(note.encode("utf-8", "replace")) > registry.config.limits.message_bytes:
            raise InvalidParams(f"a note may have {registry.config.limits.message_bytes} bytes: write the rest to a file")
        members, problems = members_of(registry, agent, names)
        refused = "".join(f"\nnot waited for: {problem}" for problem in problems)
        self._check_circle(agent, members)
        now = registry.now()
        deadline = now + timeout_s if timeout_s is not None else None
        wait = Wait(
            0, agent.id, tuple(one.id for one in members), tuple(one.name for one in members), mode, now, deadline, note
        )
        with registry.change("wait registered") as change:
            reports = self._take_reports(change, agent, wait.members)
            older = [one for one in self.open_of(agent.id) if set(one.members) == set(wait.members) and one.mode is mode]
            for one in older:  # the model asks again: one wake is enough
                reports += one.reports
                change.put_wait(one.id, None)
            finished = self.finished(wait.members)
            wait = replace(wait, reports=tuple(sorted(reports)))
            if waits.is_satisfied(mode, wait.members, finished, self.held(wait.members)):
                return None, self._words(wait, finished, timed_out=False) + refused
            wait = self._open(change, agent, wait)
            if deadline is not None:
                change.after(partial(registry.wake_at, deadline))
        held = self.held(wait.members)
        stuck = ", ".join(name for member, name in zip(wait.members, wait.names, strict=True) if member in held)
        waits_too = f"\nfor a person waits {stuck}: told as not done once all others have finished" if stuck else ""
        return wait, f"{_opened(wait)}: end your turn now; you are woken once, with the results{waits_too}{refused}"

    def _open(self, change: Change, agent: Agent, wait: Wait) -> Wait:
        """Store a new wait and return it with its number; raises `LimitReached`."""
        if len(self.open_of(agent.id)) >= MOST:
            raise LimitReached(f"{agent.name} waits {MOST} times already: finish your turn, and you are woken")
        wait = replace(wait, id=self._store.add_wait(wait))
        change.put_wait(wait.id, wait)
        change.put(self._registry.find(agent.id))  # so that it is looked at: one that is being ended waits no more
        turn, data = open_turn_id(agent), {"by": by_agent(agent), "wait": wait.id, "names": list(wait.names)}
        start = self._store.start_of_turn(turn)
        change.record(DaemonEvent(agent.id, turn, "wait:opened", _opened(wait), data, start))
        return wait

    def open_for_task(self, change: Change, agent: Agent, label: str | None) -> str:
        """Let an agent wait for a task, and return what is told of it.

        Args:
            change: the change that the call is.
            agent: the agent.
            label: the label that the task must have; None: any.

        Raises:
            LimitReached: it has too many waits.
        """
        same = [wait for wait in self.open_of(agent.id) if wait.mode is WaitMode.TASK and wait.label == label]
        wait = same[0] if same else Wait(0, agent.id, (), (), WaitMode.TASK, created_at=self._registry.now(), label=label)
        wait = wait if same else self._open(change, agent, wait)
        return f"{_opened(wait)}: end your turn now; you are woken once, with a task that is yours or when all are finished"

    def end_for_task(self, change: Change, agent_id: str) -> None:
        """Let an agent wait for no task any more, because it has one."""
        for wait in self.open_of(agent_id):
            if wait.mode is WaitMode.TASK:
                change.put_wait(wait.id, None)

    def release(self, change: Change, agent: Agent, others: Collection[str]) -> str:
        """Let an agent wait no more for others that it has stopped itself, and return the results if that ends waits."""
        told = []
        for wait in self.open_of(agent.id):
            left = [both for both in zip(wait.members, wait.names, strict=True) if both[0] not in others]
            if len(left) == len(wait.members):
                continue
            rest = replace(wait, members=tuple(one for one, _ in left), names=tuple(name for _, name in left))
            finished = self.finished(rest.members)
            over = not left or waits.is_satisfied(rest.mode, rest.members, finished, self.held(rest.members))
            change.put_wait(wait.id, None if over else rest)
            if over and (left or wait.reports):
                told.append(self._words(rest, finished, timed_out=False))
        return "\n".join(told)

    def _check_circle(self, agent: Agent, members: Iterable[Agent]) -> None:
        def waits_for(agent_id: str) -> list[str]:
            found = self._registry.get(agent_id)
            needs = found.needs if found is not None and found.phase != Phase.ENDED else ()
            return [*needs, *(member for wait in self.open_of(agent_id) for member in wait.members)]

        closed = waits.circle(agent.id, [member.id for member in members], waits_for)
        if closed is not None:
            names = [self._registry.find(one).name for one in closed]
            raise Refused(f"none of them would ever be woken: {waits.told_circle(names)}; finish your turn without waiting")

    def _take_reports(self, change: Change, agent: Agent, members: Sequence[str]) -> list[int]:
        """Take over the messages in an agent's inbox that tell the ends of members' turns, and return their numbers."""
        items = [self._store.item(number) for number in self._store.reports_waiting(agent.id, members)]
        found = [item for item in items if item is not None]
        if found:
            self._store.close_items(found, Closed.WAITED)
            change.take_items(self._registry.find(agent.id), found)
        return [item.id for item in found]

    # Changes

    def adopts(
        self, change: Change, asker: Agent, child: Agent, turn_id: str, text: str, reply_to: int | None = None
    ) -> bool:
        """Let a message about the end of a turn belong to the open waits of its addressee for that agent.

        Args:
            change: the change that the turn's end is a part of.
            asker: the addressee.
            child: the agent whose turn has ended.
            turn_id: the turn.
            text: the message.
            reply_to: the number of the message that it answers.

        Returns:
            Whether there is such a wait; the message isn't delivered by itself then.
        """
        if found := self.awaits(asker, child):
            self._add_report(change, asker.id, turn_id, text, found, reply_to)
        return bool(found)

    def _add_report(
        self,
        change: Change,
        agent_id: str,
        turn_id: str | None,
        text: str,
        found: Iterable[Wait],
        reply_to: int | None = None,
    ) -> None:
        now = self._registry.now()
        number = self._store.add_item(Item(0, agent_id, ItemKind.MESSAGE, SYSTEM, SYSTEM, text, now, reply_to=reply_to))
        self._store.close_numbers([number], Closed.WAITED)
        if turn_id is not None:
            self._store.note_report(number, turn_id)
        for wait in found:
            change.put_wait(wait.id, replace(wait, reports=(*wait.reports, number)))

    def before_removal(self, change: Change, agent: Agent) -> None:
        """Keep the result of an agent that is about to be removed for those who wait for it, and forget its own waits."""
        for wait in self.of(agent.id):
            change.put_wait(wait.id, None)
        turn = self._store.turn(agent.turn.id) if agent.turn is not None else None
        for wait in self.about(agent.id):
            told = {about for about, _ in self._store.reported(wait.reports)}
            if wait.is_open and turn is not None and turn.outcome is not None and turn.id not in told:
                report = self._report(agent.id, agent.name)
                text = waits.words(report.head, None, [], [report.text], excerpts.MOST)
                self._add_report(change, wait.agent, turn.id, text, [wait])

    def delivered(self, change: Change, agent_id: str, items: Iterable[Item]) -> None:
        """Forget the waits whose wakes an agent has been told now."""
        numbers = {item.id for item in items}
        for wait in self.of(agent_id):
            if wait.wake in numbers:
                change.put_wait(wait.id, None)

    def note_stalled(self, change: Change) -> None:
        """Let all look at the agents that wait for a task in vain, if by a change nobody of their family works any more."""
        if not (waiting := {wait.agent for wait in self.for_tasks()}):
            return
        resting = [agent for agent in change.agents.values() if agent.phase not in WORKING_PHASES]
        families = {self._registry.root_of(one).id for one in resting if not self._at_work_beside(one.id)}
        for agent in map(self._registry.get, waiting):
            if agent is not None and (change.removed or self._registry.root_of(agent).id in families):
                change.put(agent)

    def settle(self, change: Change) -> bool:
        """Wake those whose waits are over by a change, as a part of it, and say whether there were any."""
        if not self._waits and not change.waits:
            return False
        changed, has_woken, looked_at = [*change.agents, *change.removed], False, set[int]()
        for agent_id in changed:  # it grows: one that is woken may have finished by that, one that waits be held
            for wait in [wait for wait in self.about(agent_id) if wait.is_open and wait.id not in looked_at]:
                looked_at.add(wait.id)
                is_over = self._look(change, wait, _TIMELESS)
                has_woken = has_woken or is_over
                if is_over or wait.agent not in changed:
                    changed.append(wait.agent)
                if is_over:
                    looked_at.clear()
        return has_woken

    def _look(self, change: Change, wait: Wait, now: float) -> bool:
        """End a wait if it is over, and say whether it was."""
        agent, finished = self._registry.get(wait.agent), self.finished(wait.members)
        ending = waits.ending(wait, agent, finished, now, self.held(wait.members))
        if ending is None:
            return False
        if agent is None or ending is Ending.GONE:
            change.put_wait(wait.id, None)
            return True
        timed_out = ending is Ending.TIMED_OUT
        text = self._words(wait, finished, timed_out=timed_out)
        self.wake(change, wait, text, None if timed_out else self._last_of(wait.members), timed_out=timed_out)
        return True

    def wake(self, change: Change, wait: Wait, text: str, cause: int | None, *, timed_out: bool = False) -> None:
        """Wake the agent that waits.

        Args:
            change: the change that ends the wait.
            wait: the wait.
            text: what its agent is told.
            cause: the cursor of the event that ends it; None: time does.
            timed_out: whether its time is over.
        """
        agent, data = self._registry.find(wait.agent), {"wait": wait.id, "timed_out": timed_out}
        woke = change.record(DaemonEvent(agent.id, None, "wait:woke", text.partition("\n")[0], data, cause))
        number = change.add_item(agent, ItemKind.MESSAGE, text, (SYSTEM, SYSTEM), Event.MAIL, *woke)
        change.put_wait(wait.id, replace(wait, wake=number))

    def _last_of(self, members: Sequence[str]) -> int | None:
        """Return the cursor of the newest event, if it is one of some agents: then it has ended their wait."""
        row = self._store.event(self._registry.journal.last_cursor)
        return row.cursor if row is not None and row.agent in members else None

    def _words(self, wait: Wait, finished: Collection[str], *, timed_out: bool) -> str:
        named = zip(wait.members, wait.names, strict=True)
        reports = [self._report(member, name)._replace(finished=member in finished) for member, name in named]
        members = map(self._registry.get, wait.members)
        turns = {agent.turn.id for agent in members if agent is not None and agent.turn is not None}
        earlier = [text for about, text in self._store.reported(wait.reports) if about not in turns]
        number = f"Wait {wait.id}: " if wait.id else ""
        sentence = f"{number}{waits.over(wait.names, reports, timed_out=timed_out)}."
        return waits.words(sentence, wait.note, reports, earlier, self._registry.config.limits.message_bytes)

    def _report(self, agent_id: str, name: str) -> Report:
        agent = self._registry.get(agent_id)
        if agent is None:
            return Report(name, f"{name}: it was removed", "", finished=True)
        if agent.phase == Phase.FAILED and agent.unmet is not None:
            return Report(agent.name, f"{agent.name} (failed): no turn", agent.unmet, finished=False)
        turn = self._store.turn(agent.turn.id) if agent.turn is not None else None
        number = f"turn {turn.number}, " if turn is not None else ""
        made = f"; its work: {text}" if (text := self._registry.work_of(agent)) else ""
        held = ", not done until the operator resumes it" if agent.phase in {Phase.SUSPENDED, Phase.FROZEN} else ""
        head = f"{agent.name} ({STATE_OF[agent.phase]}): {number}{self.outcome_of(agent, turn)}{held}{made}"
        return Report(agent.name, head, results.text_of(turn, self.question_of(agent)), finished=False)

    def outcome_of(self, agent: Agent, turn: Turn | None) -> str:
        """Name the outcome of an agent's newest turn; of one that waits, for whom."""
        awaited = [name for wait in self.open_of(agent.id) for name in wait.awaited]
        refused = turn_check.refusal(agent.checked, turn)
        return results.outcome_of(turn, awaited, self.question_of(agent), refused=refused)

    def question_of(self, agent: Agent) -> Item | None:
        """Return the open question to the operator that an agent waits for."""
        asked = self._store.open_questions([agent.id]) if agent.phase not in {Phase.ENDING, Phase.ENDED} else {}
        return asked[agent.id][0] if asked else None

    def apply(self, change: Change) -> None:
        """Take a committed change over into memory."""
        for number, wait in change.waits.items():
            self._for_tasks.discard(number)
            if (old := self._waits.pop(number, None)) is not None:
                for agent_id in {old.agent, *old.members}:
                    self._concerning[agent_id].discard(number)
                    if not self._concerning[agent_id]:
                        del self._concerning[agent_id]
            if wait is not None:
                self._keep(wait)

    def _keep(self, wait: Wait) -> None:
        self._waits[wait.id] = wait
        if wait.mode is WaitMode.TASK:
            self._for_tasks.add(wait.id)
        for agent_id in {wait.agent, *wait.members}:
            self._concerning.setdefault(agent_id, set()).add(wait.id)

    # Time

    def end_due(self, now: float) -> float | None:
        """End the waits whose time is over, or that are over without a change; return when the next one's is."""
        for number in [wait.id for wait in self.listed()]:
            wait = self._waits.get(number)
            if wait is None or not wait.is_open:
                continue  # the end of one before it has ended it too
            agent, finished = self._registry.get(wait.agent), self.finished(wait.members)
            if waits.ending(wait, agent, finished, now, self.held(wait.members)) is not None:
                with self._registry.change("wait over") as change:
                    self._look(change, wait, now)
        return min((wait.deadline for wait in self.listed() if wait.deadline is not None), default=None)


def _opened(wait: Wait) -> str:
    until = f", for {wait.deadline - wait.created_at:g} s at most" if wait.deadline is not None else ""
    if wait.mode is WaitMode.TASK:
        return f"wait {wait.id} for {' '.join(wait.awaited)}"
    how = "all of " if wait.mode is WaitMode.ALL and len(wait.names) > 1 else "any of " if len(wait.names) > 1 else ""
    return f"wait {wait.id} for {how}{', '.join(wait.names)}{until}"
