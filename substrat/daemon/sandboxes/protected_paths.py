"""The protected paths of a workspace: as a value, compared between a turn's start and end, written down and read again."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from substrat.daemon.sandboxes import gitlink
from substrat.errors import WorkspaceUnusable

_TOLD = 5
"""How many paths a message names; it is to be read on one line."""


class ProtectedPaths(msgspec.Struct, frozen=True):
    """What of a workspace is protected in a turn.

    Args:
        kept: directories that are mounted over themselves, writable, so that they can't be renamed with what is in them.
        closed: files and directories that are read-only.
        missing: what is refused to be made; something has to stand there to be mounted over.
        shared: git directories elsewhere that the workspace's repository is in.
        own: what of those the workspace may write though it lies in something closed.
        seen: which files all these are: their inodes; of a link, the time of its last change.
        notes: what can't be protected, and why.
        unsettled: what git's configuration makes it run that can't be protected: a setting and a sentence for each.
        underway: what git would run if a person went on with a rebase left under way: lines by their file's path.
    """

    kept: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    seen: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    unsettled: tuple[tuple[str, str], ...] = ()
    underway: dict[str, tuple[str, ...]] = {}

    @property
    def mounts(self) -> tuple[str, ...]:
        """All that is mounted over itself, read-only or not."""
        return tuple(dict.fromkeys((*self.kept, *self.own, *self.closed, *self.missing)))


def shared_with(workspace: str, closed: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Find the git directories elsewhere that a workspace's `.git` file leads to, if they lead back.

    Args:
        workspace: its physical path.
        closed: places that no agent may see.

    Returns:
        The directories, what of them is the workspace's own, and why there are none, if that has to be told.
    """
    try:
        link = gitlink.link_of(workspace, closed)
    except WorkspaceUnusable as problem:
        return (), (), problem.message
    if link is None:
        return (), (), None
    return (link.common,), (link.own,) if link.own != link.common else (), None


def news(before: ProtectedPaths, after: ProtectedPaths) -> list[str]:
    """Return what has appeared, or was replaced, during a turn, and so wasn't protected in it: the outermost paths.

    Args:
        before: what was found at the turn's start.
        after: what is there at its end.
    """
    had = set(before.missing)
    changed = sorted(path for path, inode in after.seen.items() if before.seen.get(path) != inode and path not in had)
    outer: list[str] = []
    outside: set[str] = set()
    for path in sorted(changed, key=len):
        if not any(path[:at] in outside for at, letter in enumerate(path) if letter == "/"):
            outside.add(path)
            outer.append(path)
    return sorted(outer)


def renewed(before: ProtectedPaths, inodes: dict[str, int]) -> ProtectedPaths:
    """Return what was found at a turn's start with what the daemon itself has put there since.

    Args:
        before: what was found.
        inodes: of the new files, by path.
    """
    return msgspec.structs.replace(before, seen={**before.seen, **inodes})


def told(paths: list[str]) -> str:
    """Say what `news` returned, for people."""
    return (
        f"made or replaced during the turn, so not protected in it: {listed(paths)}; "
        f"look at what is there before git, an editor or a shell of yours does"
    )


def listed(paths: list[str]) -> str:
    """Name some paths for a message, the first five of them: `/w/a, /w/b and 3 more`."""
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return ", ".join(map(printable, paths[:_TOLD])) + more


def printable(path: str) -> str:
    """Return a path with `?` for each byte that is in no encoding."""
    return path.encode("utf-8", "replace").decode()


def encode(guard: ProtectedPaths) -> bytes:
    """Return a guard as JSON, for a daemon that takes the turn over; names in no encoding lose what can't be written."""
    return msgspec.json.encode({name: _clean(value) for name, value in msgspec.structs.asdict(guard).items()})


def decode(data: bytes | None) -> ProtectedPaths | None:
    """Return what `encode` wrote, or None when it isn't that."""
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(data or b"", type=ProtectedPaths)
    return None


def _clean(value: object) -> object:
    match value:
        case dict():
            return {printable(path): found for path, found in value.items()}
        case str():
            return printable(value)
        case _:
            return [_clean(one) for one in value]  # type: ignore[attr-defined]
