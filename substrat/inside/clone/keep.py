"""Writes the work in an agent's clone into a pack; run by the daemon in a sandbox without a network.

It sees the clone and the directory `OUT`, nothing else of an agent's or the user's but the objects that the clone borrows.
It runs with any Python that the system has, so it imports next to nothing; `substrat.daemon.clones.keeping` runs it,
where `QUICK` doesn't find that nothing has moved.

In `OUT` it leaves the pack, and for the next keep `index`, an index of its own in which every file of the clone is as it
was; `seed`, the clone's own index; `status` and `asides`, git's words about the clone; `kept`, the commits; `report`, its
answer.
The agent's filters run in this sandbox and may write there too, so nothing of it is believed outside of such a sandbox.

Usage: a JSON object with the members `last_head`, `last_wip` and `last_asides`, commits or null, `known`, names of commits
that the user's repository has, and `asides`, whether work that isn't HEAD's is kept too. Exit status 0: stdout has a JSON
object (`Report` there says its members), and `OUT/pack` is there if anything is new; 3: it can't be kept, and stderr says
why in one line; 4: there is more new work than a file may have.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
from contextlib import suppress
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import BinaryIO

TREE = "/run/substrat/tree"
OUT = "/run/substrat/out"
HEAD_REF, WIP_REF, ASIDES_REF = "refs/substrat/head", "refs/substrat/wip", "refs/substrat/asides"
PACK = "pack"
FAILED, TOO_LARGE = 3, 4

ASIDES = """\
for name in rebase-merge/autostash rebase-apply/autostash MERGE_AUTOSTASH
do
    [ -f "$GIT_DIR/$name" ] || continue
    git rev-parse -q --verify --end-of-options "$(head -c 64 "$GIT_DIR/$name")^{commit}" | sed 's/^/stash /'
done
git for-each-ref '--format=branch %(objectname) %(refname:strip=2)' refs/heads
[ ! -f "$GIT_DIR/logs/refs/stash" ] || git stash list '--format=stash %H'
[ ! -d "$GIT_DIR/worktrees" ] || git worktree list --porcelain
"""
"""A shell's program that prints where the work is that isn't HEAD's: a line for each branch (`branch 1f2e… topic`) and each
stash, one that a rebase or merge under way has made too, and some for each further worktree (git-worktree(1))."""
QUICK = f"""\
t={TREE}/.git o={OUT}
if {{ [ -d "$t" ] && [ ! -L "$t" ] && [ -f "$t/index" ] && [ ! -L "$t/index" ] &&
    read -r kept <"$o/kept" && [ "$kept" = "$1" ] && cmp -s "$t/index" "$o/seed" &&
    cd {TREE} && export GIT_DIR=$t GIT_WORK_TREE={TREE} &&
    GIT_INDEX_FILE=$o/index GIT_OPTIONAL_LOCKS=1 GIT_NO_REPLACE_OBJECTS=1 git status $2 >/tmp/status &&
    cmp -s /tmp/status "$o/status" && {{ {ASIDES}}} >/tmp/asides && cmp -s /tmp/asides "$o/asides"
}} 2>/dev/null
then cat "$o/report"; else shift 2; exec "$@"; fi
"""
"""A shell's program that gives the last answer when nothing has moved; else it runs another program. Its arguments: the
last kept commits, the options of `git status`, and that program."""
STATUS = (
    "--porcelain=v2", "--branch", "-z", "--no-renames", "--ignored=matching", "--untracked-files=all",
    "--ignore-submodules=none",
)  # fmt: skip
ENTRIES = ("ls-files", "--stage", "-v", "-z")
"""Prints `H 100644 1f… 0\tname` for each entry of the index (git-ls-files(1))."""
_UNUSUAL = re.compile(rb"(?:\A|\0)((?!H 1[02])[^\0]+)")
"""The entries that are gitlinks, or have another letter than `H`: a mark, or `M` in a conflict."""

_OLD, _NEW = f"{OUT}/index", f"{OUT}/index.new"
_GIT_DIR = "/tmp/git"  # noqa: S108 - the sandbox's own
_LARGEST_INDEX = 1 << 30
"""Bytes; git writes some 100 for each file."""
_WORTH_BYTES, _WORTH_FILES = 4 << 20, 500
"""git reads so much anew in some 20 ms; for more it pays to take over what the index of the last keep knows."""
_MOST_LOOKED_AT = 20_000
"""Entries of ignored and nested directories that are counted, in some 30 ms; further ones aren't."""
_MOST_SUBMODULES = 100
"""Each costs some starts of git."""
_INNER_STATUS = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching")
_MOST_NAMED, _MOST_ASIDES, _LONGEST_NAME = 100, 5000, 200
"""Branches that are named and counted, each by a start of git; and branches and stashes that one commit is made of."""


class Commits(NamedTuple):
    """The commits that are kept: HEAD's, one of the files that aren't committed, and one of the work that isn't HEAD's."""

    head: str | None
    wip: str | None
    asides: str | None


class Changes:
    """The state of the clone as `git status` tells it; paths are bytes.

    `changed` and `removed` differ from the index, `count` counts all that differ from HEAD.
    """

    def __init__(self) -> None:
        self.head: str | None = None
        self.changed: list[bytes] = []
        self.removed: list[bytes] = []
        self.count = 0
        self.ignored: list[bytes] = []
        self.nested: list[bytes] = []


class Failed(Exception):
    """It can't be kept; the message says why."""


class TooLarge(Failed):
    """A file would be larger than the limit."""


def main(line: Sequence[str]) -> int:
    """Keep the clone; returns the exit status."""
    request = json.loads(line[0])
    try:
        last = Commits(request["last_head"], request["last_wip"], request["last_asides"])
        report = keep(last, request["known"], takes_asides=request["asides"])
    except (Failed, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return TOO_LARGE if isinstance(problem, TooLarge) else FAILED
    json.dump(report, sys.stdout)
    return 0


def keep(last: Commits, known: Sequence[str], *, takes_asides: bool = True) -> dict[str, object]:
    """Commit the clone's state, and pack its commits unless they are the last ones.

    Args:
        last: the commits that were kept last.
        known: names of further commits that the user's repository has.
        takes_asides: whether the work that isn't HEAD's is kept too.
    """
    if not os.path.isdir(f"{TREE}/.git") or os.path.islink(f"{TREE}/.git"):
        raise Failed("its .git is no directory any more")
    for name in ("kept", "status", "asides"):
        with suppress(FileNotFoundError):
            os.unlink(f"{OUT}/{name}")
    _copy_index()
    uncovered = _uncover()
    changes, told = _changes(uncovered)
    files, unreadable = _readable(changes)
    tree = _tree_of(files, changes)
    head = changes.head
    asides = _asides(head) if takes_asides else Asides(b"")
    has_wip = head is not None or asides.commits or _git("ls-tree", tree)
    wip = _commit_tree(tree, (head,), "Uncommitted files\n") if has_wip else None
    kept = Commits(head, wip, _commit_tree(tree, (wip, *asides.commits), asides.text) if asides.commits else None)
    ignored, nested = _count(changes)
    commits, dirty, left = _submodules(uncovered.repositories)
    report: dict[str, object] = {
        **kept._asdict(), "files": changes.count, "hidden": _hidden(changes, uncovered), "branches": asides.branches,
        "stashes": asides.stashes, "ignored": ignored + left, "nested": nested + dirty, "submodules": commits,
        "lfs": _lfs(f"{TREE}/.git/lfs/objects"), "unreadable": len(unreadable) + told,
        "packed": wip is not None and kept != last,
    }  # fmt: skip
    if report["packed"]:
        _pack(kept, [name for name in (*last, *known) if name])
    _note(report, kept, asides.said, uncovered)
    return report


# git's view of the clone


def _copy_index() -> None:
    """Work with an index of our own: the agent may be using its index at this moment."""
    path = f"{TREE}/.git/index"
    for name in (_NEW, f"{_NEW}.lock", f"{_OLD}.lock", f"{OUT}/seed"):
        with suppress(FileNotFoundError):
            os.unlink(name)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_INDEX:
        raise Failed("its index is no file that git can read")
    shutil.copyfile(path, _NEW)
    shutil.copyfile(path, f"{OUT}/seed")


class Covered:
    """The entries of an index in whose places `git status` looks at nothing; paths are bytes.

    `marked` have a mark (`git update-index --skip-worktree`, `--assume-unchanged`), and something is there. `filled` are
    gitlinks with files but no repository in their directories, as where a submodule wasn't cloned, each with its line of
    `git ls-files --stage`. `vacant` are of either kind, and nothing is there. `repositories` are the other gitlinks.
    """

    def __init__(self) -> None:
        self.marked: list[bytes] = []
        self.filled: dict[bytes, bytes] = {}
        self.vacant: list[bytes] = []
        self.repositories: list[bytes] = []


def _uncover() -> Covered:
    """Have git look at all files: our copy of the index loses its marks, and the gitlinks that are filled.

    So the files in such a gitlink's directory count as untracked, and are kept instead of the gitlink.
    """
    found = _covered(b"", _run("git", *ENTRIES).stdout)
    # Each option makes git pass over the other one.
    _update_index("--no-skip-worktree", found.marked)
    _update_index("--no-assume-unchanged", found.marked)
    _update_index("--force-remove", found.filled)
    return found


def _covered(place: bytes, entries: bytes) -> Covered:
    """Sort the entries of the repository whose files are in a directory of the clone."""
    found = Covered()
    for match in _UNUSUAL.finditer(entries):
        line, _, path = match[1][2:].partition(b"\t")
        is_gitlink = line.startswith(b"160000 ")
        at = os.path.join(place, path)
        if is_gitlink and _is_directory(at):
            if os.path.lexists(_at(at) + b"/.git") and _inside(at, "rev-parse", "--git-dir"):
                found.repositories.append(path)
            elif _holds_files(at):
                found.filled[path] = match[1][2:]
            else:
                found.vacant.append(path)
        elif is_gitlink or not match[1].startswith(b"M"):
            (found.marked if os.path.lexists(_at(at)) else found.vacant).append(path)
    return found


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(_at(path)) and not os.path.islink(_at(path))


def _holds_files(path: bytes) -> bool:
    try:
        return any(name != b".git" for name in os.listdir(_at(path)))
    except OSError:
        return True  # git says then that it can't be read


def _update_index(option: str, paths: Iterable[bytes]) -> None:
    if given := b"".join(path + b"\0" for path in paths):
        _git("update-index", option, "-z", "--stdin", given=given)


def _changes(uncovered: Covered) -> tuple[Changes, int]:
    """Ask git for the clone's state; returns it, and how many directories git couldn't read."""
    done = _run("git", "status", *STATUS)
    if done.returncode:
        raise _failure("status", done)
    found = _parsed(done.stdout, uncovered.filled)
    _put_back(uncovered, found)
    return found, done.stderr.count(b"could not open directory")


def _hidden(changes: Changes, uncovered: Covered) -> int:
    """Count the changed files that the agent's own `git status` doesn't show: below gitlinks, and marked ones."""
    marked, filled = set(uncovered.marked), tuple(path + b"/" for path in uncovered.filled)
    return sum(path in marked or path.startswith(filled) for path in (*changes.changed, *changes.removed))


def _put_back(uncovered: Covered, changes: Changes) -> None:
    """Leave those gitlinks in the commit of which no file is kept, because all are ignored."""
    above = {path[:at] for path in changes.changed for at, letter in enumerate(path) if letter == ord("/")}
    if left := {path: line for path, line in uncovered.filled.items() if path not in above}:
        _git("update-index", "-z", "--index-info", given=b"".join(line + b"\0" for line in left.values()))
        uncovered.vacant += left


def _parsed(text: bytes, taken_out: Collection[bytes] = ()) -> Changes:
    """Read `git status --porcelain=v2 -z` (git-status(1)), for example `1 .M N... 100644 100644 100644 1f… 1f… a.txt`.

    Args:
        text: git's words.
        taken_out: entries that `_uncover` has taken out of the index, which are no change of the agent's.
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


def _readable(changes: Changes) -> tuple[list[bytes], list[bytes]]:
    """Sort the changed paths: files that git can read, and those it can't; others are in no commit, so they are removed."""
    files, unreadable = [], []
    for path in changes.changed:
        try:
            mode = os.lstat(_at(path)).st_mode
        except OSError:
            changes.removed.append(path)
            continue
        is_link = stat.S_ISDIR(mode) and os.path.lexists(_at(path) + b"/.git")
        if is_link or stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and os.access(_at(path), os.R_OK)):
            files.append(path)
        elif stat.S_ISREG(mode):
            unreadable.append(path)
        else:
            changes.removed.append(path)
    return files, unreadable


def _at(path: bytes) -> bytes:
    return os.fsencode(TREE) + b"/" + path


# The tree of all files


def _tree_of(files: list[bytes], changes: Changes) -> str:
    """Return the tree of the clone's files; with the last keep's index where that saves work and fits."""
    seed = f"{OUT}/seed"
    if files and _is_much(files) and os.path.exists(_OLD):
        try:
            _splice(set(files))
            return _write_tree(files, changes)
        except (Failed, OSError, ValueError, struct.error) as problem:
            if isinstance(problem, TooLarge):
                raise
            # It doesn't fit together, or the agent has deleted objects: all is read anew.
            with suppress(FileNotFoundError):
                os.unlink(_NEW)
            if os.path.exists(seed):
                shutil.copyfile(seed, _NEW)
            _put_back(_uncover(), changes)
    return _write_tree(files, changes)


def _write_tree(files: list[bytes], changes: Changes) -> str:
    _update_index("--force-remove", changes.removed)
    if files:
        options = ("--add", "--remove", "--replace", "-z", "--stdin")
        done = _run("git", "update-index", *options, given=b"\0".join(files) + b"\0")
        if done.returncode:
            failure = _failure("update-index", done)
            if isinstance(failure, TooLarge):
                raise failure
            # Files that change or go at this moment; this way the others come in all the same.
            _git("add", "--all", "--ignore-errors", fine=(0, 1))
    return _git("write-tree").strip()


def _is_much(files: list[bytes]) -> bool:
    if len(files) > _WORTH_FILES:
        return True
    size = 0
    for path in files:
        with suppress(OSError):
            size += os.lstat(_at(path)).st_size
    return size > _WORTH_BYTES


def _splice(changed: set[bytes]) -> None:
    """Take over the entries of changed paths from the last keep's index: those that are still right aren't read again."""
    version, entries = _entries(_NEW)
    if version not in {2, 3}:
        _git("update-index", "--index-version", "2", "--force-write-index")
        version, entries = _entries(_NEW)
    known_version, known = _entries(_OLD)
    taken = {name: entry for (name, stage), entry in known.items() if name in changed and not stage}
    merged = {key: entry for key, entry in entries.items() if key[0] not in taken}
    merged.update({(name, 0): entry for name, entry in taken.items()})
    body = b"".join(merged[key] for key in sorted(merged))
    data = struct.pack(">4sII", b"DIRC", max(version, known_version), len(merged)) + body
    with open(_NEW, "wb") as file:
        file.write(data + hashlib.new(_object_format(), data).digest())


def _entries(path: str) -> tuple[int, dict[tuple[bytes, int], bytes]]:
    """Read an index (gitformat-index(5)): its version, and each entry's bytes by name and stage; raises `ValueError`."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, number = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in {2, 3}:
        return version, {}
    fixed, at = 42 + hashlib.new(_object_format()).digest_size, 12
    found: dict[tuple[bytes, int], bytes] = {}
    for _ in range(number):
        flags = int.from_bytes(data[at + fixed - 2 : at + fixed], "big")
        start = at + fixed + (2 if flags & 0x4000 else 0)
        end = data.index(b"\0", start)
        # One to eight NULs fill an entry up to a multiple of eight bytes.
        after = at + (end - at + 8) // 8 * 8
        found[data[start:end], flags >> 12 & 3] = data[at:after]
        at = after
    if b"link" in data[at:] or b"sdir" in data[at:]:
        return 0, {}
    return version, found


def _object_format() -> str:
    """Return the name of the clone's hash, `sha1` or `sha256`."""
    return _git("rev-parse", "--show-object-format").strip()


# Commits and the pack


def _commit_tree(tree: str, parents: Iterable[str | None], text: str) -> str:
    """Commit a tree so that the same files on the same parents always give the same commit."""
    found = [parent for parent in parents if parent is not None]
    date = _git("show", "--no-patch", "--format=%ct +0000", found[0]).strip() if found else "0 +0000"
    who = {"NAME": "Substrat", "EMAIL": "substrat@localhost", "DATE": date}
    environ = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()}
    options = [word for parent in found for word in ("-p", parent)]
    return _git("commit-tree", "--no-gpg-sign", *options, tree, more=environ, given=text.encode()).strip()


class Asides(NamedTuple):
    """The work in the clone that isn't HEAD's.

    Args:
        said: the words of `ASIDES`.
        commits: the commits of branches, stashes and worktrees that neither HEAD nor a branch of the user's has.
        branches: each such branch, or worktree without one, with how many commits are its own.
        stashes: how many stashes there are.
        text: names them, a line each, in the order of their commits.
    """

    said: bytes
    commits: tuple[str, ...] = ()
    branches: tuple[tuple[str, int], ...] = ()
    stashes: int = 0
    text: str = ""


def _asides(head: str | None) -> Asides:
    """Find the work that isn't HEAD's, and name it."""
    done = _run("sh", "-c", ASIDES)
    if done.returncode:
        raise _failure("for-each-ref", done)
    named, stashes, worktree = dict[str, str](), list[str](), ""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "branch" and not rest.startswith("refs/"):
            commit, _, name = rest.partition(" ")
            named[name] = commit
        elif kind == "stash":
            stashes.append(rest)
        elif kind == "worktree":
            worktree = rest
        elif kind == "HEAD" and rest not in named.values():
            short = f"HEAD of {os.path.basename(worktree)}"
            named[short if short not in named else f"HEAD of {worktree}"] = rest
    others = {name: commit for name, commit in named.items() if commit != head and commit.strip("0")}
    counted = {name: _own_commits(commit, head) for name, commit in list(others.items())[:_MOST_NAMED]}
    branches = {name: commit for name, commit in others.items() if counted.get(name, 1)}
    commits = dict.fromkeys((*branches.values(), *stashes))
    if len(commits) > _MOST_ASIDES:
        raise Failed(f"it has {len(commits)} branches and stashes with work of their own, more than {_MOST_ASIDES}")
    lines = (*(f"branch {name}\n" for name in branches), *(f"stash {number}\n" for number in range(len(stashes))))
    listed = tuple((name[:_LONGEST_NAME], counted[name]) for name in branches if name in counted)
    text = f"Other branches and stashes\n\n{''.join(lines)}"
    return Asides(done.stdout, tuple(commits), listed, len(stashes), text)


def _own_commits(commit: str, head: str | None) -> int:
    """Count the commits that neither HEAD nor a branch of the user's has; 0 for a branch whose commit isn't there."""
    known = ("--not", *((head,) if head is not None else ()), "--remotes")
    return int(_git("rev-list", "--count", commit, *known, fine=(0, 128)) or 0)


def _pack(kept: Commits, names: list[str]) -> None:
    """Write the objects of the kept commits into a pack, without those that the user's repository has already.

    Args:
        kept: the commits.
        names: names of commits that the user's repository has.
    """
    own = _own_repository()
    asked = "".join(f"{name}^{{commit}}\n" for name in names).encode()
    said = _git("cat-file", "--batch-check=%(objectname) %(objecttype)", given=asked, more=own)
    known = {line.split()[0] for line in said.splitlines() if line.endswith(" commit")}
    wanted = {WIP_REF: kept.wip, HEAD_REF: kept.head, ASIDES_REF: kept.asides}
    refs = {ref: commit for ref, commit in wanted.items() if commit is not None}
    # In the clone they keep the objects from `git gc`; where the agent has locked them, the next keep reads all anew.
    _run("git", "update-ref", "--no-deref", "--stdin", given="".join(f"update {r} {c}\n" for r, c in refs.items()).encode())
    revisions = [*refs.values(), *(f"^{commit}" for commit in sorted(known - {kept.wip}))]
    # `--shallow` leaves out the trees of all known commits, not only of the nearest ones (builtin/pack-objects.c).
    options = ("--revs", "--stdout", "--thin", "--shallow", "--delta-base-offset", "--quiet")
    with open(f"{OUT}/{PACK}", "wb") as pack:
        done = _run("git", "pack-objects", *options, more=own, given="\n".join((*revisions, "")).encode(), output=pack)
    if done.returncode:
        raise _failure("pack-objects", done)


def _own_repository() -> dict[str, str]:
    """Make a git directory that has the clone's objects, and neither its refs nor its configuration."""
    os.makedirs(f"{_GIT_DIR}/refs")
    for name, text in (
        ("HEAD", "ref: refs/heads/none\n"),
        ("config", f"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = {_object_format()}\n"),
    ):
        with open(f"{_GIT_DIR}/{name}", "w", encoding="ascii") as file:
            file.write(text)
    with suppress(OSError):
        shutil.copyfile(f"{TREE}/.git/shallow", f"{_GIT_DIR}/shallow", follow_symlinks=False)
    return {"GIT_DIR": _GIT_DIR, "GIT_OBJECT_DIRECTORY": f"{TREE}/.git/objects"}


def _note(report: dict[str, object], kept: Commits, asides: bytes, uncovered: Covered) -> None:
    """Leave for the next keep what it can compare with; where anything has changed meanwhile there is nothing to leave."""
    if not os.path.exists(_NEW):
        return
    _update_index("--force-remove", uncovered.vacant)  # else git wouldn't see what comes there
    os.replace(_NEW, _OLD)
    done = _run("git", "status", *STATUS, more={"GIT_INDEX_FILE": _OLD, "GIT_OPTIONAL_LOCKS": "1"})
    again = _parsed(done.stdout)
    if done.returncode or again.changed or again.removed or report["unreadable"]:
        return
    for name, data in (
        ("status", done.stdout),
        ("asides", asides),
        ("report", json.dumps({**report, "packed": False}).encode()),
        ("kept", f"{' '.join(map(str, kept))}\n".encode()),
    ):
        with open(f"{OUT}/{name}", "wb") as file:
            file.write(data)


# What no pack takes along


def _count(changes: Changes) -> tuple[int, int]:
    """Count the ignored files, and the files of repositories inside the clone, which are in no commit of it."""
    left = [_MOST_LOOKED_AT]
    ignored = nested = 0
    for path in (*changes.ignored, *changes.nested):
        if not path.endswith(b"/"):
            ignored += 1
            continue
        plain, inside = _walk(_at(path), left)
        is_nested = path in changes.nested
        ignored += 0 if is_nested else plain
        nested += max(inside, 1) if is_nested else inside
    return ignored, nested


def _walk(directory: bytes, left: list[int]) -> tuple[int, int]:
    """Count files below a directory, no link followed: those in no repository, and those in one."""
    plain = nested = 0
    waiting = [(directory, False)]
    while waiting and left[0] > 0:
        path, within = waiting.pop()
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        left[0] -= len(entries) + 1
        within = within or any(entry.name == b".git" for entry in entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting += [(entry.path, within)] if entry.name != b".git" else []
            elif within:
                nested += entry.name != b".git"
            else:
                plain += 1
    return plain, nested


def _submodules(repositories: Sequence[bytes]) -> tuple[int, int, int]:
    """Count the commits of submodules that none of their remotes' branches has, their uncommitted files, and ignored ones.

    A repository in `.git/modules` whose submodule is gone, as after `git rm`, counts too.
    """
    commits = files = ignored = 0
    waiting, apart = list(repositories), _absorbed()
    for _ in range(_MOST_SUBMODULES):
        if not waiting:
            break
        path = waiting.pop()
        git_dir = _inside(path, "rev-parse", "--absolute-git-dir").rstrip(b"\n")
        apart.discard(os.path.relpath(git_dir or b".", _at(b"")))
        commits += _commits(path)
        for entry in filter(None, _inside(path, *_INNER_STATUS).split(b"\0")):
            if entry.startswith(b"!! "):
                ignored += max(sum(_walk(_at(path + b"/" + entry[3:]), [_MOST_LOOKED_AT])), 1)
            else:
                files += 1
        covered = _covered(path, _inside(path, *ENTRIES))
        # Whether a marked file has changed isn't asked: it is rare, and one too many only keeps the tree.
        files += len(covered.marked)
        files += sum(sum(_walk(_at(path + b"/" + inner), [_MOST_LOOKED_AT])) for inner in covered.filled)
        waiting += [path + b"/" + inner for inner in covered.repositories]
    # git ends where the directory is gone that `core.worktree` names.
    commits += sum(_commits(git_dir, "--git-dir=.", "--work-tree=/") for git_dir in apart)
    return commits + len(waiting), files, ignored  # of those that weren't looked at nobody knows


def _absorbed() -> set[bytes]:
    """Return the git directories in the clone's `.git/modules`, no link followed."""
    found: set[bytes] = set()
    for directory, names, files in os.walk(_at(b".git/modules")):
        if b"objects" in names and b"HEAD" in files and len(found) < _MOST_SUBMODULES:
            found.add(os.path.relpath(directory, _at(b"")))
            names[:] = [b"modules"] if b"modules" in names else []
    return found


def _commits(path: bytes, *options: str) -> int:
    """Count the commits of a repository in the clone that none of its remotes' branches has; 1 where git can't tell."""
    # A commit of the clone may name one that HEAD has left, as after `git submodule update`.
    refs = ("HEAD", "--branches", "--glob=refs/stas[h]", "--reflog", "--not", "--remotes", "--")
    said = _inside(path, *options, "rev-list", "--count", *refs)
    return int(said) if said.strip().isdigit() else 1


def _inside(path: bytes, *arguments: str) -> bytes:
    """Run git in a repository inside the clone; nothing when it fails, or when there is no repository."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_DIR")}
    environ["GIT_CEILING_DIRECTORIES"] = os.path.dirname(os.fsdecode(_at(path)))
    done = subprocess.run(
        ("git", *arguments), cwd=_at(path), env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return b"" if done.returncode else done.stdout


def _lfs(directory: str) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))


# git


def _git(
    *arguments: str, fine: tuple[int, ...] = (0,), more: dict[str, str] | None = None, given: bytes | None = None
) -> str:
    done = _run("git", *arguments, more=more, given=given)
    if done.returncode not in fine:
        raise _failure(arguments[0], done)
    return os.fsdecode(done.stdout)


def _failure(name: str, done: subprocess.CompletedProcess[bytes]) -> Failed:
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    kind = TooLarge if done.returncode == -signal.SIGXFSZ or "File too large" in "".join(lines) else Failed
    return kind(f"git {name}: {lines[-1] if lines else done.returncode}")


def _run(
    *command: str, more: dict[str, str] | None = None, given: bytes | None = None, output: BinaryIO | None = None
) -> subprocess.CompletedProcess[bytes]:
    environ = {
        **os.environ, "GIT_DIR": f"{TREE}/.git", "GIT_WORK_TREE": TREE, "GIT_INDEX_FILE": _NEW,
        "GIT_NO_REPLACE_OBJECTS": "1", **(more or {}),
    }  # fmt: skip
    return subprocess.run(
        command, cwd=TREE, env=environ, input=given or b"", stdout=output or subprocess.PIPE, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
