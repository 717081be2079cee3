"""The methods of the private clones on disk and of agents' refs: which there are, and removing those that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from substrat.core.workspaces import clone_pruning as decisions
from substrat.core.workspaces import left_refs
from substrat.daemon.servers.methods.request import OperatorRequest, about

if TYPE_CHECKING:
    from substrat.daemon.clones.forgetting import PrunedRefs
    from substrat.daemon.clones.pruning import Pruned, StoredClone
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class CloneList(OperatorRequest, frozen=True):
    """Lists the private clones that are on disk, those of removed agents too, the oldest agent first."""

    method: ClassVar[str] = "clone.list"
    waits: ClassVar[bool] = True

    sizes: Annotated[bool, about("whether `bytes` is looked at anew, file by file")] = False

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return [_clone_object(stored) for stored in await services.clones.pruning.all(sizes=self.sizes)]


class ClonePrune(OperatorRequest, frozen=True):
    """Removes the clones of agents that have ended or are removed, each after its work was kept once more.

    The refs in the user's repository stay. Fails with `NotFound` when there is no clone of a name, and with `Refused` when
    its agent hasn't ended.
    """

    method: ClassVar[str] = "clone.prune"
    waits: ClassVar[bool] = True

    names: Annotated[tuple[str, ...], about("agents' names or ids, also of removed ones; default: all that are over")] = ()
    unlanded: Annotated[
        bool, about("whether clones go that hold work which is in no branch of the user's, or nowhere else at all")
    ] = False
    dry_run: Annotated[bool, about("whether nothing is removed, and the answer says which would go")] = False

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        found = await services.clones.pruning.prune(self.names, unlanded=self.unlanded, dry_run=self.dry_run)
        return [_pruned_object(one) for one in found]


class ClonePruneRefs(OperatorRequest, frozen=True):
    """Deletes the refs of agents that have ended or are removed from users' repositories, once their work has landed.

    The last work of an agent whose clone is recorded stays, `head`, `wip` and `asides`, until `agent.rm`. Fails with
    `NotFound` when no refs of a name are left, and with `Refused` when its agent hasn't ended.
    """

    method: ClassVar[str] = "clone.prune_refs"
    waits: ClassVar[bool] = True

    names: Annotated[tuple[str, ...], about("agents' names or ids, also of removed ones; default: all that are over")] = ()
    unlanded: Annotated[bool, about("whether refs go that hold work which is in no branch of the user's")] = False
    dry_run: Annotated[bool, about("whether nothing is deleted, and the answer says which refs would go")] = False

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        found = await services.clones.forgetting.prune(self.names, unlanded=self.unlanded, dry_run=self.dry_run)
        return [_refs_object(one) for one in found]


def _clone_object(stored: StoredClone) -> dict[str, object]:
    clone, kept = stored.clone, stored.clone.kept
    rest = kept.only_here
    return {
        "agent": clone.name,
        "id": clone.agent,
        "path": clone.tree,
        "repository": clone.repository,
        "branch": clone.branch,
        "base": clone.base,
        "head": kept.head,
        "ahead": kept.ahead,
        "behind": kept.behind,
        "files": kept.files,
        "unlanded": bool(decisions.contents(clone).work),
        "kept_only_here": {
            "nested": rest.nested, "submodules": rest.submodules, "lfs": rest.lfs, "ignored": rest.ignored,
            "branches": len(kept.branches), "stashes": kept.stashes, "hidden": kept.hidden,
        },
        "bytes": kept.size,
        "state": stored.state,
        "work": list(decisions.in_no_branch(clone)),
        "only_here": list(decisions.contents(clone).only_here),
        "not_kept": decisions.unkept_text(clone),
    }  # fmt: skip


def _pruned_object(one: Pruned) -> dict[str, object]:
    return {
        "agent": one.clone.name,
        "id": one.clone.agent,
        "path": one.clone.tree,
        "outcome": one.outcome,
        "text": one.text,
        "refs": left_refs.removal(one.clone.name) if one.has_refs else None,
    }


def _refs_object(one: PrunedRefs) -> dict[str, object]:
    return {
        "agent": one.left.name,
        "id": one.agent,
        "path": one.left.repository,
        "outcome": one.outcome,
        "text": one.text,
        "refs": one.refs,
    }
