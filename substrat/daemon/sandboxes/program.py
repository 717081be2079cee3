"""Finds the agent program and the host paths that it must see in order to run.

The directory of the program's real file is always visible. A script also needs its interpreter: when that isn't the
system's, its installation is visible too, and for a Python virtual environment the places it imports from.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sandbox.host import system_covers
from substrat.core.programs.table import CURSOR
from substrat.errors import AgentProgramMissing
from substrat.paths import is_within

if TYPE_CHECKING:
    from substrat.core.programs.program import AgentProgram

_EXECUTED = b"'''exec' "
_LONGEST_HEAD = 2 * 4096
"""Bytes of a script that are looked at: two lines with a path each (limits.h, PATH_MAX)."""


class Program(NamedTuple):
    """An agent program: its real file and the host paths that must be visible, read-only."""

    path: str
    visible: tuple[str, ...]


def find(name: str, path: str | None = None, of: AgentProgram = CURSOR) -> Program:
    """Find the agent program.

    Args:
        name: a path, or a name to look up on PATH.
        path: the PATH to look on; this process's own by default.
        of: the program that it is.

    Raises:
        AgentProgramMissing: there is none, it can't be executed, or it lies where its agents write.
    """
    keys = "SUBSTRAT_AGENT_BINARY or agent.binary" if of is CURSOR else f"programs.{of.id}.binary"
    found = os.path.abspath(os.path.expanduser(name)) if "/" in name else shutil.which(name, path=path)
    if found is None:
        raise AgentProgramMissing(
            f"the agent program {name!r} isn't on PATH: install it, or name it with {keys} in config.toml"
        )
    real = os.path.realpath(found)
    if not os.path.isfile(real):
        raise AgentProgramMissing(f"the agent program {found} doesn't exist: correct {keys} in config.toml")
    if not os.access(real, os.X_OK):
        raise AgentProgramMissing(f"the agent program {real} isn't executable: chmod +x it")
    visible = tuple(dict.fromkeys(_visible(real)))
    # The agent has a directory of its own there, and could put a link where the program is to be mounted in it.
    home = os.path.realpath(os.path.join(os.path.expanduser("~"), of.places.home))
    if any(is_within(place, home) for place in visible):
        raise AgentProgramMissing(f"the agent program {real} lies in {home}, where its agents write: install it elsewhere")
    return Program(real, visible)


def find_python() -> tuple[str, tuple[str, ...]]:
    """Find a Python for the companion that can be seen in every sandbox, and the paths that must be visible for it.

    Raises:
        AgentProgramMissing: there is none.
    """
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.access(path, os.X_OK) and system_covers(path):
            return path, ()
    if found := shutil.which("python3"):
        real = os.path.realpath(found)
        return real, tuple(_interpreter(real))
    raise AgentProgramMissing("the companion needs a python3 and there is none on PATH: install python3")


def _visible(real: str) -> list[str]:
    directory = os.path.dirname(real)
    return [real if _shows_too_much(directory) else directory, *_interpreter(_shebang(real))]


def _shows_too_much(directory: str) -> bool:
    """Say whether a directory is the home directory or holds it: a program that lies there must not show all of it."""
    home = os.path.realpath(os.path.expanduser("~"))
    return (home + "/").startswith(os.path.realpath(directory).rstrip("/") + "/")


def _shebang(path: str) -> str | None:
    """Return the interpreter that a script names; None if it names none.

    The kernel takes no interpreter whose path has a space or is longer than 127 bytes, so pip lets a shell execute such a
    one: `#!/bin/sh`, and in the second line `'''exec' "/my tools/v/bin/python" "$0" "$@"`, which is nothing to Python.
    """
    try:
        with open(path, "rb") as file:
            first, second, *_ = [*file.read(_LONGEST_HEAD).split(b"\n"), b""]
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].split()
    if second.startswith(_EXECUTED):
        with suppress(ValueError, IndexError):
            return shlex.split(os.fsdecode(second.removeprefix(_EXECUTED)))[0]
    return os.fsdecode(words[0]) if words else None


def _interpreter(path: str | None) -> list[str]:
    """List the paths that an interpreter outside the system needs: its prefix and a virtual environment's parts."""
    if path is None or not os.path.exists(path):
        return []
    visible = []
    environment = os.path.dirname(os.path.dirname(path))
    if os.path.exists(os.path.join(environment, "pyvenv.cfg")):
        visible += [
            directory for directory in (environment, *_import_directories(environment)) if not _shows_too_much(directory)
        ]
    if not system_covers(path):
        real = os.path.realpath(path)
        # Its prefix (`bin/python3` beside `lib`), else its directory, else only itself.
        candidates = (os.path.dirname(os.path.dirname(real)), os.path.dirname(real), real)
        visible.append(next(directory for directory in candidates if directory == real or not _shows_too_much(directory)))
    return visible


def _import_directories(environment: str) -> list[str]:
    """List the directories that a virtual environment's `.pth` files add: those of editable installations."""
    directories = []
    for path in glob.glob(os.path.join(environment, "lib", "python3*", "site-packages", "*.pth")):
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file]
        directories += [line for line in lines if os.path.isabs(line) and os.path.isdir(line)]
    return directories
