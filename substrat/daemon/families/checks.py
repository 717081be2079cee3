"""Lets a command judge agents' work: after a turn that ended with success the agent's check runs, and its verdict counts.

Which turns are judged is decided when they end, in the same commit, and the effects of a verdict are one commit too. So a
daemon that is killed between them runs the check anew, and none is judged twice. `clones/turn_checks.py` runs the commands.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import Completion, ItemKind, Outcome
from substrat.core.agents.stop_reason import is_pause
from substrat.core.agents.turn_check import CheckState
from substrat.daemon.agents import mail, turn_prompts
from substrat.daemon.state.events import DaemonEvent

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Turn
    from substrat.core.agents.verdict import Verdict
    from substrat.core.workspaces.checks import Check
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.waits import Waits

# One that has failed and is tried again waits for the end of the agent's next turn.
_PUBLIC = {CheckState.AGAIN: "waiting", CheckState.STOPPED: "failed"}


class Checks:
    """The checks of one daemon's agents.

    Args:
        registry: the agents.
        waits: their waits: one that waits for others hasn't come to its work's end.
    """

    def __init__(self, registry: Registry, waits: Waits) -> None:
        self._registry = registry
        self._waits = waits
        self._waiting: dict[str, str] = {}
        self._running: set[str] = set()

    def turn_over(self, change: Change, agent: Agent, turn: Turn, verdict: Verdict, _ended: int) -> None:
        """Let the check of a turn that has ended come next, if it has one to pass.

        The work of a turn isn't done, and isn't judged, while its agent waits for others or for the operator's answer, or
        where the agent itself calls it failed. What was interrupted or ended isn't judged either, and isn't done.
        """
        if turn.outcome is Outcome.INTERRUPTED and not is_pause(turn.stop) and agent.checked is not None:
            if agent.checked.state is CheckState.AGAIN:
                change.put_turn(replace(agent, checked=turn_check.stopped(agent.checked)), turn)
            return
        if verdict.outcome is not Outcome.SUCCESS:
            return
        if turn.completion is Completion.FAILED:
            if agent.checked is not None:
                change.put_turn(replace(agent, checked=None), turn)
            return
        if (check := turn_check.begun(agent.checked, agent.settings, turn)) is None:
            return
        if agent.phase in {Phase.INTERRUPTING, Phase.ENDING}:
            change.put_turn(replace(agent, checked=turn_check.stopped(check)), turn)
        elif not self._waits.of(agent.id) and self._waits.question_of(agent) is None:
            change.put_turn(replace(agent, checked=check), replace(turn, unsettled=True))

    def question_closed(self, change: Change, agent: Agent) -> None:
        """Let the work of an agent's newest turn come to its end, or to its check, if only a question kept it open."""
        turn = self._registry.store.turn(agent.turn.id) if agent.turn is not None else None
        if turn is None or not turn.unsettled or (turn.outcome is Outcome.INTERRUPTED and is_pause(turn.stop)):
            return
        if agent.phase not in {Phase.IDLE, Phase.SUSPENDED} or agent.waiting or turn_check.is_pending(agent.checked):
            return
        if self._waits.question_of(agent) is not None or self._waits.of(agent.id):
            return
        is_done = turn.outcome is Outcome.SUCCESS and turn.completion is not Completion.FAILED
        check = turn_check.begun(agent.checked, agent.settings, turn) if is_done else None
        if check is not None:
            agent = change.put_turn(replace(agent, checked=check), turn)
            if agent.phase is Phase.IDLE:
                change.step(agent, Event.CHECK_WANTED)
            return
        turn = replace(turn, unsettled=False)
        agent = change.put_turn(agent, turn)
        ended = self._registry.store.last_event_of_turn(agent.id, turn.id, "turn:ended")
        for work_ended in self._registry.follow_ups.work_ended:
            work_ended(change, agent, turn, ended.cursor if ended is not None else None)

    # Reading

    def sentence(self, agent: Agent) -> str | None:
        """Say how the check of an agent stands that it waits for; None: it waits for none."""
        if agent.phase is not Phase.CHECKING or agent.checked is None:
            return None
        if (why := self._waiting.get(agent.id)) is not None:
            return why
        return f"its check `{agent.checked.command}` {'runs' if agent.id in self._running else 'is about to run'}"

    def public(self, agent: Agent) -> dict[str, object] | None:
        """Return an agent's check as clients see it; None: it has none."""
        check = agent.checked if turn_check.is_shown(agent.checked, agent) else None
        command = check.command if check is not None else agent.settings.check
        if command is None:
            return None
        is_running = agent.phase is Phase.CHECKING and agent.id in self._running
        state = _PUBLIC.get(check.state, check.state.value) if check is not None else CheckState.WAITING.value
        return {
            "command": command,
            "retries": agent.settings.retries,
            "state": "running" if is_running else state,
            "tries": check.tries if check is not None else 0,
            "commit": check.commit if check is not None else None,
            "text": check.text if check is not None else "",
            "turn": check.turn if check is not None else None,
        }

    # Running

    def tell(self, agent_id: str, why: str) -> None:
        """Note why the check of an agent can't begin yet, or can't go on, as a sentence."""
        self._running.discard(agent_id)
        self._waiting[agent_id] = why

    def begins(self, agent_id: str, *, is_kept: bool) -> None:
        """Note that an agent's check begins, for its clients and its followers, and on which files it runs.

        Args:
            agent_id: the agent, which may be checked no more.
            is_kept: whether all that is in its clone was kept just now.
        """
        agent = self._registry.get(agent_id)
        if agent is None or agent.phase is not Phase.CHECKING or agent.checked is None or agent.turn is None:
            return
        with self._registry.change("check begun") as change:
            check = turn_check.of_files(agent.checked, agent.clone if is_kept else None)
            change.put(replace(agent, checked=check))
            data = {"command": check.command, "tries": check.tries}
            change.record(DaemonEvent(agent.id, agent.turn.id, "check:started", f"its check begins: {check.command}", data))
            change.after(partial(self._runs, agent_id))

    def _runs(self, agent_id: str) -> None:
        self._waiting.pop(agent_id, None)
        self._running.add(agent_id)

    def over(self, agent_id: str) -> None:
        """Forget a check that runs no more."""
        self._waiting.pop(agent_id, None)
        self._running.discard(agent_id)

    def judge(self, agent_id: str, turn: int, verdict: Check) -> None:
        """Decide by the outcome of a check: its agent is finished, is sent back, or has failed.

        Args:
            agent_id: the agent, which may be gone, or whose check may have been stopped meanwhile.
            turn: the number of the turn that the check was for.
            verdict: the outcome.
        """
        agent = self._registry.get(agent_id)
        if agent is None or agent.phase is not Phase.CHECKING or agent.checked is None or agent.checked.turn != turn:
            return
        retries = agent.settings.retries
        check = turn_check.judged(agent.checked, verdict, retries)
        with self._registry.change("check judged") as change:
            agent, ended, told = change.end_check(agent, check, verdict.output)
            if check.state is CheckState.AGAIN:
                words, asker = turn_check.prompt(check, verdict, retries), turn_prompts.asker(self._registry, ended)
                change.add_item(agent, ItemKind.CONTINUATION, words, asker, Event.SENT_BACK, cause=told)
                return
            agent = change.step(agent, Event.CHECK_PASSED if check.state is CheckState.PASSED else Event.CHECK_FAILED)
            if agent.phase is Phase.FAILED and mail.goes_on(self._registry, agent):
                agent = change.step(self._registry.find(agent.id), Event.PROMPT)
            for work_ended in self._registry.follow_ups.work_ended:
                work_ended(change, agent, ended, told)
