"""Names the login that an agent's turns use: the agent program and a hash, of its key or of the account it is logged in to.

The program writes its login file anew whenever it gets a new token, which stays the same login: the hash is of the account
that the file states, else of the file's path.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from substrat.core.programs.table import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.config import Config
    from substrat.core.agents.records import Agent

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
        self._file = os.path.join(home, PROGRAM.login.file)
        self._environ = environ
        self._read: tuple[tuple[int, int, int, int], str] | None = None

    def of(self, agent: Agent, config: Config) -> str:
        """Return an agent's login of now, for example `cursor-agent:9f86d081884c7d65`; `cursor-agent:none` without one."""
        own = {**config.agent.env, **dict(agent.settings.environment)}
        for name in PROGRAM.login.variables:  # the first that is set counts, in the program as here
            if key := own.get(name, self._environ.get(name)):
                return f"{PROGRAM.name}:{_hash(key.encode(errors='surrogateescape'))}"
        return f"{PROGRAM.name}:{self._of_file()}"

    def _of_file(self) -> str:
        """Return the hash of the login file's account; the file is read again when it has changed."""
        try:
            found = os.stat(self._file)
            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if self._read is None or self._read[0] != state:
                with open(self._file, "rb") as file:
                    account = PROGRAM.login.account(file.read(_LARGEST))
                self._read = state, _hash((account or self._file).encode(errors="surrogateescape"))
            return self._read[1]
        except OSError:
            return "none"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
