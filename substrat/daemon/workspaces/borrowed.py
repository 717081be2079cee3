"""Remembers which objects repositories borrowed before agents worked beside them: an agent's list shows a clone nothing.

Each clone of a repository is shown the objects that the repository borrows (gitrepository-layout(5), "alternates"). An
agent in place can't change the list of a repository that is there, but it can make a repository of its own, with a list
that names objects of others, and have a child work in a clone of that. So in a directory in which an agent has worked,
only those directories of objects count that repositories there borrowed before it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.daemon.workspaces import git_places
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

_LIST = "/info/alternates"


class Borrowed:
    """The borrowed objects of one daemon's workspaces.

    Args:
        registry: where they are noted.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known = registry.store.worked_in()

    def allowed(self, objects: str) -> frozenset[str] | None:
        """Return the directories that a list of alternates may name; None: any, because no agent has worked there.

        Args:
            objects: the physical path of the directory of objects that the list is in.
        """
        found = [borrowed for root, borrowed in self._known.items() if is_within(objects, root) or is_within(root, objects)]
        return frozenset.intersection(*found) if found else None

    def are_known(self, roots: Iterable[str]) -> bool:
        """Say whether agents have worked in all of some directories."""
        return all(root in self._known for root in roots)

    def note(self, roots: Iterable[str], borrowed: frozenset[str], *, anew: bool = False) -> None:
        """Note the borrowed objects before an agent begins to work somewhere.

        Args:
            roots: the directories that it can write in.
            borrowed: the directories that lists of alternates name there.
            anew: whether a person has accepted what is there now.
        """
        new = [root for root in roots if anew or root not in self._known]
        if not new:
            return
        with self._registry.change("borrowed noted"):
            self._registry.store.note_worked_in(new, borrowed)
        self._known = self._known | dict.fromkeys(new, borrowed)  # a thread may read the old one


def borrowed_in(protected: ProtectedPaths, allowed: Callable[[str], frozenset[str] | None]) -> frozenset[str]:
    """Return the directories that the lists of alternates name in a workspace that was scanned.

    Args:
        protected: the scan.
        allowed: returns those that a list may name (`Borrowed.allowed`): agents may have worked in a part of it before.
    """
    lists = [path.removesuffix(_LIST) for path in protected.read_only if path.endswith(f"/objects{_LIST}")]
    found: set[str] = set()
    for objects in (*lists, *(f"{git}/objects" for git in protected.whole)):
        named, counting = git_places.alternates(objects), allowed(objects)
        found |= set(named) if counting is None else counting.intersection(named)
    return frozenset(found)
