"""Takes the steps of runs: each acts and notes that in one commit, so a daemon that dies takes none twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from substrat.core.families.runs import Returned, Step
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.core.families.plans import Member
    from substrat.core.families.runs import Next, Run
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.families.tasks import Tasks
    from substrat.daemon.runs.starting import Members


class Followed:
    """A run that isn't over, with the wake-up of its task; a daemon that dies loses all but the run.

    Args:
        run: the run, as it is stored.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.changed = Wakeup()
        self.moved = trio.Event()
        self.held: str | None = None
        """Why the next step isn't taken yet."""
        self.is_short = False
        """Whether that is want of room, which a person has to make."""
        self.again_at = 0.0
        """When the next try may be, in seconds since the epoch."""
        self.tried: Next | None = None
        """The step that was tried last."""
        self.tries = 0
        """Failed tries of that step."""
        self.scope: trio.CancelScope | None = None
        """The scope of the step that is being taken."""
        self.failed: dict[str, str] = {}
        """The members that can't go on, each with the reason."""

    def wake(self) -> None:
        """Let its task look at it, and those that follow it."""
        self.changed.set()
        self.tell()

    def tell(self) -> None:
        """Let those look at it that follow it."""
        self.moved.set()
        self.moved = trio.Event()


@attrs.define(eq=False)
class Steps:
    """The steps of one daemon's runs."""

    _requests: AgentRequests
    _members: Members
    _tasks: Tasks
    _taken_over: Callable[[Followed, Run], None]
    """Takes a run over into memory when its change is committed."""

    async def take(self, followed: Followed, step: Next) -> None:
        """Take the next step of a run; cancelled before its commit it isn't taken.

        Raises:
            SubstratError: it can't be taken, or not now.
        """
        run, member = followed.run, step.member
        match step.step:
            case Step.START if member.name == run.plan.lead and run.root is not None:
                self._give_task(followed, member)
            case Step.MAKE | Step.START:
                await self._members.start(run, member, partial(self._note_start, followed, member))
            case Step.LIST:
                plan = await self._members.listed(run, member)
                empty = (
                    None if len(plan.members) >= len(run.plan.members) else f"{member.name}: its command printed no line"
                )
                with self._requests.registry.change("run listed") as change:
                    why = "; ".join(filter(None, (run.why, empty))) or None
                    self._save(change, followed, replace(followed.run, plan=plan, why=why))
            case Step.RETURN:
                self._return(followed, member)
            case Step.ASK_AGAIN:
                self._members.give_task(run, member)

    def _give_task(self, followed: Followed, lead: Member) -> None:
        """Give the lead its task that the others had to be done for, and note that in the same commit."""
        run = followed.run
        after = replace(run, agents={**run.agents, lead.name: str(run.root)})
        with self._requests.registry.change("prompt queued") as change:
            self._save(change, followed, after)
            self._members.give_task(after, lead)

    def _return(self, followed: Followed, member: Member) -> None:
        """Give a member's result back, and note that in the same commit."""
        run, registry = followed.run, self._requests.registry
        agent, author = registry.find(run.agents[member.name]), run.agents[str(member.returns_to)]
        times = run.returned[member.name].times + 1 if member.name in run.returned else 1
        turn = agent.turn.id if agent.turn is not None else ""
        after = replace(run, returned={**run.returned, member.name: Returned(times, turn)})
        with registry.change("result returned") as change:
            self._save(change, followed, after)
            text = f"{agent.name} doesn't agree, in round {times} of {member.rounds}"
            change.record(DaemonEvent(author, None, "run:step", text, {"run": run.name, "file": run.file}))
            self._members.give_back(after, member)

    def _save(self, change: Change, followed: Followed, run: Run) -> None:
        """Store a change of a run; raises `Refused` if it is over."""
        if followed.run.ended_at is not None:
            raise Refused("the run was ended meanwhile")
        self._requests.registry.store.save_run(run)
        change.after(partial(self._taken_over, followed, run))

    def _note_start(self, followed: Followed, member: Member, change: Change, agent: Agent) -> None:
        run = followed.run
        if member.name == run.plan.lead and run.plan.is_lead_last:
            after = replace(run, root=agent.id)
        else:
            after = replace(run, agents={**run.agents, member.name: agent.id})
        self._save(change, followed, after)
        if member.name == run.plan.lead and run.plan.tasks:
            self._tasks.add(agent, run.plan.tasks, run.by)
        kind = "run:step" if run.ids else "run:started"
        text = f"{len(after.ids)} of {len(run.plan.members)} agents of the run {run.name} have been started"
        change.record(DaemonEvent(agent.id, None, kind, text, {"run": run.name, "file": run.file}))
