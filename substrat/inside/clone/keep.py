"""Writes the work in an agent's clone into a pack.

The sandbox shows the clone and the directory `OUT`, nothing else of an agent's or the user's but the objects that the clone
borrows; `substrat.daemon.clones.keeping` runs it, where `QUICK` doesn't find that nothing has moved.

In `OUT` it leaves the pack, and for the next keep `index`, an index of its own in which every file of the clone is as it
was; `seed`, the clone's own index; `status` and `asides`, git's words about the clone; `kept`, the commits; `report`, its
answer. The agent's filters run in this sandbox and may write there too, so nothing of it is believed outside of such a
sandbox.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from typing import NamedTuple

from substrat.inside.clone import files, only_here
from substrat.inside.clone.asides import ASIDES, Asides, find_asides
from substrat.inside.clone.git import CLONE, OUT, TREE, Failed, Git, TooLarge, failure
from substrat.inside.clone.status import STATUS, changes, hidden, parsed, put_entries, uncover, update_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from substrat.inside.clone.status import Changes, Covered

HEAD_REF, WIP_REF, ASIDES_REF = "refs/substrat/head", "refs/substrat/wip", "refs/substrat/asides"
PACK = "pack"
NOTES = ("index", "seed", "status", "asides", "report", "kept")
"""The files in `OUT` that the next keep compares with."""
QUICK = f"""\
t={TREE}/.git o={OUT}
if {{ [ -d "$t" ] && [ ! -L "$t" ] && [ -f "$t/index" ] && [ ! -L "$t/index" ] &&
    read -r kept <"$o/kept" && [ "$kept" = "$1" ] && cmp -s "$t/index" "$o/seed" &&
    cd {TREE} && export GIT_DIR=$t GIT_WORK_TREE={TREE} &&
    GIT_INDEX_FILE=$o/index GIT_OPTIONAL_LOCKS=1 GIT_NO_REPLACE_OBJECTS=1 git status $2 >/tmp/status &&
    cmp -s /tmp/status "$o/status" && {{ {ASIDES}}} >/tmp/asides && cmp -s /tmp/asides "$o/asides"
}} 2>/dev/null
then cat "$o/report"; else unset GIT_DIR GIT_WORK_TREE; shift 2; exec "$@"; fi
"""
"""A shell's program that gives the last answer when nothing has moved; else it runs another program. Its arguments: the
last kept commits, the options of `git status`, and that program."""
_LARGEST_INDEX = 1 << 30
"""Bytes; git writes some 100 for each file."""


class Commits(NamedTuple):
    """The commits that are kept: HEAD's, one of the files that aren't committed, and one of the work that isn't HEAD's."""

    head: str | None
    wip: str | None
    asides: str | None


def keep(request: dict[str, Any], clone: Git = CLONE, out: str = OUT) -> dict[str, object]:
    """Commit a clone's state, and pack its commits unless they are the last ones, or were refused.

    Args:
        request: `last_head`, `last_wip` and `last_asides`, commits or null; `known`, names of commits that the user's
            repository has; `asides`, whether work that isn't HEAD's is kept too; `refused`, commits in threes that aren't
            packed again.
        clone: git for the clone.
        out: the directory for the pack and the notes.

    Returns:
        What `substrat.daemon.clones.keeping.Report` says; `OUT/pack` is there if anything is new.
    """
    last = Commits(request["last_head"], request["last_wip"], request["last_asides"])
    refused = [Commits(*commits) for commits in request["refused"]]
    git_dir = clone.variables["GIT_DIR"]
    if not os.path.isdir(git_dir) or os.path.islink(git_dir):
        raise Failed("its .git is no directory any more")
    for name in ("kept", "status", "asides"):
        with suppress(FileNotFoundError):
            os.unlink(f"{out}/{name}")
    clone = clone.given(GIT_NO_REPLACE_OBJECTS="1")
    agents, own = clone.given(GIT_INDEX_FILE=f"{out}/copy"), clone.given(GIT_INDEX_FILE=f"{out}/index")
    _copy_index(f"{git_dir}/index", out)
    uncovered = uncover(agents)
    found = changes(agents, uncovered)
    tree = _tree_of(agents, own, found, uncovered)
    head = found.head
    asides = find_asides(clone, head) if request["asides"] else Asides(b"")
    has_wip = head is not None or asides.commits or clone("ls-tree", tree)
    wip = _commit_tree(clone, tree, (head,), "Uncommitted files\n") if has_wip else None
    aside = _commit_tree(clone, tree, (wip, *asides.commits), asides.text) if asides.commits else None
    kept = Commits(head, wip, aside)
    ignored, nested = only_here.count_directories(clone, found)
    commits, dirty, left = only_here.count_submodules(clone, uncovered.repositories)
    report: dict[str, object] = {
        **kept._asdict(), "files": found.count, "hidden": hidden(found, uncovered), "branches": asides.branches,
        "stashes": asides.stashes, "ignored": ignored + left, "nested": nested + dirty, "submodules": commits,
        "lfs": only_here.count_lfs(git_dir), "unreadable": found.unreadable,
        "size": files.size(TREE),
        "packed": wip is not None and kept not in (last, *refused),
    }  # fmt: skip
    if report["packed"]:
        _pack(clone, out, kept, [name for name in (*last, *request["known"]) if name])
    _note(own, out, report, asides.said, uncovered)
    return report


def _copy_index(path: str, out: str) -> None:
    """Work with a copy of the agent's index, which the agent may be using at this moment."""
    for name in ("copy", "copy.lock", "index.lock", "seed"):
        with suppress(FileNotFoundError):
            os.unlink(f"{out}/{name}")
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_INDEX:
        raise Failed("its index is no file that git can read")
    files.copy_index(path, f"{out}/seed")
    files.copy_index(f"{out}/seed", f"{out}/copy")


# The tree of all files


def _tree_of(agents: Git, own: Git, found: Changes, uncovered: Covered) -> str:
    """Return the tree of the clone's files.

    The index of the last keep is brought up to date: in it git knows the files that were uncommitted then, and reads only
    those anew that have changed since. Where that index doesn't fit, or there is none, the agent's becomes its successor.
    """
    index, copy = own.variables["GIT_INDEX_FILE"], agents.variables["GIT_INDEX_FILE"]
    if os.path.exists(index):
        try:
            _bring_up(own, found, uncovered)
            _take_in(own, found)
            return own("write-tree").strip()
        except TooLarge:
            raise
        except Failed:  # it doesn't fit, or files change at this moment, or the agent has deleted objects
            os.unlink(index)
    if os.path.exists(copy):
        files.copy_index(copy, index)
    try:
        _take_in(own, found)
        return own("write-tree").strip()
    except TooLarge:
        raise
    except Failed:
        # Files that change or go at this moment, or an entry whose object isn't there.
        _read_anew(own, uncovered)
        return own("write-tree").strip()


def _read_anew(own: Git, uncovered: Covered) -> None:
    """Have git read all files whose entries it would trust for their times, and pass over those that it can't read."""
    vacant = set(uncovered.vacant)
    put_entries(own, [line for line in _lines(own) if _path(line) not in vacant])  # without the times
    own("add", "--all", "--ignore-errors", fine=(0, 1))


def _bring_up(own: Git, found: Changes, uncovered: Covered) -> None:
    """Give the index of the last keep those entries of the agent's that it lacks, and take out those that are gone."""
    known, changed = set(_lines(own)), {*found.files, *found.removed}
    new = [line for line in uncovered.entries - known if _path(line) not in changed]
    there = changed.union(map(_path, uncovered.entries))
    gone = [b"0" + line[6:] for line in known - uncovered.entries if _path(line) not in there]
    put_entries(own, (*gone, *new))  # a file goes before a directory comes in its place, and the other way round


def _lines(own: Git) -> list[bytes]:
    done = own.run("ls-files", "--stage", "-z")
    if done.returncode:
        raise failure("ls-files", done)
    return done.stdout.split(b"\0")[:-1]


def _path(line: bytes) -> bytes:
    return line.partition(b"\t")[2]


def _take_in(own: Git, found: Changes) -> None:
    """Bring the changed files into the index; git doesn't read those that it knows already."""
    update_index(own, ("--force-remove",), found.removed)
    update_index(own, ("--add", "--remove", "--replace"), found.files)


# Commits and the pack


def _commit_tree(clone: Git, tree: str, parents: Iterable[str | None], text: str) -> str:
    """Commit a tree so that the same files on the same parents always give the same commit."""
    found = [parent for parent in parents if parent is not None]
    date = clone("show", "--no-patch", "--format=%ct +0000", found[0]).strip() if found else "0 +0000"
    who = {"NAME": "Substrat", "EMAIL": "substrat@localhost", "DATE": date}
    git = clone.given(**{f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in who.items()})
    options = [word for parent in found for word in ("-p", parent)]
    return git("commit-tree", "--no-gpg-sign", *options, tree, given=text).strip()


def _pack(clone: Git, out: str, kept: Commits, names: list[str]) -> None:
    """Write the objects of the kept commits into a pack, without those that the user's repository has already."""
    git = _bare(clone, f"{out}/bare")
    # The user's branches, as of the turn's start: a rebase onto one brings nothing of its to him.
    users = clone("for-each-ref", "--format=%(objectname)", "refs/remotes/workspace").split()
    asked = "".join(f"{name}^{{commit}}\n" for name in (*names, *users))
    said = git("cat-file", "--batch-check=%(objectname) %(objecttype)", given=asked)
    known = {line.split()[0] for line in said.splitlines() if line.endswith(" commit")}
    wanted = {WIP_REF: kept.wip, HEAD_REF: kept.head, ASIDES_REF: kept.asides}
    refs = {ref: commit for ref, commit in wanted.items() if commit is not None}
    # In the clone they keep the objects from `git gc`; where the agent has locked them, the next keep reads all anew.
    clone.run("update-ref", "--no-deref", "--stdin", given="".join(f"update {r} {c}\n" for r, c in refs.items()).encode())
    revisions = [*refs.values(), *(f"^{commit}" for commit in sorted(known - {kept.wip}))]
    # `--shallow` leaves out the trees of all known commits, not only of the nearest ones (builtin/pack-objects.c).
    options = ("--revs", "--stdout", "--thin", "--shallow", "--delta-base-offset", "--quiet")
    with open(f"{out}/{PACK}", "wb") as pack:
        done = git.run("pack-objects", *options, given="\n".join((*revisions, "")).encode(), output=pack)
    if done.returncode:
        raise failure("pack-objects", done)


def _bare(clone: Git, place: str) -> Git:
    """Make a git directory that has the clone's objects, and neither its refs nor its configuration."""
    form, git_dir = clone("rev-parse", "--show-object-format").strip(), clone.variables["GIT_DIR"]
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(f"{place}/refs")
    files.write(f"{place}/HEAD", "ref: refs/heads/none\n")
    files.write(f"{place}/config", f"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = {form}\n")
    with suppress(OSError):
        shutil.copyfile(f"{git_dir}/shallow", f"{place}/shallow", follow_symlinks=False)
    return clone.given(GIT_DIR=place, GIT_OBJECT_DIRECTORY=f"{git_dir}/objects")


def _note(own: Git, out: str, report: dict[str, object], asides: bytes, uncovered: Covered) -> None:
    """Leave for the next keep what it can compare with; where anything has changed meanwhile there is nothing to leave."""
    if not os.path.exists(own.variables["GIT_INDEX_FILE"]):
        return
    update_index(own, ("--force-remove",), uncovered.vacant)  # else git wouldn't see what comes there
    done = own.given(GIT_OPTIONAL_LOCKS="1").run("status", *STATUS)
    again = parsed(done.stdout)
    if done.returncode or again.changed or again.removed or report["unreadable"]:
        return
    for name, data in (
        ("status", done.stdout),
        ("asides", asides),
        ("report", json.dumps({**report, "packed": False}).encode()),
        ("kept", f"{report['head']} {report['wip']} {report['asides']}\n".encode()),
    ):
        with open(f"{out}/{name}", "wb") as file:
            file.write(data)
