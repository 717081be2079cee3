"""Keeps findings in agents' workspaces until a person has accepted them; `sandboxes` finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Finding
from substrat.core.programs.lenient import tame_text
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry

_MOST = 50
"""How many findings of one agent are kept apart: an agent can make any number of repositories, and a person reads some."""
_TOLD = 5
"""Findings that one event names: it is one line, and `substratctl show` lists them all."""


UNPROTECTED, HIDDEN, UNFILTERED = "workspace:unprotected", "workspace:hidden", "workspace:unfiltered"


class Found(NamedTuple):
    """Something that was found.

    Args:
        path: the file, directory or setting.
        text: the problem, in one sentence.
        aside: where the daemon keeps a file that it has moved out of the workspace.
        difference: the agent's changes, as a unified diff.
        kind: of the event that tells it.
    """

    path: str
    text: str
    aside: str | None = None
    difference: str = ""
    kind: str = UNPROTECTED


class Findings:
    """Keeps the findings of all agents.

    Args:
        registry: the agents.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def record(self, agent_id: str, turn: str | None, found: Collection[Found]) -> list[Finding]:
        """Keep findings, except those that are kept already or that a person has accepted.

        Args:
            agent_id: whose workspace it is in.
            turn: the turn's id, None between turns.
            found: the findings.

        Returns:
            The new ones.

        Raises:
            StorageFailed: it can't be written; nothing was kept.
        """
        agent = self._registry.get(agent_id)
        if agent is None or not found:
            return []
        found = [one._replace(path=tame_text(one.path), text=tame_text(one.text)) for one in found]
        known = {(finding.path, finding.text) for finding in agent.findings} | self._store.accepted_findings(agent_id)
        new = list({(one.path, one.text): one for one in found if (one.path, one.text) not in known}.values())
        room = _MOST - len(agent.findings)
        if len(new) > max(room, 0):
            new = new[: max(room - 1, 0)]
            rest = Found("", f"more than {_MOST} such things are in {agent.workspace}: look through it as a whole")
            new += [rest] if (rest.path, rest.text) not in known else []
        if not new:
            return []
        now = self._registry.now()
        with self._registry.change("finding recorded") as change:
            stored = [
                self._store.add_finding(Finding(0, agent.id, turn, now, one.path, one.text, one.aside, one.difference))
                for one in new
            ]
            change.put(replace(agent, findings=(*agent.findings, *stored)))
        return stored

    def reminder(self, agent: Agent) -> str | None:
        """Return the note at a turn's start about findings that wait to be accepted, None when there are none."""
        findings = agent.findings
        if not findings:
            return None
        listed = "; ".join(f"{finding.number}: {finding.text}" for finding in findings[:_TOLD])
        more = f"; and {len(findings) - _TOLD} more" if len(findings) > _TOLD else ""
        return f"not accepted yet (`substratctl accept {agent.name}`): {listed}{more}"

    def accept(self, name: str, numbers: Sequence[int]) -> Agent:
        """Note that a person has seen findings, a failed turn, or work that isn't landed.

        Args:
            name: the agent's name or id.
            numbers: which findings; none: all of them, the failure, and the work.

        Raises:
            NotFound: the agent has no such finding.
            Refused: there is nothing to accept.
        """
        agent = self._registry.find(name)
        known = {finding.number for finding in agent.findings}
        missing = [number for number in numbers if number not in known]
        if missing:
            raise NotFound(f"{agent.name} has no finding {missing[0]}: `substratctl show {agent.name}` lists them")
        failed = agent.phase == Phase.FAILED and agent.turn is not None and agent.accepted_turn != agent.turn.id
        unmet = not numbers and agent.phase == Phase.FAILED and agent.unmet is not None
        unlanded = not numbers and agent.clone is not None and agent.clone.is_unlanded
        chosen = set(numbers) or known
        if not chosen and not unlanded and not unmet and not (failed and not numbers):
            raise Refused(f"nothing of {agent.name} waits to be accepted")
        accepted = [finding for finding in agent.findings if finding.number in chosen]
        left = tuple(finding for finding in agent.findings if finding.number not in chosen)
        turn = agent.turn.id if failed and not numbers and agent.turn is not None else agent.accepted_turn
        with self._registry.change("findings accepted") as change:
            self._store.accept_findings(chosen, self._registry.now())
            why = agent.unmet if not unmet else None
            accepted_agent = change.put(replace(agent, findings=left, accepted_turn=turn, unmet=why))
            if turn != agent.accepted_turn and agent.turn is not None and agent.turn.process is None:
                # It never started, perhaps because its workspace was another directory: that one is the right one then.
                accepted_agent = change.put(replace(accepted_agent, directory=None))
            if unlanded and agent.clone is not None:
                change.put_clone(accepted_agent, replace(agent.clone, accepted=agent.clone.kept.head))
                told = "a person has accepted that its work isn't landed"
                change.record(DaemonEvent(agent.id, None, "workspace:accepted", told))
            if accepted:
                paths = ", ".join(finding.path or "the workspace" for finding in accepted[:_TOLD])
                more = f" and {len(accepted) - _TOLD} more" if len(accepted) > _TOLD else ""
                change.record(DaemonEvent(agent.id, None, "workspace:accepted", f"accepted: {paths}{more}"))
            if turn != agent.accepted_turn or unmet:
                change.record(DaemonEvent(agent.id, None, "agent:accepted", "a person has accepted its failure"))
        return self._registry.find(agent.id)
