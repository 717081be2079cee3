"""Makes an agent's private clone, and says what it would lack.

The sandbox shows the user's git directory read-only, and the tree to write to; `substrat.daemon.clones.making` runs it.
"""

from __future__ import annotations

import os

from substrat.inside.clone import cursor, files
from substrat.inside.clone.git import CHECKOUT, CLONE, REPOSITORY, TREE, USERS, Git
from substrat.inside.clone.large_files import count_pointers, write_files
from substrat.inside.clone.refs import AGENTS, bring_shallow, copy_settings, known, users_refs, write_refs
from substrat.inside.clone.submodules import fill_submodules, gitlinks, lenders, refresh_submodules, users_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SUBSTRAT = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Substrat"), ("EMAIL", "substrat@localhost"))
}


def look(request: dict[str, Any]) -> dict[str, object]:
    """Count what a clone at a commit would lack: submodules that stay empty, and LFS files that are pointers."""
    users = USERS.given(GIT_ALTERNATE_OBJECT_DIRECTORIES=":".join(request["objects"]))
    empty, pointers, waiting = 0, 0, [(request["base"], lenders(request), users)]
    while waiting:
        commit, lending, git = waiting.pop()
        pointers += count_pointers(commit, git, can_fill=bool(request["lfs"]))
        for _, inner, _, lent, _ in gitlinks(commit, lending, request["modules"], git):
            if lent is None or not known((inner,), users_repository(lent)):
                empty += 1
            else:
                waiting.append((inner, (f"{lent}/",), users_repository(lent)))
    return {"empty": empty, "pointers": pointers}


def make(request: dict[str, Any]) -> dict[str, object]:
    """Make a clone in the empty directory `TREE`."""
    base, branch = request["base"], request["branch"]
    _begin(request)
    if request["wip"]:
        base = _commit_of_uncommitted(request) or base
    if base is not None:
        CLONE("update-ref", f"refs/heads/{branch}", base)
        # The user's objects first: each file's would be looked for in vain among the clone's own.
        first, *others = request["objects"]
        places = ":".join((*others, f"{TREE}/.git/objects"))
        found = CLONE.given(GIT_OBJECT_DIRECTORY=first, GIT_ALTERNATE_OBJECT_DIRECTORIES=places)
        # git-lfs finds its objects by the clone's own list of alternates.
        write_files(CLONE if request["lfs"] else found, request["lfs"])
        fill_submodules(request)
    cursor.hide(request["cursor"])
    return {"base": base, "has_setup": _has_setup(request), "size": files.size(TREE)}


def renew(request: dict[str, Any]) -> dict[str, object]:
    """Make the git directory of a clone anew around its files, with its branch at `base`; the one there moves aside."""
    git, aside = f"{TREE}/.git", f"{TREE}/.git-damaged"
    if os.path.lexists(git):
        number = 1
        while os.path.lexists(f"{aside}-{number}"):
            number += 1
        os.rename(git, f"{aside}-{number}")
    _begin(request)
    if request["base"] is not None:
        CLONE("update-ref", f"refs/heads/{request['branch']}", request["base"])
        CLONE("reset", "-q", "--mixed")
    cursor.hide(request["cursor"])
    with open(f"{git}/info/exclude", "a", encoding="utf-8") as file:
        file.write("/.git-damaged-*\n")
    return {}


def _begin(request: dict[str, Any]) -> None:
    """Make the git directory, without a commit."""
    form = USERS("rev-parse", "--show-object-format").strip()
    options = ("-q", "--template=", f"--object-format={form}", f"--initial-branch={request['branch']}")
    Git({})("init", *options, TREE)
    os.makedirs(f"{TREE}/.git/info", exist_ok=True)
    files.write(f"{TREE}/.git/objects/info/alternates", "".join(f"{path}\n" for path in request["objects"]))
    copy_settings(REPOSITORY, CLONE)
    refresh(request)


def _has_setup(request: dict[str, Any]) -> bool:
    """Say whether the clone may have to be set up; a commit of the user's uncommitted changes may hide that it has to.

    The index is asked, because the files of `cursor` are left out of the tree.
    """
    places = {request["cursor"], request["top_cursor"]}
    names = (".worktreeinclude", *(f"{place}/worktrees.json" for place in places))
    return bool(request["wip"]) or CLONE("--literal-pathspecs", "ls-files", "--", *names) != ""


def _commit_of_uncommitted(request: dict[str, Any]) -> str | None:
    """Commit the user's uncommitted files into the clone's objects; None when there are none."""
    index = "/tmp/index"  # noqa: S108 - the sandbox's own
    own = os.path.join(REPOSITORY, request["own"])
    if os.path.exists(f"{own}/index"):
        files.copy_index(f"{own}/index", index)
    places = {
        "GIT_DIR": own, "GIT_COMMON_DIR": REPOSITORY, "GIT_WORK_TREE": CHECKOUT, "GIT_INDEX_FILE": index,
        "GIT_OBJECT_DIRECTORY": f"{TREE}/.git/objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(request["objects"]),
    }  # fmt: skip
    git = Git({**_SUBSTRAT, **places}, CHECKOUT)
    git("add", "--all")
    tree = git("write-tree").strip()
    base = request["base"]
    if base is not None and tree == git("rev-parse", f"{base}^{{tree}}").strip():
        return None
    parents = ("-p", base) if base is not None else ()
    return git("commit-tree", *parents, "-m", "Uncommitted changes of the user's checkout", tree).strip()


def refresh(request: dict[str, Any]) -> dict[str, object]:
    """Write the user's branches as `refs/remotes/workspace/*`, and his remotes' branches and tags as they are.

    The kept heads of the agent's descendants, `agents` in the request, become `refs/remotes/agents/*`.
    """
    bring_shallow(USERS, CLONE)
    cursor.leave_out(request["cursor"])
    wanted = users_refs(USERS, CLONE, has_tags=request.get("tags", True))
    heads = request.get("agents", {})
    there = known(heads.values(), CLONE) if heads else set()
    wanted.update({f"{AGENTS}{name}": commit for name, commit in heads.items() if commit in there})
    changed = write_refs(wanted, CLONE, deletes=True)
    refresh_submodules(request)
    return {"changed": changed}
