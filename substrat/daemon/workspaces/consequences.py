"""Ends sandboxes whose agent may have reached a protected file, sets the changed files aside, and tells a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import trio

from substrat.core.agents.stop_reason import StopKind, StopReason
from substrat.daemon.agents.findings import Found
from substrat.daemon.state.events import DaemonEvent
from substrat.daemon.state.storing import until_stored
from substrat.daemon.workspaces.judgement import Judgement, event_text, finding_of, replace_all, replace_rest
from substrat.daemon.workspaces.protected_paths import listed, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from substrat.core.workspaces.protection import Copy
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox

_TOLD = 5
"""Changed files that one event names, each with its change."""
_LISTED = 100
"""Paths in an event's data: it is one line."""


class Consequences:
    """What follows when protected files have changed while their protection was off.

    Args:
        registry: the agents.
        findings: where changed files are recorded for a person.
        layout: the daemon's directories.
    """

    def __init__(self, registry: Registry, findings: Findings, layout: Layout) -> None:
        self._registry = registry
        self._findings = findings
        self._layout = layout
        self.ended: set[str] = set()
        """The names of sandboxes that were ended, for as long as they are there."""
        self.putting_back = trio.Lock()
        """Held while changed files are put back; the look at an ended turn comes after."""

    async def finish_putting_back(self, agent_id: str, turn_id: str, kept: Mapping[str, Copy]) -> None:
        """Finish an earlier daemon's work: move the changed files aside that it noted, and put the copies back.

        Args:
            agent_id: whose turn is taken over.
            turn_id: the turn.
            kept: the copies that were kept for it.
        """
        agent = self._registry.get(agent_id)
        moves = {
            finding.path: finding.aside
            for finding in (agent.findings if agent is not None else ())
            if finding.turn == turn_id and finding.aside is not None
        }
        if moves:
            await trio.to_thread.run_sync(replace_rest, moves, kept, self._layout.aside)

    async def tell_mounted(self, sandbox: ProtectedSandbox, mounted: Collection[str]) -> None:
        """Tell which paths of a sandbox were mounted again."""
        if mounted and sandbox.name not in self.ended:
            text = f"changed on the host, and protected again: {listed([*mounted])}"
            await until_stored(partial(self._tell, sandbox, "workspace:protected-again", text, [*mounted]))

    async def put_back(self, guilty: list[ProtectedSandbox], reached: list[Judgement]) -> None:
        """End the sandboxes, move the changed files aside, and put the copies back."""
        async with self.putting_back:
            await self._put_aside(guilty, reached)

    async def _put_aside(self, guilty: list[ProtectedSandbox], reached: list[Judgement]) -> None:
        stamp = datetime.fromtimestamp(self._registry.now(), UTC).strftime("%Y%m%dT%H%M%SZ")
        found = [await trio.to_thread.run_sync(finding_of, one, self._layout.aside, stamp) for one in reached]
        targets = [(one, finding.aside) for one, finding in zip(reached, found, strict=True) if finding.aside is not None]
        reason = f"{listed([one.path for one in reached])} changed while the protection was off"
        await self.stop(guilty, reason, found)
        self._registry.points.before("moved aside")
        await trio.to_thread.run_sync(replace_all, targets, self._layout.aside)
        self._registry.points.after("moved aside")

    async def stop(self, sandboxes: list[ProtectedSandbox], reason: str, found: list[Found]) -> None:
        """Note why sandboxes end, then end them; the findings stay in their agents' attention."""
        for sandbox in sandboxes:
            await until_stored(partial(self._note, sandbox, reason, found))
        for sandbox in sandboxes:
            self.ended.add(sandbox.name)
            sandbox.control.end(StopReason(StopKind.PROTECTION, reason))

    def _note(self, sandbox: ProtectedSandbox, reason: str, found: list[Found]) -> None:
        wanted = found or [Found(sandbox.workspace, f"its protection was off: {reason}")]
        with self._registry.change("protected files reached") as change:
            self._findings.record(sandbox.agent, sandbox.turn, wanted)
            agent = self._registry.get(sandbox.agent)
            if agent is None:
                return
            turn = agent.turn
            if turn is not None and turn.id == sandbox.turn and turn.stop is None:
                change.put_turn(agent, replace(turn, stop=StopReason(StopKind.PROTECTION, reason)))
            text = "; ".join(map(event_text, found[:_TOLD])) or reason
            data = {"paths": _paths([one.path for one in found])}
            change.record(DaemonEvent(sandbox.agent, sandbox.turn, "workspace:touched", text, data))

    def _tell(self, sandbox: ProtectedSandbox, kind: str, text: str, paths: list[str]) -> None:
        with self._registry.change("note taken") as change:
            if self._registry.get(sandbox.agent) is not None:
                change.record(DaemonEvent(sandbox.agent, sandbox.turn, kind, text, {"paths": _paths(paths)}))


def _paths(paths: list[str]) -> list[str]:
    """Return paths as an event tells them."""
    return [printable(path) for path in paths[:_LISTED]]
