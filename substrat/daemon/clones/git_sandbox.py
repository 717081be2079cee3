"""Runs git, and the programs that make and keep clones, in sandboxes of their own.

A repository's configuration can make git execute programs, and an agent writes its clone's configuration. In this sandbox
git has no network, no hooks and no helpers, and it sees and writes only the directories that are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec

from sandbox import host
from substrat.daemon.sandboxes import oneshot, tame_git
from substrat.daemon.sandboxes.inside import inside
from substrat.errors import SandboxFailed
from substrat.inside.clone import main

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sandbox.host import Bubblewrap
    from sandbox.spec import Mount
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.sandboxes.oneshot import OneshotResult

_MEMORY = 2 << 30
"""Bytes of data of each process: git holds an index, some packs' parts and, up to `core.bigFileThreshold`, a file."""
_FILE_BYTES = 4 << 30
"""Bytes of the largest file that git may write, a pack: larger than any repository that is cloned in a few seconds."""

_ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_OPTIONAL_LOCKS": "0"}
"""git reads no configuration of the user's, and takes no lock for a look."""


class GitFailed(SandboxFailed):
    """Git said no; the message is its own last line."""


@attrs.define(eq=False)
class GitSandbox:
    """Runs programs on named mounts."""

    files: Files
    _find_bubblewrap: Callable[[], Awaitable[Bubblewrap]]
    _system_mounts: Callable[[], Awaitable[tuple[Mount, ...]]]

    async def run(
        self,
        command: tuple[str, ...],
        mounts: tuple[Mount, ...],
        workdir: str = "/",
        *,
        seconds: float = 60.0,
        file_bytes: int = _FILE_BYTES,
        variables: Mapping[str, str] | None = None,
        outlives: bool = False,
    ) -> OneshotResult:
        """Run a program, and return its exit status and output.

        The mounts are all that it sees besides the operating system. One that `outlives` the daemon goes on when that is
        killed.

        Raises:
            SandboxFailed: it couldn't be started, took too long or printed too much.
            WorkspaceUnusable: a mount's source has become a link, or doesn't answer.
        """
        bubblewrap = await self._find_bubblewrap()
        system = await self._system_mounts()
        limits = host.helper_limits(int(seconds) + 1, memory=_MEMORY, file_bytes=file_bytes)
        # A submodule's `core.worktree` names a directory that isn't shown, and git would end for that.
        given = {**({"GIT_WORK_TREE": "/"} if variables and "GIT_DIR" in variables else {}), **(variables or {})}
        return await oneshot.run(
            self.files, bubblewrap, command, mounts, workdir, system=system, seconds=seconds, limits=limits,
            variables={**_ALONE, **tame_git.variables(tame_git.AGENTS), **given}, outlives=outlives,
        )  # fmt: skip


def said(done: OneshotResult) -> str:
    """Return a program's last complaint as one line of printable characters; git's advice below it is left out."""
    lines = [line for line in done.errors.decode("utf-8", "replace").splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith("fatal: ")] or lines
    words = complaints[-1] if complaints else f"it ended with {done.status}"
    return "".join(character if character.isprintable() else "?" for character in words)[:500]


def clone_program(request: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[Mount, ...]]:
    """Return the command that does a task on a clone in a sandbox, and the mounts that it needs."""
    return inside(main, msgspec.json.encode(request).decode())
