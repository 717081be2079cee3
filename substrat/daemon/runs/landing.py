"""Does with the commits of a run that has succeeded what its file says: lands those checked, or asks nobody about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from substrat.core.agents import turn_check
from substrat.core.families.plans import Land
from substrat.core.workspaces import landing
from substrat.core.workspaces.landing import Landing
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.core.families.runs import Run
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.landing import Landings


def settle(change: Change, registry: Registry, landings: Landings, run: Run) -> str | None:
    """Ask for landings, or note that none is wanted, as a part of a change; returns a sentence about what lands."""
    members = [agent for one in run.ids if (agent := registry.get(one)) is not None]
    below = {one.id: one for agent in members for one in registry.family(agent)}
    if run.plan.land is Land.NEVER:
        _accept(change, [one.clone for one in below.values() if one.clone is not None], run.by)
    if run.plan.land is not Land.MERGE:
        return None
    wishes, left = [], []
    for agent in members[:1] if run.plan.lead is not None else members:  # a lead decides which of the others' it takes
        if (clone := agent.clone) is None or not clone.is_unlanded:
            continue
        if agent.checked is None or turn_check.passed_on(agent.checked, clone) is None:
            left.append(f"{agent.name}'s work doesn't land: no check has passed on all of it")
            continue
        try:
            wishes.append(Landing(0, agent.id, landing.target_of(clone, None), time=registry.now(),
                                  check_command=agent.checked.command))  # fmt: skip
        except InvalidParams as problem:
            left.append(f"{agent.name}'s work doesn't land: {problem.message}")
    if wishes:
        landings.ask(f"run {run.name}", wishes)
    told = [f"{registry.name_of(one.agent)}'s work is queued to land in {one.target}" for one in wishes]
    return "; ".join([*told, *left]) or None


def _accept(change: Change, clones: Iterable[Clone], by: str) -> None:
    for clone in clones:
        if clone.is_unlanded or clone.has_more:
            change.put_any_clone(replace(clone, landings=replace(clone.landings, accepted=clone.kept.last)))
            told = "its run's file says that its work needn't land"
            change.record(DaemonEvent(clone.agent, None, "workspace:accepted", told, {"by": by}))
