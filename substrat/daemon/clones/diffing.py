"""Compares the kept work of a clone with its base, in the user's repository, which git reads in a sandbox."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import attrs

from substrat.core.workspaces import diffs
from substrat.errors import NotFound, Refused

if TYPE_CHECKING:
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.diffs import ChangedFile
    from substrat.daemon.clones.repository import Repositories

MOST_TEXT = 4 << 20
"""Bytes of a diff's text in an answer, a quarter of the longest line of the protocol: JSON may double it."""
_SECONDS = 30.0
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames")
_NUMBER = re.compile(r"/(\d+)$")


class Difference(NamedTuple):
    """The difference of two commits.

    Args:
        from_commit: the older one.
        to_commit: the newer one.
        files: the files that differ.
        text: the difference as a patch, None unless it was asked for.
        cut: how many bytes of the patch were left out.
    """

    from_commit: str
    to_commit: str
    files: tuple[ChangedFile, ...]
    text: str | None = None
    cut: int = 0


@attrs.define(eq=False)
class Diffing:
    """Compares kept work."""

    _repositories: Repositories

    async def difference(
        self,
        clone: Clone,
        *,
        wip: bool = False,
        turn: int | None = None,
        with_text: bool = False,
        path: str | None = None,
    ) -> Difference:
        """Return what an agent has changed.

        Args:
            clone: its clone.
            wip: whether uncommitted files count.
            turn: the turn whose changes alone are wanted; uncommitted files count then.
            with_text: whether the patch is wanted.
            path: the file or directory, from the top of the repository, whose changes alone are wanted.

        Raises:
            Refused: nothing is kept yet.
            NotFound: no work of that turn is kept.
            SandboxFailed: git couldn't be asked.
        """
        if clone.kept.wip is None:
            raise Refused(f"no work of {clone.name} is kept yet: that happens at the end of each turn")
        older, newer = await self._ends(clone, wip=wip, turn=turn)
        files = diffs.parse(await self._diff(clone, ("--raw", "--numstat", "-z", "--no-abbrev"), older, newer, path))
        if not with_text:
            return Difference(older, newer, files)
        patch = await self._diff(clone, ("--patch",), older, newer, path)
        text = patch[:MOST_TEXT].decode("utf-8", "replace")
        return Difference(older, newer, files, text, max(len(patch) - MOST_TEXT, 0))

    async def _ends(self, clone: Clone, *, wip: bool, turn: int | None) -> tuple[str, str]:
        """Return the two commits that are compared."""
        head, work = clone.kept.head, clone.kept.wip
        assert work is not None
        if turn is not None:
            return await self._ends_of_turn(clone, turn)
        newer = work if wip or head is None else head
        if clone.base is None:
            return await self._empty_tree(clone), newer
        return await self._parted(clone, clone.base, newer), newer

    async def _parted(self, clone: Clone, base: str, newer: str) -> str:
        """Return the commit since which the work is the agent's own.

        After a rebase onto the target that is where the two parted: others' commits before it aren't shown. Of work that
        has landed all is shown, since the base, which needn't be one of its ancestors.
        """
        target = (f"refs/heads/{clone.target}",) if clone.target is not None else ()
        for others in ((base, *target), (base,)):
            found = await self._git(clone, ("merge-base", newer, *others), fine=(0, 1, 128))
            common = found.decode().strip()
            if common and common not in {newer, clone.kept.head}:
                return common
        return base

    async def _ends_of_turn(self, clone: Clone, turn: int) -> tuple[str, str]:
        kept = await self._numbered(clone, "turns")
        newer = _at_turn(clone, kept, turn)
        before = max((number for number in kept if number < turn), default=None)
        if before is None and turn > 1 and min(kept) > 1:
            raise _unknown(clone, turn)
        older = kept[before] if before is not None else clone.base or await self._empty_tree(clone)
        return older, newer

    async def commit_of_turn(self, clone: Clone, turn: int) -> str:
        """Return the commit of an agent's files at the end of a turn; raises `NotFound` if they aren't kept."""
        return _at_turn(clone, await self._numbered(clone, "turns"), turn)

    async def last_number(self, clone: Clone, kind: str) -> int:
        """Return the greatest number among an agent's refs of a kind, for example of `before-restore`; 0 without any."""
        return max(await self._numbered(clone, kind), default=0)

    async def _numbered(self, clone: Clone, kind: str) -> dict[int, str]:
        """Return the commits of an agent's refs of a kind, `turns` or `before-restore`, by their numbers."""
        refs = await self._repositories.refs(clone.git_dir, clone.ref(kind))
        return {int(number[1]): commit for ref, commit in refs.items() if (number := _NUMBER.search(ref)) is not None}

    async def _empty_tree(self, clone: Clone) -> str:
        return (await self._git(clone, ("hash-object", "-t", "tree", "/dev/null"))).decode().strip()

    async def _diff(self, clone: Clone, options: tuple[str, ...], older: str, newer: str, path: str | None) -> bytes:
        paths = (path,) if path is not None else ()
        return await self._git(clone, ("--literal-pathspecs", "diff", *_PLAIN, *options, older, newer, "--", *paths))

    async def _git(self, clone: Clone, arguments: tuple[str, ...], fine: tuple[int, ...] = (0,)) -> bytes:
        return await self._repositories.ask(clone.git_dir, "git", *arguments, seconds=_SECONDS, fine=fine)


def _at_turn(clone: Clone, kept: dict[int, str], turn: int) -> str:
    """Return the commit of a turn: a turn that changed nothing has none of its own, and an older one's counts."""
    at = max((number for number in kept if number <= turn), default=None)
    if at is None or turn > clone.kept.turn:
        raise _unknown(clone, turn)
    return kept[at]


def _unknown(clone: Clone, turn: int) -> NotFound:
    name = clone.name
    return NotFound(f"no work of turn {turn} of {name} is kept: `substratctl transcript {name}` lists its turns")
