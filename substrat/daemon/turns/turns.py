"""Composes the parts of the daemon that run turns, and names the steps of a turn's end in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.programs.table import CURSOR
from substrat.daemon.sandboxes.turn_git import TurnGit
from substrat.daemon.turns.disk_watch import DiskWatch
from substrat.daemon.turns.ending import EndStep, TurnEnd
from substrat.daemon.turns.preparation import TurnPreparation
from substrat.daemon.turns.questions import TurnQuestions
from substrat.daemon.turns.retention import Retention
from substrat.daemon.turns.runner import TurnRunner
from substrat.daemon.turns.starting import TurnStarter
from substrat.daemon.turns.workspace_look import WorkspaceLook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from substrat.daemon.agents.agents import Agents
    from substrat.daemon.agents.state import State
    from substrat.daemon.agents.wakeup import Wakeup
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.clones.clones import Clones
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.turns.running_turns import RunningTurns


class Turns:
    """The turns of one daemon.

    Args:
        state: the agents, and the places of their files.
        agents: records the turns, and asks for stops.
        sandboxes: prepares and protects sandboxes.
        sessions: moves agents' chats.
        clones: the agents' clones.
        running: the turns that run or are to be started.
        serve_agent: serves an agent's socket until cancelled.
        sweep_wanted: asks for a sweep soon.
        nursery: where the turns' tasks live.
    """

    def __init__(
        self,
        *,
        state: State,
        agents: Agents,
        sandboxes: Sandboxes,
        sessions: Sessions,
        clones: Clones,
        running: RunningTurns,
        serve_agent: Callable[..., Awaitable[None]],
        sweep_wanted: Wakeup,
        nursery: trio.Nursery,
    ) -> None:
        registry, layout, accounting, preparer = state.registry, state.layout, agents.accounting, sandboxes.preparer
        self.questions = TurnQuestions(agents.requests, running, sandboxes.cgroups)
        user_chats = sandboxes.user.place(CURSOR.places.chats)
        self.disk_watch = DiskWatch(
            registry, accounting, layout, user_chats, turn_runs=running.turn_runs, files=state.files
        )
        self.retention = Retention(registry, layout, state.trash, sweep_wanted, clones.forgetting.sweep)
        preparation = TurnPreparation(
            state=state, accounting=accounting, sandboxes=sandboxes, sessions=sessions, refresh=clones.making.refresh
        )
        starter = TurnStarter(
            state=state, accounting=accounting, sandboxes=sandboxes, preparation=preparation, sessions=sessions,
            serve_agent=serve_agent, turns=running,
        )  # fmt: skip
        turn_git = TurnGit(preparer, state.files, layout)
        look = WorkspaceLook(state=state, accounting=accounting, protector=preparer.protector, git=turn_git)
        end = TurnEnd(state, accounting, sessions, sandboxes.cgroups, running)
        end_steps = (
            EndStep("look at the workspace", look.look),
            EndStep("tell shortages", end.tell_shortage),
            EndStep("settle the chat", end.settle_chat),
            EndStep("keep the clone", lambda over: clones.keeping.keep(over.agent.id, (over.turn.id, over.turn.number))),
            EndStep("remove the placeholders", lambda over: preparer.protector.placeholders.release(over.turn.id)),
            EndStep("account", end.account),
            EndStep("remove the cgroup", end.remove_cgroup),
        )
        self.runner = TurnRunner(
            state=state, placeholders=preparer.protector.placeholders, nursery=nursery, turns=running, starter=starter,
            end_steps=end_steps,
        )  # fmt: skip
