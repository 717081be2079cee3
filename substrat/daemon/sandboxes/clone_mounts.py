"""The mounts by which a sandbox shows an agent's private clone at the place of the user's checkout."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sandbox.spec import Bind, Mount
from substrat.core.programs.table import CURSOR
from substrat.core.workspaces.clones import MODULES_IN_SANDBOX, OBJECTS_IN_SANDBOX
from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces import git_places
from substrat.errors import WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.workspaces.git_places import Borrowing


class Lent(NamedTuple):
    """The objects that a repository lends its clones.

    Args:
        objects: the directories of objects.
        mounts: those that show them in a sandbox.
    """

    objects: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def prepare(clone: Clone, borrowing: Borrowing, empty: str) -> Lent:
    """Make the directories of a clone that are mounted over, and return the objects that it borrows.

    Args:
        clone: the clone.
        borrowing: the objects that may be borrowed.
        empty: an empty file, which covers the lists of alternates: the clone's own list names all of them.

    Raises:
        WorkspaceUnusable: the agent has put something else in a directory's place, or the clone or the repository is gone.
    """
    inside = os.path.relpath(clone.workspace, clone.repository).split("/")
    names = [name for name in inside if name != "."]
    try:
        with nofollow.opened(clone.tree) as tree:
            _make(tree, (*names, CURSOR.places.workspace))
    except FileNotFoundError:
        raise WorkspaceUnusable(
            f"the clone {clone.tree} is gone; the work that was kept is in {clone.ref('head')} of {clone.repository}"
        ) from None
    except OSError as problem:
        name = os.fspath(problem.filename or "a directory")
        raise WorkspaceUnusable(
            f"in its clone something else than a directory is at {name} ({problem.strerror}): `substratctl restore "
            f"{clone.name} --turn N` puts back how a turn left it"
        ) from None
    return find_lent(clone, borrowing, empty)


def find_lent(clone: Clone, borrowing: Borrowing, empty: str) -> Lent:
    """Return the objects that a clone borrows (`prepare`); raises `WorkspaceUnusable` if the repository is gone."""
    git_places.check_there(clone.git_dir, clone.name)
    objects = git_places.objects(clone.git_dir, borrowing)
    return Lent(objects, object_mounts(objects, empty))


def _make(tree: int, names: tuple[str, ...]) -> None:
    """Make directories in one another, each opened without following a link."""
    opened = os.dup(tree)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=opened)
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
            os.close(opened)
            opened = inner
    finally:
        os.close(opened)


def mounts(clone: Clone) -> Iterator[Mount]:
    """Give the mounts of a clone, without the borrowed objects.

    The directories between its top level and the workspace are mounted over themselves: a mount can't be renamed.
    """
    yield Bind(clone.tree, clone.repository, writable=True, held=True)
    inside = os.path.relpath(clone.workspace, clone.repository)
    path = ""
    for name in inside.split("/") if inside != "." else ():
        path += f"/{name}"
        yield Bind(clone.tree + path, clone.repository + path, writable=True, held=True)


def object_mounts(objects: tuple[str, ...], empty: str) -> tuple[Mount, ...]:
    """Return the mounts that show the objects which a clone borrows (`prepare`)."""
    return tuple(_object_mounts(objects, empty))


def _object_mounts(objects: tuple[str, ...], empty: str) -> Iterator[Mount]:
    for place, directory in shown_objects(objects):
        yield from _one_mount(directory, place, empty)
    if not objects:
        return
    common = os.path.dirname(objects[0])
    yield from _lfs_mount(common, OBJECTS_IN_SANDBOX)
    for path in git_places.modules(common).lent:
        yield from _one_mount(f"{common}/{path}/objects", f"{MODULES_IN_SANDBOX}/{path}/objects", empty)
        yield from _lfs_mount(f"{common}/{path}", f"{MODULES_IN_SANDBOX}/{path}")


def _one_mount(directory: str, place: str, empty: str) -> Iterator[Mount]:
    yield Bind(directory, place, held=True)
    listed = f"{directory}/info/alternates"
    if os.path.isfile(listed) and os.path.getsize(listed):
        yield Bind(empty, f"{place}/info/alternates")


def _lfs_mount(git_dir: str, beside: str) -> Iterator[Mount]:
    """Give git-lfs its objects beside the alternate: without these it would fetch again what the user has."""
    lfs = f"{git_dir}/lfs/objects"
    if os.path.isdir(lfs) and os.path.realpath(lfs) == lfs:
        yield Bind(lfs, f"{beside}/lfs/objects", held=True)


def shown_objects(objects: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return where a sandbox shows each directory of objects, with its path on the host."""
    return tuple((f"{OBJECTS_IN_SANDBOX}/{number}", path) for number, path in enumerate(objects))
