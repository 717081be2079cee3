"""Holds the agents as last committed, and finds them by name, parent, phase, turn, session and directory.

Each question costs the same with ten agents and with ten thousand, because a turn asks dozens.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import open_turn_id
from substrat.core.workspaces import overlap
from substrat.core.workspaces.claims import Claims
from substrat.core.workspaces.overlap import Claim, Overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from substrat.core.agents.records import Agent


class Index:
    """The agents of one daemon.

    Args:
        agents: those that are stored, the oldest first.

    `claims` has the directories of the agents that haven't ended, `of_ended` those of the others: links that they made may
    be there still.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents: dict[str, Agent] = {}
        self._numbers = count()
        self._age: dict[str, int] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._children: dict[str | None, dict[str, None]] = {}
        self._phases: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
        self._turns: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._git: dict[str, tuple[str, ...]] = {}
        for agent in agents:
            self._enter(agent)
        claims = {agent.id: (agent.phase == Phase.ENDED, self.claim(agent)) for agent in self.agents.values()}
        self.claims = Claims({agent: claim for agent, (is_over, claim) in claims.items() if not is_over})
        self.of_ended = Claims({agent: claim for agent, (is_over, claim) in claims.items() if is_over})

    # Reading

    def called(self, name: str) -> str | None:
        """Return the id of the agent with a name."""
        return next((agent.id for agent in self.like(name) if agent.name == name), None)

    def like(self, name: str) -> list[Agent]:
        """Return the agents whose name, or former name, differs from a name by no more than the case of letters."""
        return [self.agents[agent] for agent in self._names.get(name.lower(), ())]

    def children(self, agent: str) -> list[Agent]:
        """Return an agent's children, the oldest first."""
        return [self.agents[child] for child in self._children.get(agent, ())]

    def in_phases(self, phases: Collection[Phase]) -> list[Agent]:
        """Return the agents in some phases, the oldest first."""
        found = [agent for phase in phases for agent in self._phases[phase]]
        return [self.agents[agent] for agent in sorted(found, key=self._age.__getitem__)]

    def any_in(self, phases: Collection[Phase]) -> Iterator[Agent]:
        """Yield the agents in some phases in any order, for those who look for one of them."""
        return (self.agents[agent] for phase in phases for agent in self._phases[phase])

    def of_turn(self, turn: str) -> str | None:
        """Return the id of the agent of a turn that hasn't ended."""
        return self._turns.get(turn)

    def of_session(self, session: str) -> Agent | None:
        """Return the agent that holds a session."""
        return self.agents.get(self._sessions.get(session, ""))

    def claim(self, agent: Agent) -> Claim:
        """Return the directories and rights of an agent."""
        return Claim.of(agent, self.git_of(agent.workspace) if agent.clone is None else ())

    def shared(self, agent: Agent) -> tuple[Overlap, ...]:
        """Return the directories that an agent shares with others that haven't ended, as far as more follows from that.

        That is so where networks differ or where directories lie in one another. One workspace for several agents with the
        same rights is common, and stands in the events only.
        """
        claim = self.claim(agent)
        found = overlap.overlaps(claim, self.claims.beside(claim, agent.id))
        return tuple(one for one in found if one.is_mixed or not one.is_same)

    def git_of(self, workspace: str) -> tuple[str, ...]:
        """Return the git directories elsewhere that agents of a workspace may write to, as far as was found."""
        return self._git.get(workspace, ())

    def meeting(self, places: Collection[str]) -> list[Agent]:
        """Return the agents of which a directory is one of some places, or lies in or around it."""
        return [self.agents[agent] for claims in (self.claims, self.of_ended) for agent in claims.meeting(places)]

    def writable_around(self, path: str) -> str | None:
        """Return a directory around a path to which an agent may write, or could before it ended; None: there is none."""
        return self.claims.writable_around(path) or self.of_ended.writable_around(path)

    # Changing

    def put(self, agent: Agent) -> None:
        """Take an agent's new record in, which may be its first."""
        before = self.agents.get(agent.id)
        if before is not None:
            self._leave(before, agent)
        self._enter(agent)
        if before is None or _claimed(before) != _claimed(agent):
            self._put_claim(agent)

    def drop(self, agent_id: str) -> None:
        """Forget an agent."""
        self._leave(self.agents.pop(agent_id), None)
        del self._age[agent_id]
        self._children.pop(agent_id, None)
        self.claims.drop(agent_id)
        self.of_ended.drop(agent_id)

    def note_git(self, workspace: str, found: tuple[str, ...]) -> None:
        """Note the git directories elsewhere that agents of a workspace may write to."""
        if found == self.git_of(workspace):
            return
        self._git[workspace] = found
        for agent_id in [one for claims in (self.claims, self.of_ended) for one in claims.holders(workspace)]:
            self._put_claim(self.agents[agent_id])

    def _put_claim(self, agent: Agent) -> None:
        claims, others = (self.of_ended, self.claims) if agent.phase == Phase.ENDED else (self.claims, self.of_ended)
        others.drop(agent.id)
        claims.put(agent.id, self.claim(agent))

    def _enter(self, agent: Agent) -> None:
        if agent.id not in self._age:
            self._age[agent.id] = next(self._numbers)
        self.agents[agent.id] = agent
        for name in _names(agent):
            if agent.id not in self._names.get(name, ()):
                self._names[name] = (*self._names.get(name, ()), agent.id)
        self._children.setdefault(agent.parent, {})[agent.id] = None
        self._phases[agent.phase][agent.id] = None
        if (turn := open_turn_id(agent)) is not None:
            self._turns[turn] = agent.id
        if agent.session is not None:
            self._sessions[agent.session.id] = agent.id

    def _leave(self, before: Agent, now: Agent | None) -> None:
        """Take an agent out of where its new record no longer belongs; where it stays, it keeps its place."""
        for name in _names(before) - (_names(now) if now is not None else set()):
            others = tuple(one for one in self._names.pop(name) if one != before.id)
            if others:
                self._names[name] = others
        if now is None or now.parent != before.parent:
            self._children.get(before.parent, {}).pop(before.id, None)
        if now is None or now.phase != before.phase:
            del self._phases[before.phase][before.id]
        turn = open_turn_id(before)
        if turn is not None and (now is None or open_turn_id(now) != turn):
            self._turns.pop(turn, None)
        if before.session is not None and self._sessions.get(before.session.id) == before.id:
            del self._sessions[before.session.id]


def _claimed(agent: Agent) -> tuple[object, ...]:
    """Return all that an agent's claim is made of; its newest lines, which most changes are about, leave that as it is."""
    return agent.name, agent.workspace, agent.clone, agent.policy, agent.settings, agent.phase == Phase.ENDED


def _names(agent: Agent) -> set[str]:
    former = agent.clone.former_name if agent.clone is not None else None
    return {agent.name.lower(), *((former.lower(),) if former is not None else ())}
