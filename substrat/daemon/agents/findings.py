"""Keeps findings in agents' workspaces until a person has accepted them, or their files are gone or as they were."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Finding, open_turn_id
from substrat.core.programs.lenient import tame_text
from substrat.daemon.agents import findings_watch
from substrat.daemon.kernel import fingerprint
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import NotFound, Refused
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files

_MOST = 50
"""How many findings of one agent are kept apart: an agent can make any number of repositories, and a person reads some."""
_TOLD = 5
"""Findings that one event names: it is one line, and `substratctl show` lists them all."""


UNPROTECTED, UNFILTERED = "workspace:unprotected", "workspace:unfiltered"


class Found(NamedTuple):
    """Something that was found.

    Args:
        path: the file, directory or setting.
        text: the problem, in one sentence.
        aside: where the daemon keeps a file that it has moved out of the workspace.
        difference: the paths that were changed, one a line, where there are several (`listing`).
        files: the files whose content a person accepts.
        digest: the fingerprint of their content; None: it can't be compared, or something has happened, so the same
            words are told again each time.
        was: hashes of the files' content at the turn's start, empty where nothing was; as in `fingerprint.is_as_before`.
        kind: of the event that tells it.
    """

    path: str
    text: str
    aside: str | None = None
    difference: str = ""
    files: tuple[str, ...] = ()
    digest: str | None = None
    was: tuple[str, ...] = ()
    kind: str = UNPROTECTED


WORDS = fingerprint.of((), ())
"""The digest of a finding whose words are all that there is to accept, such as a setting with its value."""
_LONGEST_DIFFERENCE = 16_000
"""Characters of a finding's listed paths: an agent decides how many there are, and one answer has up to 50 findings."""
_LONGEST_LIST = 256 * 1024
"""Characters of the paths that a finding names, as JSON: they are written down with it."""


def found_in(
    path: str, text: str, files: Sequence[str], roots: tuple[str, ...], budget: fingerprint.Budget | None = None
) -> Found:
    """Return a finding that is accepted with the content of some files; what can't be compared is said in its text.

    Args:
        path: the file or directory.
        text: the problem, in one sentence.
        files: the files, by their absolute paths.
        roots: where the agent may write (`roots_of`).
        budget: how much is read.
    """
    if files and len(json.dumps(files)) <= _LONGEST_LIST and all(tame_text(one) == one for one in files):
        digest = fingerprint.of(files, roots, budget)
        if digest is not None:
            return Found(path, text, files=tuple(files), digest=digest)
    return Found(path, f"{text}{INCOMPARABLE}")


def found_at(agent: Agent, text: str, paths: Sequence[str], files: Sequence[str]) -> Found:
    """Return the one finding about some paths of an agent's; where there are several it lists them.

    Args:
        agent: the agent.
        text: the problem, in one sentence.
        paths: the paths, as a person reads them.
        files: the files whose content is accepted with it.
    """
    path = paths[0] if len(paths) == 1 else agent.workspace
    return found_in(path, text, files, roots_of(agent))._replace(difference=listing(paths))


def listing(paths: Sequence[str]) -> str:
    """Return the paths that a finding is about, one a line, as far as there is room; empty where there is only one."""
    sizes = accumulate(len(path) + 1 for path in paths)
    shown = [path for path, size in zip(paths, sizes, strict=True) if size <= _LONGEST_DIFFERENCE]
    more = [f"… {len(paths) - len(shown)} more"] if len(shown) < len(paths) else []
    return "\n".join((*shown, *more)) if len(paths) > 1 else ""


INCOMPARABLE = "; this can't be compared later, so accepting it holds until it is found again"


def roots_of(agent: Agent) -> tuple[str, ...]:
    """Return where an agent may write: its own directory and its binds."""
    return (agent.host_directory, *(bind.path for bind in agent.policy.binds if bind.writable))


class _Request(NamedTuple):
    """A wish to accept, as it was when it came.

    Args:
        findings: the findings.
        turn: the failed turn's id, None where none is accepted.
        is_unmet: whether a failure without a turn is accepted.
        works: the commits whose work needn't land, its own and those that it hasn't taken, each after its agent's id.
    """

    findings: tuple[Finding, ...]
    turn: str | None
    is_unmet: bool
    works: tuple[tuple[str, str | None], ...]


class Findings:
    """Keeps the findings of all agents."""

    def __init__(self, registry: Registry, files: Files) -> None:
        self._registry = registry
        self._files = files
        self._store = registry.store
        self._closed = {one.number: one for one in self._store.closed_findings()}

    def record(self, agent_id: str, turn: str | None, found: Collection[Found]) -> list[Finding]:
        """Keep findings, except those that are kept already or whose content a person has accepted.

        A finding whose content has changed gets a new number: a person who has seen the old one hasn't seen this.

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
        known = {_words(finding): finding for finding in agent.findings}
        accepted = self._store.accepted_findings(agent_id, [other.id for other in self._sharing(agent)])
        new = [
            one
            for key, one in {_words(one): one for one in found}.items()
            for content in [fingerprint.content_of(one.digest)]
            if (fingerprint.content_of(known[key].digest) != content if key in known else (*key, content) not in accepted)
        ]
        new.sort(key=lambda one: _words(one) not in known)  # stable: these need no more room
        room = _MOST - len(agent.findings) + sum(_words(one) in known for one in new)
        if len(new) > max(room, 0):
            new = new[: max(room - 1, 0)]
            rest = Found("", f"more than {_MOST} such things are in {agent.workspace}: look through it as a whole")
            new += [rest] if _words(rest) not in known else []
        return self._add(agent, turn, new) if new else []

    def _add(self, agent: Agent, turn: str | None, new: Sequence[Found], since: float | None = None) -> list[Finding]:
        """Store findings in the place of those with the same words."""
        now = since or self._registry.now()
        replaced = {_words(one) for one in new}
        kept = tuple(finding for finding in agent.findings if _words(finding) not in replaced)
        with self._registry.change("finding recorded") as change:
            self._store.forget_findings(finding.number for finding in agent.findings if finding not in kept)
            stored = [self._store.add_finding(Finding(0, agent.id, turn, now, *one[:-1])) for one in new]
            change.put(replace(agent, findings=(*kept, *stored)))
        return stored

    def reminder(self, agent: Agent) -> str | None:
        """Return the note at a turn's start about findings that wait to be accepted, None when there are none."""
        findings = agent.findings
        if not findings:
            return None
        listed = "; ".join(f"{finding.number}: {finding.text}" for finding in findings[:_TOLD])
        more = f"; and {len(findings) - _TOLD} more" if len(findings) > _TOLD else ""
        return f"not accepted yet (`substratctl accept {agent.name}`): {listed}{more}"

    async def run(self) -> None:
        """Close findings soon after their files have gone, until cancelled."""
        await findings_watch.run(self._registry, self._files, lambda: [*self._closed.values()], self.look_again)

    async def look_again(self) -> None:
        """Close the findings whose files are gone, or as they were at their turn's start, and open those that came back.

        For example `git switch` takes an agent's committed `.envrc` away, and another one brings it back. One that has
        closed is forgotten with its agent, or when `_MOST` later ones of the agent have closed.

        Raises:
            StorageFailed: it can't be written; they stay open.
            DescriptorsUsedUp: there are no descriptors left for the look.
        """
        waiting = [agent for agent in self._registry.agents if agent.findings and self._is_quiet(agent)]
        closed = [(agent, one) for one in self._closed.values() if (agent := self._registry.get(one.agent))]
        self._closed = {one.number: one for _, one in closed}
        if not waiting and not closed:
            return
        settled, back = set[int](), list[Finding]()
        for agent in waiting:
            with suppress(NoAnswer):  # they stay open
                _, gone = await self._files.run(agent.workspace, _look_again, agent, agent.findings)
                settled |= gone
        for agent in {agent.id: agent for agent, _ in closed}.values():
            with suppress(NoAnswer):
                mine = [one for other, one in closed if other.id == agent.id]
                back += await self._files.run(agent.workspace, _back, agent, mine)
        for agent in self._registry.agents:
            self._close(agent, settled)
        for one in back:
            self._open(one)

    def _is_quiet(self, agent: Agent) -> bool:
        """Say whether no sandbox runs that could put a file back, so that the next turn's start would take it for known."""
        return not self._registry.closures.users(roots_of(agent))

    def _close(self, agent: Agent, settled: Collection[int]) -> None:
        gone = [finding for finding in agent.findings if finding.number in settled]
        if not gone or not self._is_quiet(agent):
            return
        closed = [finding for finding in (*self._closed.values(), *gone) if finding.agent == agent.id]
        with self._registry.change("finding closed") as change:
            self._store.close_findings((finding.number for finding in gone), self._registry.now())
            self._store.forget_findings(finding.number for finding in closed[:-_MOST])
            change.put(replace(agent, findings=tuple(one for one in agent.findings if one not in gone)))
            told = f"gone, or as it was before: {_paths(gone)}"
            data = {"findings": [finding.number for finding in gone]}
            change.record(DaemonEvent(agent.id, None, "workspace:closed", told, data))
        others = (finding for finding in self._closed.values() if finding.agent != agent.id)
        self._closed = {finding.number: finding for finding in (*others, *closed[-_MOST:])}

    def _open(self, finding: Finding) -> None:
        agent = self._registry.get(finding.agent)
        if agent is None:
            return
        with self._registry.change("finding recorded") as change:
            if _words(finding) in {_words(one) for one in agent.findings}:
                self._store.forget_findings([finding.number])  # it was found anew
            else:
                self._store.close_findings([finding.number], None)
                change.put(replace(agent, findings=(*agent.findings, finding)))
                told = f"there again, as it was found: {_paths([finding])}"
                change.record(DaemonEvent(agent.id, None, UNPROTECTED, told))
        self._closed.pop(finding.number, None)

    def _sharing(self, agent: Agent) -> list[Agent]:
        """Return the other agents in place whose directory is an agent's own, or lies in it or around it."""
        mine = agent.host_directory
        return [
            other
            for other in self._registry.agents
            if other.id != agent.id and (is_within(other.host_directory, mine) or is_within(mine, other.host_directory))
        ]

    async def accept(self, name: str, numbers: Sequence[int], by: str) -> Agent:
        """Note that a person has seen findings, a failed turn, or work that isn't landed.

        Findings about the same content are accepted for all agents that share the workspace. One that is settled by now is
        closed.

        Args:
            name: the agent's name or id.
            numbers: which findings; none: all of them, the failure, and the work.
            by: who accepts, as events' `data.by` names it.

        Raises:
            NotFound: the agent has no such finding.
            Refused: there is nothing to accept, or the files of a finding have changed since; nothing is accepted then.
        """
        agent = self._registry.find(name)
        wanted = self._wanted(agent, numbers)
        now, settled = await self._files.run(agent.workspace, _look_again, agent, wanted.findings)
        self._close(self._registry.find(agent.id), settled)
        agent = self._registry.find(agent.id)
        open_ones = {finding.number for finding in agent.findings}
        words = {_words(finding) for finding in agent.findings}
        # One that isn't open any more was closed meanwhile, unless another has come in its place.
        left = tuple(one for one in wanted.findings if one.number in open_ones or _words(one) in words)
        self._refuse_changed(agent, left, now)
        wanted = wanted._replace(findings=left)
        return self._accept(agent, wanted, by) if any(wanted) else agent

    def _wanted(self, agent: Agent, numbers: Sequence[int]) -> _Request:
        known = {finding.number: finding for finding in agent.findings}
        missing = [number for number in numbers if number not in known]
        if missing:
            raise NotFound(f"{agent.name} has no finding {missing[0]}: `substratctl show {agent.name}` lists them")
        has_failed = not numbers and agent.phase == Phase.FAILED
        failed = has_failed and agent.turn is not None and agent.accepted_turn != agent.turn.id
        wanted = _Request(
            tuple(known[number] for number in numbers or known),
            agent.turn.id if failed and agent.turn is not None else None,
            has_failed and agent.unmet is not None,
            self._works_of(agent) if not numbers else (),
        )
        if not any(wanted):
            raise Refused(f"nothing of {agent.name} waits to be accepted")
        return wanted

    def _works_of(self, agent: Agent) -> tuple[tuple[str, str | None], ...]:
        """Return the work of an agent's that isn't landed and, of descendants, the commits that it hasn't taken."""
        clone = agent.clone
        own = clone is not None and (clone.is_unlanded or clone.has_more)
        mine = [(agent.id, clone.kept.last)] if own and clone is not None else []
        untaken = self._registry.untaken(agent) if agent.phase == Phase.IDLE else ()
        return (*mine, *((one.agent, one.kept.head) for one in untaken))

    def _refuse_changed(self, agent: Agent, wanted: Sequence[Finding], now: Mapping[int, str | None]) -> None:
        """Record findings anew whose files aren't as they were found, and raise `Refused` if there are any."""
        open_ones = {finding.number for finding in agent.findings}
        changed = [one for one in wanted if one.number not in open_ones or now[one.number] != one.digest]
        if not changed:
            return
        again = [_found_again(one, now[one.number]) for one in changed if one.number in open_ones]
        with self._registry.change("finding recorded") as change:
            if again:
                # Who accepts knows of them, so they are no new cause for the bell.
                self._add(agent, open_turn_id(agent), again, changed[0].time)
            told = f"changed since it was found: {changed[0].path}"
            change.record(DaemonEvent(agent.id, open_turn_id(agent), "workspace:unprotected", told))
        raise Refused(
            f"nothing is accepted, because finding {changed[0].number} of {agent.name} has changed: "
            f"look at it again with `substratctl show {agent.name}`"
        )

    def _accept(self, agent: Agent, wanted: _Request, by: str) -> Agent:
        numbers = [finding.number for finding in wanted.findings]
        left = tuple(finding for finding in agent.findings if finding.number not in numbers)
        turn = wanted.turn or agent.accepted_turn
        with self._registry.change("findings accepted") as change:
            self._store.accept_findings(numbers, self._registry.now())
            why = agent.unmet if not wanted.is_unmet else None
            accepted_agent = change.put(replace(agent, findings=left, accepted_turn=turn, unmet=why))
            if turn != agent.accepted_turn and agent.turn is not None and agent.turn.process is None:
                # It never started, perhaps because its workspace was another directory: that one is the right one then.
                accepted_agent = change.put(replace(accepted_agent, directory=None))
            for one, commit in wanted.works:
                if (clone := self._registry.clone_of(one)) is not None:
                    change.put_any_clone(replace(clone, landings=replace(clone.landings, accepted=commit)))
                    told = "a person has accepted that its work isn't landed"
                    change.record(DaemonEvent(one, None, "workspace:accepted", told, {"by": by}))
            if wanted.findings:
                data = {"by": by, "findings": numbers}
                told = f"accepted: {_paths(wanted.findings)}"
                change.record(DaemonEvent(agent.id, None, "workspace:accepted", told, data))
                for other in self._sharing(agent):
                    self._accept_same(other, wanted.findings, by)
            if wanted.turn is not None or wanted.is_unmet:
                told = "a person has accepted its failure"
                change.record(DaemonEvent(agent.id, wanted.turn, "agent:accepted", told, {"by": by}))
        return self._registry.find(agent.id)

    def _accept_same(self, other: Agent, accepted: Sequence[Finding], by: str) -> None:
        """Accept the findings of another agent that are about the same content of the same files."""
        contents = {(one.text, one.files, one.digest) for one in accepted if one.files}
        same = [one for one in other.findings if (one.text, one.files, one.digest) in contents]
        if not same:
            return
        with self._registry.change("findings accepted") as change:
            numbers = [one.number for one in same]
            self._store.accept_findings(numbers, self._registry.now())
            change.put(replace(other, findings=tuple(one for one in other.findings if one not in same)))
            data = {"by": by, "findings": numbers}
            change.record(DaemonEvent(other.id, None, "workspace:accepted", f"accepted: {_paths(same)}", data))


def _words(one: Found | Finding) -> tuple[str, str]:
    """Return what makes a finding the same as another, whatever its files hold."""
    return one.path, one.text.removesuffix(INCOMPARABLE)


def _look_again(agent: Agent, findings: Sequence[Finding]) -> tuple[dict[int, str | None], frozenset[int]]:
    """Return the fingerprints of some findings' files as they are now, and which of them are settled."""
    roots = roots_of(agent)
    now = {one.number: fingerprint.of(one.files, roots) if one.digest is not None else None for one in findings}
    return now, frozenset(one.number for one in findings if _is_settled(one, roots, now[one.number]))


def _back(agent: Agent, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that had closed, and whose files are as they were found."""
    contents = [(one, fingerprint.of(one.files, roots_of(agent))) for one in findings]
    return [one for one, now in contents if fingerprint.content_of(now) == fingerprint.content_of(one.digest)]


def _is_settled(finding: Finding, roots: tuple[str, ...], now: str | None) -> bool:
    """Say whether a finding's files are gone by now, or as they were at the turn's start."""
    if not finding.files or fingerprint.content_of(now) == fingerprint.content_of(finding.digest):
        return False  # none of its files may ever have been there, where nothing can be protected
    budget = fingerprint.Budget()
    pairs = zip_longest(finding.files, finding.was, fillvalue="")
    return all(fingerprint.is_as_before(path, before, roots, budget) for path, before in pairs)


def _found_again(finding: Finding, digest: str | None) -> Found:
    """Return a finding with the content of now."""
    text = finding.text if digest is not None else f"{finding.text}{INCOMPARABLE}"
    files = finding.files if digest is not None else ()
    return Found(finding.path, text, finding.aside, finding.difference, files, digest, finding.was if files else ())


def _paths(findings: Sequence[Finding]) -> str:
    """Name the paths of some findings."""
    paths = ", ".join(finding.path or "the workspace" for finding in findings[:_TOLD])
    more = f" and {len(findings) - _TOLD} more" if len(findings) > _TOLD else ""
    return f"{paths}{more}"
