"""Keeps the gates of logins whose account has used up what it may; `core.families.account_gate` decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from substrat.core.agents.lifecycle import RUNNING_PHASES, Phase
from substrat.core.agents.prompts import timestamp
from substrat.core.agents.records import SYSTEM, Outcome
from substrat.core.families import account_gate
from substrat.core.programs.failures import USAGE_LIMIT
from substrat.core.programs.stated_times import stated_time
from substrat.daemon.state.events import DaemonEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.config import Config
    from substrat.core.agents.records import Agent, Turn
    from substrat.core.agents.verdict import Verdict
    from substrat.core.families.account_gate import Gate
    from substrat.core.families.scheduling import Obstacle
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry


class AccountGates:
    """The gates of one daemon's logins. They are in the store only, so a failed commit leaves nothing to take back.

    Args:
        registry: the agents.
        login_of: names the login of an agent under a configuration.
    """

    def __init__(self, registry: Registry, login_of: Callable[[Agent, Config], str]) -> None:
        self._registry = registry
        self._store = registry.store
        self._login_of = login_of

    def login_of(self, agent: Agent) -> str:
        """Return the login that a turn of an agent would use now."""
        return self._login_of(agent, self._registry.config)

    def shut(self) -> dict[str, Gate]:
        """Return the gates that are shut, by login; there is none for most of a daemon's life."""
        return {login: gate for login, gate in self.known().items() if gate.is_shut}

    def known(self) -> dict[str, Gate]:
        """Return the gates that are shut or have just opened, by login."""
        return self._store.gates()

    def is_trying(self, gate: Gate) -> bool:
        """Say whether a gate's trial runs; one that is frozen, lost or removed keeps no other turn waiting."""
        agent = self._registry.agent_of_turn(gate.trial) if gate.trial is not None else None
        return agent is not None and agent.phase in RUNNING_PHASES

    def standing(self, agent: Agent, gates: Mapping[str, Gate]) -> tuple[Obstacle | None, str | None]:
        """Return why an agent's login is held, if it is; and the login if a turn of it would be its gate's trial.

        Args:
            agent: the agent.
            gates: those that are known.
        """
        gate = gates.get(self.login_of(agent)) if gates else None
        if gate is None or not gate.holds(agent.model):
            return None, None
        blamed, is_trying = self._registry.name_of(gate.blamed), self.is_trying(gate)
        obstacle = account_gate.obstacle(gate, self._registry.now(), agent.id, is_trying=is_trying, blamed=blamed)
        return obstacle, gate.login if gate.is_shut else None

    # Changes

    def turn_begun(self, turn: Turn) -> None:
        """Make a turn that begins the trial of its login's gate, if that is shut, as a part of the change under way."""
        gate = self.known().get(turn.login or "")
        if gate is None or not gate.holds(turn.model):
            return
        if gate.is_shut:
            self._store.save_gate(replace(gate, trial=turn.id))
        elif not gate.shut_at <= self._registry.now() < gate.until:
            self._store.forget_gate(gate.login)

    def tool_called(self, change: Change, turn: Turn, _calls: int) -> None:
        """Open the gate of a trial that has called a tool: the model has answered, whenever the turn ends.

        Args:
            change: the change that the call's line is a part of.
            turn: the turn.
            _calls: how many it has called; one is enough.
        """
        gate = self.shut().get(turn.login or "")
        if gate is not None and gate.trial == turn.id:
            self._open(change, turn, gate, None)
            change.admits = True

    def turn_over(self, change: Change, agent: Agent, turn: Turn, verdict: Verdict, ended: int) -> None:
        """Shut or open the gate of a turn's login after its end.

        Args:
            change: the change that the turn's end is a part of.
            agent: the agent.
            turn: the turn, with its outcome.
            verdict: how it ended.
            ended: the cursor of the event of its end.
        """
        if turn.login is None:
            return
        gate = self.shut().get(turn.login)
        if verdict.failure is not None and verdict.failure.name == USAGE_LIMIT:
            now = self._registry.now()
            stated = stated_time(verdict.failure.sentence, now)
            is_confirmed = gate is not None and self._is_of_another_family(agent, gate.blamed)
            after = account_gate.shut(
                gate, turn.login, turn, verdict.failure.sentence, stated, now, is_confirmed=is_confirmed
            )
            if after != gate:
                self._shut(change, agent, turn, after, ended, is_stated=stated is not None)
        elif gate is not None:
            opened = account_gate.after_other_end(gate, turn, succeeded=turn.outcome is Outcome.SUCCESS)
            if opened is None:
                self._open(change, turn, gate, ended)
            elif opened != gate:
                self._store.save_gate(opened)

    def _is_of_another_family(self, agent: Agent, blamed: str) -> bool:
        other = self._registry.get(blamed)
        return other is not None and self._registry.root_of(other).id != self._registry.root_of(agent).id

    def _open(self, change: Change, turn: Turn, gate: Gate, cause: int | None) -> None:
        self._store.save_gate(account_gate.opened(gate, self._registry.now()))
        text = f"the account may go on: the turns of {gate.login} begin again"
        data = {"by": SYSTEM, "login": gate.login}
        change.record(DaemonEvent(turn.agent, turn.id, "gate:opened", text, data, cause))

    def _shut(self, change: Change, agent: Agent, turn: Turn, gate: Gate, ended: int, *, is_stated: bool) -> None:
        self._store.save_gate(gate)
        how = "as the program says" if is_stated else f"after {gate.failures} in a row" if gate.failures > 1 else "at first"
        which = f"{gate.login} with the model {gate.model}" if gate.model is not None else gate.login
        text = f"usage limit: the turns of {which} wait until {timestamp(gate.until)} ({how}), then one tries"
        data = {
            "by": SYSTEM,
            "login": gate.login,
            "model": gate.model,
            "until": timestamp(gate.until),
            "failures": gate.failures,
        }
        change.record(DaemonEvent(agent.id, turn.id, "gate:held", text, data, ended))
        change.admits = True  # which sets the timer

    def try_now(self, by: str) -> list[Gate]:
        """Let one turn of each login that is held try now.

        Args:
            by: who asks (`records.BY_OPERATOR`).

        Returns:
            The gates of which a turn may try that couldn't before.
        """
        now = self._registry.now()
        held = [
            gate for gate in self.shut().values()
            if not self.is_trying(gate) and not account_gate.may_try(gate, now, is_trying=False)
        ]  # fmt: skip
        if not held:
            return []
        with self._registry.change("gate tried") as change:
            for gate in held:
                self._store.save_gate(account_gate.tried_by_a_person(gate, now))
                if (witness := self._witness(gate)) is not None:
                    text = f"a person lets one turn of {gate.login} try now"
                    change.record(DaemonEvent(witness.id, None, "gate:opened", text, {"by": by, "login": gate.login}))
            change.admits = True
        return held

    def _witness(self, gate: Gate) -> Agent | None:
        """Return the agent whose events tell about a gate: the one that shut it, else one that it holds."""
        blamed = self._registry.get(gate.blamed)
        if blamed is not None:
            return blamed
        queued = self._registry.index.in_phases((Phase.QUEUED,))
        return next((one for one in queued if self.login_of(one) == gate.login and gate.holds(one.model)), None)
