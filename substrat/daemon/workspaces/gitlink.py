"""Where a workspace's `.git` file leads: to a linked worktree's or a submodule's git directory; believed if it leads back.

The file may be an agent's own work, and what it names becomes writable in the sandbox. What it leads to lies outside of the
workspace, where the agent couldn't write, so only a git directory that itself names the workspace is believed
(gitrepository-layout(5): `worktrees/<id>/gitdir`; git-config(1): `core.worktree`).
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from typing import NamedTuple

from sandbox.protect import IS_GIT_DIRECTORY
from substrat.daemon.kernel import nofollow
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

_SMALL = 4096
"""Bytes of a file that holds one path (limits.h, PATH_MAX)."""
_CONFIG = 256 * 1024
"""Bytes; a longer configuration isn't a person's."""
_GITFILE = 1 << 20
"""Bytes: git reads no longer one (setup.c, `read_gitfile_gently`)."""
_WORKTREE = re.compile(rb'^[ \t]*worktree[ \t]*=[ \t]*"?([^"\r\n]+?)"?[ \t]*$', re.MULTILINE)

_BARE = re.compile(rb"^[ \t]*bare[ \t]*(=[ \t]*(true|yes|on|1)[ \t]*)?$", re.MULTILINE | re.IGNORECASE)


class GitLink(NamedTuple):
    """Where a workspace's repository is.

    Args:
        common: the git directory with everything that is shared: objects, references, configuration.
        own: the part of it that is the workspace's own; the same for a submodule.
    """

    common: str
    own: str


def link_of(workspace: str, closed: tuple[str, ...]) -> GitLink | None:
    """Return where the workspace's repository is, None when it has no `.git` file.

    Raises:
        WorkspaceUnusable: it doesn't lead back, or to where no agent may look.
    """
    said = _line(f"{workspace}/.git")
    if said is None or not said.startswith("gitdir:"):
        return None
    own = _absolute(workspace, said.removeprefix("gitdir:").strip())
    refusal = f"{workspace}/.git leads to {own}, which "
    common = own
    if (named := _line(f"{own}/commondir")) is not None:
        common = _absolute(own, named)
        back = _line(f"{own}/gitdir")
        if back is None or os.path.realpath(_absolute(own, back)) != f"{workspace}/.git":
            raise WorkspaceUnusable(f"{refusal}doesn't lead back, so it isn't shown: `git worktree repair` mends that")
        if os.path.dirname(own) != f"{common}/worktrees":
            raise WorkspaceUnusable(f"{refusal}isn't one of {common}'s worktrees, so it isn't shown")
    elif _is_bare(own):
        raise WorkspaceUnusable(
            f"{refusal}is a bare repository, which has no files to work on: name a worktree of it, "
            f"`git -C {shlex.quote(workspace)} worktree list` shows those there are"
        )
    elif not _is_its_worktree(own, workspace):
        raise WorkspaceUnusable(
            f"{refusal}doesn't lead back, so it isn't shown: if it belongs to this directory, "
            f"`git --git-dir={shlex.quote(own)} config core.worktree {shlex.quote(workspace)}` says so"
        )
    if not _is_git_directory(common):
        raise WorkspaceUnusable(f"{refusal}belongs to no repository, so it isn't shown")
    for other in closed:
        if is_within(common, other) or is_within(other, common):
            raise WorkspaceUnusable(f"{refusal}would open {other} to the agent, so it isn't shown")
    return GitLink(common, own)


def led_to(git: str) -> str | None:
    """Return the path that a `.git` leads git to, every link followed; it may be missing or no git directory."""
    own = real(git)
    said = None if own is None else nofollow.read_small(own, _GITFILE)
    if said is None:
        return own
    return _named(os.path.dirname(git), said.removeprefix(b"gitdir: ")) if said.startswith(b"gitdir: ") else None


def joined_by(directory: str) -> str | None:
    """Return the directory that a git directory takes its configuration from instead, None where it is its own."""
    target = real(f"{directory}/commondir")
    said = None if target is None else nofollow.read_small(target, _GITFILE)
    common = _named(directory, said) if said else None
    return common if common != directory else None


def is_repository(own: str, common: str) -> bool:
    """Say whether git would take a git directory for one (setup.c, `is_git_directory`); no file is opened."""
    return os.path.lexists(f"{own}/HEAD") and all(os.path.lexists(f"{common}/{name}") for name in ("objects", "refs"))


def real(path: str) -> str | None:
    """Return where a path leads, every link followed; None for one that leads nowhere, or through too many links."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError, RecursionError):
        return None


def _named(start: str, said: bytes) -> str | None:
    """Return where a path leads that stands in a file, as git in C takes it: up to the first NUL, without line ends."""
    text = os.fsdecode(said.partition(b"\0")[0].rstrip(b"\r\n"))
    return real(os.path.join(start, text)) if text else None


def _line(path: str) -> str | None:
    data = nofollow.read_small(path, _SMALL)
    return os.fsdecode(data).rstrip("\r\n") if data else None


def _absolute(start: str, path: str) -> str:
    try:
        return os.path.realpath(os.path.join(start, path))
    except (OSError, ValueError, RecursionError) as problem:  # only the kernel can follow it, or it has no end
        reason = getattr(problem, "strerror", None) or "it leads nowhere"
        raise WorkspaceUnusable(
            f"{start}: git is led to {path}, which can't be looked at ({reason}), so it isn't shown"
        ) from None


def _is_its_worktree(git: str, workspace: str) -> bool:
    config = nofollow.read_small(f"{git}/config", _CONFIG)
    found = _WORKTREE.findall(config or b"")
    return len(found) == 1 and _absolute(git, os.fsdecode(found[0])) == workspace


def _is_bare(git: str) -> bool:
    return bool(_BARE.search(nofollow.read_small(f"{git}/config", _CONFIG) or b""))


def _is_git_directory(path: str) -> bool:
    try:
        with nofollow.opened(path) as directory:
            found = os.fstat(directory)
            reading = nofollow.open_directory(".", directory)
            try:
                names = set(os.listdir(reading))
            finally:
                os.close(reading)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and names >= IS_GIT_DIRECTORY
