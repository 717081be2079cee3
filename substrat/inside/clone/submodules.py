"""The submodules of a clone, which borrow the objects of the user's."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import NamedTuple

from substrat.inside.clone import files
from substrat.inside.clone.git import MODULES, REPOSITORY, TREE, Failed, Git
from substrat.inside.clone.large_files import tree_entries, write_files
from substrat.inside.clone.refs import bring_shallow, copy_settings, users_refs, without_password, write_refs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class Gitlink(NamedTuple):
    """A submodule of a commit.

    Args:
        path: where its files are, from the top of the commit's.
        commit: the commit that is to be checked out there.
        name: its name in `.gitmodules`; empty: it has none.
        lent: the user's repository of it, as a path in `REPOSITORY`; None: he has none.
        address: where the user has it from.
    """

    path: str
    commit: str
    name: str
    lent: str | None
    address: str


def lenders(request: dict[str, Any]) -> tuple[str, ...]:
    """Return the user's git directories in which repositories of submodules may be, as paths in `REPOSITORY`."""
    return ("",) if request["own"] == "." else (f"{request['own']}/", "")


def users_repository(lent: str) -> Git:
    """Return git for the user's repository of a submodule."""
    return Git({"GIT_DIR": f"{REPOSITORY}/{lent}", "GIT_WORK_TREE": "/"})


def gitlinks(commit: str, lending: tuple[str, ...], modules: Sequence[str], git: Git) -> Iterator[Gitlink]:
    """Give each submodule of a commit."""
    addresses = _settings("url", ("--file", f"{REPOSITORY}/{lending[-1]}config", "--no-includes"), git)
    names = {path: name for name, path in _settings("path", ("--blob", f"{commit}:.gitmodules"), git).items()}
    for facts, path in tree_entries(commit, git):
        if facts.startswith("160000 "):
            name = names.get(path, "")
            places = (f"{at}modules/{name}" for at in lending if name in addresses)
            lent = next((place for place in places if place in modules), None)
            yield Gitlink(path, facts.split()[2], name, lent, addresses.get(name, ""))


def fill_submodules(request: dict[str, Any]) -> None:
    """Check out the submodules that the user has, where their repositories have the commits that the clone names.

    `git submodule` isn't asked: it would fetch, by addresses and with commands that a commit may name. A submodule that
    can't be checked out stays an empty directory.
    """
    waiting = [(TREE, f"{TREE}/.git", lenders(request))]
    while waiting:
        work, git_dir, lending = waiting.pop()
        git = Git({"GIT_DIR": git_dir, "GIT_WORK_TREE": work})
        for path, commit, name, lent, address in gitlinks("HEAD", lending, request["modules"], git):
            inner_work, inner_dir = f"{work}/{path}", f"{git_dir}/modules/{name}"
            if lent is not None and _check_out(inner_work, inner_dir, lent, commit, request["lfs"]):
                git("config", f"submodule.{name}.url", without_password(address))
                waiting.append((inner_work, inner_dir, (f"{lent}/",)))


def refresh_submodules(request: dict[str, Any]) -> None:
    """Bring the user's refs into the submodules' repositories of the clone: `git submodule update` needs no fetch then."""
    for lent in request["modules"]:
        git_dir = f"{TREE}/.git/{lent.removeprefix(lenders(request)[0])}"
        if os.path.isdir(git_dir) and os.path.realpath(git_dir) == git_dir:
            git = Git({"GIT_DIR": git_dir, "GIT_WORK_TREE": "/"})
            with suppress(Failed, OSError):  # the agent's work may stand in its place
                users = users_repository(lent)
                bring_shallow(users, git)
                write_refs(users_refs(users, git), git, deletes=False)


def _settings(key: str, source: tuple[str, ...], git: Git) -> dict[str, str]:
    """Return a setting of each submodule, by the submodules' names; of a file that is no configuration there is none."""
    said = git("config", *source, "-z", "--get-regexp", rf"^submodule\..*\.{key}$", fine=(0, 1, 128))
    found = (entry.partition("\n") for entry in said.split("\0"))
    return {name.removeprefix("submodule.").removesuffix(f".{key}"): value for name, _, value in found}


def _check_out(work: str, git_dir: str, lent: str, commit: str, lfs: dict[str, str]) -> bool:
    """Make a submodule's repository, which borrows the user's objects, and its files; say whether they are there."""
    users, git = users_repository(lent), Git({"GIT_DIR": git_dir, "GIT_WORK_TREE": work})
    if os.path.realpath(work) != work or not os.path.isdir(work) or os.listdir(work) or os.path.lexists(git_dir):
        return False
    try:
        form = users("rev-parse", "--show-object-format").strip()
        os.makedirs(git_dir)
        git("init", "-q", "--template=", f"--object-format={form}", "--initial-branch=main")
        files.write(f"{git_dir}/objects/info/alternates", f"{MODULES}/{lent}/objects\n")
        bring_shallow(users, git)
        git("config", "core.worktree", os.path.relpath(work, git_dir))
        copy_settings(f"{REPOSITORY}/{lent}", git)
        # Else the commit would count as the agent's work, where none of the user's branches has it.
        write_refs({**users_refs(users, git), "refs/remotes/workspace/HEAD": commit}, git, deletes=False)
        git("update-ref", "--no-deref", "HEAD", commit)
        write_files(git, lfs)
        files.write(f"{work}/.git", f"gitdir: {os.path.relpath(git_dir, work)}\n")
    except (Failed, OSError):
        shutil.rmtree(git_dir, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work, exist_ok=True)
        return False
    return True
