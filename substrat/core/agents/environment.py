"""Checks the variables that people give to agents, and decides which of several values counts. Pure.

Values may be secrets. They stand in the configuration, the state and the agent's own environment, nowhere else: errors and
events have names only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Variables = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = frozenset({"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"})
_LONGEST = 32 * 1024
"""Bytes of a value; the kernel takes 128 KiB (execve(2), MAX_ARG_STRLEN)."""
_MOST = 256 * 1024
"""Bytes of all: with them an agent's prompt and arguments still fit into the kernel's limit for a program's start."""


class BadVariable(InvalidParams, ValueError):
    """A variable can't be given to an agent; the message names it and says why, without its value."""

    wire_name = InvalidParams.__name__


def checked(given: Mapping[str, str]) -> Variables:
    """Return variables in their order, if an agent may have them; raises `BadVariable` if one of them can't be given."""
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            raise BadVariable(f"{name!r} can't be a variable's name: letters, digits and '_', no digit first")
        if name in _OURS or name.startswith("SUBSTRAT_"):
            raise BadVariable(f"{name} is set by Substrat itself: leave it out")
        if "\0" in value:
            raise BadVariable(f"the value of {name} has a NUL character: remove it")
        if len(value.encode("utf-8", "surrogateescape")) > _LONGEST:
            raise BadVariable(f"the value of {name} has more than {_LONGEST} bytes: put it into a file")
    if sum(len(name) + len(value) + 2 for name, value in given.items()) > _MOST:
        raise BadVariable(f"the variables have more than {_MOST} bytes together: put some into files")
    return tuple(sorted(given.items()))


def read(texts: Iterable[str]) -> Variables:
    """Read `NAME=VALUE` texts; of a name that stands there twice the last value counts.

    Raises:
        BadVariable: one of them is no such text, or can't be given.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, is_set, value = text.partition("=")
        if not is_set:
            raise BadVariable(f"{name!r} has no value: write NAME=VALUE")
        found[name] = value
    return checked(found)


def joined(first: Variables, then: Variables) -> Variables:
    """Return all variables; where both have a name the second's value counts."""
    return tuple(sorted({**dict(first), **dict(then)}.items()))
