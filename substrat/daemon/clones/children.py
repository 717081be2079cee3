"""Chooses where an agent's child works: in the parent's directory, in a clone of its own, or in an empty directory.

A child never sees more than its parent: its clone is of the same repository, and starts at a commit that the parent has.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs
import trio

from substrat.core.workspaces.clones import ref_problem
from substrat.daemon.agents.spawning import CLONE, SCRATCH, SHARE, ChildPlace, CloneRequest
from substrat.daemon.clones.wishes import CloneWish
from substrat.errors import InvalidParams, PolicyDenied, Refused

if TYPE_CHECKING:
    from mcp_server.tools import SpawnAgent
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone, Kept
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.clones.wishes import CloneWishes
    from substrat.daemon.state.layout import Layout

_OLD_WORD = "worktree"
"""The word of `CLONE` before the first release, which chats of agents still have."""
_PATIENCE = 20.0
"""Seconds that a call waits for the parent's work to be kept, of the 60 after which cursor-agent gives one up."""
_COMMIT = re.compile("[0-9a-f]{4,64}")


@attrs.define(eq=False)
class ChildPlaces:
    """Chooses where children work."""

    _registry: Registry
    _layout: Layout
    _repositories: Repositories
    _wishes: CloneWishes
    _keeping: Keeping

    async def choose(self, parent: Agent, call: SpawnAgent) -> ChildPlace:
        """Return where a new child works; raises `SubstratError` if it can't work there."""
        kind = call.workspace or (CLONE if parent.clone is not None else SHARE)
        if kind in {CLONE, _OLD_WORD}:
            return await (self._beside(parent, call) if parent.clone is not None else self._of_checkout(parent, call))
        if call.base is not None:
            raise InvalidParams(f"base says where a clone starts, and the child gets none ({kind}): ask for a clone")
        if kind == SCRATCH:
            return ChildPlace(SCRATCH, "in an empty directory of its own", scratch=self._scratch)
        if parent.clone is not None:
            raise Refused("your clone is yours alone: leave workspace out, and the child's own clone starts at your HEAD")
        return ChildPlace(SHARE, "in your workspace")

    def _scratch(self, agent_id: str) -> str:
        return self._layout.agent(agent_id).scratch

    # A parent with a clone

    async def _beside(self, parent: Agent, call: SpawnAgent) -> ChildPlace:
        """Return a clone that starts at a commit of the parent's, which is kept first."""
        clone = parent.clone
        assert clone is not None
        kept = await self._kept(parent)
        base = await self._base(parent, clone, call, kept)
        request = CloneRequest(
            self._wishes.directory, clone.repository, clone.git_dir, None, clone.target, base, source=parent.id
        )
        if call.base is not None:
            return ChildPlace(CLONE, f"in a clone that starts at {call.base}, {(base or '')[:12]}", request)
        if kept is None:
            words = "in a clone that starts at your HEAD, which is still being kept, without your uncommitted files"
            return ChildPlace(CLONE, words, request)
        at = f"at your HEAD, {kept.head[:12]}" if kept.head is not None else "empty, because you have committed nothing"
        return ChildPlace(CLONE, f"in a clone that starts {at}{_without(kept.files)}", request)

    async def _kept(self, parent: Agent) -> Kept | None:
        """Keep a parent's work; None: that takes longer than a call may, and the child waits for it."""
        with trio.move_on_after(_PATIENCE):
            kept = await self._keeping.keep(parent.id)
            if kept is None:
                raise Refused(
                    "your work can't be kept, so no clone can start at it; the operator sees the reason in your events: "
                    "try again, or give the child an empty directory with workspace scratch"
                )
            return kept
        return None

    async def _base(self, parent: Agent, clone: Clone, call: SpawnAgent, kept: Kept | None) -> str | None:
        """Return the commit that a child's clone starts at; None: its parent's head, as soon as that is kept."""
        asked = self._reachable(parent, call.base) if call.base is not None and call.base != "HEAD" else None
        name = call.name if call.name is not None and ref_problem(call.name) is None else ""
        facts = await self._repositories.inspect(clone.workspace, base=asked or "HEAD", agent=name)
        if facts.has_unlanded:
            raise Refused(f"the name {name!r} belongs to kept work of an earlier agent: choose another")
        if asked is None:
            return kept.head if kept is not None else None
        if facts.base is None:
            raise InvalidParams(
                f"{call.base!r} is no commit that is kept: commit it on your branch, or name workspace/BRANCH or "
                f"agents/NAME"
            )
        return facts.base

    def _reachable(self, parent: Agent, base: str) -> str:
        """Return the user's repository's name for a commit that a parent may start a child at."""
        kind, _, name = base.partition("/")
        if _COMMIT.fullmatch(base):
            return base
        if kind == "workspace" and ref_problem(name) is None:
            return f"refs/heads/{name}"
        if kind == "agents":
            own = {one.name: one.clone for one in self._registry.family(parent)[1:]}
            if (clone := own.get(name)) is None:
                raise PolicyDenied(f"{name!r} is no descendant of yours with a clone: whoami lists your children")
            return clone.ref("head")
        raise InvalidParams(f"base can be a commit's id, workspace/BRANCH, agents/NAME or HEAD, not {base!r}")

    # A parent in a checkout

    async def _of_checkout(self, parent: Agent, call: SpawnAgent) -> ChildPlace:
        """Return a clone of the repository that a parent works in, at its last commit."""
        wish = CloneWish(clone=True, base=call.base)
        granted = await self._wishes.check(parent.workspace, wish, call.name or "")
        request = granted.clone
        assert request is not None
        if request.repository != parent.workspace:
            raise PolicyDenied("a clone would show it more than you see of the repository: let it share your workspace")
        at = (request.base or "")[:12] or "an empty repository"
        known = granted.lacking
        words = _without(known.uncommitted) if known is not None else "; uncommitted files are not in it"
        return ChildPlace(CLONE, f"in a clone that starts at {call.base or 'HEAD'}, {at}{words}", request)


def _without(files: int) -> str:
    if not files:
        return ""
    return f"; {files} uncommitted file{'s' if files > 1 else ''} of yours {'are' if files > 1 else 'is'} not in it"
