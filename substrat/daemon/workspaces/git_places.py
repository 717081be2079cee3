"""Finds where the repository of a workspace has its parts, without running git.

Nothing of it is believed that an agent could have planted to make another directory visible.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces import gitlink
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ALTERNATES = 64 * 1024
"""Bytes of a list of alternates: some hundred paths, of which git itself follows five levels (object-file.c)."""
MOST_OBJECTS = 32
"""Object directories of one repository: each is a mount, which costs some 0.1 ms."""
_MOST_MODULES = 64
"""Submodules' repositories that a clone borrows of: each is a mount, too."""
_MOST_NAMES = 2_000
"""Names that are looked at in search of them."""

_HEAD_BYTES = 256
_PACKED_BYTES = 64 << 20
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


class NoRepository(WorkspaceUnusable):
    """A directory is in no git repository."""


class Borrowing(NamedTuple):
    """The directories of objects that repositories may borrow of others.

    Args:
        closed: directories that no agent may see.
        known: what repositories in a directory borrowed before agents worked there, by the directory.
    """

    closed: tuple[str, ...]
    known: Mapping[str, frozenset[str]] = {}

    def allowed(self, objects: str) -> frozenset[str] | None:
        """Return the directories that a list of alternates may name; None: any, because no agent has worked there.

        Args:
            objects: the physical path of the directory of objects that the list is in.
        """
        found = [named for root, named in self.known.items() if is_within(objects, root) or is_within(root, objects)]
        return frozenset.intersection(*found) if found else None


class GitPlaces(NamedTuple):
    """Where a repository has its parts; all paths are physical.

    Args:
        top: the top level of the checkout.
        own: the git directory of this checkout; of a linked worktree `<common>/worktrees/<id>`.
        common: the git directory that all its worktrees share.
        objects: its own directory of objects, and those that its alternates name.
    """

    top: str
    own: str
    common: str
    objects: tuple[str, ...]


def find(workspace: str, borrowing: Borrowing) -> GitPlaces:
    """Return where the repository is whose checkout a workspace is, or lies in.

    Raises:
        WorkspaceUnusable: there is no repository, or one that can't be cloned; the sentence says why.
    """
    top = _top(workspace)
    git = f"{top}/.git"
    mode = os.lstat(git).st_mode
    if stat.S_ISLNK(mode):
        raise WorkspaceUnusable(f"{git} is a link, so a clone would believe it blindly: put the directory in its place")
    link = gitlink.link_of(top, borrowing.closed) if not stat.S_ISDIR(mode) else None
    own, common = (link.own, link.common) if link is not None else (git, git)
    if link is None and (not stat.S_ISDIR(mode) or gitlink.joined_by(git) is not None):
        raise WorkspaceUnusable(f"{git} is no git directory of its own: `git status` in {top} says more")
    if not gitlink.is_repository(own, common):
        raise WorkspaceUnusable(f"{git} is no git directory: `git status` in {top} says more")
    return GitPlaces(top, own, common, objects(common, borrowing))


def check_there(path: str, name: str) -> None:
    """Raise `WorkspaceUnusable` if a part of the repository isn't in its place that an agent has a clone of."""
    if not os.path.lexists(path):
        raise WorkspaceUnusable(
            f"{path} isn't there, and {name} has a clone of it: move it back, or `substratctl set {name} workspace=DIR` "
            f"goes on where it is now"
        )


def objects(common: str, borrowing: Borrowing) -> tuple[str, ...]:
    """Return the directories of objects of a git directory, its alternates' too; raises `WorkspaceUnusable`.

    Those beyond the first 32 are left out: each is a mount.
    """
    return tuple(islice(_objects(f"{common}/objects", borrowing), MOST_OBJECTS))


def borrows_too_much(common: str, borrowing: Borrowing) -> bool:
    """Say whether `objects` leaves some out because there are too many; raises `WorkspaceUnusable`."""
    return next(islice(_objects(f"{common}/objects", borrowing), MOST_OBJECTS, None), None) is not None


def left_out(common: str, borrowing: Borrowing) -> tuple[str, ...]:
    """Return the directories of objects that a repository names and may not borrow."""
    allowed = borrowing.allowed(f"{common}/objects")
    return tuple(path for path in alternates(f"{common}/objects") if allowed is not None and path not in allowed)


class Modules(NamedTuple):
    """The repositories of submodules in a git directory, by their paths in it, such as `modules/lib`.

    Args:
        lent: those whose objects are borrowed.
        links: links among them, which nothing follows.
    """

    lent: tuple[str, ...]
    links: tuple[str, ...]


def modules(common: str) -> Modules:
    """Return the submodules' repositories of a git directory and of its linked worktrees (gitsubmodules(7))."""
    lent: list[str] = []
    links: list[str] = []
    trees = _names(f"{common}/worktrees", _MOST_NAMES)
    left, waiting = _MOST_NAMES, ["modules", *(f"worktrees/{name}/modules" for name in trees)]
    while waiting and len(lent) < _MOST_MODULES:
        path = waiting.pop(0)
        if os.path.islink(f"{common}/{path}"):
            links.append(path)
        elif _lends(f"{common}/{path}"):
            lent.append(path)
            waiting.append(f"{path}/modules")
        else:  # of a name such as `libs/json` the first part is a directory of others
            names = _names(f"{common}/{path}", left)
            left -= len(names)
            waiting += [f"{path}/{name}" for name in names]
    return Modules(tuple(lent), tuple(links))


def _lends(git_dir: str) -> bool:
    return gitlink.is_repository(git_dir, git_dir) and _is_objects(f"{git_dir}/objects")


def _names(path: str, most: int) -> list[str]:
    """Return the names in a directory, the first that the kernel gives."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in islice(entries, most))
    except OSError:
        return []


def alternates(directory: str) -> list[str]:
    """Return the directories that the list of alternates in a directory of objects names."""
    said = nofollow.read_small(f"{directory}/info/alternates", _ALTERNATES) or b""
    lines = (line for line in os.fsdecode(said).splitlines() if line and not line.startswith("#"))
    return [_real(os.path.join(directory, line.strip('"'))) for line in lines]


def _top(workspace: str) -> str:
    path = workspace
    while True:
        if os.path.lexists(f"{path}/.git"):
            return path
        if gitlink.is_repository(path, path):
            raise WorkspaceUnusable(f"{path} is a bare repository, which has no files to work on: name a checkout of it")
        if path == "/":
            raise NoRepository(
                f"{workspace} is in no git repository, so nothing can be cloned: `git init` there, or leave out --clone"
            )
        path = os.path.dirname(path)


def _objects(first: str, borrowing: Borrowing) -> Iterator[str]:
    """Follow alternates from directory to directory (gitrepository-layout(5), "objects/info/alternates")."""
    seen: list[str] = []
    waiting = [first]
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        if not _is_objects(path) or (path != first and not _is_of_repository(path)):
            if path == first:
                if not os.path.lexists(path):
                    where = "if its repository was moved, `substratctl set NAME workspace=DIR` goes on where it is now"
                    raise WorkspaceUnusable(f"{path} isn't there: {where}")
                raise WorkspaceUnusable(_link_text(path) or f"{path} is no directory of git objects: `git fsck` says more")
            continue  # as git does, with a warning, where a directory isn't one
        for other in borrowing.closed:
            if is_within(path, other) or is_within(other, path):
                raise WorkspaceUnusable(f"{first} borrows objects of {path}, which would open {other} to the agent")
        seen.append(path)
        yield path
        allowed = borrowing.allowed(path)
        waiting += [found for found in alternates(path) if allowed is None or found in allowed]


def objects_elsewhere(workspace: str) -> str | None:
    """Say that git finds no objects in a workspace's sandbox, because a link leads out of it; None: it finds them.

    Args:
        workspace: its physical path.
    """
    own = gitlink.led_to(f"{workspace}/.git")
    if own is None:
        return None
    path = f"{gitlink.joined_by(own) or own}/objects"
    return None if is_within(_real(path), workspace) else _link_text(path)


def _link_text(path: str) -> str | None:
    """Say what to do about a link in the place of a directory of objects; None: there is none."""
    if not os.path.islink(path):
        return None
    target = _real(path)
    if not os.path.isdir(target):
        return f"{path} is a link to {target}, which isn't there"
    if _is_of_repository(target):  # which would lose them
        remedy = (
            f"`cd {shlex.quote(os.path.dirname(path))} && rm objects && mkdir -p objects/info && printf '%s\\n' "
            f"{shlex.quote(target)} >objects/info/alternates` borrows the objects instead, for clones"
        )
    else:
        remedy = f"`rm {shlex.quote(path)} && mv {shlex.quote(target)} {shlex.quote(path)}` puts the directory in its place"
    return f"{path} is a link to {target}, which sandboxes don't follow, so git finds no objects there: {remedy}"


def _is_objects(path: str) -> bool:
    """Say whether a directory is one that git keeps objects in: it has `pack` or `info` (gitrepository-layout(5))."""
    try:
        with nofollow.opened(path) as directory:
            is_directory = stat.S_ISDIR(os.fstat(directory).st_mode)
    except OSError:
        return False
    return is_directory and any(os.path.isdir(f"{path}/{name}") for name in ("pack", "info"))


def _is_of_repository(path: str) -> bool:
    """Say whether a directory is the `objects` of a repository: many directories have an `info` in them."""
    return os.path.basename(path) == "objects" and os.path.isfile(os.path.join(os.path.dirname(path), "HEAD"))


def _real(path: str) -> str:
    return gitlink.real(path) or path


def head(git: str, common: str) -> str | None:
    """Return the commit that HEAD is at, None where there is none or it can't be told."""
    said = _text(f"{git}/HEAD", _HEAD_BYTES)
    ref = said.removeprefix("ref: ")
    if ref != said:
        said = _text(f"{common}/{ref}", _HEAD_BYTES) if ".." not in ref.split("/") else ""
        if not said:
            packed = nofollow.read_small(f"{common}/packed-refs", _PACKED_BYTES) or b""
            line = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(os.fsencode(ref)) + rb"$", packed, re.MULTILINE)
            said = line.group(1).decode() if line is not None else ""
    return said if _COMMIT.fullmatch(said) else None


def _text(path: str, most: int) -> str:
    return os.fsdecode((nofollow.read_small(path, most) or b"").strip())
