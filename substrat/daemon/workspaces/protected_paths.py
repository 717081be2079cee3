"""The protected paths of a workspace: as a value, compared between a turn's start and end, written down and read again."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from substrat.daemon.kernel.fingerprint import obeyed_in
from substrat.daemon.workspaces import gitlink
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_TOLD = 5
"""How many paths a message names; it is to be read on one line."""


class ProtectedPaths(msgspec.Struct, frozen=True):
    """The protected paths of a workspace in one turn, for example `/w/.git` pinned and `/w/.git/config` read-only.

    Args:
        pinned: directories that are mounted over themselves, writable, so that they can't be renamed.
        read_only: files and directories that are read-only.
        missing: paths that must not be created; each needs a placeholder to be mounted over.
        git_dirs: git directories elsewhere that the workspace's repository is in.
        own_git_dirs: those of them that the workspace may write although they lie in a read-only directory.
        inodes: which files all these are, placeholders too: their inodes; of a link, the time of its last change.
        notes: sentences about paths that can't be protected.
        unprotectable: settings by which git runs a program that can't be protected, each with a sentence.
        compared: hashes of the files that git obeys and the agent's git must write, by path; None: nothing was looked at.
        head: the commit that the workspace's HEAD was at.
        keepers: what git must find in `worktrees`, so that it doesn't remove that directory (`protect.WORKTREES_KEEPERS`).
        whole: those of the read-only paths that are whole git directories, because there are many repositories.
        noted: the files that a note is about, by the note's text, as far as their content can be compared.
        unfinished: the inodes of what tells of git's unfinished work, by path; None: an earlier daemon didn't look.
        contents: fingerprints of what was read-only or missing at the turn's start, by path, where it can be compared;
            None: an earlier daemon has started the turn, so replaced paths are told at its end only.
        mounted_anew: fingerprints of what was there when replaced paths were mounted anew, by path.
    """

    pinned: tuple[str, ...] = msgspec.field(name="kept", default=())
    read_only: tuple[str, ...] = msgspec.field(name="closed", default=())
    missing: tuple[str, ...] = ()
    git_dirs: tuple[str, ...] = msgspec.field(name="shared", default=())
    own_git_dirs: tuple[str, ...] = msgspec.field(name="own", default=())
    inodes: dict[str, int] = msgspec.field(name="seen", default_factory=dict)
    notes: tuple[str, ...] = ()
    unprotectable: tuple[tuple[str, str], ...] = msgspec.field(name="unsettled", default=())
    compared: dict[str, str] | None = None
    head: str | None = None
    keepers: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    noted: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    unfinished: dict[str, int] | None = None
    contents: dict[str, str] | None = None
    mounted_anew: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def mounts(self) -> tuple[str, ...]:
        """All that is mounted over itself, read-only or not."""
        return tuple(dict.fromkeys((*self.pinned, *self.own_git_dirs, *self.read_only, *self.missing)))

    @property
    def writable(self) -> frozenset[str]:
        """Those that are mounted writable."""
        return frozenset((*self.pinned, *self.own_git_dirs))

    def hashes_of(self, files: Iterable[str]) -> tuple[str, ...]:
        """Return hashes of some files as they were then, as in `fingerprint.is_as_before`; empty: it isn't known."""
        known = {**(self.contents or {}), **(self.compared or {})}
        return tuple(known.get(file, "") for file in files)


def shared_with(workspace: str, closed: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Find the git directories elsewhere that a workspace's `.git` file leads to, if they lead back.

    Args:
        workspace: its physical path.
        closed: places that no agent may see.

    Returns:
        The directories, the workspace's own among them, and a sentence why there are none if that must be reported.
    """
    try:
        link = gitlink.link_of(workspace, closed)
    except WorkspaceUnusable as problem:
        return (), (), problem.message
    if link is None:
        return (), (), None
    return (link.common,), (link.own,) if link.own != link.common else (), None


def changes(before: ProtectedPaths, after: ProtectedPaths) -> list[str]:
    """Return the obeyed paths that were made, replaced or written during a turn; of nested ones the outermost.

    Args:
        before: the scan at the turn's start.
        after: the scan at its end.
    """
    had, whole = set(before.missing), set(before.whole)
    changed = sorted(
        path
        for path, inode in after.inodes.items()
        if before.inodes.get(path) != inode and path not in had and not is_below(path, whole)
    )
    if before.compared is not None:
        now = after.compared or {}
        changed += (path for path, content in now.items() if before.compared.get(printable(path)) != content)
    outer: set[str] = set()
    for path in sorted(changed, key=len):
        if not is_below(path, outer):
            outer.add(path)
    return sorted(outer)


def files_in(protected: ProtectedPaths, path: str) -> tuple[str, ...]:
    """Return the files that the host would run by a path that `changes` has found: in it, or the path itself.

    Of a git directory these are the files that git obeys, present or not, because its objects change with each commit.

    Args:
        protected: the scan that found it.
        path: the path.
    """
    directories = {*protected.pinned, *protected.whole}
    single = (one for one in (*protected.inodes, *protected.missing) if one not in directories)
    obeyed = (one for git in protected.whole if is_within(git, path) for one in obeyed_in(git))
    return tuple(dict.fromkeys((*(one for one in single if is_within(one, path)), *obeyed))) or (path,)


def is_below(path: str, directories: Collection[str]) -> bool:
    """Say whether a path lies in one of some directories, and isn't one itself."""
    return any(path[:at] in directories for at, letter in enumerate(path) if letter == "/")


def describe_changes(paths: list[str]) -> str:
    """Return a sentence about paths that `changes` returned."""
    return (
        f"files that programs on your host obey were changed: {listed(paths)}; "
        f"look at what is there before git, an editor or a shell of yours does"
    )


def listed(paths: list[str]) -> str:
    """Name some paths for a message, the first five of them: `/w/a, /w/b and 3 more`."""
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return ", ".join(map(printable, paths[:_TOLD])) + more


def were(paths: list[str]) -> str:
    """Name some paths as the subject of a sentence in the passive: `/w/a was`, `/w/a, /w/b were`."""
    return f"{listed(paths)} {'were' if len(paths) > 1 else 'was'}"


def printable(path: str) -> str:
    """Return a path with `?` for each byte that is in no encoding."""
    return path.encode("utf-8", "replace").decode()


def encode(protected: ProtectedPaths) -> bytes:
    """Return a value as JSON, for a daemon that takes the turn over; names in no encoding have `?` for each such byte."""
    return msgspec.json.encode({name: _clean(value) for name, value in msgspec.to_builtins(protected).items()})


def decode(data: bytes | None) -> ProtectedPaths | None:
    """Return a value from `encode`'s bytes, None if the bytes are damaged."""
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(data or b"", type=ProtectedPaths)
    return None


def _clean(value: object) -> object:
    match value:
        case dict():
            return {printable(path): found for path, found in value.items()}
        case str():
            return printable(value)
        case None:
            return None
        case _:
            return [_clean(one) for one in value]  # type: ignore[attr-defined]
