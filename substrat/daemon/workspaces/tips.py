"""The tips of a repository's refs, read without git and noted at an agent's spawn."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from substrat.daemon.kernel import nofollow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox

log = structlog.get_logger("substrat.protection")

MOST = 4096
"""Tips that are noted: git looks a file up at each of them, which takes some 50 µs."""
_MOST_DIRECTORIES = 2048
"""Directories of refs that are looked through: a branch `a/b` has one of its own."""
_REF_BYTES = 4096
"""A ref names another one by a path, or has 40 digits (limits.h, PATH_MAX)."""
_PACKED_BYTES = 64 << 20
"""About a million refs."""
_ID = re.compile(rb"^\^?([0-9a-f]{40})(?![0-9a-f]| refs/substrat/)", re.MULTILINE)
"""An id in a ref, in `packed-refs`, and there of an annotated tag's commit (git-pack-refs(1)); sha1 only.

In `refs/substrat` is the work of agents with clones."""


def read(common: str) -> tuple[str, ...]:
    """Return the ids at which the refs of a repository are, without running git; branches come first.

    Args:
        common: the git directory that all its worktrees share; where none is there are no tips.
    """
    found: dict[str, None] = {}
    for name in _names(common):
        most = _PACKED_BYTES if name == "packed-refs" else _REF_BYTES
        said = nofollow.read_small(f"{common}/{name}", most) or b""
        found.update((one.group(1).decode(), None) for one in islice(_ID.finditer(said), MOST))
    return tuple(islice(found, MOST))


def _names(common: str) -> Iterator[str]:
    """Return the files that hold refs, branches first."""
    yield "HEAD"
    _, worktrees, _ = next(os.walk(f"{common}/worktrees"), ("", [], []))
    yield from (f"worktrees/{name}/HEAD" for name in worktrees[:MOST])
    loose = (f"{top}/{name}" for start in ("refs/heads", "refs") for top, name in _files(common, start))
    yield from islice(loose, MOST)
    yield "packed-refs"


def _files(common: str, start: str) -> Iterator[tuple[str, str]]:
    for top, inner, names in islice(os.walk(f"{common}/{start}"), _MOST_DIRECTORIES):
        if top == f"{common}/refs" and "substrat" in inner:
            inner.remove("substrat")
        yield from ((os.path.relpath(top, common), name) for name in names)


def objects_of(sandbox: ProtectedSandbox) -> list[str]:
    """Return the directories of objects of the repository that a sandbox's workspace is a checkout of."""
    places = (f"{sandbox.workspace}/.git", *sandbox.protected.git_dirs)
    return [objects for git in places if os.path.isdir(objects := f"{git}/objects")]


def note(path: str, tips: tuple[str, ...]) -> None:
    """Write tips to an agent's own file, which no agent sees; without it less is known as a person's."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{tip}\n" for tip in tips)
    except OSError as problem:
        log.warning("the tips of refs aren't noted", path=path, reason=problem.strerror)
