"""Deletes the refs of agents that are over from users' repositories: when asked, and some days after their work has landed.

Each ref is deleted only if it still names the commit that was looked at, by a git that outlives the daemon. For example,
`clones prune --refs` finds 12 turns of `fix`, whose work is in `main`, and deletes their refs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from substrat.core.agents.lifecycle import Phase
from substrat.core.workspaces import left_refs as decisions
from substrat.core.workspaces.left_refs import LeftRefs
from substrat.daemon.clones import refs_look
from substrat.daemon.clones.pruning import GONE, STAYS, WOULD_GO, is_over
from substrat.daemon.clones.repository import RefMoved
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.state.storing import until_stored
from substrat.errors import NotFound, Refused, SandboxFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.left_refs import RefsLook
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.repository import Repositories

log = structlog.get_logger("substrat.forgetting")

_INTERVAL = 6 * 3600.0
"""Seconds between two looks at a repository: `clone.forget_days` counts days."""
_SECONDS = 120.0
"""A look at a repository of hundreds of agents takes some seconds, and the sweep of old turns waits for it."""
_AT_ONCE = 200
"""Refs: their names, of up to 300 bytes, are one argument of a program, which may have 128 KiB."""


class PrunedRefs(NamedTuple):
    """What has become of the refs of one agent, or would.

    Args:
        left: the agent's.
        agent: its id; None: it is removed, and its clone is gone.
        outcome: `pruned`, `would-go` or `stays`.
        refs: how many refs go; 0 where they stay.
        text: one sentence.
    """

    left: LeftRefs
    agent: str | None
    outcome: str
    refs: int
    text: str


class _Seen(NamedTuple):
    """The refs of an agent that is over, how they stand, and its clone, if that is recorded."""

    left: LeftRefs
    clone: Clone | None
    refs: Mapping[str, str]
    look: RefsLook

    @property
    def agent(self) -> str | None:
        return self.clone.agent if self.clone is not None else None

    @property
    def refusal(self) -> str:
        return decisions.refusal_text(self.left, self.refs, self.look, has_clone=self.clone is not None)

    def going(self, *, unlanded: bool) -> dict[str, str]:
        return decisions.going(self.refs, self.look, has_clone=self.clone is not None, unlanded=unlanded)


@attrs.define(eq=False)
class Forgetting:
    """Deletes refs of agents that are over, for one daemon."""

    _registry: Registry
    _repositories: Repositories
    _being_given: Collection[str]
    """The names that agents are just given, whose refs are made before."""
    _looked_at: dict[str, float] = attrs.field(init=False, factory=dict)

    # When asked

    async def prune(self, names: Sequence[str], *, unlanded: bool, dry_run: bool) -> list[PrunedRefs]:
        """Delete the refs of agents that are over and whose work has landed, or say which would go.

        Args:
            names: names or ids of agents; none: all that have ended or are removed.
            unlanded: whether those go too whose work is in no branch of the user's.
            dry_run: whether nothing is deleted.

        Raises:
            NotFound: there are no refs of that name.
            Refused: an agent of that name hasn't ended.
            SandboxFailed: git can't read a repository.
        """
        self._check(names)
        seen = [one for common in await self._known() for one in await self._look(common)]
        known = {word for one in seen for word in (one.left.name, one.agent)}
        if missing := next((name for name in names if name not in known), None):
            listed = "`substratctl clones prune --refs --dry-run` lists those there are"
            raise NotFound(f"no refs of {missing!r} are left: {listed}")
        # Of an agent that has ended, its last work alone is nothing to speak of.
        chosen = [one for one in seen if {one.left.name, one.agent} & {*names} or (not names and one.going(unlanded=True))]
        return [await self._prune(one, unlanded=unlanded, dry_run=dry_run) for one in chosen]

    def _check(self, names: Sequence[str]) -> None:
        """Refuse the names of agents that are at work."""
        for name in names:
            agent = next((one for one in self._registry.agents if name in {one.id, one.name}), None)
            if agent is not None and agent.phase != Phase.ENDED and agent.clone is not None:
                raise Refused(f"{agent.name} hasn't ended, and its refs are its work: `substratctl end {agent.name}` first")

    async def _prune(self, seen: _Seen, *, unlanded: bool, dry_run: bool) -> PrunedRefs:
        left, agent, gone = seen.left, seen.agent, seen.going(unlanded=unlanded)
        if not gone:
            return PrunedRefs(left, agent, STAYS, 0, seen.refusal)
        others = len(seen.look.holding - set(gone))
        text = decisions.prospect_text(left, gone, seen.look, others=others)
        if dry_run:
            return PrunedRefs(left, agent, WOULD_GO, len(gone), text)
        try:
            await self._delete(seen, gone)
        except SandboxFailed as problem:
            return PrunedRefs(left, agent, STAYS, 0, problem.message)
        return PrunedRefs(left, agent, GONE, len(gone), text)

    # By themselves

    async def sweep(self) -> None:
        """Look at the repository that was looked at longest ago, six hours at least, and delete the refs that are due."""
        days, now = self._registry.config.clone.forget_days, trio.current_time()
        due = [common for common in await self._known() if self._looked_at.get(common, -_INTERVAL) + _INTERVAL <= now]
        if not (days and due):
            return
        common = min(due, key=lambda one: self._looked_at.get(one, 0.0))
        self._looked_at[common] = now
        try:
            with trio.fail_after(_SECONDS):
                for seen in await self._look(common):
                    gone = seen.going(unlanded=False)
                    if gone and decisions.is_due(seen.left, days, self._registry.now()):
                        await self._delete(seen, gone)
                        log.info("refs are deleted", agent=seen.left.name, repository=seen.left.repository, refs=len(gone))
        except (SubstratError, trio.TooSlowError) as problem:
            log.warning("old refs stay", repository=common, reason=str(problem))

    # Both

    async def _known(self) -> list[str]:
        """Return the git directories in which there may be refs of agents, and that answer."""
        store = self._registry.store
        found = dict.fromkeys((*(one.git_dir for one in store.clones()), *(one.git_dir for one in store.left_refs())))
        known: list[str] = []
        for common in found:
            with suppress(NoAnswer):
                known += [common] if await self._repositories.sandbox.files.run(common, os.path.isdir, common) else []
        return known

    async def _look(self, common: str) -> list[_Seen]:
        """Look at the refs of the agents of a repository that are over, and note since when their work has landed."""
        refs = await refs_look.refs_by_name(self._repositories, common)
        over = self._over(common, refs)
        looks = await refs_look.look(self._repositories, common, [left for left, _ in over.values()])
        now = self._registry.now()
        seen = [
            _Seen(decisions.noted(left, looks[name], now), clone, refs[name], looks[name])
            for name, (left, clone) in over.items()
            if name in self._over(common, refs)
        ]
        await until_stored(partial(self._note, common, seen, refs))
        return seen

    def _over(self, common: str, names: Collection[str]) -> dict[str, tuple[LeftRefs, Clone | None]]:
        """Return the notes about the agents of a repository that are over, by their names, and their clones' records."""
        store = self._registry.store
        clones = [clone for clone in store.clones() if clone.git_dir == common]
        notes = {one.name: one for one in store.left_refs() if one.git_dir == common}
        living = {*self._being_given, *(clone.former_name for clone in clones)}
        living |= {clone.name for clone in clones if not is_over(self._registry, clone)}
        recorded = {clone.name: clone for clone in clones}
        repository = next((clone.repository for clone in clones), None)
        repository = repository or next((note.repository for note in notes.values()), common)
        found = {}
        for name in names:
            if name not in living:
                clone = recorded.get(name)
                new = LeftRefs.of(clone) if clone is not None else LeftRefs(common, name, repository)
                note = notes.get(name, new)
                found[name] = (note if clone is None or note.since is not None else new, clone)
        return found

    async def _delete(self, seen: _Seen, gone: Mapping[str, str]) -> None:
        """Delete refs that name the same commits as when they were looked at; raises `SandboxFailed`."""
        left = seen.left
        wip = f"{left.place}/wip"
        # A last keep may come meanwhile; what it has kept wasn't looked at.
        same = {wip: (seen.refs[wip], seen.refs[wip])} if wip in seen.refs and wip not in gone else {}
        pairs = list(gone.items())
        for first in range(0, len(pairs), _AT_ONCE):
            some = {ref: (None, commit) for ref, commit in pairs[first : first + _AT_ONCE]}
            self._registry.points.before("old refs deleted")
            try:
                await self._repositories.update_refs(left.git_dir, {**same, **some})
            except RefMoved:
                raise SandboxFailed(f"refs in {left.place} of {left.repository} have just changed: try again") from None
            self._registry.points.after("old refs deleted")
        if len(gone) == len(seen.refs):
            await until_stored(partial(self._forget, left))

    # Commits

    def _note(self, common: str, seen: Sequence[_Seen], refs: Collection[str]) -> None:
        store = self._registry.store
        before = {one.name: one for one in store.left_refs() if one.git_dir == common}
        over = self._over(common, refs)  # not those of new agents of the same names, nor of which a person has deleted all
        new = [one.left for one in seen if one.left != before.get(one.left.name)]
        gone = [left for left in before.values() if left.name not in over]
        if new or gone:
            with self._registry.change("refs noted"):
                for left in new:
                    store.note_left_refs(left)
                for left in gone:
                    store.forget_left_refs(left)

    def _forget(self, left: LeftRefs) -> None:
        with self._registry.change("refs noted"):
            self._registry.store.forget_left_refs(left)
