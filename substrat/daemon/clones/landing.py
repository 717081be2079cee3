"""Lands agents' kept work in branches of the user's: one landing after the other for each branch.

Each landing is previewed on the target branch of its moment, the files that it changes are looked at, a check runs on the
merged files if one was asked for, and then the branch moves by compare and set: with `git merge --ff-only` in the checkout
that has it checked out, else with `git update-ref`. A conflict changes nothing. Landings that were asked for survive the
daemon, and so do their outcomes, for a day.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from substrat.core.agents import turn_check
from substrat.core.workspaces import checks, landing_outcome
from substrat.core.workspaces.checks import Check
from substrat.core.workspaces.drivers import NamesGiven
from substrat.core.workspaces.landing_outcome import FINE, NOTHING, QUEUED, REFUSED, Outcome, uncommitted
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.clones import lfs_objects
from substrat.daemon.clones.host_git import Move
from substrat.daemon.clones.landing_git import Conflicting
from substrat.daemon.clones.landing_records import REMOVED, LandingRecords
from substrat.daemon.clones.repository import RefMoved
from substrat.daemon.state.storing import until_stored
from substrat.daemon.workspaces import git_places
from substrat.errors import Conflict, Refused, SubstratError

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.landing import Landing
    from substrat.core.workspaces.standing import Standing
    from substrat.daemon.agents.closures import User
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.check_room import CheckRoom
    from substrat.daemon.clones.host_git import HostGit
    from substrat.daemon.clones.landing_git import LandingGit, Looked
    from substrat.daemon.clones.moving import Ready
    from substrat.daemon.clones.repository import CloneState, Repositories
    from substrat.daemon.families.queue import Queue
    from substrat.daemon.workspaces.git_places import GitPlaces

log = structlog.get_logger("substrat.landing")

_TRIES = 3
"""How often a landing is previewed anew because the branch moved meanwhile: somebody else is landing there too."""
_FIRST = "the work of {} lands in {} first"
"""Why no sandbox begins that can write in a checkout."""
_KEPT_SECONDS = 86_400.0
"""How long an outcome is kept: a client that hasn't heard the answer asks again; the inbox has what needs a person."""


@attrs.define(kw_only=True, eq=False)
class Landings:
    """Lands work, in order."""

    _registry: Registry
    _repositories: Repositories
    _git: LandingGit
    _host: HostGit
    _room: CheckRoom
    _queue: Queue
    _wanted: Wakeup = attrs.field(init=False, factory=Wakeup)
    _records: LandingRecords = attrs.field(init=False)
    _busy: set[tuple[str, str]] = attrs.field(init=False, factory=set)
    _heard_by: Counter[str] = attrs.field(init=False, factory=Counter)
    _waiting: dict[int, str] = attrs.field(init=False, factory=dict)
    _steps: dict[int, str] = attrs.field(init=False, factory=dict)
    _taken_up: dict[int, ExitStack] = attrs.field(init=False, factory=dict)
    _moved: set[str] = attrs.field(init=False, factory=set)
    _looks: dict[str, trio.CancelScope] = attrs.field(init=False, factory=dict)
    _decided: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._records = LandingRecords(self._registry, self._repositories)

    async def land(self, request: str, wishes: list[Landing], *, wait: bool = True) -> dict[str, Outcome]:
        """Ask for landings and wait for their outcomes; they are decided also if the caller goes.

        Args:
            request: the client's own id of this request; asking again with it waits for the same landings.
            wishes: the landings; their numbers and requests are ignored.
            wait: whether to wait; else a landing that isn't decided yet is `queued`.

        Returns:
            The outcome of each agent's landing, by the agent's id. One that waits for a sandbox that can write in its
            checkout isn't waited for: it is `queued`.
        """
        self.ask(request, wishes)
        self._heard_by[request] += 1
        try:
            asked = self._registry.store.landings_of(request)
            while wait and any(landing.outcome is None and not self._waits(landing) for landing in asked):
                await self._decided.wait()
                asked = self._registry.store.landings_of(request)
        finally:
            self._heard_by[request] -= 1
            if not self._heard_by[request]:
                del self._heard_by[request]
        # The landings of an agent go with it when it is removed.
        found = {wish.agent: Outcome(REFUSED, REMOVED) for wish in wishes}
        return found | {one.agent: landing_outcome.of(one, self._waits(one), self._steps.get(one.id)) for one in asked}

    def ask(self, request: str, wishes: list[Landing]) -> None:
        """Ask for landings, as a part of a change where there is one; what needs a person then comes to the inbox."""
        known = {landing.agent for landing in self._registry.store.landings_of(request)}
        if missing := [wish for wish in wishes if wish.agent not in known]:
            with self._registry.change("landing asked"):
                self._registry.store.forget_old_landings(self._registry.now() - _KEPT_SECONDS)
                for wish in missing:
                    self._registry.store.add_landing(replace(wish, request=request))
        self._wanted.set()

    def _waits(self, landing: Landing) -> str | None:
        """Say for which sandbox a landing waits, itself or one before it in the same branch; None: for none."""
        before = (one for one in self._registry.store.open_landings() if self._branch_of(one) == self._branch_of(landing))
        first = next((one for one in before if one.id <= landing.id), None)
        return self._waiting.get(first.id) if first is not None else None

    def take_up(self) -> None:
        """Close the checkouts in which an earlier daemon had begun to move a branch, before any turn begins there."""
        for landing in self._registry.store.open_landings():
            clone = self._registry.clone_of(landing.agent)
            if landing.intended_in is not None and clone is not None:
                stack = self._taken_up[landing.id] = ExitStack()
                places, reason = (landing.intended_in, clone.git_dir), _FIRST.format(clone.name, landing.intended_in)
                stack.enter_context(self._registry.closures.closing(places, reason))

    async def run(self) -> None:
        """Decide landings until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wanted.clear()
                for number in self._taken_up.keys() - {landing.id for landing in self._registry.store.open_landings()}:
                    self._taken_up.pop(number).close()  # its agent was removed
                for branch in {self._branch_of(landing): None for landing in self._registry.store.open_landings()}:
                    if branch not in self._busy:
                        self._busy.add(branch)
                        nursery.start_soon(self._decide_all, branch)
                await self._wanted.wait()

    def _next(self, branch: tuple[str, str]) -> Landing | None:
        """Return the next landing in a branch: one that a daemon had begun to move, or else the oldest."""
        here = [one for one in self._registry.store.open_landings() if self._branch_of(one) == branch]
        return next((one for one in here if one.intended_in is not None), here[0] if here else None)

    def _branch_of(self, landing: Landing) -> tuple[str, str]:
        agent = self._registry.get(landing.agent)
        return (agent.clone.git_dir if agent is not None and agent.clone is not None else "", landing.target)

    async def _decide_all(self, branch: tuple[str, str]) -> None:
        """Decide the landings in one branch, one after the other, and then look once at the repository's other clones."""
        git_dir, _ = branch
        try:
            while landing := self._next(branch):
                if (look := self._looks.pop(git_dir, None)) is not None:
                    look.cancel()  # this landing doesn't wait for it, and may make it out of date
                if await self._decide(landing):
                    self._moved.add(git_dir)
        finally:
            self._busy.discard(branch)
            self._wanted.set()
        if git_dir in self._moved and all(busy != git_dir for busy, _ in self._busy):
            with trio.CancelScope() as self._looks[git_dir]:
                await self._records.look_again(git_dir)
                self._moved.discard(git_dir)

    async def _decide(self, landing: Landing) -> bool:
        """Decide a landing, and say whether the branch may have moved. The answer waits for no other clone."""
        agent, state = self._registry.get(landing.agent), None
        if agent is None or agent.clone is None:
            outcome = Outcome(REFUSED, REMOVED)
        else:
            try:
                await self._settle(agent.clone, landing)
                outcome, state = await self._land(agent, agent.clone, landing)
            except SubstratError as problem:
                outcome = Outcome(REFUSED, problem.message)
            except Exception as problem:
                log.exception("a landing broke", agent=agent.name)
                outcome = Outcome(REFUSED, f"an internal error ({type(problem).__name__}), see substratd's log")
        is_known = await until_stored(partial(self._records.note_landed, landing, outcome, state))
        if outcome.kind in FINE and not is_known and agent is not None and agent.clone is not None:
            await self._records.look_again(agent.clone.git_dir, only=agent.id)
        is_heard = self._heard_by[landing.request] > 0
        await until_stored(partial(self._records.decide, landing, outcome, is_heard=is_heard))
        self._tell_clients()
        self._steps.pop(landing.id, None)
        self._waiting.pop(landing.id, None)
        self._taken_up.pop(landing.id, ExitStack()).close()
        return outcome.kind in FINE

    async def _settle(self, clone: Clone, landing: Landing) -> None:
        """End what a daemon has left that ended, or was killed, while it moved the branch where it is checked out."""
        await self._host.mover.end_of_earlier(landing.id)
        if landing.intended is None or landing.intended_in is None:
            return
        try:
            places = await self._repositories.places(landing.intended_in)
        except (SubstratError, OSError):
            places = None  # the checkout is gone, and what was begun in it
        if places is not None and (places.top, places.common) == (landing.intended_in, clone.git_dir):
            commits = tuple(filter(None, (landing.intended_from, landing.intended)))
            persons = await self._host.persons_git(places.top, await self._git.names(clone, commits))
            await self._host.settle(landing, Move(landing.intended, landing.intended_from, persons.programs), places)
        await until_stored(partial(self._records.note_settled, landing))

    async def _land(self, agent: Agent, clone: Clone, landing: Landing) -> tuple[Outcome, CloneState | None]:
        """Land the head that the clone has now; commits that its agent makes meanwhile are no part of it.

        A checkout is closed once and stays so: an agent that commits in it would keep a landing away for ever.

        Returns:
            The outcome, and how the kept work of that head stands now, where that is known.
        """
        git_places.check_there(clone.git_dir, agent.name)
        head, rest = clone.kept.head, uncommitted(clone.kept.files)
        if head is None or head == clone.base:
            return Outcome(NOTHING, f"{agent.name} has no commits to land{rest}"), None
        looked: Looked | None = None
        ready: Ready | None = None
        closed_for, moved = None, 0
        async with AsyncExitStack() as closed:
            while moved < _TRIES:
                found = await self._git.standing(clone, landing, head)
                if (known := landing_outcome.known(clone, landing, found, head)) is not None:
                    if known.kind == NOTHING and known.head is not None:  # by other commits
                        await until_stored(partial(self._records.note_content, agent.id, head, str(found.tip)))
                    return known, None
                try:
                    checkout = await self._host.checkout(clone, landing.target, found.holders)
                    places = (checkout.top, clone.git_dir) if checkout is not None else ()
                    if looked is None or (looked.move.tip, looked.checkout) != (found.tip, checkout):
                        # The program that moves the branch starts beside the look, unless a long check or turn comes first.
                        is_soon = bool(places) and landing.check_command is None
                        if ready is None and is_soon and not self._registry.closures.users(places):
                            ready = await closed.enter_async_context(self._host.mover.ready(landing.id))
                        answer = await self._look(agent, clone, landing, found, checkout)
                        if isinstance(answer, Outcome):
                            return answer, None
                        looked = answer
                    if checkout is not None and checkout != closed_for:
                        closed_for = checkout
                        closures, reason = self._registry.closures, _FIRST.format(clone.name, checkout.top)
                        closed.enter_context(closures.closing(places, reason))
                        sentence_of = partial(landing_outcome.waits_for, checkout=checkout.top)
                        if await closures.unused(places, partial(self._tell_users, landing, sentence_of)):
                            looked = None
                            self._waiting.pop(landing.id, None)
                            continue  # the branch, the checkout, or the person's configuration may be another by now
                    self._steps[landing.id] = f"git moves {landing.target}"
                    await until_stored(partial(self._records.note_intended, landing, looked.move, head, *places[:1]))
                    self._registry.points.before("branch moved")
                    given, ready = ready, None
                    behind = await self._host.move(clone, landing, looked.move, checkout, given)
                    self._registry.points.after("branch moved")
                except Conflicting as conflict:
                    outcome = landing_outcome.conflict(agent.name, landing.target, conflict.files, conflict.why)
                    return outcome._replace(head=head), None
                except RefMoved:
                    moved += 1
                else:
                    pointers = await lfs_objects.pointers(self._repositories.sandbox.files, looked.lfs)
                    notes = (*looked.notes, *filter(None, (behind, pointers)))
                    outcome = landing_outcome.landed(clone, landing, looked.move.commit, head)
                    return outcome._replace(notes=notes, was=found.tip, check=looked.check), looked.state
                await until_stored(partial(self._records.note_settled, landing))
        raise Refused(f"{landing.target} moved again and again while {agent.name}'s work was being landed: try again")

    async def _look(
        self, agent: Agent, clone: Clone, landing: Landing, found: Standing, checkout: GitPlaces | None
    ) -> Looked | Outcome:
        """Return the move that lands the clone's head, looked at and checked; an outcome where it can't land yet."""
        self._steps[landing.id] = "its files are looked at"
        family = (member.name for member in self._registry.family(self._registry.root_of(agent)))
        variables = {**self._registry.config.agent.env, **dict(agent.settings.environment)}
        looked = await self._git.looked_at(clone, landing, found, checkout, NamesGiven((*family, agent.name), variables))
        if isinstance(looked, Outcome) or (command := landing.check_command) is None:
            return looked
        if (passed := self._passed(agent, clone, found, command)) is not None:
            return looked._replace(check=passed)
        closures = self._registry.closures
        with closures.closing((clone.tree,), f"a check of {clone.name}'s work runs"):  # it sees the clone's files
            await closures.unused((clone.tree,), partial(self._tell_users, landing, landing_outcome.waits_for_check))
            # Room is taken from turns only now: its own agent's turn may be the one that it has waited for.
            async with self._queue.checking(partial(self._tell_wait, landing)):
                self._waiting.pop(landing.id, None)
                self._steps[landing.id] = f"its check `{command}` runs"
                check = await self._room.check(agent, clone, looked.move.commit, command)
        if check.state == checks.FAILED:
            return landing_outcome.failed_check(agent.name, str(clone.kept.head), check)
        return looked._replace(check=check)

    def _passed(self, agent: Agent, clone: Clone, found: Standing, command: str) -> Check | None:
        """Return the outcome of a check that needn't run: as the agent's own it has passed on the very files that land."""
        if self._registry.config.clone.check_room != "clone" or not found.lands_tree(clone):
            return None
        commit = turn_check.passed_on(agent.checked, clone)
        if commit is None or agent.checked is None or agent.checked.command != command:
            return None
        return Check(checks.PASSED, f"the check `{command}` has passed on {commit[:7]} already, whose files land")

    def _tell_users(self, landing: Landing, sentence_of: Callable[[list[str], list[str]], str], users: list[User]) -> None:
        """Tell for whom a landing waits: agents with turns, and those in whose sandboxes commands of a person's run."""
        turns = [user.name for user in users if user.has_turn]
        self._tell_wait(landing, sentence_of(turns, [user.name for user in users if not user.has_turn]))

    def _tell_wait(self, landing: Landing, sentence: str) -> None:
        if self._registry.get(landing.agent) is None:
            raise Refused(REMOVED)
        if self._waiting.get(landing.id) != sentence:
            self._waiting[landing.id] = sentence
            self._tell_clients()

    def _tell_clients(self) -> None:
        self._decided.set()
        self._decided = trio.Event()


def failure_of(outcome: Outcome) -> Conflict | None:
    """Return the error that an outcome is where one landing was asked for; None: it is over, or still to come."""
    return None if outcome.kind in {*FINE, QUEUED} else Conflict(outcome.text)
