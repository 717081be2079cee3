"""Makes an agent's private clone, or brings the user's refs into one; run by the daemon in a sandbox without a network.

It sees the user's git directory read-only, and the tree to write to. It runs with any Python that the system has, so it
imports next to nothing; `substrat.daemon.clones.making` runs it.

Usage: a JSON object (`Request` there says its members). Exit status 0: done, and stdout has a JSON object such as
`{"base": "1234…"}`; 3: it can't be done, and stderr says why in one line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

TREE = "/run/substrat/tree"
REPOSITORY = "/run/substrat/repository"
CHECKOUT = "/run/substrat/checkout"
MODULES = "/run/substrat/modules"
FAILED = 3

AGENTS = "refs/remotes/agents/"
"""Where a clone has the kept heads of its agent's descendants; a remote of the user's of that name isn't shown."""

_GLOB, _ESCAPED = re.compile(r"([\\*?\[])"), r"\\\1"
"""The letters that mean more in a pattern (gitignore(5))."""
_COPIED = ("core.autocrlf", "core.eol", "core.safecrlf", "core.filemode", "core.ignorecase", "core.symlinks", "i18n.")
"""Settings of the user's repository that decide how files and commits look; none names a program (git-config(1))."""
_USERS = {"GIT_DIR": REPOSITORY, "GIT_WORK_TREE": "/"}
"""The user's repository; git would look for the directory that a submodule's `core.worktree` names, and end without it."""
_POINTER = re.compile(r"^version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})$", re.MULTILINE)
"""How a file of git-lfs begins whose content is elsewhere (git-lfs, docs/spec.md); it has fewer than 1,000 bytes."""
_SUBSTRAT = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Substrat"), ("EMAIL", "substrat@localhost"))
}


class Failed(Exception):
    """It can't be done; the message says why."""


def main(line: Sequence[str]) -> int:
    """Do what the request says; returns the exit status."""
    request = json.loads(line[0])
    try:
        answer = {"look": look, "make": make, "refresh": refresh, "renew": renew}[request["task"]](request)
    except (Failed, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return FAILED
    json.dump(answer, sys.stdout)
    return 0


def look(request: dict[str, Any]) -> dict[str, object]:
    """Count what a clone at a commit would lack: submodules that stay empty, and LFS files that are pointers."""
    users = {**_USERS, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(request["objects"])}
    empty, pointers, waiting = 0, 0, [(request["base"], _lenders(request), users)]
    while waiting:
        commit, lenders, where = waiting.pop()
        pointers += _count_pointers(commit, where, can_fill=bool(request["lfs"]))
        for _, inner, _, lent, _ in _gitlinks(commit, lenders, request["modules"], where):
            users = {"GIT_DIR": f"{REPOSITORY}/{lent}", "GIT_WORK_TREE": "/"}
            if lent is None or not _known((inner,), users):
                empty += 1
            else:
                waiting.append((inner, (f"{lent}/",), users))
    return {"empty": empty, "pointers": pointers}


def make(request: dict[str, Any]) -> dict[str, object]:
    """Make a clone in the empty directory `TREE`."""
    base, branch = request["base"], request["branch"]
    _begin(request)
    if request["wip"]:
        base = _commit_of_uncommitted(request) or base
    if base is not None:
        _tree("update-ref", f"refs/heads/{branch}", base)
        # The user's objects first: each file's would be looked for in vain among the clone's own.
        first, *others = request["objects"]
        places = ":".join((*others, f"{TREE}/.git/objects"))
        found = {"GIT_OBJECT_DIRECTORY": first, "GIT_ALTERNATE_OBJECT_DIRECTORIES": places}
        # git-lfs finds its objects by the clone's own list of alternates.
        _write_files({} if request["lfs"] else found, request["lfs"])
        _fill_submodules(request)
    _hide_cursor(request["cursor"])
    return {"base": base, "has_setup": _has_setup(request)}


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
        _tree("update-ref", f"refs/heads/{request['branch']}", request["base"])
        _tree("reset", "-q", "--mixed")
    _hide_cursor(request["cursor"])
    with open(f"{git}/info/exclude", "a", encoding="utf-8") as file:
        file.write("/.git-damaged-*\n")
    return {}


def _begin(request: dict[str, Any]) -> None:
    """Make the git directory, without a commit."""
    form = _run("git", "rev-parse", "--show-object-format", environ={**os.environ, **_USERS}).strip()
    options = ("-q", "--template=", f"--object-format={form}", f"--initial-branch={request['branch']}")
    _run("git", "init", *options, TREE)
    os.makedirs(f"{TREE}/.git/info", exist_ok=True)
    _write(f"{TREE}/.git/objects/info/alternates", "".join(f"{path}\n" for path in request["objects"]))
    if os.path.exists(f"{REPOSITORY}/shallow"):
        _copy(f"{REPOSITORY}/shallow", f"{TREE}/.git/shallow")
    _copy_settings(REPOSITORY)
    refresh(request)


def _has_setup(request: dict[str, Any]) -> bool:
    """Say whether the clone may have to be set up; a commit of the user's uncommitted changes may hide that it has to.

    The index is asked, because the files of `cursor` are left out of the tree.
    """
    places = {request["cursor"], request["top_cursor"]}
    names = (".worktreeinclude", *(f"{place}/worktrees.json" for place in places))
    return bool(request["wip"]) or _tree("--literal-pathspecs", "ls-files", "--", *names) != ""


def refresh(request: dict[str, Any]) -> dict[str, object]:
    """Write the user's branches as `refs/remotes/workspace/*`, and his remotes' branches and tags as they are.

    The kept heads of the agent's descendants, `agents` in the request, become `refs/remotes/agents/*`.
    """
    _leave_out(request["cursor"])
    wanted = _user_refs(_USERS, has_tags=request.get("tags", True))
    heads = request.get("agents", {})
    known = _known(heads.values()) if heads else set()
    wanted.update({f"{AGENTS}{name}": commit for name, commit in heads.items() if commit in known})
    changed = _write_refs(wanted)
    _refresh_submodules(request)
    return {"changed": changed}


def _write_refs(wanted: dict[str, str], where: dict[str, str] | None = None) -> int:
    """Bring the user's refs into the clone, or into a submodule's repository there; return how many have changed."""
    listed = _tree("for-each-ref", "--format=%(refname) %(objectname)", "refs/remotes", "refs/tags", more=where)
    present = dict(line.split(" ", 1) for line in listed.splitlines())
    new = [f"update {ref}\0{commit}\0\0" for ref, commit in wanted.items() if present.get(ref) != commit]
    # Tags are only added, as all of a submodule's: the agent may have made some, or fetched them.
    gone = [ref for ref in present if ref not in wanted and ref.startswith("refs/remotes/") and where is None]
    old = [f"delete {ref}\0\0" for ref in gone]
    if new or old:
        # A commit that a branch of the user's has left is none of the agent's, as those that logs name may be.
        line = ("-c", "core.logAllRefUpdates=false", "update-ref", "-z", "--stdin", "--no-deref")
        _tree(*line, given="".join((*old, *new)), more=where)
    return len(new) + len(old)


def _user_refs(users: dict[str, str], where: dict[str, str] | None = None, *, has_tags: bool = True) -> dict[str, str]:
    form = "--format=%(refname) %(objectname)"
    listed = _run("git", "for-each-ref", form, "refs/heads", "refs/remotes", "refs/tags", environ={**os.environ, **users})
    known = _known((line.partition(" ")[2] for line in listed.splitlines()), where)
    found = {}
    for line in listed.splitlines():
        ref, commit = line.split(" ", 1)
        if commit not in known or ref.startswith(("refs/remotes/workspace/", AGENTS)):
            continue
        if ref.startswith("refs/heads/"):
            ref = f"refs/remotes/workspace/{ref.removeprefix('refs/heads/')}"
        elif ref.startswith("refs/tags/") and not has_tags:
            continue
        found[ref] = commit
    return found


def _known(commits: Any, where: dict[str, str] | None = None) -> set[str]:
    """Return those of some objects that are there: a broken ref of the user's must not keep a clone from being made."""
    given = "".join(f"{commit}\n" for commit in set(commits))
    said = _tree("cat-file", "--batch-check=%(objectname)", given=given, more=where)
    return {line for line in said.splitlines() if not line.endswith(" missing")}


def _copy_settings(git_dir: str, where: dict[str, str] | None = None) -> None:
    """Copy what decides about files, and the remotes without passwords."""
    said = _run("git", "config", "--file", f"{git_dir}/config", "--no-includes", "--list", "-z")
    for entry in said.split("\0"):
        key, _, value = entry.partition("\n")
        if key.startswith(_COPIED):
            _tree("config", "--add", key, value, more=where)
        elif key.startswith("remote.") and key.endswith((".url", ".fetch")) and not key.startswith("remote.workspace."):
            value = without_password(value) if key.endswith(".url") else value
            _tree("config", "--add", key, value, more=where)


def without_password(url: str) -> str:
    """Return a remote's URL without credentials: `https://me:secret@host/x` is `https://host/x`.

    The user of ssh stays: it is a part of the address.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    host, slash, path = rest.partition("/")
    user, at, address = host.rpartition("@")
    if not at:
        return url
    kept = f"{user.partition(':')[0]}@" if scheme.endswith("ssh") else ""
    return f"{scheme}://{kept}{address}{slash}{path}"


def _commit_of_uncommitted(request: dict[str, Any]) -> str | None:
    """Commit the user's uncommitted files into the clone's objects; None when there are none."""
    index = "/tmp/index"  # noqa: S108 - the sandbox's own
    own = os.path.join(REPOSITORY, request["own"])
    if os.path.exists(f"{own}/index"):
        _copy(f"{own}/index", index)
    environ = {
        **os.environ, **_SUBSTRAT, "GIT_DIR": own, "GIT_COMMON_DIR": REPOSITORY, "GIT_WORK_TREE": CHECKOUT,
        "GIT_INDEX_FILE": index, "GIT_OBJECT_DIRECTORY": f"{TREE}/.git/objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(request["objects"]),
    }  # fmt: skip
    _run("git", "add", "--all", environ=environ, cwd=CHECKOUT)
    tree = _run("git", "write-tree", environ=environ).strip()
    base = request["base"]
    if base is not None and tree == _run("git", "rev-parse", f"{base}^{{tree}}", environ=environ).strip():
        return None
    parents = ("-p", base) if base is not None else ()
    message = "Uncommitted changes of the user's checkout"
    return _run("git", "commit-tree", *parents, "-m", message, tree, environ=environ).strip()


def _leave_out(cursor: str) -> None:
    """Have git leave the directory alone that is mounted over in each turn: what it has there changes in commits only.

    The files that are shown there aren't git's: without `expectFilesOutsideOfPatterns` it takes them for changes of the
    agent's, and no merge goes through that touches the directory (git-config(1)). The agent's own patterns stay: the last
    one that matches a path counts (git-sparse-checkout(1)).
    """
    settings = "^(core[.]sparsecheckout|sparse[.]expectfilesoutsideofpatterns)$"
    if _tree("config", "--local", "--bool", "--get-regexp", settings, fine=(0, 1)).split().count("true") != 2:
        _tree("config", "core.sparseCheckout", "true")
        _tree("config", "sparse.expectFilesOutsideOfPatterns", "true")
    path, pattern = f"{TREE}/.git/info/sparse-checkout", f"!/{_GLOB.sub(_ESCAPED, cursor)}/"
    known = _read(path)
    if pattern in known.splitlines():
        return
    _write(path, f"{known.rstrip() or '/*'}\n{pattern}\n")
    if tracked := _tree("--literal-pathspecs", "ls-files", "-z", "--", cursor):
        _tree("update-index", "-z", "--skip-worktree", "--stdin", given=tracked)
        for name in tracked.split("\0"):  # those of a clone that was made before git left the directory out
            if name and os.path.isfile(f"{TREE}/{name}"):
                os.unlink(f"{TREE}/{name}")


# Submodules


def _fill_submodules(request: dict[str, Any]) -> None:
    """Check out the submodules that the user has, where their repositories have the commits that the clone names.

    `git submodule` isn't asked: it would fetch, by addresses and with commands that a commit may name. A submodule that
    can't be checked out stays an empty directory.
    """
    waiting = [(TREE, f"{TREE}/.git", _lenders(request))]
    while waiting:
        work, git, lenders = waiting.pop()
        where = {"GIT_DIR": git, "GIT_WORK_TREE": work}
        for path, commit, name, lent, address in _gitlinks("HEAD", lenders, request["modules"], where):
            if lent is not None and _check_out(f"{work}/{path}", f"{git}/modules/{name}", lent, commit, request["lfs"]):
                _tree("config", f"submodule.{name}.url", without_password(address), more=where)
                waiting.append((f"{work}/{path}", f"{git}/modules/{name}", (f"{lent}/",)))


def _lenders(request: dict[str, Any]) -> tuple[str, ...]:
    """Return the user's git directories in which repositories of submodules may be, as paths in `REPOSITORY`."""
    return ("",) if request["own"] == "." else (f"{request['own']}/", "")


def _gitlinks(
    commit: str, lenders: tuple[str, ...], modules: Sequence[str], where: dict[str, str]
) -> Iterator[tuple[str, str, str, str | None, str]]:
    """Give each submodule of a commit: its path, commit and name, and, if the user has it, its repository and address."""
    addresses = _submodule_settings("url", ("--file", f"{REPOSITORY}/{lenders[-1]}config", "--no-includes"), where)
    known = _submodule_settings("path", ("--blob", f"{commit}:.gitmodules"), where)
    names = {path: name for name, path in known.items()}
    for facts, path in _listed(commit, where):
        if facts.startswith("160000 "):
            name = names.get(path, "")
            places = (f"{at}modules/{name}" for at in lenders if name in addresses)
            lent = next((place for place in places if place in modules), None)
            yield path, facts.split()[2], name, lent, addresses.get(name, "")


def _refresh_submodules(request: dict[str, Any]) -> None:
    """Bring the user's refs into the submodules' repositories of the clone: `git submodule update` needs no fetch then."""
    for lent in request["modules"]:
        git = f"{TREE}/.git/{lent.removeprefix(_lenders(request)[0])}"
        if os.path.isdir(git) and os.path.realpath(git) == git:
            where = {"GIT_DIR": git, "GIT_WORK_TREE": "/"}
            with suppress(Failed, OSError):  # the agent's work may stand in its place
                _write_refs(_user_refs({"GIT_DIR": f"{REPOSITORY}/{lent}", "GIT_WORK_TREE": "/"}, where), where)


def _listed(commit: str, where: dict[str, str]) -> list[tuple[str, str]]:
    """Return the entries of a commit's tree, each as `100644 blob 1f…` and its path."""
    entries = (line.partition("\t") for line in _tree("ls-tree", "-r", "-z", "--full-tree", commit, more=where).split("\0"))
    return [(facts, path) for facts, _, path in entries if path]


def _submodule_settings(key: str, source: tuple[str, ...], where: dict[str, str]) -> dict[str, str]:
    """Return a setting of each submodule, by the submodules' names; of a file that is no configuration there is none."""
    said = _tree("config", *source, "-z", "--get-regexp", rf"^submodule\..*\.{key}$", more=where, fine=(0, 1, 128))
    found = (entry.partition("\n") for entry in said.split("\0"))
    return {name.removeprefix("submodule.").removesuffix(f".{key}"): value for name, _, value in found}


def _check_out(work: str, git: str, lent: str, commit: str, lfs: dict[str, str]) -> bool:
    """Make a submodule's repository, which borrows the user's objects, and its files; say whether they are there."""
    users, where = {"GIT_DIR": f"{REPOSITORY}/{lent}", "GIT_WORK_TREE": "/"}, {"GIT_DIR": git, "GIT_WORK_TREE": work}
    if os.path.realpath(work) != work or not os.path.isdir(work) or os.listdir(work) or os.path.lexists(git):
        return False
    try:
        form = _run("git", "rev-parse", "--show-object-format", environ={**os.environ, **users}).strip()
        os.makedirs(git)
        _tree("init", "-q", "--template=", f"--object-format={form}", "--initial-branch=main", more=where)
        _write(f"{git}/objects/info/alternates", f"{MODULES}/{lent}/objects\n")
        if os.path.exists(f"{REPOSITORY}/{lent}/shallow"):
            _copy(f"{REPOSITORY}/{lent}/shallow", f"{git}/shallow")
        _tree("config", "core.worktree", os.path.relpath(work, git), more=where)
        _copy_settings(f"{REPOSITORY}/{lent}", where)
        # Else the commit would count as the agent's work, where none of the user's branches has it.
        _write_refs({**_user_refs(users, where), "refs/remotes/workspace/HEAD": commit}, where)
        _tree("update-ref", "--no-deref", "HEAD", commit, more=where)
        _write_files(where, lfs)
        _write(f"{work}/.git", f"gitdir: {os.path.relpath(git, work)}\n")
    except (Failed, OSError):
        shutil.rmtree(git, ignore_errors=True)
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work, exist_ok=True)
        return False
    return True


# Files


def _write_files(where: dict[str, str], lfs: dict[str, str]) -> None:
    """Write the files of HEAD, those of git-lfs whole where the user has their objects; it asks no server for others."""
    offline = {"lfs.url": "http://127.0.0.1:0/", "lfs.standalonetransferagent": ""} if lfs else {}
    given = (word for key, value in {**lfs, **offline}.items() for word in ("-c", f"{key}={value}"))
    where = {**where, "GIT_LFS_SKIP_DOWNLOAD_ERRORS": "1"}
    _tree("-c", "checkout.workers=0", *given, "reset", "-q", "--hard", more=where)


def _count_pointers(commit: str, where: dict[str, str], *, can_fill: bool) -> int:
    """Count the files of git-lfs in a commit that are pointers in a clone, for want of their objects or of git-lfs."""
    listed = _listed(commit, where)
    if not any(os.path.basename(path) == ".gitattributes" for _, path in listed):
        return 0
    where = {**where, "GIT_INDEX_FILE": "/tmp/index"}  # noqa: S108 - the sandbox's own
    _tree("read-tree", commit, more=where)
    paths = "\0".join(path for _, path in listed)
    words = _tree("check-attr", "--cached", "-z", "--stdin", "filter", given=paths, more=where).split("\0")
    filters = dict(zip(words[::3], words[2::3], strict=False))
    blobs = "".join(f"{facts.split()[2]}\n" for facts, path in listed if filters.get(path) == "lfs")
    sizes = _tree("cat-file", "--batch-check=%(objectsize) %(objectname)", given=blobs, more=where)
    small = "".join(f"{blob}\n" for size, _, blob in (line.partition(" ") for line in sizes.splitlines()) if len(size) < 4)
    found = _POINTER.findall(_tree("cat-file", "--batch", given=small, more=where))
    places = (f"{where['GIT_DIR']}/lfs/objects/{name[:2]}/{name[2:4]}/{name}" for name in found)
    return sum(not can_fill or not os.path.isfile(place) for place in places)


def _hide_cursor(cursor: str) -> None:
    """Keep the directory that is mounted over in each turn out of the clone's commits, and make it, to be mounted over."""
    tracked = _tree("--literal-pathspecs", "ls-files", "-z", "--", cursor)
    if tracked:
        _tree("update-index", "-z", "--skip-worktree", "--stdin", given=tracked)
    _write(f"{TREE}/.git/info/exclude", f"/{_GLOB.sub(_ESCAPED, cursor)}/\n")
    if not os.path.lexists(f"{TREE}/{cursor}"):
        os.makedirs(f"{TREE}/{cursor}")


def _tree(
    *arguments: str, given: str | None = None, more: dict[str, str] | None = None, fine: tuple[int, ...] = (0,)
) -> str:
    """Run git in the clone."""
    environ = {**os.environ, "GIT_DIR": f"{TREE}/.git", "GIT_WORK_TREE": TREE, **(more or {})}
    return _run("git", *arguments, environ=environ, cwd=TREE, given=given, fine=fine)


def _run(
    *command: str,
    environ: dict[str, str] | None = None,
    cwd: str = "/",
    given: str | None = None,
    fine: tuple[int, ...] = (0,),
) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environ, input=os.fsencode(given) if given is not None else None,
        stdin=subprocess.DEVNULL if given is None else None, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode not in fine:
        lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        raise Failed(f"{' '.join(command[:2])}: {lines[-1] if lines else done.returncode}")
    return os.fsdecode(done.stdout)


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as given, open(target, "wb") as made:
        while piece := given.read(1 << 20):
            made.write(piece)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
