"""Runs checks of merged work in a room like the agent's: its clone's files as they are, with the merged commit in them.

The room is an overlay, so ignored files (`node_modules`, `.venv`, what the set-up has made) are there without a copy, each
change goes to a directory that is thrown away, and uncommitted files aren't there. For a bubblewrap that has no overlay the
ignored files are copied, up to a limit. The room stands at the person's own path, with the agent's variables, `agent.path`,
`agent.bind_ro` and, read-only, its `~/.cache`; it has no network and no login. The ignored files are the agent's: a check
judges the work of an honest agent. With `clone.check_room = "setup"` the room has none of them, and the clone's set-up runs
there first.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from typing import TYPE_CHECKING, TypeVar

import attrs
import trio

from sandbox import host
from sandbox.spec import Bind, Overlay, Tmpfs
from substrat.core.workspaces import checks
from substrat.daemon.agents import disk_gate
from substrat.daemon.clones import setting_up
from substrat.daemon.clones.git_sandbox import said
from substrat.daemon.sandboxes import build_spec, clone_mounts, oneshot, tame_git
from substrat.daemon.sandboxes.oneshot import TookTooLong
from substrat.errors import Refused, SubstratError
from substrat.inside.clone.large_files import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sandbox.host import Bubblewrap
    from sandbox.spec import Mount
    from substrat.core.agents.environment import Variables
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.checks import Check
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.state import State
    from substrat.daemon.clones.git_sandbox import GitSandbox
    from substrat.daemon.clones.setting_up import SettingUp
    from substrat.daemon.sandboxes.clone_mounts import Lent
    from substrat.daemon.sandboxes.sandboxes import Sandboxes

T = TypeVar("T")
_TREE = "/run/substrat/tree"
# Puts commit $1 in the place of what the agent has there, or into an empty directory, in a repository with the objects of
# the directories that follow. git takes unchanged files for such by their contents, so they keep their times and aren't
# copied; one `f` of `clean` would leave nested repositories.
_PUT = """\
commit=$1
shift
if [ ! -e .git ]; then
  form=sha1; [ ${#commit} = 40 ] || form=sha256
  git init -q -b check --template= --object-format=$form && printf '%s\\n' "$@" >.git/objects/info/alternates || exit
fi
rm -f .git/index .git/index.lock || exit
alias git='git -c core.sparseCheckout=false'
git read-tree "$commit" && { git update-index -q --refresh; git reset -q --hard "$commit"; } && git clean -qffd
"""
# Copies from a clone what an overlay would show besides the commit's files: the ignored files, and the git directory. git
# lists a link as such, and cp copies it as one. $1: how many bytes that may be.
_COPY = f"""\
cd {_TREE} || exit
{{ git ls-files -z --others --ignored --exclude-standard --directory && printf '.git\\0'; }} >/tmp/wanted || exit
if [ "$(du -cb --files0-from=/tmp/wanted | tail -n 1 | cut -f 1)" -gt "$1" ]; then
  echo "they take more than $(($1 >> 20)) MiB" >&2
  exit 1
fi
xargs -0 cp -a --reflink=auto --parents -t "$OLDPWD" -- </tmp/wanted
"""
# Copies a directory, in which others may write meanwhile. $1: how many bytes that may be.
_COPY_ALL = f"""\
cd {_TREE} || exit
if [ "$(du -sb . | cut -f 1)" -gt "$1" ]; then
  echo "they take more than $(($1 >> 20)) MiB" >&2
  exit 1
fi
for try in 1 2 3; do cp -a --reflink=auto . "$OLDPWD" && exit; done
exit 1
"""
# Says by its status whether the files are those of commit $1: by an index of its own, because the clone's may hide some.
_SAME = """\
export GIT_INDEX_FILE=/tmp/index
git read-tree "$1" && { git update-index -q --refresh; git diff-files --quiet; } || exit
[ -z "$(git ls-files --others --exclude-standard | head -n 1)" ]
"""
_COPIED_BYTES = 2 << 30
"""A `node_modules` or a virtual environment has some hundred MiB; each check copies it."""
_COPY_SECONDS = 300.0
"""So many bytes of small files take a minute or two on a slow disk."""
_TAIL = 1 << 20
"""Bytes of a command's output, of which its last lines are told."""
_PREFIX = "check-"
_LOOK_SECONDS = 1.0
"""Seconds between two looks at the disk: no event tells that it is nearly full."""
_VARIABLES = "/run/substrat/variables"
_OUTPUT = '/bin/sh -c "$1" 2>/tmp/errors && exit; status=$?; cat /tmp/errors; exit $status'
_RUN = f'set -a; . {_VARIABLES}; set +a; exec 2>&1; exec "$@"'


class CutShort(Refused):
    """The disk is nearly full, so a check that ran was ended; it can run again."""


@attrs.define(kw_only=True, eq=False)
class CheckRoom:
    """Runs the checks of one daemon."""

    _state: State
    _sandboxes: Sandboxes
    _git: GitSandbox
    _setting_up: SettingUp

    async def check(self, agent: Agent, clone: Clone, commit: str, command: str) -> Check:
        """Run a command on a commit's files, while no sandbox can write in the clone.

        Raises:
            Refused: the files can't be put there, and the message is git's; or the disk is nearly full.
            SubstratError: there can be no sandbox.
        """
        return await self._in_room(
            agent.name, agent.settings.environment, lambda place: self._check(agent, clone, place, commit, command)
        )

    async def judge(self, agent: Agent, command: str) -> Check:
        """Run a command on an agent's files as they are, uncommitted and ignored ones included.

        For an agent in a clone no sandbox may write there meanwhile. An agent in place gets a copy of its directory.

        Raises:
            Refused: there is too much to copy.
            CutShort: the disk is nearly full.
            SubstratError: there can be no sandbox.
        """
        return await self._in_room(agent.name, agent.settings.environment, lambda place: self._judge(agent, place, command))

    async def printed(
        self, name: str, workspace: str, shown: tuple[str, ...], command: str, environment: Variables
    ) -> tuple[int | None, bytes]:
        """Run a command over a directory as it is, in which it can't write.

        Args:
            name: whose command it is, for errors.
            workspace: the directory.
            shown: what of the host is seen, read-only: the directory, or its repository.
            command: the command.
            environment: its variables.

        Returns:
            Its exit status, None if its time was up; and its output, with its errors only where it has failed.

        Raises:
            CutShort: the disk is nearly full.
            SubstratError: there can be no sandbox.
        """
        return await self._in_room(name, environment, lambda place: self._print(place, workspace, shown, command))

    async def _print(self, place: str, workspace: str, shown: tuple[str, ...], command: str) -> tuple[int | None, bytes]:
        bubblewrap = await self._sandboxes.preparer.machine.find_bubblewrap()
        files = (Bind(path, path, held=True) for path in shown)
        mounts = (*self._surroundings(place), Tmpfs("/run", 1 << 20), *files)
        words = ("/bin/sh", "-c", _OUTPUT, "sh", command)
        return await self._run(bubblewrap, words, mounts, workspace, self._state.registry.config.clone.check_seconds)

    async def _in_room(self, name: str, environment: Variables, work: Callable[[str], Awaitable[T]]) -> T:
        """Do the work of a check with a room's directories, unless the disk is nearly full."""
        try:
            place = await trio.to_thread.run_sync(self._make, environment)
        except OSError as problem:
            raise CutShort(f"there is no room to run a command for {name}: {problem.strerror}") from None
        try:
            return await self._while_disk_lasts(name, lambda: work(place))
        finally:
            self._state.trash.discard(place)

    async def _judge(self, agent: Agent, place: str, command: str) -> Check:
        bubblewrap, clone = await self._sandboxes.preparer.machine.find_bubblewrap(), agent.clone
        at, lent = (clone.repository, (await self._lent(clone)).mounts) if clone is not None else (agent.workspace, ())
        if clone is not None and bubblewrap.has_overlay:
            files: Mount = Overlay(at, clone.tree, f"{place}/upper", f"{place}/work")
        else:
            files = await self._copied(agent, at, f"{place}/copy")
        mounts = (*self._surroundings(place, agent), Tmpfs("/run", 1 << 20), *lent, files)
        if clone is None:  # the repository of a linked worktree
            mounts += tuple(Bind(path, path, optional=True) for path in self._state.registry.index.git_of(agent.workspace))
        seconds = self._state.registry.config.clone.check_seconds
        words = ("/bin/sh", "-c", command)
        status, printed = await self._run(bubblewrap, words, mounts, agent.workspace, seconds)
        return checks.judged(command, status, printed, seconds)

    async def is_head(self, clone: Clone) -> bool:
        """Say whether the files in a clone are those of its kept head, by whatever its own git looks away from."""
        lent, tree = (await self._lent(clone)).mounts, Bind(clone.tree, clone.repository, held=True)
        variables = tame_git.variables({**tame_git.AGENTS, "core.sparseCheckout": "false"})
        line = ("/bin/sh", "-c", _SAME, "sh", str(clone.kept.head))
        mounts = (Tmpfs("/run", 1 << 20), *lent, tree)
        return (await self._git.run(line, mounts, clone.repository, variables=variables)).status == 0

    async def _copied(self, agent: Agent, at: str, copy: str) -> Mount:
        """Copy all that is in an agent's directory, and return the mount of the copy."""
        files, line = Bind(copy, at, writable=True), ("/bin/sh", "-c", _COPY_ALL, "sh", str(_COPIED_BYTES))
        mounts = (Tmpfs("/run", 1 << 20), Bind(agent.host_directory, _TREE, held=True), files)
        try:
            done = await self._git.run(line, mounts, at, seconds=_COPY_SECONDS)
        except TookTooLong:
            why = f"to copy them takes longer than {_COPY_SECONDS:g} s"
        else:
            if not done.status:
                return files
            why = said(done)
        remedy = "bubblewrap 0.11 needs no copy" if agent.clone is not None else "an agent in a clone needs none (--clone)"
        raise Refused(f"a check runs on a copy of the files in {agent.host_directory}, and {why}: {remedy}")

    async def _check(self, agent: Agent, clone: Clone, place: str, commit: str, command: str) -> Check:
        bubblewrap, config = await self._sandboxes.preparer.machine.find_bubblewrap(), self._state.registry.config.clone
        objects, shown = await self._lent(clone)
        lent = (Tmpfs("/run", 1 << 20), *shown)
        is_set_up = config.check_room == "setup"
        files, why_empty = _empty(clone, place), None
        if not is_set_up:
            files, why_empty = await self._files(bubblewrap, clone, place, lent)
        line = ("/bin/sh", "-c", _PUT, "sh", commit, *(place for place, _ in clone_mounts.shown_objects(objects)))
        lfs = (await self._sandboxes.preparer.person.read(agent)).lfs
        variables = {
            "PATH": self._path(), "GIT_LFS_SKIP_DOWNLOAD_ERRORS": "1",
            **tame_git.variables({**tame_git.AGENTS, **({**lfs, **OFFLINE} if lfs else {})}),
        }  # fmt: skip
        done = await self._git.run(line, (*lent, *self._tools(), files), clone.repository, variables=variables)
        if done.status:
            raise Refused(f"{clone.name}'s merged files can't be put where its check is to run: {said(done)}")
        mounts = (*self._surroundings(place, agent), *lent, files)
        if is_set_up and (failure := await self._set_up(bubblewrap, mounts, clone, place, command)):
            return failure
        words = ("/bin/sh", "-c", command)
        status, printed = await self._run(bubblewrap, words, mounts, clone.repository, config.check_seconds)
        check = checks.judged(command, status, printed, config.check_seconds)
        return check if why_empty is None else check._replace(text=f"{check.text} (without ignored files: {why_empty})")

    async def _lent(self, clone: Clone) -> Lent:
        """Return the objects that a clone borrows, and their mounts."""
        borrowing, empty = self._sandboxes.preparer.protector.borrowing, f"{self._state.layout.trees}/empty"
        return await self._state.files.run(clone.repository, clone_mounts.find_lent, clone, borrowing, empty)

    async def _while_disk_lasts(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a check unless the disk is nearly full; it ends before any turn must, because it can run again."""
        found: T | SubstratError | None = None
        short: str | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal short
                while True:
                    short = disk_gate.shortage(self._state.layout.trees, self._state.registry.config.disk.free)
                    if short is not None:
                        nursery.cancel_scope.cancel()
                    await trio.sleep(_LOOK_SECONDS)

            nursery.start_soon(watch)
            try:
                found = await work()
            except SubstratError as problem:  # returned, so that the nursery doesn't wrap it
                found = problem
            nursery.cancel_scope.cancel()
        if found is None:
            raise CutShort(f"the check of {name}'s work was ended: {short}")
        if isinstance(found, SubstratError):
            raise found
        return found

    def forget_earlier(self) -> None:
        """Remove the rooms that a killed daemon has left."""
        for name in os.listdir(self._state.layout.trees) if os.path.isdir(self._state.layout.trees) else ():
            if name.startswith(_PREFIX):
                self._state.trash.discard(f"{self._state.layout.trees}/{name}")

    async def _files(
        self, bubblewrap: Bubblewrap, clone: Clone, place: str, lent: tuple[Mount, ...]
    ) -> tuple[Mount, str | None]:
        """Return the mount of a room's files before the commit is put there, and why the ignored ones aren't among them."""
        if not await trio.to_thread.run_sync(os.path.isdir, clone.tree):
            return _empty(clone, place), f"the clone of {clone.name} is gone"
        if bubblewrap.has_overlay:
            return Overlay(clone.repository, clone.tree, f"{place}/upper", f"{place}/work"), None
        copy = Bind(f"{place}/copy", clone.repository, writable=True)
        line = ("/bin/sh", "-c", _COPY, "sh", str(_COPIED_BYTES))
        mounts = (*lent, Bind(clone.tree, _TREE, held=True), copy)
        try:
            done = await self._git.run(line, mounts, clone.repository, seconds=_COPY_SECONDS)
        except TookTooLong:
            why = f"to copy them takes longer than {_COPY_SECONDS:g} s"
        else:
            if not done.status:
                return copy, None
            why = said(done)
        version = ".".join(map(str, bubblewrap.version))
        lacks = f"bubblewrap {version} has no --overlay, which came with 0.11 and needs no copy"
        return _empty(clone, place), f"{why}, and {lacks}"

    async def _set_up(
        self, bubblewrap: Bubblewrap, mounts: tuple[Mount, ...], clone: Clone, place: str, command: str
    ) -> Check | None:
        """Set an empty room up as its clone was; returns the outcome of the check if that fails."""
        if clone.base is None:
            return None
        out = f"{place}/setup"
        found = await self._setting_up.read(clone, f"{place}/upper", out, f"{self._state.layout.trees}/empty")
        if not found.commands:
            return None
        line, needs = setting_up.prepared(found.commands, out)
        seconds = self._state.registry.config.clone.setup_seconds
        status, printed = await self._run(
            bubblewrap, line, (*mounts, *needs), clone.workspace, seconds, setting_up.VARIABLES
        )
        return checks.not_set_up(command, status, printed, seconds) if status != 0 else None

    async def _run(
        self,
        bubblewrap: Bubblewrap,
        words: tuple[str, ...],
        mounts: tuple[Mount, ...],
        workdir: str,
        seconds: float,
        more: Mapping[str, str] | None = None,
    ) -> tuple[int | None, bytes]:
        """Run a program with the agent's variables; returns its exit status, None if its time was up, and its output."""
        config = self._state.registry.config
        line = ("/bin/sh", "-c", _RUN, "sh", *words)
        variables = {"HOME": self._sandboxes.user.home, "PATH": self._path(), **(more or {})}
        memory = host.memory(config.sandbox.memory) if config.sandbox.process_memory else None
        limits = host.limits(config.sandbox.open_files, config.sandbox.processes, memory)
        try:
            system = await self._sandboxes.preparer.unreadable.system_mounts()
            done = await oneshot.run(
                self._state.files, bubblewrap, line, mounts, workdir,
                system=system, seconds=seconds, limits=limits, variables=variables, tail=_TAIL,
            )  # fmt: skip
        except TookTooLong as late:
            return None, late.output
        return done.status, done.output

    def _make(self, environment: Variables) -> str:
        """Make the room's directories, and the file of variables, which others would see among arguments."""
        os.makedirs(self._state.layout.trees, mode=0o700, exist_ok=True)
        place = tempfile.mkdtemp(prefix=_PREFIX, dir=self._state.layout.trees)
        try:
            self._fill(environment, place)
        except OSError:
            self._state.trash.discard(place)
            raise
        return place

    def _fill(self, environment: Variables, place: str) -> None:
        for name in ("upper", "work", "copy", "setup"):
            os.mkdir(f"{place}/{name}")
        given = {**self._state.registry.config.agent.env, **dict(environment)}
        with open(f"{place}/variables", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in given.items())

    def _surroundings(self, place: str, agent: Agent | None = None) -> tuple[Mount, ...]:
        """Return the home with the tools in it, and an agent's caches."""
        size, home = self._state.registry.config.sandbox.memory_dir_bytes, self._sandboxes.user.home
        return (
            Tmpfs(home, size, 0o700),
            Tmpfs("/tmp", size, 0o1777),  # noqa: S108 - its own
            *((Bind(self._state.layout.agent(agent.id).cache, f"{home}/.cache", optional=True),) if agent else ()),
            *self._tools(),
            Bind(f"{place}/variables", _VARIABLES),
        )

    def _tools(self) -> tuple[Mount, ...]:
        """Return the mounts of what the configuration shows to agents; git-lfs may be among it."""
        config = self._state.registry.config.agent
        shown = tuple(dict.fromkeys((*config.bind_ro, *config.path)))
        covers = build_spec.covers(shown, self._sandboxes.preparer.protector.own_places)
        return (*(Bind(path, path, optional=True) for path in shown), *covers)

    def _path(self) -> str:
        return ":".join((*self._state.registry.config.agent.path, build_spec.PATH))


def _empty(clone: Clone, place: str) -> Mount:
    """Return the mount of a room in which nothing is yet."""
    return Bind(f"{place}/upper", clone.repository, writable=True)
