"""Git's part of landing before the branch moves: how the two stand to each other, and what a merge of them changes.

Each is one script in a sandbox without a network. What git on the host is configured to do is asked by `host_git`, which
moves the branch.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

import attrs

from sandbox.spec import Bind
from substrat.core.workspaces import diffs, drivers, landing_outcome, standing
from substrat.core.workspaces import landing as decisions
from substrat.core.workspaces.drivers import Selected
from substrat.core.workspaces.landing import LandingMode, Surroundings
from substrat.daemon.clones.git_sandbox import GitFailed, said
from substrat.daemon.clones.host_git import Move
from substrat.daemon.clones.repository import HAS_CONTENT, CloneState
from substrat.daemon.workspaces import git_programs
from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.core.workspaces.checks import Check
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.diffs import ChangedFile
    from substrat.core.workspaces.drivers import GitSettings, NamesGiven
    from substrat.core.workspaces.landing import Landing
    from substrat.core.workspaces.landing_outcome import Outcome
    from substrat.core.workspaces.standing import Standing
    from substrat.daemon.clones.host_git import HostGit
    from substrat.daemon.clones.persons_git import PersonsGit
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.workspaces.git_places import GitPlaces

_STANDING = f'{HAS_CONTENT}{standing.SCRIPT}standing "$@"'
# Prints the names at the top of some commits.
_NAMES = """\
for commit; do git ls-tree -z --name-only "$commit" || exit; done
"""
_CONFLICT = 4
"""The exit status for a conflict: bubblewrap itself ends with 1 where it can't start."""
# `WAY BEGIN START HEAD BASE MESSAGE` makes the commit that a branch at BEGIN moves to. It prints the sizes in bytes of four
# parts; the commit; how many commits the head of a clone that began at BASE is ahead of BEGIN, and how many behind it, both
# without that commit; and these parts: the files that change, the filter that attributes name for each of them, what
# `diffs.parse_tree` reads, and the authors and committers of the commits that the branch lacks, of the first thousand.
# After a conflict it prints the files in conflict and the merge driver that attributes name for each.
#
# It merges as in a checkout of BEGIN: git takes attributes from files in the directory that it is in, and not yet from a
# commit (git 2.41 has `--attr-source`). With a commit that has both as its parents, git takes START for the place where the
# two histories parted. What needs none of the rest runs beside it; files are counted without attributes.
_PREVIEW = f"""\
way=$1 begin=$2 start=$3 head=$4 base=$5 message=$6
tab=$(printf '\\t')
marked() {{
    grep -az -e '^120000 ' -e '[/'"$tab"']HEAD$' -e '[/'"$tab"'][.]gitattributes$' /tmp/tree >/tmp/marked
    [ $? -le 1 ]
}}
take_in_attributes() {{ grep -az -e '[/'"$tab"'][.]gitattributes$' /tmp/marked | git update-index -z --index-info; }}
[ "$begin" != - ] && lacked=^$begin || lacked=
git rev-list --max-count=1000 --no-commit-header --format='%an <%ae>%n%cn <%ce>' "$head" $lacked -- >/tmp/people &
jobs=$!
{{
    if [ "$way" = {standing.ONE} ]
    then
        [ "$base" = - ] && base=
        git rev-list --count "$head" --not $base "$begin" --branches 2>/dev/null ||
            git rev-list --count "$head" --not $base "$begin"
    else echo 0
    fi
    if [ "$way" = {standing.AS_IS} ]; then echo 0; else git rev-list --count "$head..$begin"; fi
}} >/tmp/counts &
jobs="$jobs $!"
if [ "$way" = {standing.AS_IS} ]
then
    tree=$head
    echo "$head" >/tmp/commit
else
    export GIT_WORK_TREE=/tmp/attributes
    mkdir /tmp/attributes && cd /tmp/attributes && git ls-tree -r -z "$begin" >/tmp/tree && marked || exit 3
    if [ -s /tmp/marked ]
    then take_in_attributes && git checkout-index -q -a || exit 3
    fi
    ours=$begin
    if [ "$start" != - ]
    then ours=$(git commit-tree --no-gpg-sign -p "$begin" -p "$start" -m 'where they parted' "$begin^{{tree}}") || exit 3
    fi
    git merge-tree --write-tree -z --name-only --no-messages "$ours" "$head" >/tmp/merged
    case $? in
    0) ;;
    1)  tail -z -n +2 /tmp/merged | git check-attr --cached -z --stdin merge || exit 3
        exit {_CONFLICT};;
    *) exit 3;;
    esac
    tree=$(tr -d '\\0' </tmp/merged)
    [ "$way" = {standing.MERGE} ] && second=$head || second=
    git commit-tree --no-gpg-sign -p "$begin" ${{second:+-p "$second"}} -m "$message" "$tree" >/tmp/commit &
    jobs="$jobs $!"
fi
export GIT_WORK_TREE=/ GIT_INDEX_FILE=/tmp/after
cd / || exit 3
[ "$begin" != - ] && since=$begin || since=$(git hash-object -t tree /dev/null)
GIT_INDEX_FILE=/tmp/none git diff --raw --numstat -z --no-abbrev --no-ext-diff --no-textconv --no-renames \\
    --ignore-submodules=none "$since" "$tree" -- >/tmp/files &
jobs="$jobs $!"
git ls-tree -r -z "$tree" >/tmp/tree && marked || exit 3
{{
    if [ -s /tmp/marked ]
    then
        take_in_attributes || exit 3
        grep -az -e '^120000 ' -e '[/'"$tab"']HEAD$' /tmp/marked
        printf '\\0'
        grep -az '^120000 ' /tmp/marked | cut -zc 13- | cut -zd "$tab" -f 1 | tr '\\0' '\\n' |
            git cat-file --batch='%(objectsize)'
    else printf '\\0'
    fi
}} >/tmp/around || exit 3
git diff-tree -r -z --name-only --no-renames --diff-filter=d "$since" "$tree" |
    git check-attr --cached -z --stdin filter >/tmp/filters || exit 3
for job in $jobs; do wait "$job" || exit 3; done
stat -c %s /tmp/files /tmp/filters /tmp/around /tmp/people
cat /tmp/commit /tmp/counts /tmp/files /tmp/filters /tmp/around /tmp/people
"""
# Prints the entries of some files of $1, an empty one, and how each begins, in hexadecimal digits.
_BEGIN = """\
commit=$1; shift
export GIT_LITERAL_PATHSPECS=1
git ls-tree -r -z "$commit" -- "$@" || exit
printf '\\0'
for id in $(git ls-tree -r --object-only "$commit" -- "$@")
do git cat-file blob "$id" 2>/dev/null | head -c 64 | od -An -v -tx1 | tr -d ' \\n'; echo
done
"""
_UNSIGNED = "commit.gpgsign is set, and the daemon can't sign: the landing's own commit is unsigned"
_PREVIEW_SECONDS = 300.0
"""git merges, and lists, some hundred thousand files in that time."""
_AT_ONCE = 500
"""Files whose beginnings are looked at in one sandbox: each takes some 5 ms."""
_INDEX = {"GIT_INDEX_FILE": "/tmp/index"}  # noqa: S108 - the sandbox's own


class Conflicting(Exception):
    """Two commits conflict; `files` are those in which they do, `why` says more, or nothing."""

    def __init__(self, files: tuple[str, ...], why: str = "") -> None:
        super().__init__(", ".join(files))
        self.files = files
        self.why = why


class Preview(NamedTuple):
    """The move of a branch to a commit, before it is made.

    Args:
        commit: the commit.
        files: the files that the move changes, without renames: each new name counts as added.
        selected: the filter that attributes name for each file that git on the host is to write.
        around: all besides the changed files that decides which of them must be looked at.
        people: the authors and committers of the commits that the branch lacks, of the first thousand of them.
        ahead: commits of the agent's head that neither its clone's base nor a branch of the user's has after the move.
        behind: commits of the branch that the head lacks after the move.
    """

    commit: str
    files: tuple[ChangedFile, ...]
    selected: Mapping[str, str]
    around: Surroundings
    people: Sequence[str]
    ahead: int
    behind: int


class Looked(NamedTuple):
    """A landing that was looked at.

    Args:
        move: the move.
        checkout: where the branch is checked out.
        notes: sentences for the person.
        lfs: the checkout, and the files in it that git-lfs is to write.
        state: how the clone's kept work stands when the branch has moved; None: the branch isn't its clone's.
        check: what a check has said.
    """

    move: Move
    checkout: GitPlaces | None
    notes: tuple[str, ...]
    lfs: tuple[str, Sequence[str]]
    state: CloneState | None
    check: Check | None = None


@attrs.define(eq=False)
class LandingGit:
    """Runs git for landings."""

    _repositories: Repositories
    _host: HostGit
    _environ: Mapping[str, str]

    async def standing(self, clone: Clone, landing: Landing, head: str) -> Standing:
        """Return how a head stands to the branch that it is to land in; raises `GitFailed`."""
        output = await self._repositories.script(clone.git_dir, _STANDING, *standing.words(clone, landing, head))
        return standing.parse(output, landing.target, clone.git_dir)

    async def names(self, clone: Clone, commits: Sequence[str]) -> frozenset[str]:
        """Return the names at the top of some commits; raises `GitFailed`."""
        return frozenset(os.fsdecode(await self._repositories.script(clone.git_dir, _NAMES, *commits)).split("\0"))

    async def looked_at(
        self, clone: Clone, landing: Landing, found: Standing, checkout: GitPlaces | None, given: NamesGiven
    ) -> Looked | Outcome:
        """Return the move of a branch's tip that lands a clone's head; an outcome where a person must look first.

        Raises:
            Conflicting: the two conflict.
            Refused: it can't land; the sentence says why, and how to do it by hand.
        """
        head, top = str(clone.kept.head), checkout.top if checkout is not None else clone.repository
        persons = await self._host.persons_git(top, found.names)
        settings, preview = persons.settings, await self.preview(clone, landing, persons, found, head)
        if (long := decisions.unwritable(preview.files)) is not None:
            raise Refused(f"{clone.name}'s work can't be written to a disk: {long}")
        if (refusal := await self.refusal(clone, persons, preview.commit, preview.selected)) is not None:
            by_hand = ("git", "-C", top, "merge", clone.ref("head"))
            raise Refused(
                f"{clone.name}'s work isn't landed: {refusal}; after a look, and with {landing.target} checked out, "
                f"`{shlex.join(by_hand)}` does it"
            )
        is_seen = landing.at is None or head.startswith(landing.at)
        suspects = decisions.suspects(preview.files, preview.around)
        held = decisions.unaccepted(suspects, landing.accepted if is_seen else ())
        if held or not is_seen:
            return landing_outcome.held(clone.name, clone.target, landing, head, held)
        unsigned = (_UNSIGNED,) if settings.signs and preview.commit != head else ()
        told = decisions.told(preview.files, preview.people if settings.name else (), given.people(settings))
        push = ("git", "-C", clone.repository, "push", *settings.remotes[:1], landing.target)
        made = (f"the branch is new: `{shlex.join(push)}` publishes it",) if found.tip is None and settings.remotes else ()
        stands = CloneState(None, head, preview.ahead, preview.behind, is_landed=True)
        return Looked(
            Move(preview.commit, found.tip, persons.programs), checkout, (*unsigned, *told, *made),
            (top, drivers.lfs_files(preview.selected, settings) if checkout is not None else []),
            stands if landing.target == clone.target else None,
        )  # fmt: skip

    async def preview(self, clone: Clone, landing: Landing, persons: PersonsGit, found: Standing, head: str) -> Preview:
        """Return the move of the branch that lands a head; for its commit objects are added to the repository.

        Raises:
            Conflicting: the two conflict.
            Refused: it can't be done this way, or git doesn't know the user.
            GitFailed: git can't do it.
        """
        start = found.start(clone)
        way = found.way(landing, start)
        if way != standing.AS_IS and start is not None and start == clone.base:
            await self._check_clean(clone, persons)
        if way == standing.AS_IS:
            return await self.changes(clone, persons, found.begin, head)
        if landing.mode is LandingMode.FF_ONLY:
            raise Refused(f"{landing.target} has commits that {clone.name}'s work lacks: merge without --ff-only")
        who = _identity(persons.settings)
        message = landing.message or f"{'Squash' if way == standing.ONE else 'Merge'} {clone.branch}"
        words = (way, found.begin or "-", start or "-", head, clone.base or "-", message)
        return await self._preview(clone, persons, words, who)

    async def changes(self, clone: Clone, persons: PersonsGit, begin: str | None, commit: str) -> Preview:
        """Return the move of a branch from one commit, or from nothing, to another that is there; raises `GitFailed`."""
        words = (standing.AS_IS, begin or "-", "-", commit, "-", "")
        return await self._preview(clone, persons, words, {})

    async def _preview(self, clone: Clone, persons: PersonsGit, words: tuple[str, ...], who: Mapping[str, str]) -> Preview:
        seeing = self._repositories.reading if words[0] == standing.AS_IS else self._repositories.adding
        done = await self._repositories.sandbox.run(
            ("/bin/sh", "-c", _PREVIEW, "sh", *words), (*await seeing(clone.git_dir), *persons.mounts),
            variables={"GIT_DIR": clone.git_dir, **_INDEX, **persons.variables, **who}, seconds=_PREVIEW_SECONDS,
        )  # fmt: skip
        if b"unrelated histories" in done.errors:
            raise Refused(
                f"{clone.name}'s work and the branch have no commit in common any more, because one of them was written "
                f"anew: have the agent rebase its commits onto workspace/BRANCH"
            )
        if done.status == _CONFLICT:
            mergers = _attributes(done.output)
            raise Conflicting(tuple(mergers), drivers.unrun_mergers(mergers, persons.settings, persons.programs))
        if done.status:
            raise GitFailed(f"git can't merge in {clone.git_dir}: {said(done)}")
        *sizes, commit, ahead, behind, rest = done.output.split(b"\n", 7)
        parts = []
        for size in map(int, sizes):
            parts.append(rest[:size])
            rest = rest[size:]
        files, filters, around, people = parts
        named = {path: name for path, name in _attributes(filters).items() if name not in {"unspecified", "unset", "set"}}
        return Preview(
            commit.decode("ascii"), diffs.parse(files), named,
            Surroundings(*diffs.parse_tree(around), await self._programs(clone)), os.fsdecode(people).split("\n")[:-1],
            int(ahead), int(behind) + (words[0] != standing.AS_IS),
        )  # fmt: skip

    async def _programs(self, clone: Clone) -> tuple[str, ...]:
        """Return the files and directories that the user's git configuration makes git run or read, from the top level."""
        configs = git_programs.user_configs(self._environ.get("HOME", "/"), self._environ.get("XDG_CONFIG_HOME"))
        top = clone.repository
        files = self._repositories.sandbox.files
        found = await files.run(top, git_programs.programs_of, clone.git_dir, top, configs, (top,))
        paths = (os.path.relpath(path, top) for path in (*found.present, *found.absent))
        return tuple(path for path in paths if not path.startswith(("..", ".git/")))

    async def refusal(self, clone: Clone, persons: PersonsGit, commit: str, selected: Mapping[str, str]) -> str | None:
        """Say why git on the host can't write files of a commit as the person's own git would; None: it can."""
        doubtful = drivers.doubtful(selected, persons.settings, persons.programs)
        for at in range(0, len(doubtful), _AT_ONCE):
            begins = await self._beginnings(clone, commit, doubtful[at : at + _AT_ONCE])
            found = [Selected(path, selected[path], begin) for path, begin in begins.items()]
            if (refused := drivers.refusal(found, persons.settings, persons.programs)) is not None:
                return refused
        return None

    async def _beginnings(self, clone: Clone, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        """Return how some files of a commit begin; links and commits of other repositories are left out."""
        output = await self._repositories.script(clone.git_dir, _BEGIN, commit, *paths)
        listed, _, begins = output.partition(b"\0\0")
        entries = [os.fsdecode(entry).partition("\t") for entry in listed.split(b"\0")]
        lines = begins.decode("ascii", "replace").splitlines()
        if len(lines) != len(entries):
            raise Refused(f"git can't read the files of {commit[:12]} in {clone.git_dir}: `git fsck` there tells more")
        return {
            path: bytes.fromhex(line)
            for (head, _, path), line in zip(entries, lines, strict=True)
            if head.startswith("100")
        }

    async def _check_clean(self, clone: Clone, persons: PersonsGit) -> None:
        """Raise `Refused` while changes aren't committed that went along into the clone: they would land with it."""
        places = await self._repositories.places(clone.repository)
        mounts = (
            Bind(places.top, places.top, held=True),
            *await self._repositories.reading(clone.git_dir),
            *persons.mounts,
        )
        done = await self._repositories.sandbox.run(
            ("git", "status", "--porcelain", "--ignore-submodules=dirty"), mounts,
            variables={"GIT_DIR": places.own, "GIT_WORK_TREE": places.top, **persons.variables},
        )  # fmt: skip
        if done.status:
            raise GitFailed(said(done))
        if lines := done.output.splitlines():
            files = "1 file is" if len(lines) == 1 else f"{len(lines)} files are"
            raise Refused(
                f"{files} uncommitted in {clone.repository}, and such changes went along into {clone.name}'s clone: "
                f"commit or stash them first"
            )


def _attributes(output: bytes) -> dict[str, str]:
    """Return the value of each path that `git check-attr -z` prints, in its order."""
    fields = os.fsdecode(output).split("\0")
    return dict(zip(fields[::3], fields[2::3], strict=False))


def _identity(settings: GitSettings) -> dict[str, str]:
    """Return the user's name for a commit; raises `Refused` if git doesn't know it."""
    found = {}
    for part, value in (("name", settings.name), ("email", settings.email)):
        if not value:
            raise Refused(f"git doesn't know who you are: `git config --global user.{part} …` tells it")
        for role in ("AUTHOR", "COMMITTER"):
            found[f"GIT_{role}_{part.upper()}"] = value
    return found
