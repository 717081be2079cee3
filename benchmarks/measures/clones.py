"""Measures the cost of private clones, with the daemon's own parts for them in this process.

- *make*: from the request to the clone that is in its place, of a repository with 20,000 files. Beside it: `git worktree add`
  of the same commit, which writes the same files.
- *keep*: of a tree in which nothing has moved since the last one, with 300 and with 20,000 files. Beside it: `git status` in
  that tree, as a person would run it. Every keep is a sandbox of its own.
- *keep after a change*: of a tree with 300 files in which one line was written, into the user's repository. Beside it: `git
  add --all` and `git commit` of such a line in a repository of the same size.
- *spawn in a clone*: from the request to a daemon until the end of a short first turn, in a repository with 10,000 tags.
  Beside it: `git clone --shared` of the same.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import trio
from harness import Figure, Wire, daemon, finish, paired, timed

from sandbox import host
from substrat.config import Config
from substrat.core.workspaces.clones import Clone, Stage
from substrat.daemon.clones.git_sandbox import GitSandbox
from substrat.daemon.clones.keeping import Keeping
from substrat.daemon.clones.making import Making
from substrat.daemon.clones.repository import Repositories
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.kernel import file_server
from substrat.daemon.kernel.files import Files
from substrat.daemon.sandboxes.person_git import PersonGit
from substrat.daemon.state.layout import Layout
from substrat.daemon.state.trash import Trash
from substrat.daemon.workspaces.git_places import Borrowing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox.spec import Mount

MAKE, CHANGED = "make a private clone of 20,000 files", "keep after a change, 300 files"
KEEP = {300: "keep of an unchanged tree, 300 files", 20_000: "keep of an unchanged tree, 20,000 files"}
TAGS = "spawn in a clone: 10,000 tags"
NAMES = (KEEP[300], CHANGED, MAKE, KEEP[20_000], TAGS)
SECONDS = 90.0  # most of it writes and deletes 20,000 files some times
_TIMES = 15
_MEMORY, _ROOM = "/dev/shm", 1 << 30
_GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "gc.auto=0")


class _Parts:
    """The daemon's parts that work on clones."""

    def __init__(self, root: str) -> None:
        found, files = host.find_bubblewrap(), Files(file_server.start())

        async def bubblewrap() -> Any:
            return found

        async def system_mounts() -> tuple[Mount, ...]:
            return host.system_mounts()

        async def no_settings(_: Any) -> PersonGit:
            return PersonGit()

        registry: Any = SimpleNamespace(config=Config(), now=time.time, points=Failpoints({}))
        repositories, layout = (
            Repositories(GitSandbox(files, bubblewrap, system_mounts), lambda: Borrowing(())),
            Layout(root, root),
        )
        self.keeping = Keeping(registry, repositories, layout, root)
        trash = Trash(f"{root}/trash", lambda: None)
        state: Any = SimpleNamespace(registry=registry, layout=layout, trash=trash, files=files)
        unused: Any = None
        person: Any = SimpleNamespace(read=no_settings)
        self.making = Making(
            state=state, waits=unused, repositories=repositories, wanted=unused, keeping=self.keeping, setting_up=unused,
            person=person,
        )  # fmt: skip

    def make(self, clone: Clone) -> Clone:
        agent: Any = SimpleNamespace(id=clone.agent)
        return trio.run(self.making._make, agent, clone)

    def keep(self, clone: Clone) -> Clone:
        return replace(clone, kept=trio.run(self.keeping._keep, clone, 1))


def measure() -> Iterator[Figure]:
    """Take the figures of private clones."""
    # In memory, because 20,000 new files keep a disk busy for longer than either program runs.
    place = _MEMORY if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM else None
    with tempfile.TemporaryDirectory(prefix="substrat-bench-", dir=place) as root:
        parts = _Parts(root)
        repository = _repository(f"{root}/small", 300)
        clone = parts.make(_clone(root, repository, "small"))
        yield _keep(parts, clone, 300)
        yield _keep_changed(parts, clone, _repository(f"{root}/other", 300))
        repository = _repository(f"{root}/large", 20_000)
        numbers = itertools.count()
        ours, floor = paired(partial(_make, parts, root, repository, numbers), lambda: _add(root, repository, numbers), 5)
        yield Figure(MAKE, f"{ours:.0f} ms", f"git worktree add {floor:.0f} ms", "floor", met=ours <= floor)
        yield _keep(parts, parts.make(_clone(root, repository, "large")), 20_000)
    yield _tags()


def _tags() -> Figure:
    with daemon() as running:
        wire, numbers = Wire(running.socket), itertools.count()
        top = _repository(f"{running.root}/ws", 300)
        head = subprocess.check_output(["git", "-C", top, "rev-parse", "HEAD"], text=True).strip()
        tags = "".join(f"create refs/tags/v{number} {head}\n" for number in range(10_000))
        subprocess.run(["git", "-C", top, "update-ref", "--stdin"], input=tags, text=True, check=True)
        subprocess.run(["git", "-C", top, "pack-refs", "--all"], check=True)

        def spawn() -> float:
            name, began = f"a{next(numbers)}", time.perf_counter()
            wire.call("agent.spawn", workspace=top, name=name, prompt="/say hi", clone=True, network="none")
            finish(wire, [name])
            return time.perf_counter() - began

        def by_hand() -> float:
            return timed([*_GIT, "clone", "-q", "--shared", top, f"{running.root}/clone{next(numbers)}"])

        ours, floor = paired(spawn, by_hand, 5)
        wire.close()
    value = f"{ours:.0f} ms, {ours / floor:.1f} x"
    return Figure(TAGS, value, f"git clone --shared {floor:.0f} ms", "5 x floor", met=ours <= 5 * floor)


def _keep(parts: _Parts, clone: Clone, number: int) -> Figure:
    for _ in range(2):  # the first writes an index of its own; files as new as their index are read once more
        time.sleep(1.1)
        clone = parts.keep(clone)

    async def kept() -> float:
        began = time.perf_counter()
        await parts.keeping._keep(clone, 1)
        return time.perf_counter() - began

    status = ["git", "-C", clone.tree, "status", "--porcelain"]
    # Outside of its sandbox a clone doesn't find the objects that it borrows.
    environ = {**os.environ, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{clone.git_dir}/objects"}
    ours, floor = paired(lambda: trio.run(kept), lambda: timed(status, environ), _TIMES)
    goal = 1.5 * floor + 15
    return Figure(KEEP[number], f"{ours:.1f} ms", f"git status {floor:.1f} ms", "1.5 x floor + 15 ms", met=ours <= goal)


def _keep_changed(parts: _Parts, clone: Clone, other: str) -> Figure:
    numbers, kept = itertools.count(), [clone]

    def change(tree: str) -> None:
        with open(f"{tree}/d0/f0", "a", encoding="ascii") as file:
            file.write(f"line {next(numbers)}\n")

    def ours() -> float:
        change(clone.tree)
        began = time.perf_counter()
        kept[0] = parts.keep(kept[0])
        return time.perf_counter() - began

    def floor() -> float:
        change(other)
        line = " ".join((*_GIT, "-C", other))
        return timed(["/bin/sh", "-c", f"{line} add --all && {line} commit --quiet --message=x"])

    first, second = paired(ours, floor, 7)
    goal = 10 * second + 150
    return Figure(
        CHANGED, f"{first:.0f} ms", f"git add and commit {second:.0f} ms", "10 x floor + 150 ms", met=first <= goal
    )


def _make(parts: _Parts, root: str, repository: str, numbers: Iterator[int]) -> float:
    clone = _clone(root, repository, f"made{next(numbers)}")
    began = time.perf_counter()
    parts.make(clone)
    took = time.perf_counter() - began
    shutil.rmtree(clone.tree)
    return took


def _add(root: str, repository: str, numbers: Iterator[int]) -> float:
    place = f"{root}/worktree{next(numbers)}"
    took = timed([*_GIT, "-C", repository, "worktree", "add", "--quiet", "--detach", place])
    subprocess.run([*_GIT, "-C", repository, "worktree", "remove", "--force", place], check=True)
    return took


def _repository(path: str, number: int) -> str:
    for index in range(number):
        name = f"{path}/d{index % 100}/f{index}"
        if index < 100:
            os.makedirs(os.path.dirname(name))
        with open(name, "w", encoding="ascii") as file:
            file.write(f"file {index}\n" * 20)
    for line in (("init", "-q"), ("add", "--all"), ("commit", "-q", "-m", "first")):
        subprocess.run([*_GIT, "-C", path, *line], check=True)
    return path


def _clone(root: str, repository: str, name: str) -> Clone:
    head = subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], capture_output=True, check=True, text=True)
    return Clone(
        name, name, f"{root}/trees/{name}", repository, f"{repository}/.git", repository, f"substrat/{name}",
        base=head.stdout.strip(), stage=Stage.WANTED,
    )  # fmt: skip
