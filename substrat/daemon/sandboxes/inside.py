"""Shows the programs of `substrat.inside` in a sandbox, and names the command that runs one of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import substrat.inside
from sandbox.spec import Bind, Tmpfs
from substrat.daemon.sandboxes.program import find_python

if TYPE_CHECKING:
    from types import ModuleType

    from sandbox.spec import Mount

LIBRARY = "/run/substrat/library"
"""Where sandboxes show `substrat.inside`; of `substrat` there is nothing else, not even an `__init__.py`."""
_PACKAGE = os.path.dirname(os.path.realpath(substrat.inside.__file__))
_ROOT = os.path.dirname(os.path.dirname(_PACKAGE))


def inside(
    program: ModuleType, *arguments: str, modules: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], tuple[Mount, ...]]:
    """Return the command that runs a program of `substrat.inside` in a sandbox, and the mounts that it needs.

    Args:
        program: its module, with a function `main`.
        arguments: its arguments.
        modules: further files of ours that it imports, such as `substrat/core/x.py`.
    """
    python, needs = find_python()
    mounts: tuple[Mount, ...] = (
        Tmpfs("/run", 1 << 20),
        *(Bind(path, path) for path in needs),
        Bind(_PACKAGE, f"{LIBRARY}/{os.path.relpath(_PACKAGE, _ROOT)}"),
        *(Bind(f"{_ROOT}/{module}", f"{LIBRARY}/{module}") for module in modules),
    )
    start = f"import sys; sys.path[:0] = [{LIBRARY!r}]; from {program.__name__} import main; sys.exit(main(sys.argv[1:]))"
    return (python, "-I", "-S", "-c", start, *arguments), mounts
