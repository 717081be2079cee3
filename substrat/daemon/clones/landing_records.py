"""Notes the outcomes of landings: on the agents whose work lands, in the journal, and in the operator's inbox."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog

from substrat.core.agents.attention import is_at_rest
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import SYSTEM, ItemKind
from substrat.core.workspaces import checks
from substrat.core.workspaces import landing as decisions
from substrat.core.workspaces.clones import PastLandings
from substrat.core.workspaces.landing_outcome import CONFLICT, FINE, LANDED
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.errors import Refused, SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone, Kept
    from substrat.core.workspaces.landing import Landing
    from substrat.core.workspaces.landing_outcome import Outcome
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.host_git import Move
    from substrat.daemon.clones.repository import CloneState, Repositories

log = structlog.get_logger("substrat.landing")

REMOVED = "the agent was removed meanwhile; its kept work is in refs/substrat/ of your repository"


@attrs.define(eq=False)
class LandingRecords:
    """Notes the outcomes of landings."""

    _registry: Registry
    _repositories: Repositories

    def note_intended(self, landing: Landing, move: Move, head: str, checkout: str | None = None) -> None:
        """Note the commits that a landing is about to move its branch from and to, and where: a later daemon finds it.

        Raises:
            Refused: its agent was removed.
        """
        if self._registry.get(landing.agent) is None:
            raise Refused(REMOVED)
        with self._registry.change("landing intended"):
            self._registry.store.note_intended(landing.id, (move.tip, move.commit), head, checkout)

    def note_settled(self, landing: Landing) -> None:
        """Note that no file or lock of a failed move is left, so that no later daemon looks for them."""
        with self._registry.change("landing intended"):
            self._registry.store.note_settled(landing.id)

    def note_landed(self, landing: Landing, outcome: Outcome, state: CloneState | None) -> bool:
        """Note on the agent that its work has landed, before the landing is over: it may be looked at again and again.

        Returns:
            Whether it is noted how the agent's kept work stands now.
        """
        agent = self._registry.get(landing.agent)
        if agent is None or agent.clone is None or outcome.kind != LANDED:
            return False
        clone = agent.clone
        past = PastLandings(clone.landings.accepted, landed_head=outcome.head, landed_commit=outcome.commit)
        landed = replace(clone, landings=past)
        is_known = state is not None and state.head == clone.kept.head
        if state is not None and is_known:
            landed = replace(landed, kept=_standing(clone, state))
        if landed != clone:
            with self._registry.change("landing noted") as change:
                change.record(DaemonEvent(agent.id, None, "clone:landed", outcome.text, {"commit": outcome.commit}))
                change.put_clone(agent, landed)
        return is_known

    def note_content(self, agent_id: str, head: str, tip: str) -> None:
        """Note on an agent that a branch has its work, by commits of the user's own: later work lands without that part."""
        agent = self._registry.get(agent_id)
        if agent is not None and agent.clone is not None:
            with self._registry.change("landing noted") as change:
                past = replace(agent.clone.landings, bounced=None, landed_head=head, landed_commit=tip)
                change.put_clone(agent, replace(agent.clone, landings=past))

    def decide(self, landing: Landing, outcome: Outcome, *, is_heard: bool) -> None:
        """Store a landing's outcome, and tell it."""
        agent = self._registry.get(landing.agent)
        with self._registry.change("landing decided") as change:
            item = None
            self._registry.store.settle_earlier(landing)
            if agent is not None and outcome.kind not in FINE:
                item, outcome = self._tell(change, agent, landing, outcome, is_heard=is_heard)
            self._registry.store.decide_landing(landing.id, outcome.write(), item)

    def _tell(
        self, change: Change, agent: Agent, landing: Landing, outcome: Outcome, *, is_heard: bool
    ) -> tuple[int | None, Outcome]:
        """Tell the agent about its first conflict or failed check, and the operator about all else that no client hears.

        Returns:
            The number of the operator's item, if there is one, and the outcome as people are told it.
        """
        cause, prompt = None, None
        if outcome.kind == CONFLICT:
            data: dict[str, object] = {"files": list(outcome.files[:100])}
            (cause,) = change.record(DaemonEvent(agent.id, None, "clone:conflict", outcome.text, data))
            prompt = decisions.conflict_prompt(landing.target, outcome.files)
        elif outcome.check is not None and outcome.check.state == checks.FAILED:
            check = outcome.check
            data = {"command": landing.check_command, "output": check.output}
            (cause,) = change.record(DaemonEvent(agent.id, None, "clone:check-failed", outcome.text, data))
            if agent.clone is not None:
                past = replace(agent.clone.landings, failed_head=outcome.head, failed_line=check.line or check.text)
                agent = change.put_clone(agent, replace(agent.clone, landings=past))
            prompt = checks.prompt(landing.target, check) if check.is_of_work else None
        clone = agent.clone
        if prompt is not None and clone is not None and clone.landings.bounced is None and agent.phase != Phase.ENDED:
            first = self._first_to_rebase(clone, landing) if outcome.kind == CONFLICT else None
            if first is None:
                agent = change.put_clone(agent, replace(clone, landings=replace(clone.landings, bounced=outcome.head)))
                change.add_item(agent, ItemKind.PROMPT, prompt, (SYSTEM, SYSTEM), Event.PROMPT, cause)
                todo = "solve" if outcome.kind == CONFLICT else "mend"
                return None, outcome._replace(text=f"{outcome.text}; {agent.name} was told, and is to {todo} it")
            again = decisions.command(agent.name, landing, clone.target, "")
            later = f"{first} solves its own conflict with {landing.target} first; when that has landed: {again}"
            outcome = outcome._replace(text=f"{outcome.text}; {later}")
        if is_heard and not landing.unattended:
            return None, outcome
        return change.add_operator_item(ItemKind.MERGE, outcome.text, agent, cause), outcome

    def _first_to_rebase(self, clone: Clone, landing: Landing) -> str | None:
        """Name another agent that is at work on its conflict with a clone's branch; None: none is.

        One at a time is sent to rebase: its landing may bring the others into conflict once more.
        """
        if landing.target != clone.target:
            return None
        for other in self._registry.agents:
            theirs = other.clone
            if theirs is None or (theirs.git_dir, theirs.target) != (clone.git_dir, clone.target):
                continue
            past = theirs.landings
            is_told = past.bounced is not None and past.bounced == theirs.kept.head != past.failed_head
            if is_told and theirs.agent != clone.agent and not is_at_rest(other):
                return other.name
        return None

    async def look_again(self, git_dir: str, only: str | None = None) -> None:
        """Find out anew how a repository's clones, or one agent's, stand to its branches, one of which has moved."""
        clones = [
            agent.clone
            for agent in self._registry.agents
            if agent.clone is not None
            and agent.clone.git_dir == git_dir
            and agent.clone.kept.wip
            and only in {None, agent.id}
        ]
        try:
            states = await self._repositories.states(git_dir, clones)
        except SubstratError as problem:
            log.warning("the states of clones aren't known", repository=git_dir, reason=problem.message)
            return
        for clone, state in zip(clones, states, strict=True):
            if state is None:
                log.warning("a clone's state isn't known", agent=clone.name)
            else:
                await until_stored(partial(self._note_state, clone.agent, state))

    def _note_state(self, agent_id: str, state: CloneState) -> None:
        agent = self._registry.get(agent_id)
        if agent is None or agent.clone is None:
            return
        kept = _standing(agent.clone, state)
        if kept != agent.clone.kept:
            with self._registry.change("clone kept") as change:
                change.put_clone(agent, replace(agent.clone, kept=kept))


def _standing(clone: Clone, state: CloneState) -> Kept:
    return replace(clone.kept, ahead=state.ahead, behind=state.behind, landed=state.is_landed)
