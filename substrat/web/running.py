"""Which servers run: each holds a lock beside its token, which ends with its process.

The link that `web --url` prints must lead to a server of ours, because whatever listens on the port gets the token.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from substrat.web import token

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(r"web-(\d+)\.lock")


@contextmanager
def noted(port: int) -> Iterator[None]:
    """Note that a server listens on a port, for as long as the context or the process lasts."""
    path = os.path.join(os.path.dirname(token.path()), f"web-{port}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)


def ports() -> list[int]:
    """Return the ports of the servers that run, the smallest first."""
    directory = os.path.dirname(token.path())
    names = os.listdir(directory) if os.path.isdir(directory) else []
    found = [(int(match[1]), name) for name in names if (match := _NAME.fullmatch(name))]
    return sorted(port for port, name in found if _is_held(os.path.join(directory, name)))


def _is_held(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # it has just ended
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
