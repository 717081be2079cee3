"""Says which files of a checkout a new clone lacks: uncommitted and ignored ones, submodules, those of git-lfs. Pure.

For example: "is without 3 uncommitted files of yours (`--wip` takes them along)".
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# `sh COMMIT FILE…` prints the input of `parse`: whether one of the files that bring more is there, the bytes of all files,
# and the status of the checkout, each ended by a NUL.
SCRIPT = """\
commit=$1; shift
brings=
for file; do ! git cat-file -e "$commit:$file" 2>/dev/null || brings=yes; done
printf '%s\\0' "$brings"
git ls-tree -r --format='%(objectsize)' "$commit" | awk '{ sum += $1 } END { printf "%.0f", sum }'; printf '\\0'
git status --porcelain -z --no-renames --ignored --ignore-submodules=dirty
"""
_MOST_NAMED = 3
_SHARE = 10
"""A clone may take this part of the free disk: ten of them shall find room."""


class Lacking(NamedTuple):
    """The files of a checkout that its clone at a commit lacks.

    Args:
        brings: whether the commit has a list of files to copy, or a set-up, for its clones.
        size: bytes of the commit's files.
        uncommitted: files with changes that aren't committed, or that are new.
        ignored: files and directories that git ignores.
    """

    brings: bool
    size: int
    uncommitted: int
    ignored: tuple[str, ...]

    def notes(self, *, with_wip: bool) -> tuple[str, ...]:
        """Return sentences about the missing files; each follows the agent's name."""
        found = []
        if self.uncommitted and not with_wip:
            files, them = (
                ("1 uncommitted file", "it") if self.uncommitted == 1 else (f"{self.uncommitted} uncommitted files", "them")
            )
            found.append(f"is without {files} of yours (`--wip` takes {them} along)")
        if self.ignored and not self.brings:
            first = sorted(self.ignored, key=lambda path: path.count("/"))[:_MOST_NAMED]
            named = ", ".join("".join(letter if letter.isprintable() else "?" for letter in path) for path in first)
            more = f" and {len(self.ignored) - len(first)} more" if len(self.ignored) > len(first) else ""
            found.append(f"is without {named}{more}, which git ignores (`.worktreeinclude` or a set-up brings them)")
        return tuple(found)

    def is_too_large(self, free: int) -> bool:
        """Say whether a clone that is made by default would take too much of the free bytes of a disk."""
        return self.size > free // _SHARE


def parse(output: bytes) -> Lacking:
    """Read the output of `SCRIPT`; raises `ValueError` if it isn't whole."""
    brings, size, *entries = os.fsdecode(output).split("\0")
    listed = [(entry[:2], entry[3:].removesuffix("/")) for entry in entries if entry]
    ignored = tuple(path for state, path in listed if state == "!!")
    return Lacking(brings == "yes", int(size), len(listed) - len(ignored), ignored)


def parse_begun(output: bytes) -> Lacking | None:
    """Read a begun output, whose status took too long; None: the size wasn't there yet either."""
    facts = output.split(b"\0")[:-1][:2]
    return parse(b"\0".join((*facts, b""))) if len(facts) == 2 else None


def unfilled_text(repository: str, empty: int, pointers: int, links: Sequence[str]) -> str | None:
    """Count the empty submodules and the pointers of a new clone, as the end of a sentence about its agent; None: none."""
    lacks, remedies = [], []
    if empty:
        lacks.append("1 submodule is empty" if empty == 1 else f"{empty} submodules are empty")
        remedies.append(f"`git -C {shlex.quote(repository)} submodule update --init --recursive`")
    if pointers:
        lacks.append("1 LFS file is a pointer" if pointers == 1 else f"{pointers} LFS files are pointers")
        remedies.append(f"`git -C {shlex.quote(repository)} lfs pull`")
    if not lacks:
        return None
    followed = f" ({links[0]} is a link, which isn't followed)" if links else ""
    return f"begins in a clone in which {', '.join(lacks)}{followed}: {' and '.join(remedies)} help later clones"
