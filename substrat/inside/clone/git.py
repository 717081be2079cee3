"""git inside, and the places that the sandboxes of this program show."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

TREE = "/run/substrat/tree"
"""The clone."""
OUT = "/run/substrat/out"
"""A directory of the daemon's beside the clone."""
REPOSITORY, CHECKOUT, MODULES = "/run/substrat/repository", "/run/substrat/checkout", "/run/substrat/modules"
"""The user's git directory and checkout, and the repositories of his submodules; read-only."""


class Failed(Exception):
    """It can't be done; the message says why."""


class TooLarge(Failed):
    """A file would be larger than the limit."""


class Git(NamedTuple):
    """git for one repository.

    Args:
        variables: those that name the repository (git(1), Environment Variables).
        directory: where git starts.
    """

    variables: Mapping[str, str]
    directory: str = "/"

    def __call__(self, *arguments: str, given: str = "", fine: tuple[int, ...] = (0,)) -> str:
        """Run git and return its output.

        Raises:
            Failed: it ended with another exit status; the message is its last line.
        """
        done = self.run(*arguments, given=os.fsencode(given))
        if done.returncode not in fine:
            raise failure(arguments[0], done)
        return os.fsdecode(done.stdout)

    def run(
        self, *arguments: str, given: bytes = b"", output: BinaryIO | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run git, which may fail; `output` is the file that takes its output."""
        return self.command("git", *arguments, given=given, output=output)

    def command(
        self, *command: str, given: bytes = b"", output: BinaryIO | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program that runs git."""
        return subprocess.run(
            command, cwd=self.directory, env={**os.environ, **self.variables}, input=given,
            stdout=output or subprocess.PIPE, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip

    def given(self, **variables: str) -> Git:
        """Return git for the same repository with further variables."""
        return self._replace(variables={**self.variables, **variables})

    def at(self, path: bytes) -> bytes:
        """Return the place of a file of the repository's."""
        return os.fsencode(self.directory) + b"/" + path


CLONE = Git({"GIT_DIR": f"{TREE}/.git", "GIT_WORK_TREE": TREE}, TREE)
USERS = Git({"GIT_DIR": REPOSITORY, "GIT_WORK_TREE": "/"})
"""git would look for the directory that a submodule's `core.worktree` names, and end without it."""


def failure(name: str, done: subprocess.CompletedProcess[bytes]) -> Failed:
    """Return the reason why a git has failed."""
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    kind = TooLarge if done.returncode == -signal.SIGXFSZ or "File too large" in "".join(lines) else Failed
    return kind(f"git {name}: {lines[-1] if lines else done.returncode}")
