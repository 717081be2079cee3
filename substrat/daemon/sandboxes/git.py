"""The little git that the daemon runs in a workspace that is no clone, inside a sandbox."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import structlog

from sandbox.spec import Bind, Mount
from substrat.daemon.sandboxes import oneshot, tame_git
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.host import Bubblewrap
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

log = structlog.get_logger("substrat.git")

_INDEX_PATIENCE_S = 4.0
"""The end of a turn waits for this, and it takes some 50 ms; only files that an agent planted in `.git` make it longer."""
_LARGEST_INDEX = 64 << 20
"""About 600,000 files at some 100 bytes each (gitformat-index(5)): git reads and writes one in half a second."""
_LARGEST_HEAD = 4096
"""Bytes: the name of a branch, which is a path (limits.h, PATH_MAX)."""
_LARGEST = {"index": _LARGEST_INDEX, "HEAD": _LARGEST_HEAD}
TAME = tame_git.variables({**tame_git.PERSONS, "safe.directory": "*", "core.attributesFile": "/dev/null"})
"""The variables of git in a sandbox that shows a workspace: nothing outside of it decides how git reads it."""
# Takes the entry's mode and blob from the index and puts them back; $1 is the path.
_CLEAR_ENTRY = """\
entry=$(git ls-files --stage -- "$1") && [ -n "$entry" ] || exit 0
set -- "$1" $entry
git update-index --cacheinfo "$2,$3,$1"
"""


async def forget_size(
    files: Files,
    bubblewrap: Bubblewrap,
    workspace: str,
    path: str,
    protected: ProtectedPaths,
    system: tuple[Mount, ...],
) -> None:
    """Make git look at a tracked file's content again instead of at the size it remembers.

    In the sandbox another file lay over this one. If git there wrote its index, it noted that file's size, and git
    on the host would take the difference for a change without looking. Writing the entry anew, with the same
    content, clears what was noted. The repository may be an agent's own work, and what a repository's configuration
    makes git execute can't be listed for sure, so git runs in a sandbox without a network that sees nothing but the
    workspace, and writes nothing but what the agent could write in `.git`.

    Args:
        files: looks at the repository first.
        bubblewrap: bubblewrap.
        workspace: the workspace.
        path: the file, from there.
        protected: the workspace's protected paths; their placeholders still exist.
        system: the mounts of the operating system.
    """
    git = os.path.join(workspace, ".git")
    if git not in protected.pinned or not await files.run(workspace, _may_have_noted, git, os.path.join(workspace, path)):
        return
    command = ("/bin/sh", "-c", _CLEAR_ENTRY, "sh", path)
    try:
        done = await oneshot.run(
            files, bubblewrap, command, tuple(_mounts(workspace, git, protected)), workspace,
            system=system, seconds=_INDEX_PATIENCE_S, variables=TAME,
        )  # fmt: skip
    except SandboxFailed as problem:
        log.info("git wasn't asked", reason=problem.message)
        return
    if done.status:
        log.info("git failed", reason=done.errors.decode("utf-8", "replace").strip()[:200])


def _may_have_noted(git: str, path: str) -> bool:
    """Say whether a repository's index may tell of a file, and git can read it."""
    if not os.path.lexists(path):
        return False
    odd = [name for name, largest in _LARGEST.items() if not _is_regular_below(os.path.join(git, name), largest)]
    if odd:
        log.info("git wasn't asked", reason=f"its {odd[0]} isn't a regular file of bearable size")
    return not odd


def _is_regular_below(path: str, largest: int) -> bool:
    """Say whether a file is one that git reads in a bounded time: a FIFO would hold it up."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= largest


def _mounts(workspace: str, git: str, protected: ProtectedPaths) -> Iterator[Mount]:
    yield Bind(workspace, workspace, held=True)
    yield Bind(git, git, writable=True, held=True)
    for path in (*protected.read_only, *protected.missing):
        if path.startswith(git + "/"):
            yield Bind(path, path, held=True)
