"""Starts a turn's sandbox, or takes up one that an earlier daemon started, and serves it while it runs."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from substrat.core.agents.turn_limits import TurnLimits, time_silent, time_used
from substrat.daemon.kernel import descriptors, sandbox_process
from substrat.daemon.kernel.cgroups import group_of
from substrat.daemon.sandboxes.running import TURN
from substrat.daemon.state.storing import Patience, until_stored
from substrat.daemon.turns import agent_socket, damage, shortage
from substrat.daemon.turns.agent_network import network_of
from substrat.daemon.turns.running import RunningTurn
from substrat.errors import SandboxFailed, StateUnusable, StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.agents.records import Agent, Process, Turn
    from substrat.core.agents.verdict import TurnObservation
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.agents.state import State
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.kernel.cgroups import Group
    from substrat.daemon.network.filtered import TurnNetwork
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.state.layout import AgentDir, TurnDir
    from substrat.daemon.turns.preparation import TurnPreparation
    from substrat.daemon.turns.running_turns import RunningTurns

log = structlog.get_logger("substrat.starting")

_LOOK_AGAIN = 0.02
"""Seconds between looks whether a sandbox that holds its lock has reported itself, which takes milliseconds."""
_TRY_AGAIN = 5.0
"""Seconds until an agent's socket that has failed is tried again: no event tells when it can succeed."""


@attrs.define(kw_only=True, eq=False)
class TurnStarter:
    """Starts, or takes up, the turns of one daemon.

    Args:
        state: the agents, and the places of their files.
        accounting: records the turns.
        sandboxes: tells which sandboxes run, with their cgroups and networks.
        preparation: prepares the turns' sandboxes.
        sessions: tells whose the chats are that agents name.
        serve_agent: serves an agent's socket until cancelled.
        turns: the turns that run.
    """

    _state: State
    _accounting: Accounting
    _sandboxes: Sandboxes
    _preparation: TurnPreparation
    _sessions: Sessions
    _serve_agent: Callable[..., Awaitable[None]]
    _turns: RunningTurns
    _recorded: set[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._recorded = {agent.turn.id for agent in self._state.registry.agents if agent.turn is not None}

    async def run(self, agent: Agent, turn: Turn) -> TurnObservation:
        """Start a turn, or take it up, and stay with it to its end.

        Raises:
            SubstratError: it couldn't be started, or taken up.
        """
        place = self._state.layout.agent(agent.id)
        turn_place = place.turn(turn.number)
        damages = await self._examine(agent, turn, place)
        started = turn.process
        is_own = turn_place.is_of(turn.id, unless_told=turn.id in self._recorded)
        if started is None and is_own and (started := await self._find_unrecorded(turn_place)):
            found = started  # it runs, so it must be recorded, however long that takes
            await until_stored(lambda: self._accounting.turn_spawned(turn.id, found))
        running = RunningTurn(
            turn.id, turn_place, turn.offset, self._accounting, self._state.watcher, self._limits(agent, turn, turn_place),
            self._state.registry.points, group=self._group_of(turn, started), frozen=turn.frozen_at is not None,
            obstacles=partial(self._sessions.obstacles, agent.id),
            showing=partial(self._sandboxes.running.showing, agent.id, TURN),
        )  # fmt: skip
        note = partial(self._accounting.network_decided, turn.id)
        network = network_of(self._state.registry, self._state.watcher, agent, turn_place, place.network_socket, note)
        self._turns.add(running)
        try:
            with self._sandboxes.networks.serving(agent.id, network):
                async with trio.open_nursery() as nursery:
                    outcome: TurnObservation | SubstratError | None = await self._start_serving(
                        nursery, agent, turn, place, started
                    )
                    if outcome is None:
                        if network is not None:
                            nursery.start_soon(network.serve, started, lambda: running.process)
                        outcome = await self._launch_or_adopt(running, started, agent, turn, turn_place, network)
                    nursery.cancel_scope.cancel()
        finally:
            self._turns.remove(turn.id)
        if isinstance(outcome, SubstratError):
            raise outcome
        told = "; ".join(found.sentence for found in damages if found.matters)
        return outcome._replace(damage=told or None)

    async def _start_serving(
        self, nursery: trio.Nursery, agent: Agent, turn: Turn, place: AgentDir, started: Process | None
    ) -> SubstratError | None:
        """Serve the agent's socket; a turn that runs already is looked after even if there is no room for its socket.

        Returns:
            Why a turn can't be started or taken up now, None when it can.
        """
        try:
            await nursery.start(self._serve_agent, agent.id, turn.id, place.socket)
        except (OSError, StateUnusable) as problem:
            refused = agent_socket.refusal(place.socket, problem)
            if started is None:
                return refused
            log.warning(
                "a turn goes on without its agent's socket", agent=agent.name, turn=turn.number, reason=refused.message
            )
            nursery.start_soon(self._serve_agent_later, agent, turn, place)
        return None

    async def _serve_agent_later(self, agent: Agent, turn: Turn, place: AgentDir) -> None:
        """Serve the agent's socket as soon as there is room for it; no event tells that."""
        while True:
            await trio.sleep(_TRY_AGAIN)
            with suppress(OSError, StateUnusable):
                await self._serve_agent(agent.id, turn.id, place.socket)

    async def _examine(self, agent: Agent, turn: Turn, place: AgentDir) -> list[damage.Damage]:
        """Report damage to a turn's files; a sandbox whose output can't be followed any more is killed."""
        found = damage.examine(
            turn, place, self._state.layout, self._state.registry.now(), was_recorded=turn.id in self._recorded
        )
        for one in found:
            log.error("damaged", agent=agent.name, turn=turn.number, what=one.sentence)
            note = partial(self._accounting.turn_note, turn.id, "state:damaged", one.sentence, Patience.TURNS_END)
            await until_stored(note)
        if turn.process is not None and any(one.blind for one in found):
            sandbox_process.kill_recorded(turn.process)
        return found

    def _group_of(self, turn: Turn, started: Process | None) -> Group | None:
        """Return a turn's cgroup: the one that its sandbox is in, or the one it will be started in."""
        found = group_of(started.pid, turn.id) if started is not None else None
        return found or self._sandboxes.cgroups.group(turn.id)

    async def _find_unrecorded(self, place: TurnDir) -> Process | None:
        """Find the sandbox of a turn that a daemon started and didn't come to record.

        It may not have reported itself yet, but it holds the turn's lock from its first instant.
        """
        while True:
            held = place.is_held()
            found = sandbox_process.find_unrecorded(place.read_status(), place.stdout)
            if found is not None or not held:
                return found
            await trio.sleep(_LOOK_AGAIN)

    async def _launch_or_adopt(
        self,
        running: RunningTurn,
        started: Process | None,
        agent: Agent,
        turn: Turn,
        place: TurnDir,
        network: TurnNetwork | None,
    ) -> TurnObservation | SubstratError:
        """Run the turn; a refusal is returned, so that the nursery around doesn't wrap it."""
        try:
            async with AsyncExitStack() as protected:
                if started is not None:
                    await self._preparation.adopt(agent, turn, place, running, protected)
                    return await self._adopt(running, started)
                return await running.run(lambda: self._preparation.prepare(agent, turn, place, network, running, protected))
        except SubstratError as problem:
            return problem
        except OSError as problem:
            what = f" {problem.filename}" if problem.filename else ""
            said = f"the turn's files can't be made:{what} {problem.strerror}"
            short = shortage.error(problem, said)
            # A turn that runs already must not be tried again because the disk is full.
            if short is None or (started is not None and isinstance(short, StorageFailed)):
                return SandboxFailed(f"{said}; look at what is in its place")
            return short

    async def _adopt(self, running: RunningTurn, started: Process) -> TurnObservation:
        """Stay with a sandbox that runs already, as soon as there are descriptors for that."""
        while True:
            try:
                return await running.adopt(started)
            except OSError as problem:
                if not descriptors.is_short(problem):
                    raise
                log.error("waiting to adopt a turn", reason=descriptors.sentence(problem))  # noqa: TRY400
            await trio.sleep(shortage.PAUSE)

    def _limits(self, agent: Agent, turn: Turn, place: TurnDir) -> TurnLimits:
        turns, own, steady = self._state.registry.config.turns, agent.settings, self._state.registry.steady()
        time_limit = turns.time_limit if own.time_limit is None else own.time_limit
        silence_limit = turns.silence_limit if own.silence_limit is None else own.silence_limit
        left = time_limit - time_used(turn, steady) if time_limit else None
        printed_at = place.printed_since(turn.offset)
        silent = time_silent(turn, steady, self._state.registry.now() - printed_at if printed_at is not None else None)
        output = self._state.registry.config.disk.turn_output
        silence, tool = silence_limit or None, turns.tool_limit or None
        return TurnLimits(turns.stop_grace, turns.result_grace, time_limit, left, silence, tool, silent, output)
