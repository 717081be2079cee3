"""What a new clone lacks of the checkout that it is made of, and how that is said. Pure.

For example: "is without 3 uncommitted files of yours (`--wip` takes them along)".
"""

from __future__ import annotations

import os
from typing import NamedTuple

# `sh COMMIT FILE…` prints what `parse` reads: whether one of the files that bring more is there, the bytes of all files,
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
    """What a checkout has beside the commit that a clone begins at.

    Args:
        brings: whether the commit says what is copied or set up in its clones.
        size: bytes of the commit's files.
        uncommitted: files with changes that aren't committed, or that are new.
        ignored: files and directories that git ignores.
    """

    brings: bool
    size: int
    uncommitted: int
    ignored: tuple[str, ...]

    def notes(self, *, with_wip: bool) -> tuple[str, ...]:
        """Say what the clone lacks, a sentence each, which follow the agent's name."""
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
        """Say whether a clone that nobody has asked for would take too much of the free bytes of a disk."""
        return self.size > free // _SHARE


def parse(output: bytes) -> Lacking:
    """Read what `SCRIPT` has printed; raises `ValueError` if it isn't whole."""
    brings, size, *entries = os.fsdecode(output).split("\0")
    listed = [(entry[:2], entry[3:].removesuffix("/")) for entry in entries if entry]
    ignored = tuple(path for state, path in listed if state == "!!")
    return Lacking(brings == "yes", int(size), len(listed) - len(ignored), ignored)


def parse_begun(output: bytes) -> Lacking | None:
    """Read what there is of it where the checkout's status took too long; None: not even the size was there."""
    facts = output.split(b"\0")[:-1][:2]
    return parse(b"\0".join((*facts, b""))) if len(facts) == 2 else None
