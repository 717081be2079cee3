"""Tells a person who needs them, by running `notify.command`: once for each cause, those of two seconds together.

That a person is told is recorded before the command runs, so that no death of the daemon tells anything twice. What a
command that failed was to tell is taken off the record, and told after a pause or by the next daemon. Agents are looked at
when they change, and those at work or in the queue every few seconds too: that a turn is stuck, or an account held, is no
change of the agent. With an agent its family is looked at, because who leads decides who needs a person.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import structlog
import trio

from substrat.core.agents import bell
from substrat.core.agents.lifecycle import STATE_OF
from substrat.core.agents.prompts import timestamp
from substrat.daemon.agents.wakeup import Wakeup
from substrat.daemon.families.overview import attention_object
from substrat.daemon.kernel import helper
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import NotAvailable, NotifyFailed, StorageFailed, SubstratError
from substrat.protocol.attention import KINDS
from substrat.protocol.attention import command as command_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from substrat.core.agents.attention import Attention
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.overview import Overview

log = structlog.get_logger("substrat.bell")

_GATHER_S = 2.0
"""Seconds in which causes are gathered: a person whose account is held is told once of all its agents."""
_LOOK_S = 10.0
"""Seconds after which agents at work are looked at again."""
_LONGEST_S = 10.0
"""Seconds that the command may take."""
_MOST_ERRORS = 4096
"""Bytes of the command's standard error that are told: its last words."""
_SLICE = 50
"""Agents that are looked at in one go: their facts are read in a few milliseconds."""
_PASSED_ON = ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY")
_AT_WORK = [phase for phase, state in STATE_OF.items() if state in {"running", "queued"}]


class _Due(NamedTuple):
    """What was recorded as told: the agents that the person is told of, and those that another of the family stands for."""

    told: list[tuple[Agent, Attention]]
    known: list[tuple[Agent, Attention]]


class Bell:
    """Tells a person who needs them.

    Args:
        registry: the agents.
        overview: says who needs a person.
        environ: the daemon's environment, of which the command gets a part.
    """

    def __init__(self, registry: Registry, overview: Overview, environ: Mapping[str, str]) -> None:
        self._registry = registry
        self._overview = overview
        self._environment = {name: environ[name] for name in _PASSED_ON if name in environ}
        self._wanted = Wakeup()
        self._changed: set[str] = set()
        self._at_once = trio.Lock()
        self._untold: dict[str, str] = {}
        """The causes that a command which failed was to tell, by agent."""
        self._failures = 0
        self._again_at = float("inf")
        """When those are told again, on Trio's clock."""
        registry.observe(self.look_at)

    def look_at(self, agents: Iterable[str]) -> None:
        """Look at some agents soon, by their ids; without a command nobody is told anything."""
        if self._registry.config.notify.command:
            self._changed.update(agents)
            self._wanted.set()

    def look_at_all(self) -> None:
        """Look at every agent soon: the daemon has started, or its configuration has changed."""
        self._untold, self._failures, self._again_at = {}, 0, float("inf")
        self.look_at([agent.id for agent in self._registry.agents])

    async def run(self) -> None:
        """Tell a person, until cancelled."""
        while True:
            with trio.move_on_at(min(trio.current_time() + self._patience(), self._again_at)):
                await self._wanted.wait()
            await trio.sleep(_GATHER_S if self._changed else 0)
            self._wanted.clear()
            try:
                due = await self._recorded()
            except StorageFailed as problem:
                log.error("the bell can't be recorded", reason=problem.message)  # noqa: TRY400 - the sentence says it all
                self._wanted.set()
                await trio.sleep(_LOOK_S)
                continue
            if due.told:
                await self._ring(due)

    async def test(self) -> None:
        """Run the command with a made-up agent.

        Raises:
            NotAvailable: none is configured.
            NotifyFailed: it failed, with its words.
        """
        attention = {
            "kind": "answer", "level": "urgent", "text": "this is a test", "since": timestamp(self._registry.now()),
        }  # fmt: skip
        made_up: dict[str, object] = {
            "name": "test", "id": "00000000-0000-4000-8000-000000000000", "attention": attention, "last": "All is well.",
            "command": "substratctl ls",
        }  # fmt: skip
        if not self._registry.config.notify.command:
            raise NotAvailable('no command is configured: write command = ["PROGRAM", "ARGUMENT"] below [notify]')
        if (failure := await self._run([made_up], test=True)) is not None:
            raise NotifyFailed(f"the command of notify.command {failure}")

    def _patience(self) -> float:
        """Return after how many seconds agents are looked at although none has changed."""
        has_work = self._registry.config.notify.command and self._registry.index.in_phases(_AT_WORK)
        return _LOOK_S if has_work else float("inf")

    async def _recorded(self) -> _Due:
        """Find those whose person is to be told, and note that it is."""
        changed, self._changed = self._changed, set()
        if trio.current_time() >= self._again_at:
            changed.update(self._untold)
            self._untold, self._again_at = {}, float("inf")
        if not self._registry.config.notify.command:
            return _Due([], [])  # the configuration has changed meanwhile
        at_work = (agent.id for agent in self._registry.index.in_phases(_AT_WORK))
        agents = [agent for one in changed if (agent := self._registry.get(one)) is not None]
        families = [self._registry.family(root) for root in dict.fromkeys(map(self._registry.root_of, agents))]
        ids = list(dict.fromkeys((*(one.id for family in families for one in family), *at_work)))
        due = _Due([], [])
        for start in range(0, len(ids), _SLICE):
            try:
                self._record(ids[start : start + _SLICE], due)
            except StorageFailed:
                self._changed.update(changed)
                raise
            await trio.lowlevel.checkpoint()
        due.told.sort(key=_weight)
        return due

    def _record(self, ids: Sequence[str], into: _Due) -> None:
        found = [agent for one in ids if (agent := self._registry.get(one)) is not None]
        seen = self._overview.attentions(found)
        due = [
            (agent, one)
            for agent, one in zip(found, seen, strict=True)
            if bell.is_due(one, self._untold.get(agent.id, agent.told), agent.phase)
        ]
        fresh: list[tuple[Agent, Attention]] = []
        families: dict[str, list[tuple[Agent, Attention]]] = {}
        # A root comes first: its own reason isn't told by that of one which it leads.
        for pair in sorted(due, key=lambda pair: (pair[0].parent is not None, _weight(pair))):
            root = self._registry.root_of(pair[0])
            if root.id not in families:
                family = self._registry.family(root)
                families[root.id] = list(zip(family, self._overview.attentions(family), strict=True))
            if pair[0].id == root.id or not bell.is_known(pair[1], _others(pair[0], families[root.id], fresh)):
                fresh.append(pair)
        if due:
            with self._registry.change("bell recorded") as change:
                for agent, attention in due:
                    change.put(replace(agent, told=bell.cause(attention)))
            for agent, _ in due:
                self._untold.pop(agent.id, None)
        into.told.extend(fresh)
        into.known.extend(pair for pair in due if pair not in fresh)

    async def _ring(self, due: _Due) -> None:
        failure = await self._run([_told(agent, found) for agent, found in due.told], test=False)
        if failure is None:
            self._failures = 0
            self._again_at = trio.current_time() if self._untold else float("inf")
            return
        self._failures += 1
        self._untold.update((agent.id, bell.cause(found) or "") for agent, found in (*due.told, *due.known))
        self._again_at = trio.current_time() + bell.pause(self._failures)
        log.warning("nobody could be told", reason=failure)
        text = f"you weren't told that it needs you: the command of notify.command {failure}"
        try:
            with self._registry.change("bell failed") as change:
                for before, found in (*due.told, *due.known):
                    agent = self._registry.get(before.id)
                    if agent is not None and agent.told == bell.cause(found):
                        change.put(replace(agent, told=None))
                for before, _ in due.told:
                    if self._registry.get(before.id) is not None:
                        change.record(DaemonEvent(before.id, None, "notify:failed", text))
        except StorageFailed as problem:
            log.error("the bell's failure can't be told", reason=problem.message)  # noqa: TRY400 - it says it all

    async def _run(self, agents: Collection[dict[str, object]], *, test: bool) -> str | None:
        """Run the command and return how it failed, in words that follow its name; None: it didn't."""
        given = json.dumps({"test": test, "agents": list(agents)}).encode()
        words = self._registry.config.notify.command
        points = self._registry.points
        async with self._at_once:
            points.before("bell rung")
            try:
                done = await helper.run(words, self._environment, given=given, seconds=_LONGEST_S, gently=False, quiet=True)
                code, errors = done.returncode, done.stderr
            except helper.TookTooLong as problem:
                code, errors = None, problem.errors
            except FileNotFoundError:
                where = f"on {self._environment.get('PATH')}, or the interpreter that its first line names is missing"
                return f"can't be run: there is no program {words[0]!r} {where}"
            except OSError as problem:
                return f"can't be run: {problem.strerror or problem}"
            except SubstratError as problem:
                return f"can't be run: {problem.message}"
            finally:
                points.after("bell rung")
        if code == 0:
            return None
        how = f"took longer than {_LONGEST_S:g} s" if code is None else f"ended with {code}"
        said = errors[-_MOST_ERRORS:].decode("utf-8", "replace").strip()
        return f"{how}: {said}" if said else how


def _others(
    agent: Agent, family: Iterable[tuple[Agent, Attention]], fresh: Iterable[tuple[Agent, Attention]]
) -> list[tuple[Attention, str | None]]:
    """Return the attention of each other member of an agent's family and what was told, or is about to be, of it."""
    now = {one.id: bell.cause(found) for one, found in fresh}
    return [(seen, now.get(one.id, one.told)) for one, seen in family if one.id != agent.id]


def _weight(found: tuple[Agent, Attention]) -> tuple[int, float]:
    return KINDS.index(found[1].kind), found[1].since


def _told(agent: Agent, found: Attention) -> dict[str, object]:
    return {
        "name": agent.name, "id": agent.id, "attention": attention_object(found), "last": agent.last,
        "command": f"substratctl {command_for(found.kind, agent.name, found.item, frozen=found.is_frozen)}",
    }  # fmt: skip
