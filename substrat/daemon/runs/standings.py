"""Says how the agents of a run stand, and what they have said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from substrat.core.agents.attention import AttentionKind
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.families import needs, results, runs
from substrat.core.families.plans import OnFail
from substrat.core.families.runs import Stand, Standing
from substrat.daemon.families.waiting import AT_WORK

if TYPE_CHECKING:
    from substrat.core.agents.records import Turn
    from substrat.core.families.plans import Member
    from substrat.core.families.runs import Run
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.families import Families
    from substrat.daemon.families.overview import Places
    from substrat.daemon.runs.steps import Followed

_ASKS = {AttentionKind.ANSWER, AttentionKind.UNSAFE, AttentionKind.UNKEPT}
_HELD = {Phase.SUSPENDED, Phase.FROZEN}


@attrs.define(eq=False)
class Standings:
    """The standings of one daemon's agents in their runs."""

    _registry: Registry
    _families: Families

    def of(self, followed: Followed) -> Stand:
        """Return how a run's members stand."""
        run = followed.run
        members = {member.name: member for member in run.plan.members}
        places = self._families.overview.places()
        found = {name: self._standing(one, members[name].on_fail, places) for name, one in run.agents.items()}
        found |= dict.fromkeys(followed.failed, Standing.FAILED)
        disagreeing: dict[str, str] = {}
        for name, standing in found.items():
            if standing is Standing.SUCCEEDED and members[name].returns_to is not None:
                judged = self._judged(run, name)
                disagreeing |= {name: judged} if judged is not None else {}
        named = [str(task.id) for task in run.plan.tasks]
        tasks = self._registry.store.task_states(run.lead or "", named) if named else {}
        return Stand(runs.with_rounds(run, found, disagreeing), disagreeing, tasks)

    def _judged(self, run: Run, name: str) -> str | None:
        """Return the id of the turn in which a member was asked last, if it doesn't agree; None: it does, or has failed.

        A turn in which only messages came to it judges nothing.
        """
        store, agent_id, turn = self._registry.store, run.agents[name], turn_of(self._registry, run, name)
        number = store.newest_prompt(agent_id)
        asked = store.item_turn(number) if number is not None else None
        if turn is None or asked is None or asked[1] is None or not self._has_met(agent_id, turn):
            return None
        return asked[1] if not any(runs.agrees(results.text_of(one)) for one in (turn, store.turn(asked[1]))) else None

    def _standing(self, agent_id: str, on_fail: OnFail, places: Places) -> Standing:
        registry, waiting, waits = self._registry, self._families.waiting, self._families.waits
        agent = registry.get(agent_id)
        if agent is None:
            return Standing.SUCCEEDED if on_fail is OnFail.CONTINUE else Standing.FAILED
        if agent.phase is Phase.RUNNING:
            return Standing.WORKING
        if waiting.spent(agent_id) is not None:
            return Standing.OUT_OF_BUDGET
        found = [one for one in map(registry.get, waits.awaited(agent_id)) if one is not None]
        own = waits.live_of(agent_id)
        if any(STATE_OF[one.phase] in AT_WORK for one in found) or any(wait.deadline is not None for wait in own):
            return Standing.WORKING  # a wait with a deadline wakes it then
        (attention,) = self._families.overview.attentions([agent], places)
        if own or agent.phase in _HELD or attention.kind in _ASKS:
            return Standing.NEEDS_YOU
        turn = registry.store.turn(agent.turn.id) if agent.turn is not None else None
        is_accepted = turn is not None and agent.accepted_turn == turn.id
        return runs.standing_of(self._has_met(agent_id, turn), on_fail, is_accepted=is_accepted)

    def _has_met(self, agent_id: str, turn: Turn | None) -> bool | None:
        return needs.state_of(self._registry.get(agent_id), turn, has_finished=True).met


def idle_words(run: Run, member: Member, standing: Standing | None) -> str:
    """Say what an agent of a run that has nothing to do is there for; empty: nothing more."""
    if member.name not in run.agents:
        return f"has its task when {', '.join(member.needs)} have finished"
    if member.returns_to is None or standing is Standing.SUCCEEDED:
        return ""
    author = f"{run.name}.{member.returns_to}"
    return f"waits for {author} to go on" if standing is Standing.WORKING else f"doesn't agree with {author}"


def turn_of(registry: Registry, run: Run, member: str) -> Turn | None:
    """Return the newest turn of a member, with its result; None: it has had none, or is gone."""
    agent = registry.get(run.agents.get(member))
    return registry.store.turn(agent.turn.id) if agent is not None and agent.turn is not None else None


def result_of(registry: Registry, run: Run) -> str:
    """Return a run's result until now: its lead's last words, or else all of its agents', in the file's order."""
    if run.plan.lead is not None:
        return _words(registry, run, run.plan.lead)
    said = [(member.name, _words(registry, run, member.name)) for member in run.plan.members]
    return "\n\n".join(f"{run.name}.{name}: {words}" for name, words in said if words)


def _words(registry: Registry, run: Run, member: str) -> str:
    return results.text_of(turn_of(registry, run, member)).strip()
