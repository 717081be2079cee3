"""Keeps families' tasks: adds them, gives each to one agent, and passes on how it ended, in the transaction of that.

A task is an agent's from its claim until it is finished, or until the agent fails or ends: there are no leases to renew.
Whether a claim has come to its end is asked at the end of each change, as with `waits`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from substrat.core.agents import excerpts
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.agents.records import OPERATOR, SYSTEM, ItemKind, by_agent
from substrat.core.families import tasks
from substrat.core.families.tasks import OPEN, Origin, Status, TaskState
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, NotFound, Refused, StorageFailed
from substrat.names import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.core.agents.records import Agent
    from substrat.core.families.tasks import NewTask, Task
    from substrat.core.families.waits import Wait
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.waits import Waits

log = structlog.get_logger("substrat.tasks")

_WORKERS = {Phase.IDLE, Phase.QUEUED, Phase.CHECKING, Phase.RUNNING, Phase.INTERRUPTING}
"""The phases of agents that get a task while they wait for one: others wait for a person first."""
_MOST_OF_ONE, _MOST_OF_ALL = 2048, 8192
"""Bytes of the results of those that a task needs which its agent is told."""


class Tasks:
    """The tasks of one daemon's families."""

    def __init__(self, registry: Registry, waits: Waits) -> None:
        self._registry = registry
        self._waits = waits
        self._store = registry.store
        self._observers: list[Callable[[str], None]] = []

    # Reading

    def family_of(self, agent: Agent) -> str:
        """Return the family that an agent belongs to, which is the id of its root."""
        return self._registry.root_of(agent).id

    def are_for(self, agent_id: str) -> bool:
        """Say whether an agent sees the tools for tasks.

        They are shown where there are tasks, and to those who may lead: an agent without a parent, and one with children.
        A program asks for its tools once a turn, so a lead must see them before it has any child or task.
        """
        agent = self._registry.get(agent_id)
        if agent is None:
            return False
        leads = agent.parent is None or bool(self._registry.children(agent_id))
        return leads or self._store.has_tasks(self.family_of(agent))

    def find(self, agent: Agent, name: str) -> Task:
        """Return a task of an agent's family; raises `NotFound`."""
        if (task := self._store.task(self.family_of(agent), name)) is None:
            raise NotFound(f"{self._registry.root_of(agent).name}'s family has no task {name[:80]!r}: list them to see all")
        return task

    def observe(self, observer: Callable[[str], None]) -> None:
        """Call a function after each change of a task's state, with the id of the family's root."""
        self._observers.append(observer)

    # What agents and people ask for

    def add(self, agent: Agent, new: Sequence[NewTask], creator: Agent | str) -> list[Task]:
        """Add tasks to an agent's family, all or none; one that is there with the same content is done.

        Args:
            agent: an agent of the family.
            new: the tasks.
            creator: the agent that adds them, or who else does (`records.BY_OPERATOR`).

        Returns:
            Those that were added.

        Raises:
            InvalidParams: there can be no such tasks.
            Refused: another task has the id of one.
            LimitReached: there would be too many.
        """
        registry, family = self._registry, self.family_of(agent)
        created_by, by = (creator, creator) if isinstance(creator, str) else (creator.id, by_agent(creator))
        origin = Origin(family, created_by, registry.now(), registry.config.tasks.attempts)
        named = {name for one in new for name in (one.id, *one.needs) if name is not None}
        with registry.change("tasks added") as change:
            store = self._store
            added = tasks.added(store.tasks_named(family, named), store.task_ids(family), new, origin)
            store.add_tasks(added)
            for task in added:
                self._record(change, agent.id, "task:added", task, f"task {task.id}: {task.title}", by=by)
            self._hand_out(change, family)
        return added

    def claim(self, agent: Agent, name: str | None, label: str | None, *, waits: bool) -> str:
        """Give a task to an agent, the oldest that is ready if it names none, and return what the agent is told.

        An agent has one task at a time: until that is finished it is told that one again.

        Args:
            agent: the agent.
            name: the task's id; None: any that is ready.
            label: the label that it must have; None: any.
            waits: whether the agent waits if none is ready.

        Raises:
            NotFound: there is no such task.
            Refused: it can't be had, or the agent has another one, or can't work.
        """
        family = self.family_of(agent)
        if agent.phase not in _WORKERS:
            raise Refused(f"{agent.name} can't work now ({STATE_OF[agent.phase]}), so it can have no task")
        if (own := self._store.task_of(agent.id)) is not None:
            if name not in {None, own.id}:
                raise Refused(f"{agent.name} has task {own.id}: finish_task comes first")
            return self._words(own)
        if name is not None and (label is not None or waits):
            raise InvalidParams("id names one task, label and wait are for any: leave one of them out")
        if name is not None and self.find(agent, name).state is not TaskState.READY:
            raise Refused(f"{self._told(self.find(agent, name))}: only a ready one can be claimed")
        with self._registry.change("task claimed") as change:
            task = self.find(agent, name) if name is not None else self._store.next_task(family, label)
            if task is not None:
                self._waits.end_for_task(change, agent.id)
                return self._words(self._claim(change, agent, task))
            counts = self._store.task_counts(family, label)
            if waits and any(state in counts for state in OPEN):
                return self._waits.open_for_task(change, agent, label)
        return self._left(family, label)

    def finish(self, agent: Agent, name: str | None, status: Status, result: str) -> str:
        """Finish the task that an agent has, and return what it is told.

        Raises:
            NotFound: there is no such task.
            Refused: the agent doesn't have it.
            InvalidParams: the result is too long.
        """
        if len(result.encode("utf-8", "replace")) > tasks.LONGEST:
            raise InvalidParams(f"a task's result may have {tasks.LONGEST} bytes: write the rest to a file")
        own = self._store.task_of(agent.id)
        if own is None or name not in {None, own.id}:
            other = self.find(agent, name) if name is not None else None
            what = self._told(other) if other is not None else f"{agent.name} has no task"
            raise Refused(f"{what}: an agent finishes the one that it has claimed")
        with self._registry.change("task finished") as change:
            self._finish(change, own, status, result)
        return f"task {own.id} has {status.value}; {tasks.counted(self._store.task_counts(own.family))}"

    def retry(self, agent: Agent, name: str, by: str) -> Task:
        """Let a task that hasn't succeeded be claimed again, with those that were skipped because of it.

        One that an agent has is taken from it.

        Args:
            agent: an agent of its family.
            name: its id.
            by: who asks (`records.BY_OPERATOR`).

        Raises:
            NotFound: there is no such task.
            Refused: there is nothing to try again, or it needs one that has failed.
        """
        task = self.find(agent, name)
        if task.state not in {TaskState.CLAIMED, TaskState.FAILED, TaskState.SKIPPED}:
            raise Refused(f"{self._told(task)}: only one that is claimed, has failed or was skipped can be tried again")
        fresh = replace(task, claimed_by=None, attempts=0, status=None, result="", finished_at=None)
        after = self._standing(fresh)
        if after.state is TaskState.SKIPPED:
            raise Refused(f"task {name} needs one that has failed or was skipped: retry that one")
        with self._registry.change("task retried") as change:
            self._store.save_task(after)
            self._record(change, task.family, "task:released", after, f"task {name} may be claimed again", by=by)
            self._take_away(change, task, by)
            self._pass_on(change, after)
            self._hand_out(change, task.family)
        return after

    def skip(self, agent: Agent, name: str, by: str) -> Task:
        """Skip a task that hasn't succeeded, and with it those that need it; arguments and errors are those of `retry`."""
        task = self.find(agent, name)
        if task.state in {TaskState.SUCCEEDED, TaskState.SKIPPED}:
            raise Refused(f"{self._told(task)}: there is nothing to skip")
        with self._registry.change("task skipped") as change:
            after = replace(
                task, state=TaskState.SKIPPED, status=Status.SKIPPED, result="", finished_at=self._registry.now()
            )
            self._store.save_task(after)
            self._record(change, task.family, "task:skipped", after, f"task {name} was skipped", by=by)
            self._take_away(change, task, by)
            self._pass_on(change, after)
            self._hand_out(change, task.family)
        return after

    def _take_away(self, change: Change, task: Task, by: str) -> None:
        """Tell the agent that has a task that a person has taken it away."""
        claimant = self._registry.get(task.claimed_by) if task.state is TaskState.CLAIMED else None
        if claimant is not None and claimant.phase not in {Phase.ENDING, Phase.ENDED}:
            change.tell(claimant, f"The operator has taken task {task.id} from you: leave it.", by)

    # Changes

    def settle(self, change: Change) -> None:
        """Take tasks from agents that have failed or are gone, and look at agents that wait for one, as a part of it.

        A failed agent waits for no task either: it asks for one when it works again.
        """
        for agent_id in (*change.agents, *change.removed):
            agent = self._registry.get(agent_id)
            if agent is not None and agent.phase not in {Phase.FAILED, Phase.ENDED}:
                continue
            if (task := self._store.task_of(agent_id)) is not None:
                self._release(change, task)
            if agent is not None:
                self._waits.end_for_task(change, agent_id)
        for wait in self._waits.for_tasks():
            agent = self._registry.get(wait.agent)
            if agent is not None and (agent.id in change.agents or change.removed):
                self._look(change, agent, wait, {})

    def look_at_all(self) -> None:
        """Take tasks from agents that are gone without a change, because their records couldn't be read.

        Those that waited for a task of theirs, or whose family has lost its root, are looked at too.
        """
        lost = [task for task in self._store.claimed_tasks() if self._registry.get(task.claimed_by) is None]
        if not lost and not self._waits.for_tasks():
            return
        try:
            with self._registry.change("wait over") as change:
                for task in lost:
                    self._release(change, task)
                for wait in self._waits.for_tasks():
                    if (agent := self._registry.get(wait.agent)) is not None:
                        self._look(change, agent, wait, {})
        except StorageFailed as problem:
            log.error("tasks not looked at", reason=problem.message)  # noqa: TRY400 - it says it all

    def _claim(self, change: Change, agent: Agent, task: Task) -> Task:
        after = replace(task, state=TaskState.CLAIMED, claimed_by=agent.id, attempts=task.attempts + 1)
        self._store.save_task(after)
        text = f"task {task.id}: {task.title} (attempt {after.attempts} of {after.max_attempts})"
        self._record(change, agent.id, "task:claimed", after, text, by=by_agent(agent))
        return after

    def _release(self, change: Change, task: Task) -> None:
        """Take a task from an agent that hasn't finished it: the next one has it, or it has failed."""
        name = self._registry.name_of(task.claimed_by) or "an agent that is gone"
        if task.attempts >= task.max_attempts:
            tried = f"{task.attempts} agents have had it" if task.attempts > 1 else f"{name} has had it"
            self._finish(change, task, None, f"{tried} and failed or ended before it was finished")
            return
        after = replace(task, state=TaskState.READY)
        self._store.save_task(after)
        self._record(change, task.family, "task:released", after, f"task {task.id} is ready again: {name} has it no more")
        self._hand_out(change, task.family)

    def _finish(self, change: Change, task: Task, status: Status | None, result: str) -> None:
        """Finish a task; without a status it has failed because nobody has finished it, which the operator is told."""
        state = TaskState.SUCCEEDED if status is Status.SUCCEEDED else TaskState.FAILED
        after = replace(task, state=state, status=status, result=result, finished_at=self._registry.now())
        self._store.save_task(after)
        claimant = self._registry.get(task.claimed_by)
        text = f"task {task.id} has {state.value}"
        by = by_agent(claimant) if claimant is not None and status is not None else SYSTEM
        cause = self._record(
            change, claimant.id if claimant is not None else task.family, "task:finished", after, text, by=by
        )
        if state is TaskState.FAILED:
            self._tell_failed(change, after, cause)
        self._pass_on(change, after)
        self._hand_out(change, task.family)

    def _tell_failed(self, change: Change, task: Task, cause: int) -> None:
        """Tell who has added a task that it has failed, and the operator if they have, or if nobody has given it up."""
        registry = self._registry
        creator, claimant, root = map(registry.get, (task.created_by, task.claimed_by, task.family))
        text = f"Task {task.id} has failed, and what needs it is skipped:\n\n"
        text += excerpts.quoted(f"{task.title}\n\n{task.result}".strip(), _MOST_OF_ONE)
        if creator is not None and creator != claimant and creator.phase not in {Phase.ENDING, Phase.ENDED}:
            # One that leads the claimant is told when its children are at rest.
            leads = claimant is not None and creator.id in registry.lineage(claimant)
            change.tell(creator, text, SYSTEM, cause, gathers=leads)
        if root is not None and (task.status is None or not is_uuid(task.created_by)):
            change.add_operator_item(ItemKind.MESSAGE, text, root, cause)

    def _pass_on(self, change: Change, task: Task) -> None:
        """Unblock, skip or unblock again what needs a task, and what needs that."""
        changed = [task]
        for one in changed:  # it grows while it is walked
            is_lost = one.state in {TaskState.FAILED, TaskState.SKIPPED}
            was = TaskState.BLOCKED if is_lost or one.state is TaskState.SUCCEEDED else TaskState.SKIPPED
            for other in self._store.tasks_needing(one.family, one.id, was):
                if other.status is not None:
                    continue  # a person has skipped it
                after = (
                    tasks.standing(other, {one.id: one.state}, self._registry.now()) if is_lost else self._standing(other)
                )
                if after.state is other.state:
                    continue
                if after.state is TaskState.SKIPPED:
                    text = f"task {after.id} is skipped: {after.result}"
                    self._record(change, one.family, "task:skipped", after, text)
                self._store.save_task(after)
                changed.append(after)

    def _standing(self, task: Task) -> Task:
        states = self._store.task_states(task.family, task.needs)
        return tasks.standing(task, {name: states.get(name) for name in task.needs}, self._registry.now())

    def _hand_out(self, change: Change, family: str) -> None:
        """Give tasks that are ready to those of a family that wait for one, the longest first."""
        spent: dict[str | None, bool] = {}
        for wait in self._waits.for_tasks():
            agent = self._registry.get(wait.agent)
            if agent is not None and self.family_of(agent) == family:
                self._look(change, agent, wait, spent)

    def _look(self, change: Change, agent: Agent, wait: Wait, spent: dict[str | None, bool]) -> None:
        """Wake an agent that waits for a task, if there is one for it, or if all are finished.

        Args:
            change: the change that this is a part of.
            agent: the agent.
            wait: its wait.
            spent: the labels of which no task is ready, each with whether all are finished; it grows.
        """
        if agent.phase not in _WORKERS or self._store.task_of(agent.id) is not None:
            return
        family, last = self.family_of(agent), self._registry.journal.last_cursor
        task = self._store.next_task(family, wait.label) if wait.label not in spent else None
        if task is not None:
            self._claim(change, agent, task)
            # No more than its id: when the agent reads this, the task may be another's again.
            self._waits.wake(change, wait, f"Wait {wait.id}: task {task.id} is ready for you: call claim_task.", last)
            self._waits.end_for_task(change, agent.id)
            return
        if wait.label not in spent:
            counts = self._store.task_counts(family, wait.label)
            spent[wait.label] = not any(state in counts for state in OPEN)
        if spent[wait.label]:
            self._waits.wake(change, wait, f"Wait {wait.id}: {self._left(family, wait.label)}.", last)

    # Words

    def _record(self, change: Change, agent_id: str, kind: str, task: Task, text: str, *, by: str = SYSTEM) -> int:
        data = {"task": task.id, "family": task.family, "state": task.state.value, "attempts": task.attempts, "by": by}
        (cursor,) = change.record(DaemonEvent(agent_id, None, kind, text, data))
        for observer in self._observers:
            change.after(partial(observer, task.family))
        return cursor

    def _told(self, task: Task) -> str:
        """Say how a task stands: `task t1 is claimed by kid`."""
        who = f" by {self._registry.name_of(task.claimed_by)}" if task.state is TaskState.CLAIMED else ""
        has = {TaskState.SUCCEEDED: "has succeeded", TaskState.FAILED: "has failed"}
        return f"task {task.id} {has.get(task.state, f'is {task.state.value}')}{who}"

    def _left(self, family: str, label: str | None) -> str:
        counts = self._store.task_counts(family, label)
        head = "no task is ready" if any(state in counts for state in OPEN) else "nothing is left to do"
        which = f" of those labelled {label}" if label is not None else ""
        return f"{head}{which}: {tasks.counted(counts)}"

    def _words(self, task: Task) -> str:
        """Return what the agent of a task is told: the task, quoted, and the results of those that it needs."""
        creator = self._registry.get(task.created_by)
        gone = "an agent that is gone" if is_uuid(task.created_by) else OPERATOR
        origin = creator.name if creator is not None else gone
        head = f"Task {task.id} is yours, attempt {task.attempts} of {task.max_attempts}, from {origin}:"
        parts = [head, excerpts.quoted(f"{task.title}\n\n{task.description}".strip())]
        share = min(_MOST_OF_ONE, _MOST_OF_ALL // max(1, len(task.needs)))
        for name in task.needs:
            needed = self._store.task(task.family, name)
            if needed is not None and needed.result:
                parts += [f"{name} had this result:", excerpts.quoted(needed.result, share)]
        return "\n\n".join([*parts, "Call finish_task when it is done, or with the status failed if it can't be."])
