"""Checks that a directory can be an agent's workspace, and tells which directory it is; it follows no link."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.programs.table import CURSOR, PROGRAMS
from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces.user import SYSTEM_PLACES
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from substrat.daemon.workspaces.user import User


def check_workspace(path: str, user: User, forbidden: tuple[str, ...]) -> str:
    """Check that a directory can be an agent's workspace.

    Args:
        path: as the client gave it.
        user: who has to be able to work in it.
        forbidden: directories that must not become visible, such as the daemon's own.

    Returns:
        Its physical path.

    Raises:
        WorkspaceUnusable: saying why not.
    """
    if "\0" in path:
        raise WorkspaceUnusable(f"the workspace {path!r} has a null character in its name: choose another")
    if not os.path.isabs(path):
        raise WorkspaceUnusable(f"the workspace {path!r} isn't an absolute path: give one")
    try:
        real = nofollow.physical(path)
        with nofollow.opened(real) as directory:
            found = os.fstat(directory)
            read_only = bool(os.fstatvfs(directory).f_flag & os.ST_RDONLY)
            cursor = _stat_beneath(directory, CURSOR.places.workspace) if stat.S_ISDIR(found.st_mode) else None
    except PermissionError as problem:
        raise WorkspaceUnusable(f"the workspace {path} can't be used: {problem.strerror}; choose another") from None
    except OSError as problem:
        raise WorkspaceUnusable(f"the workspace {path} can't be used: {problem.strerror}; make it first") from None
    if not stat.S_ISDIR(found.st_mode):
        raise WorkspaceUnusable(f"the workspace {path} isn't a directory: choose one")
    if real in SYSTEM_PLACES or real.startswith(("/proc/", "/sys/", "/dev/", "/usr/", "/etc/", "/boot/")):
        raise WorkspaceUnusable(f"the workspace {real} belongs to the system: choose a directory of your own")
    for other in (user.home, *closed_places(user, forbidden)):
        if is_within(other, real) or (other != user.home and is_within(real, other)):
            raise WorkspaceUnusable(
                f"the workspace {real} would open {other} to the agent: choose a directory that neither holds it "
                f"nor lies in it"
            )
    if read_only:
        raise WorkspaceUnusable(
            f"the workspace {real} is on a file system that is mounted read-only: mount it read-write, or choose another"
        )
    _check_owner(real, found, user)
    if cursor is not None and not stat.S_ISDIR(cursor.st_mode):
        path = os.path.join(real, CURSOR.places.workspace)
        raise WorkspaceUnusable(f"{path} is a link or a file, so it can't be protected: make it a directory")
    return real


def _stat_beneath(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, PermissionError):  # no agent can work where it may not enter: that is checked next
        return None


def closed_places(user: User, forbidden: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories no agent works in: writing there would decide about other agents, logins or the daemon."""
    own = [name for program in PROGRAMS.values() for name in (program.places.home, *program.places.settings)]
    of_home = (os.path.join(user.home, name) for name in (*own, ".ssh", ".gnupg"))
    return (*forbidden, *of_home, *(directory for _, directory in user.moved))


def _check_owner(path: str, found: os.stat_result, user: User) -> None:
    """Refuse a directory that the user couldn't write to without capabilities, which no agent has."""
    mode = found.st_mode
    groups = {user.gid, *os.getgroups()}
    bits = mode >> 6 if found.st_uid == user.uid else mode >> 3 if found.st_gid in groups else mode
    if bits & 0o7 == 0o7:
        return
    if found.st_uid == user.uid:
        raise WorkspaceUnusable(
            f"the workspace {path} has the mode {stat.S_IMODE(mode):04o}, which doesn't let {user.name} read, write and "
            f"enter it: `chmod u+rwx {shlex.quote(path)}`"
        )
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = "nobody on this machine"
    raise WorkspaceUnusable(
        f"the workspace {path} belongs to {owner} (uid {found.st_uid}) and {user.name} can't write there: "
        f"chown it to {user.name}, or choose another"
    )


def identify(path: str) -> DirectoryId | None:
    """Return which directory is at a path; None: there is none, or a link is on the way to it."""
    try:
        with nofollow.opened(path) as directory:
            found = os.fstat(directory)
    except OSError:
        return None
    return DirectoryId(found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def lasting_id(path: str) -> str | None:
    """Return which directory is at a path, for days: its file system's id and its inode, for example `9c3f51aa-131073`.

    The id stays when a disk is mounted again, which the number of a device needn't (statvfs(2), `f_fsid`).

    Args:
        path: an absolute path.

    Returns:
        None where there is no directory, or a link on the way to it.
    """
    try:
        with nofollow.opened(path) as directory:
            found, inode = os.fstatvfs(directory), os.fstat(directory).st_ino
    except OSError:
        return None
    return f"{found.f_fsid:x}-{inode}"


class DirectoryId(NamedTuple):
    """A directory's identity, independent of its name: its file system and inode."""

    device: int
    inode: int


def check_same(descriptor: int, expected: DirectoryId | None, path: str) -> None:
    """Check that an opened directory is still the one that was checked before.

    Raises:
        WorkspaceUnusable: another one has taken its place.
    """
    found = os.fstat(descriptor)
    if expected is not None and (found.st_dev, found.st_ino) != expected:
        raise WorkspaceUnusable(f"the workspace {path} was replaced by another directory meanwhile: start the turn again")
