"""Remembers which objects repositories borrowed before agents worked beside them: an agent's list shows a clone nothing.

Each clone of a repository is shown the objects that the repository borrows (gitrepository-layout(5), "alternates"). An
agent in place can't change the list of a repository that is there, but it can make a repository of its own, with a list
that names objects of others, and have a child work in a clone of that. So in a directory in which an agent has worked,
only those directories of objects count that repositories there borrowed before it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.workspaces import git_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.workspaces.git_places import Borrowing
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

_LIST = "/info/alternates"


class Borrowed:
    """The borrowed objects of one daemon's workspaces."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.known: Mapping[str, frozenset[str]] = registry.store.worked_in()
        """What repositories in a directory borrowed before agents worked there, by the directory."""

    def are_known(self, roots: Iterable[str]) -> bool:
        """Say whether agents have worked in all of some directories."""
        return all(root in self.known for root in roots)

    def note(self, roots: Iterable[str], borrowed: frozenset[str], *, anew: bool = False) -> None:
        """Note the borrowed objects before an agent begins to work somewhere.

        Args:
            roots: the directories that it can write in.
            borrowed: the directories that lists of alternates name there.
            anew: whether a person has accepted what is there now.
        """
        new = [root for root in roots if anew or root not in self.known]
        if not new:
            return
        with self._registry.change("borrowed noted"):
            self._registry.store.note_worked_in(new, borrowed)
        self.known = {**self.known, **dict.fromkeys(new, borrowed)}


def borrowed_in(protected: ProtectedPaths, borrowing: Borrowing) -> frozenset[str]:
    """Return the directories that the lists of alternates name in a workspace that was scanned.

    Args:
        protected: the scan.
        borrowing: says which of them count: agents may have worked in a part of the workspace before.
    """
    lists = [path.removesuffix(_LIST) for path in protected.read_only if path.endswith(f"/objects{_LIST}")]
    found: set[str] = set()
    for objects in (*lists, *(f"{git}/objects" for git in protected.whole)):
        named, counting = git_places.alternates(objects), borrowing.allowed(objects)
        found |= set(named) if counting is None else counting.intersection(named)
    return frozenset(found)
