"""The little git that the daemon runs itself; in a workspace only with everything executable switched off."""

from __future__ import annotations

import os
import stat

import structlog
import trio

log = structlog.get_logger("substrat.git")

_HARMLESS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.sshCommand=false",
    "-c", "core.attributesFile=/dev/null", "-c", "core.pager=cat", "-c", "core.editor=false", "-c", "safe.directory=*",
)  # fmt: skip
_PATIENCE_S = 10


class Git:
    """Runs git for the daemon.

    Args:
        environ: the daemon's own environment.
    """

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ = environ
        self._said: str | None = None

    def forget(self) -> None:
        """Ask for the identity anew the next time."""
        self._said = None

    async def identity(self, agent: str) -> str:
        """Return the section that gives an agent's commits the operator's name, or its own where there is none.

        Args:
            agent: the agent's name.
        """
        if self._said is None:
            self._said = await self._run("config", "--global", "--get-regexp", r"^user\.(name|email)$", own=True)
        known = dict(line.split(" ", 1) for line in self._said.splitlines() if " " in line)
        name, email = known.get("user.name", agent), known.get("user.email", f"{agent}@localhost")
        return f"[user]\n\tname = {_quoted(name)}\n\temail = {_quoted(email)}\n"

    async def forget_size(self, workspace: str, path: str) -> None:
        """Make git look at a tracked file's content again instead of at the size it remembers.

        In the sandbox another file lay over this one. If git there wrote its index, it noted that file's size, and git
        on the host would take the difference for a change without looking. Writing the entry anew, with the same
        content, clears what was noted.

        Args:
            workspace: the workspace.
            path: the file, from there.
        """
        if not (os.path.lexists(os.path.join(workspace, path)) and _is_own_repository(workspace)):
            return
        entry = await self._run("-C", workspace, "ls-files", "--stage", "--", path)
        if entry:
            mode, blob, _ = entry.split(maxsplit=2)
            await self._run("-C", workspace, "update-index", "--cacheinfo", f"{mode},{blob},{path}")

    async def _run(self, *words: str, own: bool = False) -> str:
        """Run git and return what it printed; that it isn't there, or fails, is an empty answer and a line in the log.

        Args:
            words: its arguments.
            own: whether it may read the user's own configuration.
        """
        wanted = {"PATH", "HOME", "XDG_CONFIG_HOME"} if own else {"PATH"}
        environ = {name: value for name, value in self._environ.items() if name in wanted}
        if not own:
            environ |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        command = ["git", *(() if own else _HARMLESS), *words]
        try:
            with trio.fail_after(_PATIENCE_S):
                done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, env=environ)
        except (OSError, trio.TooSlowError) as problem:
            log.info("git wasn't asked", words=words[:3], reason=str(problem))
            return ""
        if done.returncode not in {0, 1}:
            log.info("git failed", words=words[:3], reason=done.stderr.decode("utf-8", "replace").strip()[:200])
            return ""
        return done.stdout.decode("utf-8", "replace")


def _is_own_repository(workspace: str) -> bool:
    """Say whether `.git` is a directory in the workspace itself: an agent may have put a link or a file there."""
    try:
        return stat.S_ISDIR(os.lstat(os.path.join(workspace, ".git")).st_mode)
    except OSError:
        return False


def _quoted(value: str) -> str:
    cleaned = value.replace("\\", "").replace('"', "'").replace("\n", " ")
    return f'"{cleaned}"'
