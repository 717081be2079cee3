"""Names the login that an agent's turns use: the agent program and a hash, of its key or of the account it is logged in to.

The program writes its login file anew whenever it gets a new token, which stays the same login: the hash is of the account
that the file states, else of the file's path.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from substrat.core.programs.table import moved, on_host, program_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.config import Config
    from substrat.core.agents.records import Agent
    from substrat.core.programs.program import Login

_DIGITS = 16
"""Hexadecimal digits: enough to tell apart the logins of one machine."""
_LARGEST = 1024 * 1024
"""Bytes of a login file that are read; they have a few kilobytes."""


class Logins:
    """The logins that one daemon's agents may use.

    Args:
        home: the user's home directory.
        environ: the daemon's environment, from which keys are passed on.
    """

    def __init__(self, home: str, environ: Mapping[str, str]) -> None:
        self._home = home
        self._moved = moved(environ)
        self._environ = environ
        self._read: dict[str, tuple[tuple[int, int, int, int], str]] = {}

    def of(self, agent: Agent, config: Config) -> str:
        """Return an agent's login of now, for example `cursor-agent:9f86d081884c7d65`; `cursor-agent:none` without one."""
        own = {**config.env_of(agent.settings.program), **dict(agent.settings.environment)}
        program = program_of(agent)
        for name in program.login.variables:  # the first that is set counts, in the program as here
            if key := own.get(name, self._environ.get(name)):
                return f"{program.name}:{_hash(key.encode(errors='surrogateescape'))}"
        return f"{program.name}:{self._of_file(program.login)}"

    def _of_file(self, login: Login) -> str:
        """Return the hash of the login file's account; the file is read again when it has changed."""
        path = on_host(login.file, self._home, self._moved)
        try:
            found = os.stat(path)
            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if path not in self._read or self._read[path][0] != state:
                with open(path, "rb") as file:
                    account = login.account(file.read(_LARGEST))
                self._read[path] = state, _hash((account or path).encode(errors="surrogateescape"))
            return self._read[path][1]
        except OSError:
            return "none"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
