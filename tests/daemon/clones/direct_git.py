"""A `GitSandbox` without a sandbox: git and the scripts run directly, so the room of clones is tested without a daemon."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from sandbox.spec import Bind
from substrat.daemon.clones.git_sandbox import GitSandbox
from substrat.daemon.sandboxes import tame_git
from substrat.daemon.sandboxes.inside import LIBRARY
from substrat.daemon.sandboxes.oneshot import OneshotResult
from tests.support.files_here import FilesHere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.spec import Mount

ROOT = Path(__file__).parents[3]
_TEMPORARY = re.compile(r"(?<![\w/])/tmp/(?=[\w.-]+(?![\w./-]))")  # a file there, such as `/tmp/index`
_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0", "HOME": "/nonexistent", "LC_ALL": "C"}


class DirectGit(GitSandbox):
    """Runs what it is given on the host's own files; a place where a mount shows another path is replaced in all words.

    Args:
        directory: takes the files that sandboxes have in their own `/tmp`.
    """

    def __init__(self, directory: Path) -> None:
        self.files = FilesHere()
        self._directory = directory
        self.commands: list[tuple[str, ...]] = []

    async def run(
        self,
        command: tuple[str, ...],
        mounts: tuple[Mount, ...],
        workdir: str = "/",
        *,
        seconds: float = 60.0,
        file_bytes: int = 0,
        variables: Mapping[str, str] | None = None,
        outlives: bool = False,
    ) -> OneshotResult:
        self.commands.append(command)
        own = tempfile.mkdtemp(dir=self._directory)  # no sandbox sees another one's /tmp
        shown = {mount.target: mount.source for mount in mounts if isinstance(mount, Bind) and mount.target != mount.source}
        shown[LIBRARY] = str(ROOT)

        def outside(word: str) -> str:
            word = _TEMPORARY.sub(f"{own}/", word)
            for target, source in sorted(shown.items(), reverse=True):  # the longer of two that begin alike comes first
                word = re.sub(rf"{re.escape(target)}(?![\w.-])", source.replace("\\", r"\\"), word)
            return word

        given = {**({"GIT_WORK_TREE": "/"} if variables and "GIT_DIR" in variables else {}), **(variables or {})}
        environ = {
            "PATH": os.environ["PATH"], **_ALONE, **tame_git.variables(tame_git.AGENTS),
            **{name: outside(value) for name, value in given.items()},
        }  # fmt: skip
        with trio.fail_after(seconds):
            done = await trio.run_process(
                [outside(word) for word in command], env=environ, cwd=outside(workdir), check=False,
                capture_stdout=True, capture_stderr=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        return OneshotResult(done.returncode, done.stdout, done.stderr)
