"""Performs tool calls with the parts of them that take time: where a child works, and looks at other agents' work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcp_server import tools
from substrat.core.agents import excerpts
from substrat.core.families import results
from substrat.core.programs.transcript import Transcript
from substrat.daemon.families.mcp_tools import failure
from substrat.errors import InvalidParams, PolicyDenied, Refused, SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Turn
    from substrat.core.programs.transcript import TranscriptStep
    from substrat.core.workspaces.diffs import ChangedFile
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.spawning import ChildPlace
    from substrat.daemon.clones.children import ChildPlaces
    from substrat.daemon.clones.diffing import Diffing
    from substrat.daemon.families.mcp_tools import Ready, ToolCalls
    from substrat.daemon.families.waits import Waits

_TAIL = 1000
"""Events that the end of an agent's work is put together from: the fragments of some speeches, and the calls between."""
_LONGEST_STEP = 2048
"""Bytes that it shows of one step: a command's output must not hide the steps after it."""


class AgentTools:
    """Performs the tool calls of one daemon's agents."""

    def __init__(self, registry: Registry, waits: Waits, calls: ToolCalls, places: ChildPlaces, diffing: Diffing) -> None:
        self._registry = registry
        self._waits = waits
        self._calls = calls
        self._places = places
        self._diffing = diffing

    async def call(
        self, agent: str, turn: str | None, name: str, arguments: dict[str, Any] | None, identity: str | None
    ) -> tuple[str, bool]:
        """Perform a call and return the answer's text, and whether it is an error (`ToolCalls.perform`)."""
        ready: Ready = None
        try:
            if not self._calls.has_answered(agent, turn, identity):
                ready = await self._prepare(agent, tools.parse(name, arguments))
        except Exception as problem:
            return failure(problem, name, agent)
        return self._calls.perform(agent, turn, name, arguments, identity, ready)

    async def _prepare(self, agent: str, call: tools.Tool) -> Ready:
        match call:
            case tools.SpawnAgent():
                caller = self._calls.caller(agent)
                return tuple([await self._place(caller, child) for child in tools.children_of(call)])
            case tools.GetAgent(_, what, path) if path is not None and what not in {"stat", "diff"}:
                raise InvalidParams(f"path is for stat and diff, and what is {what}: leave it out")
            case tools.GetAgent(name, what, path) if what != "status":
                return await self._look(self._calls.caller(agent), name, what, path)
        return None

    async def _place(self, caller: Agent, child: tools.SpawnAgent) -> ChildPlace | SubstratError:
        """Return where a child works, or why it can't; its siblings of the same call go on."""
        try:
            return await self._places.choose(caller, child)
        except SubstratError as problem:
            return problem

    async def _look(self, caller: Agent, name: str, what: str, path: str | None) -> str:
        """Return the result, the end of the work or the changes of one of the family, below a line on its kept commit."""
        self._calls.lists.one(caller, name)  # it refuses a name that no agent has
        found = self._registry.find(name)
        if self._registry.root_of(caller).id != self._registry.root_of(found).id:
            raise PolicyDenied(f"{name} isn't of your family, so you see its status only: ask it with send_message")
        match what:
            case "result":
                body = self._result(found)
            case "tail":
                body = await self._tail(found)
            case _:
                body = await self._changes(found, path, with_text=what == "diff")
        return f"{_head(found, self._registry.work_of(found))}\n\n{body}"

    def _result(self, agent: Agent) -> str:
        turn = self._last_turn(agent)
        if turn is None:
            return "It has finished no turn yet."
        outcome = self._waits.outcome_of(agent, turn)
        return f"Turn {turn.number}, {outcome}:\n\n{excerpts.quoted(results.text_of(turn), excerpts.MOST)}"

    def _last_turn(self, agent: Agent) -> Turn | None:
        """Return an agent's last turn that has ended, with its result."""
        if agent.turn is None:
            return None
        number = agent.turn.number - (1 if agent.turn.outcome is None else 0)
        found = self._registry.store.turns_after(agent.id, number - 1, 1)
        return found[0] if found and found[0].outcome is not None else None

    async def _tail(self, agent: Agent) -> str:
        """Return the last steps of an agent's transcript, of each and of all together the head and the tail."""
        journal, transcript, steps = self._registry.journal, Transcript(), []
        cursor, last = await journal.start_of(-_TAIL, agent.id), journal.last_cursor
        while cursor < last and (events := await journal.read(cursor, agent.id, _TAIL)):
            cursor = events[-1].cursor
            for event in events:
                steps += transcript.feed(msgspec.json.decode(event.json))
        lines = (excerpts.shortened(_line(step), _LONGEST_STEP) for step in (*steps, *transcript.finish()))
        return excerpts.quoted("\n".join(lines), excerpts.MOST)

    async def _changes(self, agent: Agent, path: str | None, *, with_text: bool) -> str:
        """Return the committed changes in an agent's clone, as a patch or as a list of the files."""
        if agent.clone is None:
            raise Refused(f"{agent.name} has no clone of its own, so there is nothing to compare: look at its files")
        found = await self._diffing.difference(agent.clone, with_text=with_text, path=path)
        more = f"\n… {found.cut:,} bytes more" if found.cut else ""
        text = found.text if with_text else "\n".join(map(_changed, found.files))
        nothing = "It has changed nothing." if path is None else f"It has changed nothing in {path}."
        return excerpts.shortened(text or nothing) + more


def _changed(file: ChangedFile) -> str:
    """Return a changed file in a line: `modified src/app.py +3 -1`."""
    counts = "binary" if file.is_binary else f"+{file.added} -{file.deleted}"
    return f"{file.status} {file.path} {counts}"


def _line(step: TranscriptStep) -> str:
    """Return a step of a transcript in words: its time and kind, the text, and of a tool call how it ended."""
    said = f"{step.time} {step.event or step.kind} {step.text}".rstrip()
    return said if step.tool is None else f"{said}: {step.tool.verdict}\n{step.tool.output}".rstrip()


def _head(agent: Agent, made: str) -> str:
    """Name the commit of an agent's kept work, and say that work's record."""
    if agent.clone is None or agent.clone.kept.head is None:
        return f"{agent.name} has no commit that is kept."
    return f"{agent.name}'s kept commit is {agent.clone.kept.head}. Its work: {made or 'none yet'}."
