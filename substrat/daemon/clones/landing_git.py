"""Git's part of landing before the branch moves: previews a merge, and lists what it changes.

All of it runs in sandboxes without a network, but for the question what git is configured to do; `host_git` asks that, and
moves the branch.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import trio

from sandbox.spec import Bind
from substrat.core.workspaces import diffs, drivers
from substrat.core.workspaces.drivers import Selected
from substrat.core.workspaces.landing import LandingMode, Surroundings
from substrat.daemon.clones.git_sandbox import GitFailed, said
from substrat.daemon.clones.persons_git import PersonsGitReader
from substrat.daemon.workspaces import git_programs
from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.diffs import ChangedFile
    from substrat.core.workspaces.drivers import GitSettings
    from substrat.core.workspaces.landing import Landing
    from substrat.daemon.clones.git_sandbox import GitSandbox
    from substrat.daemon.clones.host_git import HostGit
    from substrat.daemon.clones.persons_git import PersonsGit
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.workspaces.git_places import GitPlaces

# Prints the entries of a commit's symbolic links and files `HEAD`, each ended by a NUL, then an empty one, then a size and
# the target of each link in the same order.
_AROUND = """\
tab=$(printf '\\t')
git ls-tree -r -z "$1" >/tmp/tree || exit
grep -az -e '^120000 ' -e '[/'"$tab"']HEAD$' /tmp/tree
printf '\\0'
git -c core.quotePath=true ls-tree -r "$1" | sed -n "s/^120000 blob \\([0-9a-f]*\\)$tab.*/\\1/p" |
    git cat-file --batch='%(objectsize)'
"""
# Merges $2 and $3 as in a checkout of $1: git takes attributes from files in the directory that it is in, and not yet from
# a commit (git 2.41 has `--attr-source`). Its own status is 0, or 1 for a conflict.
_MERGE = """\
mkdir /tmp/attributes && cd /tmp/attributes || exit 3
tab=$(printf '\\t')
git ls-tree -r -z "$1" | grep -az -e '[/'"$tab"'][.]gitattributes$' | git update-index -z --index-info || exit 3
git checkout-index -q -a || exit 3
git merge-tree --write-tree -z --name-only --no-messages "$2" "$3"
"""
_ATTRIBUTES = "/tmp/attributes"  # noqa: S108 - the sandbox's own
# Prints the merge driver that attributes of $1 name for each of some files.
_MERGERS = """\
git read-tree "$1" || exit
shift
git check-attr --cached -z merge -- "$@"
"""
# Prints the filter that attributes name for each file of $2 that $1 lacks or has otherwise.
_SELECT = """\
git read-tree "$2" || exit
since=${1:-$(git hash-object -t tree /dev/null)}
git diff-tree -r -z --name-only --no-renames --diff-filter=d "$since" "$2" | git check-attr --cached -z --stdin filter
"""
# Prints the entries of some files of $1, an empty one, and how each begins, in hexadecimal digits.
_BEGIN = """\
commit=$1; shift
git ls-tree -r -z "$commit" -- "$@" || exit
printf '\\0'
for id in $(git ls-tree -r --object-only "$commit" -- "$@")
do git cat-file blob "$id" 2>/dev/null | head -c 64 | od -An -v -tx1 | tr -d ' \\n'; echo
done
"""
_AT_ONCE = 500
"""Files whose beginnings are looked at in one sandbox: each takes some 5 ms."""
_INDEX = {"GIT_INDEX_FILE": "/tmp/index"}  # noqa: S108 - the sandbox's own


class Conflicting(Exception):
    """Two commits conflict; `files` are those in which they do, `why` says more, or nothing."""

    def __init__(self, files: tuple[str, ...], why: str = "") -> None:
        super().__init__(", ".join(files))
        self.files = files
        self.why = why


class LandingGit:
    """Runs git for landings.

    Args:
        sandbox: runs git.
        repositories: the users' repositories.
        host: asks git on the host what it is configured to do.
        environ: the daemon's own environment.
    """

    def __init__(self, sandbox: GitSandbox, repositories: Repositories, host: HostGit, environ: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._repositories = repositories
        self._environ = environ
        self._persons = PersonsGitReader(host, sandbox, repositories, environ)

    # Looking

    async def contains(self, clone: Clone, tip: str, commit: str) -> bool:
        """Say whether a commit is another one or among its ancestors; one that isn't there is not."""
        common = await self._read(clone, ("merge-base", commit, tip), fine=(0, 1, 128))
        return common.decode().strip() == commit

    async def has(self, clone: Clone, tip: str, head: str) -> bool:
        """Say whether a branch has an agent's work, as its commits or as the one commit that it landed as."""
        if await self.contains(clone, tip, head):
            return True
        return head == clone.landed_head and await self._has_landed(clone, tip)

    async def _has_landed(self, clone: Clone, tip: str) -> bool:
        return clone.landed_commit is not None and await self.contains(clone, tip, clone.landed_commit)

    async def changed(self, clone: Clone, tip: str | None, commit: str) -> tuple[ChangedFile, ...]:
        """Return the files that the move of a branch changes in it, without renames: each new name counts as added."""
        before = tip or (await self._read(clone, ("hash-object", "-t", "tree", "/dev/null"))).decode().strip()
        options = ("--raw", "--numstat", "-z", "--no-abbrev", "--no-ext-diff", "--no-textconv", "--no-renames",
                   "--ignore-submodules=none")  # fmt: skip
        return diffs.parse(await self._read(clone, ("diff", *options, before, commit, "--")))

    async def people(self, clone: Clone, tip: str | None, head: str) -> list[str]:
        """Return the authors and committers of the commits that a branch lacks, of the first thousand of them."""
        line = ("rev-list", "--max-count=1000", "--no-commit-header", "--format=%an <%ae>%n%cn <%ce>", head)
        return os.fsdecode(await self._read(clone, (*line, *((f"^{tip}",) if tip else ()), "--"))).split("\n")[:-1]

    async def surroundings(self, clone: Clone, commit: str) -> Surroundings:
        """Return all besides the changed files of a commit that decides which of them must be looked at."""
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _AROUND, "sh", commit), self._repositories.reading(clone.git_dir),
            variables={"GIT_DIR": clone.git_dir},
        )  # fmt: skip
        if done.status:
            raise Refused(f"git can't list the files of {commit[:12]} in {clone.git_dir}: {said(done)}")
        links, heads = diffs.parse_tree(done.output)
        return Surroundings(links, heads, await self._programs(clone))

    async def _programs(self, clone: Clone) -> tuple[str, ...]:
        """Return the files and directories that the user's git configuration makes git run or read, from the top level."""
        configs = git_programs.user_configs(self._environ.get("HOME", "/"), self._environ.get("XDG_CONFIG_HOME"))
        top = clone.repository
        find = partial(git_programs.programs_of, clone.git_dir, top, configs, (top,))
        found = await trio.to_thread.run_sync(find)
        paths = (os.path.relpath(path, top) for path in (*found.present, *found.absent))
        return tuple(path for path in paths if not path.startswith(("..", ".git/")))

    async def persons_git(self, clone: Clone, checkout: GitPlaces | None, commits: tuple[str, ...]) -> PersonsGit:
        """Return the person's git configuration where a branch is checked out, or in the repository; raises `Conflict`."""
        return await self._persons.read(clone, checkout.top if checkout is not None else clone.repository, commits)

    async def selected(self, clone: Clone, persons: PersonsGit, tip: str | None, commit: str) -> dict[str, str]:
        """Return the filter that attributes name for each file that git on the host is to write.

        Args:
            clone: the clone.
            persons: the person's git configuration.
            tip: the commit that the checkout has.
            commit: the commit that it is to have.
        """
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _SELECT, "sh", tip or "", commit),
            (*self._repositories.reading(clone.git_dir), *persons.mounts),
            variables={"GIT_DIR": clone.git_dir, **_INDEX, **persons.variables},
        )  # fmt: skip
        if done.status:
            raise Refused(f"git can't read the attributes of {commit[:12]} in {clone.git_dir}: {said(done)}")
        fields = os.fsdecode(done.output).split("\0")
        named = zip(fields[::3], fields[2::3], strict=False)
        return {path: name for path, name in named if name not in {"unspecified", "unset", "set"}}

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
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _BEGIN, "sh", commit, *paths), self._repositories.reading(clone.git_dir),
            variables={"GIT_DIR": clone.git_dir, "GIT_LITERAL_PATHSPECS": "1"},
        )  # fmt: skip
        listed, _, begins = done.output.partition(b"\0\0")
        entries = [os.fsdecode(entry).partition("\t") for entry in listed.split(b"\0")]
        lines = begins.decode("ascii", "replace").splitlines()
        if done.status or len(lines) != len(entries):
            raise Refused(f"git can't read the files of {commit[:12]} in {clone.git_dir}: {said(done)}")
        return {
            path: bytes.fromhex(line)
            for (head, _, path), line in zip(entries, lines, strict=True)
            if head.startswith("100")
        }

    # Landing

    async def preview(self, clone: Clone, landing: Landing, persons: PersonsGit, tip: str | None, head: str) -> str:
        """Return the commit that the branch would move to.

        Args:
            clone: the clone.
            landing: the landing.
            persons: the person's git configuration.
            tip: the branch's commit; None: there is no such branch yet.
            head: the commit that is landed.

        Raises:
            Conflicting: the two conflict.
            Refused: it can't be done this way, or git doesn't know the user.
        """
        if tip is None:
            return head
        start = await self._start(clone, persons, tip, head)
        if start is None and landing.mode is not LandingMode.SQUASH and await self.contains(clone, head, tip):
            return head
        if landing.mode is LandingMode.FF_ONLY:
            raise Refused(f"{landing.target} has commits that {clone.name}'s work lacks: merge without --ff-only")
        # With a commit that has both as its parents, git takes `start` for the place where the two histories parted.
        who = _identity(persons.settings)
        ours = (
            tip if start is None else await self._commit(clone, f"{tip}^{{tree}}", (tip, start), "where they parted", who)
        )
        tree = await self._merged(clone, persons, tip, ours, head)
        is_one = landing.mode is LandingMode.SQUASH or start is not None
        message = landing.message or f"{'Squash' if is_one else 'Merge'} {clone.branch}"
        return await self._commit(clone, tree, (tip,) if is_one else (tip, head), message, who)

    async def _start(self, clone: Clone, persons: PersonsGit, tip: str, head: str) -> str | None:
        """Return the commit from which on an agent's work lands as one commit; None: all that the branch lacks lands.

        It is the head that has landed as one commit before, or the commit of the user's own uncommitted changes: what came
        before it must not land once more, or at all.
        """
        landed = clone.landed_head
        if landed is not None and await self._has_landed(clone, tip) and not await self.contains(clone, tip, landed):
            return landed if await self.contains(clone, head, landed) else None
        if clone.with_wip and clone.base is not None and await self.contains(clone, head, clone.base):
            await self._check_clean(clone, persons)
            return clone.base
        return None

    async def _check_clean(self, clone: Clone, persons: PersonsGit) -> None:
        """Raise `Refused` while changes aren't committed that went along into the clone: they would land with it."""
        places = await trio.to_thread.run_sync(self._repositories.places, clone.repository)
        mounts = (Bind(places.top, places.top, held=True), *self._repositories.reading(clone.git_dir), *persons.mounts)
        changed = await self._sandbox.git(
            ("status", "--porcelain", "--ignore-submodules=dirty"), mounts, places.own,
            variables={"GIT_WORK_TREE": places.top, **persons.variables},
        )  # fmt: skip
        if lines := changed.splitlines():
            files = "1 file is" if len(lines) == 1 else f"{len(lines)} files are"
            raise Refused(
                f"{files} uncommitted in {clone.repository}, and such changes went along into {clone.name}'s clone: "
                f"commit or stash them first"
            )

    async def _commit(self, clone: Clone, tree: str, parents: tuple[str, ...], message: str, who: dict[str, str]) -> str:
        """Make a commit in the user's name, and return it."""
        given = [word for parent in parents for word in ("-p", parent)]
        line = ("commit-tree", "--no-gpg-sign", *given, "-m", message, tree)
        return (await self._write(clone, line, who)).decode().strip()

    async def _merged(self, clone: Clone, persons: PersonsGit, tip: str, ours: str, head: str) -> str:
        """Merge two commits as in a checkout of the branch's tip, and return the tree (git-merge-tree(1), git 2.38)."""
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _MERGE, "sh", tip, ours, head),
            (*self._repositories.adding(clone.git_dir), *persons.mounts),
            variables={"GIT_DIR": clone.git_dir, "GIT_WORK_TREE": _ATTRIBUTES, **_INDEX, **persons.variables},
        )  # fmt: skip
        if b"unrelated histories" in done.errors:
            raise Refused(
                f"{clone.name}'s work and the branch have no commit in common any more, because one of them was written "
                f"anew: have the agent rebase its commits onto workspace/BRANCH"
            )
        if done.status not in {0, 1} or not done.output:  # bubblewrap ends with 1, too, where it can't start
            raise GitFailed(said(done))
        tree, *files = [field for field in os.fsdecode(done.output).split("\0") if field]
        if files:
            has_drivers = bool(persons.settings.mergers)
            raise Conflicting(
                tuple(dict.fromkeys(files)), await self._unrun(clone, persons, tip, files) if has_drivers else ""
            )
        return tree

    async def _unrun(self, clone: Clone, persons: PersonsGit, tip: str, files: Sequence[str]) -> str:
        """Say for which files in conflict the person's git would have run a merge driver that the daemon doesn't run."""
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _MERGERS, "sh", tip, *files[:_AT_ONCE]),
            (*self._repositories.reading(clone.git_dir), *persons.mounts),
            variables={"GIT_DIR": clone.git_dir, **_INDEX, **persons.variables},
        )  # fmt: skip
        fields = os.fsdecode(done.output).split("\0")
        return drivers.unrun_mergers(dict(zip(fields[::3], fields[2::3], strict=False)), persons.settings, persons.programs)

    # Running git

    async def _read(self, clone: Clone, arguments: tuple[str, ...], fine: tuple[int, ...] = (0,)) -> bytes:
        mounts = self._repositories.reading(clone.git_dir)
        return await self._sandbox.git(arguments, mounts, clone.git_dir, fine=fine)

    async def _write(
        self,
        clone: Clone,
        arguments: tuple[str, ...],
        variables: dict[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
    ) -> bytes:
        mounts = self._repositories.adding(clone.git_dir)
        return await self._sandbox.git(arguments, mounts, clone.git_dir, variables=variables, fine=fine)


def _identity(settings: GitSettings) -> dict[str, str]:
    """Return the user's name for a commit; raises `Refused` if git doesn't know it."""
    found = {}
    for part, value in (("name", settings.name), ("email", settings.email)):
        if not value:
            raise Refused(f"git doesn't know who you are: `git config --global user.{part} …` tells it")
        for role in ("AUTHOR", "COMMITTER"):
            found[f"GIT_{role}_{part.upper()}"] = value
    return found
