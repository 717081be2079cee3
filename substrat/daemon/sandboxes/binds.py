"""Checks the further paths that a new agent is to share (`spawn --bind`, `--bind-ro`), and its ssh-agent's socket."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from substrat.core.agents.rights import SharedPath
from substrat.core.programs.table import PROGRAMS
from substrat.daemon.kernel import nofollow
from substrat.errors import InvalidParams, PolicyDenied
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.daemon.workspaces.user import User

_SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr",
    "/var/lib/docker", "/var/run",
)  # fmt: skip
"""Directories that every sandbox has of its own, or that control the whole machine: Docker's socket is in one."""
_OF_HOME = (
    ".aws", ".azure", ".cache", ".config", ".docker", ".gnupg", ".kube", ".local/share/keyrings", ".netrc",
    ".password-store", ".ssh", *(program.places.home for program in PROGRAMS.values()),
)  # fmt: skip
"""Directories of the home with logins, and those that an agent has of its own."""
_COMMON = ("/tmp", "/var/tmp")  # noqa: S108 - nothing is written to them
"""Directories of which only parts can be shared, like the home: every sandbox has its own."""


def check(
    writable: Iterable[str], read_only: Iterable[str], workspace: str, user: User, forbidden: Iterable[str]
) -> tuple[SharedPath, ...]:
    """Check the places a new agent is to share, and return them under their physical paths.

    Args:
        writable: absolute paths that it may write to.
        read_only: absolute paths that it may only read.
        workspace: its workspace's physical path.
        user: whose home it is.
        forbidden: the daemon's own directories.

    Raises:
        InvalidParams: a path isn't absolute, or there is nothing.
        PolicyDenied: no agent may have it.
    """
    closed = closed_paths(user, forbidden)
    found = [SharedPath(_physical(path), writable=False) for path in read_only]
    found += [SharedPath(_physical(path), writable=True) for path in writable]
    for bind in found:
        _refuse_closed(bind.path, closed, (*_COMMON, user.home))
        _refuse_overlap(bind, workspace)
    # A path that is asked for in both ways is writable.
    return tuple(sorted({bind.path: bind for bind in found}.values()))


def closed_paths(user: User, forbidden: Iterable[str]) -> list[str]:
    """Return the paths of which no agent may be given anything.

    Args:
        user: whose home it is.
        forbidden: the daemon's own directories.
    """
    closed = [*_SYSTEM, *forbidden, *(os.path.join(user.home, name) for name in _OF_HOME)]
    closed += [directory for _, directory in user.moved]
    return [*closed, *(os.path.realpath(path) for path in closed)]


def _physical(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(f"{path!r} can't be bound: give an absolute path")
    try:
        real = nofollow.physical(path)
    except OSError as problem:
        raise PolicyDenied(
            f"{path} can't be bound: a link in /proc, /sys or /dev leads into the system ({problem.strerror}); "
            f"name the directory itself"
        ) from None
    if not os.path.exists(real):
        raise InvalidParams(f"{path} can't be bound: there is no such file or directory; make it first")
    return real


def _refuse_closed(path: str, closed: Iterable[str], own: Iterable[str]) -> None:
    for other in closed:
        if is_within(path, other) or is_within(other, path):
            raise PolicyDenied(
                f"{path} overlaps {other}, which belongs to the system or the daemon, or holds your logins: "
                f"bind a directory outside it"
            )
    for other in own:
        if is_within(other, path):
            raise PolicyDenied(
                f"{path} can't be bound, because every sandbox has a {other} of its own: bind a directory in it"
            )


def _refuse_overlap(bind: SharedPath, workspace: str) -> None:
    if is_within(workspace, bind.path):
        raise PolicyDenied(
            f"{bind.path} can't be bound, because the workspace lies in it: bind a directory beside the workspace"
        )
    if bind.writable and is_within(bind.path, workspace):
        raise PolicyDenied(f"{bind.path} lies in the workspace, which is writable already: leave --bind out")


def check_ssh_agent(path: str, writable: Iterable[str], own: Iterable[str]) -> str:
    """Check that an ssh-agent's socket is one and return its physical path.

    Args:
        path: where it is.
        writable: the directories that the new agent and the others may write to.
        own: the daemon's own directories.

    Raises:
        InvalidParams: it is none, or lies where an agent could put something else in its place.
    """
    real = os.path.realpath(path)
    if not os.path.isabs(path) or not is_socket(real) or any(_is_below(real, root) for root in own):
        raise InvalidParams(f"{path!r} isn't an ssh-agent's socket: start one (`ssh-agent`), its SSH_AUTH_SOCK names it")
    for root in writable:
        if _is_below(real, root):
            raise InvalidParams(f"{path!r} lies in {root}, where agents may write: start the ssh-agent elsewhere")
    return real


def _is_below(real: str, root: str) -> bool:
    """Say whether a physical path is a directory or lies in it, wherever links lead to that."""
    return is_within(real, os.path.realpath(root))


def is_socket(path: str) -> bool:
    """Say whether a physical path is a socket, and is reached through no link."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode) and os.path.realpath(path) == path
    except (OSError, ValueError):
        return False
