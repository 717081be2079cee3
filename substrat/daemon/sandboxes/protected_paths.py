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
        pinned: directories that are mounted over themselves, writable, so that they can't be renamed with what is in them.
        read_only: files and directories that are read-only.
        missing: what is refused to be made; something has to stand there to be mounted over.
        git_dirs: git directories elsewhere that the workspace's repository is in.
        own_git_dirs: what of those the workspace may write though it lies in something closed.
        inodes: which files all these are: their inodes; of a link, the time of its last change.
        notes: what can't be protected, and why.
        unprotectable: what git's configuration makes it run that can't be protected: a setting and a sentence for each.
        sequencer: what git would run if a person went on with a rebase left under way: lines by their file's path.
    """

    pinned: tuple[str, ...] = msgspec.field(name="kept", default=())
    read_only: tuple[str, ...] = msgspec.field(name="closed", default=())
    missing: tuple[str, ...] = ()
    git_dirs: tuple[str, ...] = msgspec.field(name="shared", default=())
    own_git_dirs: tuple[str, ...] = msgspec.field(name="own", default=())
    inodes: dict[str, int] = msgspec.field(name="seen", default_factory=dict)
    notes: tuple[str, ...] = ()
    unprotectable: tuple[tuple[str, str], ...] = msgspec.field(name="unsettled", default=())
    sequencer: dict[str, tuple[str, ...]] = msgspec.field(name="underway", default_factory=dict)

    @property
    def mounts(self) -> tuple[str, ...]:
        """All that is mounted over itself, read-only or not."""
        return tuple(dict.fromkeys((*self.pinned, *self.own_git_dirs, *self.read_only, *self.missing)))


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


def changes(before: ProtectedPaths, after: ProtectedPaths) -> list[str]:
    """Return what has appeared, or was replaced, during a turn, and so wasn't protected in it: the outermost paths.

    Args:
        before: what was found at the turn's start.
        after: what is there at its end.
    """
    had = set(before.missing)
    changed = sorted(path for path, inode in after.inodes.items() if before.inodes.get(path) != inode and path not in had)
    outer: list[str] = []
    outside: set[str] = set()
    for path in sorted(changed, key=len):
        if not any(path[:at] in outside for at, letter in enumerate(path) if letter == "/"):
            outside.add(path)
            outer.append(path)
    return sorted(outer)


def with_inodes(before: ProtectedPaths, inodes: dict[str, int]) -> ProtectedPaths:
    """Return what was found at a turn's start with what the daemon itself has put there since.

    Args:
        before: what was found.
        inodes: of the new files, by path.
    """
    return msgspec.structs.replace(before, inodes={**before.inodes, **inodes})


def describe_changes(paths: list[str]) -> str:
    """Say what `changes` returned, for people."""
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


def encode(protected: ProtectedPaths) -> bytes:
    """Return a value as JSON, for a daemon that takes the turn over; names in no encoding lose what can't be written."""
    return msgspec.json.encode({name: _clean(value) for name, value in msgspec.to_builtins(protected).items()})


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
