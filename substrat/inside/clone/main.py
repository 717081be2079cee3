"""Does one task on a clone, in a sandbox of its own.

Usage: a JSON object whose member `task` names a function of `TASKS`, which says the further members. Exit status 0: done,
and stdout has a JSON object; `FAILED`: it can't be done, and stderr says why in one line; `TOO_LARGE`: a file would have
been larger than one may be.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

from substrat.inside.clone.git import Failed, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED, TOO_LARGE = 3, 4
TASKS = {
    "look": "make", "make": "make", "renew": "make", "refresh": "make", "set_up": "set_up", "keep": "keep",
    "restore": "restore",
}  # fmt: skip
"""The functions, and the module of this package that each one is in: only that one is loaded."""


def main(line: Sequence[str]) -> int:
    """Do what the request says; returns the exit status."""
    request = json.loads(line[0])
    task = request["task"]
    module = import_module(f"substrat.inside.clone.{TASKS[task]}")
    try:
        answer = getattr(module, task)(request)
    except (Failed, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return TOO_LARGE if isinstance(problem, TooLarge) else FAILED
    json.dump(answer, sys.stdout)
    return 0
