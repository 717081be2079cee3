"""Sets up new clones: copies the ignored files that they get besides, and runs the repository's set-up commands.

Both are named by files of a commit, `.worktreeinclude` and `.cursor/worktrees.json`. For example `.worktreeinclude` says
`.env`, and `worktrees.json` says `{"setup-worktree": ["npm ci"]}`: the user's `.env` is copied into the clone, and `npm ci`
runs there, in the agent's own sandbox, before the agent's first turn.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from sandbox.spec import Bind
from substrat.core.programs.table import CURSOR
from substrat.daemon.clones.git_sandbox import clone_program, said
from substrat.daemon.clones.setup_log import SetupLog
from substrat.daemon.sandboxes import binds
from substrat.errors import SandboxFailed, SubstratError
from substrat.inside.clone.git import CHECKOUT, OUT, REPOSITORY, TREE
from substrat.inside.clone.set_up import FILES, SCRIPT, SCRIPT_IN_SANDBOX
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sandbox.spec import Mount
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.state import State
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.sandboxes.sandboxes import Sandboxes

    RunCommand = Callable[[Agent, tuple[str, ...], int, tuple[Mount, ...], dict[str, str]], Awaitable[int]]

_READ_SECONDS = 60.0
"""git walks a checkout of some hundred thousand ignored files in seconds."""
_ROOT = "/run/substrat/root-worktree"
VARIABLES = {"ROOT_WORKTREE_PATH": _ROOT}
"""The variables of set-up commands."""
_PIECE = 1 << 16

# Runs the commands one after the other, up to the first that fails, each by bash where there is one.
_EACH = """\
shell=$(command -v bash || echo /bin/sh)
for command; do printf '$ %s\\n' "$command"; "$shell" -c "$command" || exit; done
"""


class SetUp(msgspec.Struct, frozen=True):
    """The answer of the task `set_up`."""

    commands: list[str]
    included: int
    left_out: list[str]
    is_strange: bool = False


@attrs.define(kw_only=True, eq=False)
class SettingUp:
    """Sets up the clones of one daemon's agents."""

    _state: State
    _repositories: Repositories
    _sandboxes: Sandboxes
    _run: RunCommand

    async def set_up(self, agent: Agent, clone: Clone, empty: str) -> str | None:
        """Set up an agent's clone that was just made; one whose set-up was cut short is set up once more.

        Returns:
            What was done, as a sentence; None: there was nothing to do.

        Raises:
            SubstratError: it failed; the message says why, and what its last words were.
        """
        if clone.base is None:
            return None
        place = self._state.layout.agent(agent.id)
        await trio.to_thread.run_sync(_make_anew, place.setup, place.setup_log)
        found = await self.read(clone, clone.tree, place.setup, empty)
        if found.is_strange:
            return (
                "not set up: the commit that the clone began at is in no branch or tag of yours, so nothing is done that "
                "it asks for: make a branch of it, and spawn an agent anew"
            )
        if not found.commands and not found.included and not found.left_out:
            return None
        if found.commands:
            await self._run_commands(agent, found.commands, place.setup, place.setup_log)
        return _describe(found)

    async def read(self, clone: Clone, tree: str, out: str, empty: str) -> SetUp:
        """Have the files copied, and return the commands.

        Args:
            clone: a clone with a base.
            tree: where the files are copied to, a repository with the clone's base: the clone, or the room of a check.
            out: an empty directory, for what the commands are given (`prepared`).
            empty: an empty file.

        Raises:
            SandboxFailed: it can't be done; the message says why.
        """
        places = await self._repositories.places(clone.workspace)
        below = os.path.relpath(clone.workspace, clone.repository)
        refused = binds.closed_paths(self._sandboxes.user, self._sandboxes.preparer.protector.own_places)
        request = {
            "task": "set_up",
            "base": _committed(clone),
            "include": self._include_commit(clone),
            "is_strange": clone.is_strange,
            "places": list(dict.fromkeys(os.path.normpath(f"{at}/{CURSOR.places.workspace}") for at in (below, "."))),
            "own": os.path.relpath(places.own, places.common),
            "refused": [os.path.relpath(path, places.top) for path in refused if is_within(path, places.top)],
        }
        line, shown = clone_program(request)
        mounts: tuple[Mount, ...] = (
            *shown,
            Bind(tree, TREE, writable=True, held=True),
            Bind(out, OUT, writable=True),
            Bind(places.common, REPOSITORY, held=True),
            Bind(places.top, CHECKOUT, held=True),
            *await self._repositories.lent(places, empty),
        )
        done = await self._repositories.sandbox.run(line, mounts, seconds=_READ_SECONDS)
        if done.status:
            raise SandboxFailed(f"{clone.name}'s files can't be set up: {said(done)}")
        return msgspec.json.decode(done.output, type=SetUp)

    def _include_commit(self, clone: Clone) -> str | None:
        """Return the commit whose `.worktreeinclude` counts; None: no commit is known that is surely the user's.

        A child's clone starts at a commit of its parent's, which could name any ignored file, so the oldest ancestor's
        base counts for it.
        """
        for _ in range(self._state.registry.config.limits.depth + 1):
            if clone.source is None:
                return None if clone.is_strange else _committed(clone)
            parent = self._state.registry.get(clone.source)
            if parent is None or parent.clone is None:
                return None
            clone = parent.clone
        return None

    async def _run_commands(self, agent: Agent, commands: list[str], directory: str, log_path: str) -> None:
        line, mounts = prepared(commands, directory)
        seconds = self._state.registry.config.clone.setup_seconds
        with SetupLog(log_path) as log:
            with trio.move_on_after(seconds) as limit:
                status = await self._logged(agent, line, mounts, log)
            if limit.cancelled_caught:
                raise SandboxFailed(
                    f"the set-up of its clone took longer than `clone.setup_seconds`, {seconds:g} s: "
                    f"`substratctl logs {agent.name} --setup` shows how far it came"
                )
            if status:
                ended = f"a signal, {status - 128}" if status > 128 else f"status {status}"
                words = f" ({log.last_line})" if log.last_line else ""
                raise SandboxFailed(
                    f"the set-up of its clone ended with {ended}{words}: `substratctl logs {agent.name} --setup` shows all"
                )

    async def _logged(self, agent: Agent, line: tuple[str, ...], mounts: tuple[Mount, ...], log: SetupLog) -> int:
        """Run a command, with its output written to the log; returns its exit status."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        status, failure = 0, None
        async with trio.lowlevel.FdStream(reading) as output, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, output, log)
            try:
                status = await self._run(agent, line, writing, mounts, VARIABLES)
            except SubstratError as problem:  # returned, so that the nursery doesn't wrap it
                failure = problem
        if failure is not None:
            raise failure
        return status


def prepared(commands: list[str], directory: str) -> tuple[tuple[str, ...], tuple[Mount, ...]]:
    """Return the line that runs set-up commands up to the first that fails, and the mounts that they need."""
    script = f"{directory}/{SCRIPT}"
    needs = (Bind(script, SCRIPT_IN_SANDBOX),) if os.path.exists(script) else ()
    return ("/bin/sh", "-c", _EACH, "sh", *commands), (Bind(f"{directory}/{FILES}", _ROOT), *needs)


async def _copy(output: trio.lowlevel.FdStream, log: SetupLog) -> None:
    """Copy a command's output to its end, which comes when its sandbox is gone."""
    while data := await output.receive_some(_PIECE):
        log.write(data)


def _make_anew(directory: str, log: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory, mode=0o700)
    if os.path.lexists(log):
        os.unlink(log)


def _committed(clone: Clone) -> str:
    """Return the commit of the user's that a clone starts at: uncommitted changes of his are a commit on top of it."""
    return f"{clone.base}^" if clone.with_wip else f"{clone.base}"


def _describe(found: SetUp) -> str:
    parts = []
    if found.included:
        parts.append("1 ignored file of yours copied" if found.included == 1 else f"{found.included} ignored files copied")
    if found.commands:
        parts.append("1 command run" if len(found.commands) == 1 else f"{len(found.commands)} commands run")
    if found.left_out:
        parts.append(f"left out, because they are links or no plain files: {', '.join(found.left_out)}")
    return f"its clone is set up: {'; '.join(parts)}"
