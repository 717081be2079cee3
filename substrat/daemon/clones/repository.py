"""The user's repository: facts about it, and the refs below `refs/substrat/`, which alone the daemon writes there.

Git runs in a sandbox for each of these, so nothing that the repository's configuration names is executed on the host.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import attrs
import trio

from sandbox.spec import Bind
from substrat.core.workspaces import clone_lacks
from substrat.core.workspaces.clones import PREFIX
from substrat.daemon.clones.git_sandbox import GitFailed, said
from substrat.daemon.sandboxes import clone_mounts
from substrat.daemon.sandboxes.inside import inside
from substrat.daemon.sandboxes.oneshot import TookTooLong
from substrat.daemon.workspaces import git_places
from substrat.errors import SandboxFailed, SubstratError
from substrat.inside import packtaker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sandbox.spec import Mount
    from substrat.core.workspaces.clone_lacks import Lacking
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.clones.git_sandbox import GitSandbox
    from substrat.daemon.workspaces.git_places import Borrowing, GitPlaces

NOTHING = "nothing"
"""The old value of a ref that must not exist yet."""
_PACK = "/run/substrat/pack"
_LACKING_SECONDS = 5.0
"""A person waits for the answer to a spawn; git looks at a hundred thousand files in one."""
_IMPORT_SECONDS = 300.0
"""A pack of `clone.bundle_bytes` is indexed and checked in some minutes; the end of a turn waits for it."""
_CLEANING_SECONDS = 10.0
"""A quarantine has at most some hundred files; where its removal fails the daemon's next start does it."""

# Prints a fact a line; $1 is a commit-ish, $2 a branch, $3 the prefix of an agent's refs. `-` stands for nothing.
_FACTS = """\
commit() { git rev-parse --quiet --verify --end-of-options "$1^{commit}" || echo -; }
git symbolic-ref --quiet HEAD || echo -
commit HEAD
git config --get-regexp '^(extensions[.]partialclone|remote[.].*[.]promisor)$' | head -n 1 | grep . || echo -
commit "$1"
commit "refs/heads/$2"
commit "$3/head"
commit "$3/wip"
git for-each-ref --count=1 --contains="$3/head" refs/heads refs/remotes 2>/dev/null | grep . || echo -
git diff-tree --quiet "$3/head" "$3/wip" 2>/dev/null && echo same || echo -
git rev-list --max-count=1 "$3/asides^@" --not "$3/wip" --branches --remotes 2>/dev/null | grep . || echo -
from=$(git rev-parse --quiet --verify "refs/heads/$2^{commit}" || commit "$1")
git ls-tree -r --name-only "$from" 2>/dev/null | grep -m 1 -E '(^|/)[.]git(modules|attributes)$' || echo -
git for-each-ref --count=1 --contains="$from" refs/heads refs/remotes refs/tags 2>/dev/null | grep . || echo -
"""


class RepositoryFacts(NamedTuple):
    """Facts about a repository that decide whether and how it is cloned.

    Args:
        places: where it has its parts.
        branch: the branch that is checked out; None: HEAD is detached.
        head: HEAD's commit; None: it has none yet.
        promisor: the setting that says that objects of it are only at a remote, such as `remote.origin.promisor true`;
            None: all are there.
        base: the commit that was asked for; None: there is none of that name.
        tip: the tip of the branch that was asked for; None: there is no such branch.
        has_unlanded: whether these hold commits or files that are nowhere else.
        may_lack: whether there may be submodules or files of git-lfs where a clone begins.
        is_strange: whether a clone begins at a commit that no branch, remote branch or tag has.
    """

    places: GitPlaces
    branch: str | None
    head: str | None
    promisor: str | None
    base: str | None
    tip: str | None
    has_unlanded: bool
    may_lack: bool
    is_strange: bool


# Succeeds if a branch, $1, has commits with the same changes as a head, $2, since $3, where the two parted, or if a merge
# of the two adds nothing to it. Of a merge among the head's commits nobody can tell unless its files are what git makes of
# its parents. Objects that are made go nowhere. `--verbatim` (git 2.39): the other patch ids are the same for changes of
# white space alone.
_BY_CONTENT = """\
base=$3
export GIT_ALTERNATE_OBJECT_DIRECTORIES=$(git rev-parse --git-path objects | sed 's/["\\\\]/\\\\&/g; s/.*/"&"/')
export GIT_OBJECT_DIRECTORY=/tmp/objects
mkdir -p /tmp/objects
merged() { git merge-tree --write-tree --no-messages "$1" "$2" 2>/dev/null; }
[ "$(merged "$1" "$2")" = "$(git rev-parse "$1^{tree}")" ] && exit
for end in "$1" "$2"; do [ "$(git rev-list --count --max-count=2001 "$base..$end")" -le 2000 ] || exit; done
for merge in $(git rev-list --merges "$base..$2")
do [ "$(merged "$merge^1" "$merge^2")" = "$(git rev-parse "$merge^{tree}")" ] || exit
done
ids() {
    git rev-list --no-merges "$base..$1" |
        git diff-tree --stdin -p --binary --full-index --no-ext-diff --no-textconv --ignore-submodules=none |
        git patch-id --verbatim | cut -d ' ' -f 1 | LC_ALL=C sort
}
ids "$2" >/tmp/theirs && [ -s /tmp/theirs ] && ids "$1" >/tmp/ours && [ -z "$(LC_ALL=C comm -23 /tmp/theirs /tmp/ours)" ]
"""
# `by_content BRANCH HEAD [PARTED]` succeeds if a branch has all changes of a head, by whichever commits, such as those of a
# squash or a cherry-pick: first, each file that the head changes has changed in the branch too.
HAS_CONTENT = f"""\
paths() {{ git diff-tree -r -z --name-only --no-renames --ignore-submodules=none "$1" "$2"; }}
by_content() {{
    parted=${{3:-$(git merge-base "$1" "$2")}} && [ "$parted" != "$1" ] || return
    paths "$parted" "$2" >/tmp/theirs && paths "$parted" "$1" >/tmp/ours || return
    LC_ALL=C comm -z -23 /tmp/theirs /tmp/ours >/tmp/lacked && [ ! -s /tmp/lacked ] || return  # git sorts by bytes
    timeout 15 /bin/sh -c {shlex.quote(_BY_CONTENT)} sh "$1" "$2" "$parted" 2>/dev/null
}}
"""
"""A shell's function; where the search takes too long the branch doesn't count as one that has the changes."""
IN_BRANCH = f"""\
{HAS_CONTENT}commit() {{ git rev-parse --quiet --verify --end-of-options "$1^{{commit}}" || echo -; }}
in_branch() {{ out=$(git rev-list -n 1 "$1" --not --branches 2>/dev/null) && [ -z "$out" ]; }}
"""
"""Functions of a shell: the commit of a name, `-` where there is none, and whether a branch of the user's has a commit."""
# `state WIP BASE TARGET LANDED_HEAD LANDED_COMMIT` prints a fact a line, of a clone's ref, its base, its branch, and a head
# that landed as another commit; `-` stands for nothing.
_STATE = f"""\
{IN_BRANCH}state() {{
    wip=$(commit "$1"); head=$(commit "$1^1"); base=$(commit "$2"); target=$(commit "$3")
    echo "$wip"; echo "$head"
    [ "$head" = - ] && {{ printf '%s\\n' - - landed; return; }}
    [ "$base" = - ] && base=
    # Commits of the user's branches don't count, which a rebase has put below the agent's; a broken branch hides none.
    git rev-list --count "$head" --not $base --branches 2>/dev/null || git rev-list --count "$head" --not $base
    if [ "$target" = - ]; then echo -; else git rev-list --count "$head..$target"; fi
    if [ "$head" = "$base" ] || in_branch "$head" || {{ [ "$head" = "$4" ] && in_branch "$5"; }} ||
        {{ [ "$target" != - ] && by_content "$target" "$head"; }}
    then echo landed; else echo -; fi
}}
"""
_STATES = f"""\
{_STATE}while [ $# -ge 5 ]; do state "$1" "$2" "$3" "$4" "$5"; echo .; shift 5; done
"""
_CONTAINED = f"""{HAS_CONTENT}while [ $# -ge 2 ]; do
    {{ git merge-base --is-ancestor "$1" "$2" || by_content "$2" "$1"; }} 2>/dev/null && echo yes || echo no; shift 2; done
"""
_LOOK_SECONDS = 300.0
"""Some hundred clones take some seconds; one whose history is searched for the same changes takes up to 15."""
# `change REFS` changes refs as `_encoded` writes them. git holds a ref's lock for an instant: one below `refs/substrat`
# that is there for three seconds was left by an import that ended with a killed daemon, and would hold up later changes.
_CHANGE = """\
try() { printf '%b' "$1" | git -c core.filesRefLockTimeout=3000 update-ref -z --stdin --no-deref; }
change() { try "$1" 2>/dev/null || {
    find "$GIT_DIR/refs/substrat" -name '*.lock' ! -newermt '2 seconds ago' -delete 2>/dev/null
    try "$1"
}; }
"""
# Runs the program that takes a pack in, $6 and the words after it, changes refs, and prints what `state` does, then the
# refs of turns. $4 is where these are, $5 the changes.
_IMPORT = f"""\
{_CHANGE}w=$1 b=$2 t=$3 turns=$4 refs=$5; shift 5
"$@" || exit
change "$refs" || exit
{_STATE}state "$w" "$b" "$t" "" ""
git for-each-ref '--format=%(refname)' "$turns" || :
"""


class CloneState(NamedTuple):
    """How a clone's kept work stands to its base and to the user's branches (`clones.Kept`)."""

    wip: str | None
    head: str | None
    ahead: int
    behind: int
    is_landed: bool


class Imported(NamedTuple):
    """How a clone's kept work stands after an import, and the refs of its turns, such as `refs/substrat/fix/turns/3`."""

    state: CloneState
    turns: tuple[str, ...]


class Room(NamedTuple):
    """How many bytes the objects of an import may unfold to, and how many must stay free; 0: any number."""

    most: int
    free: int


class TooMuch(SandboxFailed):
    """A pack unfolds to more than it may.

    Args:
        message: one sentence.
        is_slow: whether git took too much processor time instead.
    """

    def __init__(self, message: str, *, is_slow: bool) -> None:
        super().__init__(message)
        self.is_slow = is_slow


class RefMoved(GitFailed):
    """A ref has another value than the one it was to be changed from."""


@attrs.define(eq=False)
class Repositories:
    """Reads and writes users' repositories."""

    sandbox: GitSandbox
    _borrowing: Callable[[], Borrowing]

    @property
    def borrowing(self) -> Borrowing:
        """The objects that may be borrowed now."""
        return self._borrowing()

    async def places(self, workspace: str) -> GitPlaces:
        """Return where the repository of a workspace has its parts; raises `WorkspaceUnusable`."""
        return await self.sandbox.files.run(workspace, git_places.find, workspace, self.borrowing)

    async def lent(self, places: GitPlaces, empty: str) -> tuple[Mount, ...]:
        """Return the mounts that show what a repository lends its clones (`clone_mounts.prepare`)."""
        return await self.sandbox.files.run(places.top, clone_mounts.object_mounts, places.objects, empty)

    async def ask(self, common: str, *line: str, seconds: float = 60.0, fine: tuple[int, ...] = (0,)) -> bytes:
        """Run a program where git can only read a repository, and return what it prints.

        Raises:
            GitFailed: it ended with another exit status.
            SandboxFailed: it couldn't be started, took too long or printed too much.
        """
        done = await self.sandbox.run(line, await self.reading(common), seconds=seconds, variables={"GIT_DIR": common})
        if done.status not in fine:
            raise GitFailed(f"git can't read {common}: {said(done)}")
        return done.output

    async def script(self, common: str, text: str, *words: str, seconds: float = 60.0) -> bytes:
        """Do that with a shell's script and its arguments."""
        return await self.ask(common, *("/bin/sh", "-c", text, "sh", *words), seconds=seconds)

    async def refs(self, common: str, prefix: str) -> dict[str, str]:
        """Return the refs of a repository that begin so, with their commits; raises `GitFailed`."""
        listed = await self.ask(common, "git", "for-each-ref", "--format=%(refname) %(objectname)", prefix)
        pairs = (line.rpartition(" ") for line in os.fsdecode(listed).splitlines())
        return {ref: commit for ref, _, commit in pairs}

    async def inspect(self, workspace: str, *, base: str = "HEAD", branch: str = "", agent: str = "") -> RepositoryFacts:
        """Return the facts about a workspace's repository.

        Raises:
            WorkspaceUnusable: there is no repository that can be cloned.
            SandboxFailed: git couldn't be asked.
        """
        places = await self.places(workspace)
        refs = f"{PREFIX}{agent}" if agent else f"{PREFIX} "
        done = await self.sandbox.run(
            ("/bin/sh", "-c", _FACTS, "sh", base, branch, refs),
            await self.reading(places.common),
            variables={"GIT_DIR": places.own},
        )
        lines = [None if line == "-" else line for line in os.fsdecode(done.output).splitlines()]
        if len(lines) != 12:
            raise GitFailed(f"git can't read {places.common}: `git status` in {places.top} says why")
        head_ref, head, promisor, commit, tip, kept, wip, landed, same, asides, named, owner = lines
        return RepositoryFacts(
            places, (head_ref or "").removeprefix("refs/heads/") or None, head, promisor, commit,
            tip if branch else None,
            has_unlanded=(kept is not None and landed is None) or (wip is not None and same is None) or asides is not None,
            may_lack=named is not None, is_strange=owner is None,
        )  # fmt: skip

    async def lacking(self, places: GitPlaces, commit: str, files: tuple[str, ...]) -> Lacking | None:
        """Return the files that a clone at a commit lacks of a checkout; None: git can't say.

        Where the status of the checkout takes too long, only the size is known.

        Args:
            places: the checkout's.
            commit: the commit.
            files: the lists and set-ups, by any of which its clones get more.
        """
        try:
            done = await self.sandbox.run(
                ("/bin/sh", "-c", clone_lacks.SCRIPT, "sh", commit, *files),
                (Bind(places.top, places.top, held=True), *await self.reading(places.common)),
                seconds=_LACKING_SECONDS, variables={"GIT_DIR": places.own, "GIT_WORK_TREE": places.top},
            )  # fmt: skip
        except TookTooLong as late:
            return clone_lacks.parse_begun(late.output)
        except SandboxFailed:
            return None
        return clone_lacks.parse(done.output) if done.status == 0 else None

    async def reading(self, common: str) -> tuple[Mount, ...]:
        """Return the mounts with which git can read a repository at its own path, its alternates' objects too."""
        objects = await self.sandbox.files.run(common, git_places.objects, common, self.borrowing)
        shown = [path for path in objects if not path.startswith(f"{common}/")]
        return (Bind(common, common, held=True), *(Bind(path, path, held=True) for path in shown))

    async def adding(self, common: str) -> tuple[Mount, ...]:
        """Return the mounts with which git can read a repository at its own path, and add objects to it."""
        objects = f"{common}/objects"
        return (*await self.reading(common), Bind(objects, objects, writable=True, held=True))

    async def writing(self, common: str) -> tuple[Mount, ...]:
        """Return the mounts with which git can read and write a repository at its own path."""
        first, *rest = await self.reading(common)
        assert isinstance(first, Bind)
        return (Bind(first.source, first.target, writable=True, held=True), *rest)

    async def update_refs(self, common: str, wanted: Mapping[str, tuple[str | None, str | None]]) -> None:
        """Change refs, all or none, also where the daemon is killed meanwhile.

        git holds locks for it that it leaves if it is killed: `packed-refs.lock` for a ref that is deleted, and a branch's.
        Any other git of the user's would be refused by them, so this git ends by itself.

        Args:
            common: the git directory.
            wanted: each ref's new and old value. New None: it is deleted; old None: it may have any value, `NOTHING`: it
                must not exist.

        Raises:
            RefMoved: one has another value.
            GitFailed: they can't be written.
        """
        if not wanted:
            return
        done = await self.sandbox.run(
            ("/bin/sh", "-c", f'{_CHANGE}change "$1"', "sh", _encoded(wanted)), await self.writing(common),
            variables={"GIT_DIR": common}, outlives=True,
        )  # fmt: skip
        if done.status:
            words = said(done)
            kind = RefMoved if "expected" in words or "already exists" in words else GitFailed
            mend = " Remove that file if no git is at work there" if words.endswith("File exists.") else ""
            raise kind(f"refs in {common} can't be changed: {words}{mend}")

    async def contained(self, common: str, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Say of pairs of commits whether the second has the first's changes, as an ancestor or not; raises `GitFailed`."""
        found = await self.script(common, _CONTAINED, *(word for pair in pairs for word in pair), seconds=_LOOK_SECONDS)
        return [word == b"yes" for word in found.split()]

    async def commit(self, common: str, name: str) -> str | None:
        """Return the commit that a name stands for, None if there is none."""
        wanted = ("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return (await self.ask(common, "git", *wanted, fine=(0, 1, 128))).decode().strip() or None

    async def import_pack(self, clone: Clone, pack: str, refs: Mapping[str, str], room: Room) -> Imported:
        """Take a pack into the repository, check every object of it and that nothing is missing, and set refs.

        This isn't left to `git fetch`, which before git 2.46 doesn't check the objects of a bundle.

        Args:
            clone: the clone that the pack is of.
            pack: the pack's path; its contents are an agent's.
            refs: the refs to be set, all or none, and their commits. All are below `refs/substrat`: a daemon that is killed
                meanwhile leaves their locks, and only there a lock is surely none of the user's git.
            room: how much it may unfold to, and what must stay free.

        Returns:
            How the clone's kept work stands then, and the refs of its turns.

        Raises:
            TooMuch: it unfolds to more, or takes too long for what it unfolds to.
            GitFailed: git refuses it.
            SandboxFailed: it took too long, or the disk is too full.
        """
        wanted = _encoded({ref: (commit, None) for ref, commit in refs.items()})
        words = (clone.ref("wip"), clone.base or "-", _branch(clone) or "-", clone.ref("turns"), wanted)
        arguments = (_PACK, _quarantine(clone), str(room.most), str(room.free), *sorted(set(refs.values())))
        line, shown = inside(packtaker, *arguments)
        try:
            done = await self.sandbox.run(
                ("/bin/sh", "-c", _IMPORT, "sh", *words, *line),
                (*await self.writing(clone.git_dir), *shown, Bind(pack, _PACK, held=True)),
                seconds=_IMPORT_SECONDS, file_bytes=room.most, variables={"GIT_DIR": clone.git_dir},
            )  # fmt: skip
        finally:  # the sandbox may have been killed
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANING_SECONDS), suppress(SubstratError):
                await self.clear_quarantine(clone)
        if done.status in {packtaker.TOO_LARGE, packtaker.TOO_SLOW}:
            raise TooMuch(said(done), is_slow=done.status == packtaker.TOO_SLOW)
        if done.status == packtaker.NO_ROOM:
            raise SandboxFailed(said(done))
        lines = os.fsdecode(done.output).splitlines()
        if done.status or len(lines) < 5:
            raise GitFailed(said(done))
        return Imported(_state_of(lines[:5]), tuple(lines[5:]))

    async def clear_quarantine(self, clone: Clone) -> None:
        """Remove what an import has left that was killed.

        Raises:
            SandboxFailed: it can't be removed.
            WorkspaceUnusable: the repository is gone.
        """
        quarantine = _quarantine(clone)
        if not await self.sandbox.files.run(clone.git_dir, os.path.lexists, quarantine):
            return
        if (done := await self.sandbox.run(("rm", "-rf", quarantine), await self.adding(clone.git_dir))).status:
            raise SandboxFailed(f"{quarantine} can't be removed: {said(done)}")

    async def state(self, clone: Clone) -> CloneState:
        """Return how a clone's kept work stands to its base and to the user's branches; raises `GitFailed`."""
        (state,) = await self.states(clone.git_dir, [clone])
        if state is None:
            raise GitFailed(f"git can't read {clone.ref('wip')} in {clone.git_dir}: `git fsck` there tells more")
        return state

    async def states(self, common: str, clones: Sequence[Clone]) -> list[CloneState | None]:
        """Return how the kept work of a repository's clones stands, in one look; None where git can't read it."""
        words: list[str | None] = []
        for one in clones:
            words += (one.ref("wip"), one.base, _branch(one), one.landings.landed_head, one.landings.landed_commit)
        said = await self.script(common, _STATES, *(word or "-" for word in words), seconds=_LOOK_SECONDS)
        found = said.decode("ascii", "replace").split(".\n")[:-1]
        return [_state_of(lines) if len(lines) == 5 else None for lines in map(str.splitlines, found)]


def _quarantine(clone: Clone) -> str:
    """Return the directory that objects of a clone's come into first; `git gc` knows such names, too (builtin/prune.c)."""
    return f"{clone.git_dir}/objects/tmp_objdir-substrat-{clone.agent}"


def _branch(clone: Clone) -> str | None:
    return f"refs/heads/{clone.target}" if clone.target is not None else None


def _state_of(lines: list[str]) -> CloneState:
    wip, head, ahead, behind, landed = (None if line == "-" else line for line in lines)
    return CloneState(wip, head, int(ahead or 0), int(behind or 0), is_landed=landed == "landed")


def _encoded(wanted: Mapping[str, tuple[str | None, str | None]]) -> str:
    """Return the changes of refs for `printf %b`, which makes instructions for `git update-ref -z --stdin` of them."""
    commands = "".join(_command(ref, new, old) for ref, (new, old) in wanted.items())
    return commands.replace("\\", "\\\\").replace("\0", "\\0000")


def _command(ref: str, new: str | None, old: str | None) -> str:
    """Return one instruction for `git update-ref -z --stdin`."""
    if new is None:
        return f"delete {ref}\0{old or ''}\0"
    return f"create {ref}\0{new}\0" if old == NOTHING else f"update {ref}\0{new}\0{old or ''}\0"
