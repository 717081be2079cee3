"""Changes the settings of agents: model, network, priority, limits and variables, from the next turn on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox.spec import Network
from substrat.core.agents import environment
from substrat.core.agents.lifecycle import LIVE_PHASES, Phase
from substrat.core.agents.records import AgentSettings
from substrat.core.families.budget import USD
from substrat.core.netfilter.names import AllowList
from substrat.core.workspaces import overlap
from substrat.daemon.agents import pools, spawning
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, PolicyDenied, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.core.agents.environment import Variables
    from substrat.core.agents.records import Agent
    from substrat.core.agents.rights import Policy
    from substrat.daemon.agents.allow_list import AllowLists
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry


OTHERS = ("priority", "time_limit", "silence_limit", "check", "retries")
"""The fields of `AgentSettings` that are changed as they come: no right depends on them."""
DEFAULTS = ("model", "network", "allow", *OTHERS)
"""The settings that have a default to go back to."""


class WantedSettings(NamedTuple):
    """Settings that an agent is to have; None is one that stays.

    Args:
        model: its model.
        network: its network.
        allow: all that a `filtered` network lets through.
        variables: variables that it gets, or whose values change.
        without: names of variables that it loses.
        others: values of the fields in `OTHERS`.
        defaults: which of `DEFAULTS` become what an agent has that is spawned without them.
        program: its agent program, which is there; with another one than it has a new chat begins.
    """

    model: str | None = None
    network: Network | None = None
    allow: tuple[str, ...] | None = None
    variables: Variables = ()
    without: tuple[str, ...] = ()
    others: Mapping[str, Any] = MappingProxyType({})
    defaults: tuple[str, ...] = ()
    program: str | None = None


def others_of(request: object) -> dict[str, Any]:
    """Return the values that a request, of attributes with the fields' names, gives to fields in `OTHERS`."""
    return {name: value for name in OTHERS if (value := getattr(request, name)) is not None}


class Settings:
    """Changes the settings of one daemon's agents."""

    def __init__(self, registry: Registry, allow_lists: AllowLists) -> None:
        self._registry = registry
        self._allow_lists = allow_lists

    def change(self, name: str, wanted: WantedSettings, by: str) -> Agent:
        """Change an agent's settings, all or none; its descendants lose the rights that it loses.

        Args:
            name: its name or id.
            wanted: the settings.
            by: who asks (`records.BY_OPERATOR`).

        Raises:
            InvalidParams: a setting can't be had.
            PolicyDenied: its parent has less, or another agent that has less can write its rules.
            Refused: it has ended, or a turn runs whose network or program would change.
        """
        before = self._registry.find(name)
        if before.phase == Phase.ENDED:
            raise Refused(f"{before.name} has ended: spawn another agent with what it needs")
        program = wanted.program if wanted.program is not None else before.settings.program
        wanted, session = self._with_defaults(wanted, program), before.session
        if program != before.settings.program:
            wanted, session = self._with_program(before, wanted, program), None
        policy = self._policy(before.policy, wanted, program)
        settings = replace(before.settings, environment=_variables(before, wanted), program=program, **wanted.others)
        model = wanted.model if wanted.model is not None else before.model
        after = replace(before, model=model, policy=policy, settings=settings, session=session)
        spawning.check_model(after.model)
        if after.model != before.model and any(USD in own.limits for _, own in pools.of(self._registry, before)):
            pools.check_price(self._registry, after.model)
        notes = self._check_rights(before, after)
        with self._registry.change("settings changed") as change:
            self._give(change, after, policy)
            change.admits = True  # the gate of another model or login may be open
            change.record(*(one.event(before.id, by) for one in _changes(before, after)))
            if before.session is not None and session is None:
                text = f"a new chat begins, because {program} can't go on with {before.session.id}, which stays"
                change.record(DaemonEvent(before.id, None, "session:changed", text))
            for note in notes:
                change.record(DaemonEvent(before.id, None, "workspace:shared", note))
        return self._registry.find(before.id)

    def _with_defaults(self, wanted: WantedSettings, program: str) -> WantedSettings:
        """Put in the values of the settings that go back to their defaults."""
        back, config = frozenset(wanted.defaults), self._registry.config
        given = {*wanted.others, *(name for name in ("model", "network", "allow") if getattr(wanted, name) is not None)}
        if odd := [name for name in wanted.defaults if name not in DEFAULTS or name in given]:
            raise InvalidParams(f"{odd[0]} has no default to go back to, or has a value too")
        return wanted._replace(
            model=config.model_of(program) if "model" in back else wanted.model,
            network=config.sandbox.network if "network" in back else wanted.network,
            allow=config.allow_of(program) if "allow" in back else wanted.allow,
            others={**wanted.others, **{name: getattr(AgentSettings(), name) for name in OTHERS if name in back}},
        )

    def _with_program(self, before: Agent, wanted: WantedSettings, program: str) -> WantedSettings:
        """Put in what comes with another program, its model and its hosts; raises `Refused` while a turn or check runs."""
        if before.phase in {*LIVE_PHASES, Phase.CHECKING}:
            raise Refused(
                f"{before.name} keeps its program until its turn is over: `substratctl suspend {before.name}` first, and "
                f"`resume` it then"
            )
        config, allow = self._registry.config, wanted.allow
        if allow is None and (wanted.network or before.policy.network) is Network.FILTERED:
            own = AllowList.of(config.allow_of(before.settings.program)).texts
            allow = tuple(entry for entry in before.policy.allow if entry not in own) + config.allow_of(program)
        return wanted._replace(model=wanted.model or config.model_of(program), allow=allow)

    def _policy(self, policy: Policy, wanted: WantedSettings, program: str) -> Policy:
        network = wanted.network or policy.network
        if network is not Network.FILTERED:
            if wanted.allow is not None:
                raise InvalidParams(f"the network {network.value!r} has no list of what it allows: leave allow out")
            return replace(policy, network=network, allow=())
        if wanted.allow is None:
            kept = policy.allow if policy.network is network else self._registry.config.allow_of(program)
            return replace(policy, network=network, allow=AllowList.of(kept).texts)
        return replace(policy, network=network, allow=AllowList.asked_for(wanted.allow).texts)

    def _check_rights(self, before: Agent, after: Agent) -> tuple[str, ...]:
        """Check that an agent may have its new rights, and return the notes on directories that it shares."""
        if after.policy == before.policy and after.settings.environment == before.settings.environment:
            return ()
        parent = self._registry.get(before.parent)
        most = self._registry.most_of_child(parent, after.settings.program) if parent is not None else None
        if parent is not None and most is not None and not most.allows(after.policy):
            raise PolicyDenied(
                f"{before.name} can't have more than its parent {parent.name}: `substratctl set {parent.name} …` first"
            )
        claim = self._registry.index.claim(after)
        refused = overlap.refusal_of_new(claim, self._registry.index.claims.beside(claim, before.id))
        if refused is not None:
            raise PolicyDenied(refused)
        return self._allow_lists.check_shared(before, after.policy)

    def _give(self, change: Change, agent: Agent, policy: Policy) -> None:
        """Give an agent rights, and hold its descendants to them."""
        before = self._registry.find(agent.id).policy
        if policy.network is not before.network and agent.phase in LIVE_PHASES:
            raise Refused(
                f"{agent.name} runs a turn, whose network stays as it is: `substratctl suspend {agent.name}` first, and "
                f"`resume` it then"
            )
        after = change.put(replace(agent, policy=policy))
        if policy != before:
            if policy.network is Network.FILTERED:
                change.after(partial(self._allow_lists.networks.allow, agent.id, policy.allow))
            change.record(DaemonEvent(agent.id, None, "network:changed", _difference(before, policy)))
        for child in self._registry.children(agent.id):
            most = self._registry.most_of_child(after, child.settings.program)
            if (kept := child.policy.within(most)) != child.policy:
                self._give(change, child, kept)


def _variables(agent: Agent, wanted: WantedSettings) -> Variables:
    if missing := [name for name in wanted.without if name not in dict(agent.settings.environment)]:
        raise InvalidParams(f"{agent.name} has no variable {missing[0]} of its own")
    left = tuple(pair for pair in agent.settings.environment if pair[0] not in wanted.without)
    return environment.checked(dict(environment.joined(left, wanted.variables)))


def _difference(before: Policy, after: Policy) -> str:
    if before.network is not after.network:
        return f"{before.network.value} is {after.network.value} now"
    more = [f"+{text}" for text in after.allow if text not in before.allow]
    less = [f"-{text}" for text in before.allow if text not in after.allow]
    return " ".join((*more, *less))


class _Changed(NamedTuple):
    """A setting that has changed. The values of variables are told nowhere."""

    key: str
    old: object
    new: object

    def event(self, agent: str, by: str) -> DaemonEvent:
        is_secret = self.key.startswith("env.")
        change = "is another now" if is_secret else f"{_shown(self.old)} is {_shown(self.new)} now"
        return DaemonEvent(agent, None, "agent:changed", f"{self.key} {change}", {"by": by, **self._asdict()})


def _shown(value: object) -> str:
    if value is None:
        return "as configured"
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, list) else str(value)


def _changes(before: Agent, after: Agent) -> list[_Changed]:
    """Return the settings that differ."""
    values = [
        ("program", before.settings.program, after.settings.program),
        ("model", before.model, after.model),
        ("network", before.policy.network.value, after.policy.network.value),
        ("allow", list(before.policy.allow), list(after.policy.allow)),
        *((name, getattr(before.settings, name), getattr(after.settings, name)) for name in OTHERS),
    ]
    found = [_Changed(key, old, new) for key, old, new in values if old != new]
    old, new = dict(before.settings.environment), dict(after.settings.environment)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return found + [_Changed(f"env.{name}", None, None) for name in names]
