"""What an agent has changed in a clone, as git tells it who has been told to look at everything; paths are bytes."""

from __future__ import annotations

import os
import re
import stat

from substrat.inside.clone.git import Git, failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

STATUS = (
    "--porcelain=v2", "--branch", "-z", "--no-renames", "--ignored=matching", "--untracked-files=all",
    "--ignore-submodules=none",
)  # fmt: skip
ENTRIES = ("ls-files", "--stage", "-v", "-z")
"""Prints `H 100644 1f… 0\tname` for each entry of the index (git-ls-files(1))."""
_UNUSUAL = re.compile(rb"(?:\A|\0)((?!H 1[02])[^\0]+)")
"""The entries that are gitlinks, or have another letter than `H`: a mark, or `M` in a conflict."""


class Changes:
    """The state of the clone as `git status` tells it.

    `changed` and `removed` differ from the index, `count` counts all that differ from HEAD. Of the changed paths git can
    read `files`, and can't read as many as `unreadable` says.
    """

    def __init__(self) -> None:
        self.head: str | None = None
        self.changed: list[bytes] = []
        self.removed: list[bytes] = []
        self.count = 0
        self.ignored: list[bytes] = []
        self.nested: list[bytes] = []
        self.files: list[bytes] = []
        self.unreadable = 0


class Covered:
    """The entries of an index in whose places `git status` looks at nothing; paths are bytes.

    `marked` have a mark (`git update-index --skip-worktree`, `--assume-unchanged`), and something is there. `filled` are
    gitlinks with files but no repository in their directories, as where a submodule wasn't cloned, each with its line of
    `git ls-files --stage`. `vacant` are of either kind, and nothing is there. `repositories` are the other gitlinks.
    `entries` are the lines of all that stays in the index.
    """

    def __init__(self) -> None:
        self.entries: set[bytes] = set()
        self.marked: list[bytes] = []
        self.filled: dict[bytes, bytes] = {}
        self.vacant: list[bytes] = []
        self.repositories: list[bytes] = []


def uncover(git: Git) -> Covered:
    """Have git look at all files: the copy of the index loses its marks, and the gitlinks that are filled.

    So the files in such a gitlink's directory count as untracked, and are kept instead of the gitlink.
    """
    done = git.run(*ENTRIES)
    if done.returncode:  # git can't read it: then it is as it was at HEAD
        os.unlink(git.variables["GIT_INDEX_FILE"])
        git.run("read-tree", "HEAD")
        done = git.run(*ENTRIES)
    found = covered(git, done.stdout)
    # Each option makes git pass over the other one.
    update_index(git, ("--no-skip-worktree",), found.marked)
    update_index(git, ("--no-assume-unchanged",), found.marked)
    update_index(git, ("--force-remove",), found.filled)
    found.entries = {entry[2:] for entry in done.stdout.split(b"\0")[:-1]}.difference(found.filled.values())
    return found


def covered(git: Git, entries: bytes) -> Covered:
    """Sort the entries of a repository's index, as `git ls-files` prints them."""
    found = Covered()
    for match in _UNUSUAL.finditer(entries):
        line, _, path = match[1][2:].partition(b"\t")
        is_gitlink = line.startswith(b"160000 ")
        at = git.at(path)
        if is_gitlink and os.path.isdir(at) and not os.path.islink(at):
            if os.path.lexists(at + b"/.git") and not inside(at).run("rev-parse", "--git-dir").returncode:
                found.repositories.append(path)
            elif _holds_files(at):
                found.filled[path] = match[1][2:]
            else:
                found.vacant.append(path)
        elif is_gitlink or not match[1].startswith(b"M"):
            (found.marked if os.path.lexists(at) else found.vacant).append(path)
    return found


def _holds_files(path: bytes) -> bool:
    try:
        return any(name != b".git" for name in os.listdir(path))
    except OSError:
        return True  # git says then that it can't be read


def inside(directory: bytes) -> Git:
    """Return git for a repository inside the clone; git looks for none around it."""
    return Git({"GIT_CEILING_DIRECTORIES": os.path.dirname(os.fsdecode(directory))}, os.fsdecode(directory))


def update_index(git: Git, options: tuple[str, ...], paths: Iterable[bytes]) -> None:
    """Have `git update-index` do something with paths."""
    if given := b"".join(path + b"\0" for path in paths):
        git("update-index", *options, "-z", "--stdin", given=os.fsdecode(given))


def changes(git: Git, uncovered: Covered) -> Changes:
    """Ask git for the clone's state."""
    done = git.run("status", *STATUS)
    if done.returncode:
        raise failure("status", done)
    found = parsed(done.stdout, uncovered.filled)
    _put_back(git, uncovered, found)
    _sort(git, found)
    found.unreadable += done.stderr.count(b"could not open directory")
    return found


def hidden(changes: Changes, uncovered: Covered) -> int:
    """Count the changed files that the agent's own `git status` doesn't show: below gitlinks, and marked ones."""
    marked, filled = set(uncovered.marked), tuple(path + b"/" for path in uncovered.filled)
    return sum(path in marked or path.startswith(filled) for path in (*changes.changed, *changes.removed))


def _put_back(git: Git, uncovered: Covered, changes: Changes) -> None:
    """Leave those gitlinks in the commit of which no file is kept, because all are ignored."""
    above = {path[:at] for path in changes.changed for at, letter in enumerate(path) if letter == ord("/")}
    if left := {path: line for path, line in uncovered.filled.items() if path not in above}:
        put_entries(git, left.values())
        uncovered.entries.update(left.values())
        uncovered.vacant += left


def put_entries(git: Git, lines: Iterable[bytes]) -> None:
    """Put entries into the index, each as `git ls-files --stage` prints it; those of mode 0 go."""
    git("update-index", "-z", "--index-info", given=os.fsdecode(b"".join(line + b"\0" for line in lines)))


def parsed(text: bytes, taken_out: Collection[bytes] = ()) -> Changes:
    """Read `git status --porcelain=v2 -z` (git-status(1)), for example `1 .M N... 100644 100644 100644 1f… 1f… a.txt`.

    Args:
        text: git's words.
        taken_out: entries that `uncover` has taken out of the index, which are no change of the agent's.
    """
    found = Changes()
    for entry in text.split(b"\0"):
        kind, _, rest = entry.partition(b" ")
        if kind == b"!":
            found.ignored.append(rest)
        elif kind == b"?":
            found.count += 1
            (found.nested if rest.endswith(b"/") else found.changed).append(rest)
        elif kind in {b"1", b"u"}:
            state, *_, path = rest.split(b" ", 9 if kind == b"u" else 7)
            found.count += path not in taken_out
            if kind == b"u" or state[1:] != b".":
                (found.removed if kind == b"1" and state[1:] == b"D" else found.changed).append(path)
        elif kind == b"#" and rest.startswith(b"branch.oid ") and rest != b"branch.oid (initial)":
            found.head = rest.split()[1].decode("ascii", "replace")
    return found


def _sort(git: Git, changes: Changes) -> None:
    """Sort the changed paths: files that git can read, and those it can't; others are in no commit, so they are removed."""
    for path in changes.changed:
        at = git.at(path)
        try:
            mode = os.lstat(at).st_mode
        except OSError:
            changes.removed.append(path)
            continue
        is_link = stat.S_ISDIR(mode) and os.path.lexists(at + b"/.git")
        if is_link or stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and os.access(at, os.R_OK)):
            changes.files.append(path)
        elif stat.S_ISREG(mode):
            changes.unreadable += 1
        else:
            changes.removed.append(path)
