"""Checks before a spawn: whether agents can run here, and whether a workspace and binds can be an agent's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrat import paths
from substrat.core.programs.table import CURSOR, MOVING, PROGRAMS
from substrat.daemon.sandboxes import binds, program
from substrat.daemon.workspaces import checking
from substrat.errors import SandboxFailed, SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.rights import SharedPath
    from substrat.daemon.agents.state import State
    from substrat.daemon.sandboxes.prepare import SandboxPreparer
    from substrat.daemon.workspaces.user import User


class SpawnChecks:
    """Checks what a spawn asks for."""

    def __init__(self, state: State, user: User, preparer: SandboxPreparer) -> None:
        self._state = state
        self._user = user
        self._preparer = preparer
        self._protector = preparer.protector

    async def check(self, name: str) -> None:
        """Find out whether agents of a program can run here at all.

        Args:
            name: the program's, such as `cursor`.

        Raises:
            BubblewrapMissing: there is none, or it is too old.
            NamespacesForbidden: the machine doesn't allow the namespaces that a sandbox needs.
            AgentProgramMissing: there is no agent program.
        """
        if not self._user.has_home:
            raise SandboxFailed(
                f"HOME is {self._user.home}, which no sandbox can hide: set HOME to a directory of your own"
            )
        await self._preparer.machine.find_bubblewrap()
        program.find(self._state.registry.config.binary_of(name), of=PROGRAMS[name])
        await self._preparer.write_authorities()

    async def obstacle(self) -> str | None:
        """Say why no agent can run under this daemon, None when agents can."""
        try:
            await self.check(self._state.registry.config.agent.program)
        except SubstratError as problem:
            return problem.message
        return None

    def surroundings(self) -> dict[str, str]:
        """Return the variables by which this daemon finds its files and programs, for `doctor`; no secret is among them."""
        names: tuple[str, ...] = ("PATH", "HOME", "XDG_CONFIG_HOME", *MOVING)
        given = {name: self._state.environ[name] for name in names if name in self._state.environ}
        given |= {"SUBSTRAT_STATE_DIR": self._state.layout.state, "SUBSTRAT_RUNTIME_DIR": self._state.layout.runtime}
        config = self._state.registry.config
        is_used = CURSOR.id in (config.agent.program, *config.programs)
        return given | ({"SUBSTRAT_AGENT_BINARY": config.binary_of(CURSOR.id)} if is_used else {})

    async def check_workspace(self, path: str) -> str:
        """Check a workspace and return its physical path; raises `WorkspaceUnusable`."""
        own = self._protector.own_places
        return await self._state.files.run(path, checking.check_workspace, path, self._user, own)

    async def check_binds(
        self, writable: tuple[str, ...], read_only: tuple[str, ...], directory: str
    ) -> tuple[SharedPath, ...]:
        """Check a new agent's binds; raises the errors of `binds.check`."""
        config = os.path.dirname(os.path.realpath(paths.config_file(self._state.environ)))
        forbidden = (*self._protector.own_places, config)
        place = ", ".join((*writable, *read_only)) or directory
        return await self._state.files.run(place, binds.check, writable, read_only, directory, self._user, forbidden)

    async def check_ssh_agent(self, path: str, directory: str, shared: tuple[SharedPath, ...]) -> str:
        """Check an ssh-agent's socket for a new agent; raises the errors of `binds.check_ssh_agent`."""
        others = (root for claim in self._state.registry.index.claims for root in claim.writable)
        writable = (directory, *(one.path for one in shared if one.writable), *others)
        return await self._state.files.run(path, binds.check_ssh_agent, path, writable, self._protector.own_places)
