"""The user's refs and settings in a clone, or in the repository of a submodule there."""

from __future__ import annotations

import os

from substrat.inside.clone import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.inside.clone.git import Git

AGENTS = "refs/remotes/agents/"
"""Where a clone has the kept heads of its agent's descendants; a remote of the user's of that name isn't shown."""

_COPIED = ("core.autocrlf", "core.eol", "core.safecrlf", "core.filemode", "core.ignorecase", "core.symlinks", "i18n.")
"""Settings of the user's repository that decide how files and commits look; none names a program (git-config(1))."""


def users_refs(users: Git, git: Git, *, has_tags: bool = True) -> dict[str, str]:
    """Return the refs that a repository gets of the user's, with their commits.

    Args:
        users: git for the user's repository.
        git: git for the repository, in which broken refs of the user's are missing: they keep no clone from being made.
        has_tags: whether tags are among them.
    """
    listed = users("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/remotes", "refs/tags")
    there = known((line.partition(" ")[2] for line in listed.splitlines()), git)
    found = {}
    for line in listed.splitlines():
        ref, commit = line.split(" ", 1)
        if commit not in there or ref.startswith(("refs/remotes/workspace/", AGENTS)):
            continue
        if ref.startswith("refs/heads/"):
            ref = f"refs/remotes/workspace/{ref.removeprefix('refs/heads/')}"
        elif ref.startswith("refs/tags/") and not has_tags:
            continue
        found[ref] = commit
    return found


def write_refs(wanted: dict[str, str], git: Git, *, deletes: bool) -> int:
    """Bring refs into a repository; return how many have changed."""
    listed = git("for-each-ref", "--format=%(refname) %(objectname)", "refs/remotes", "refs/tags")
    present = dict(line.split(" ", 1) for line in listed.splitlines())
    packed = f"{git.variables['GIT_DIR']}/packed-refs"
    if not present and not os.path.lexists(packed):  # as `git clone` does: a file a ref takes ten times as long
        lines = sorted(f"{commit} {ref}\n" for ref, commit in wanted.items())
        files.write(packed, "".join(("# pack-refs with:\n", *lines)))
        return len(wanted)
    new = [f"update {ref}\0{commit}\0\0" for ref, commit in wanted.items() if present.get(ref) != commit]
    gone = [ref for ref in present if ref not in wanted and ref.startswith("refs/remotes/") and deletes]
    old = [f"delete {ref}\0\0" for ref in gone]
    if new or old:
        # A commit that a branch of the user's has left is none of the agent's, as those that logs name may be.
        line = ("-c", "core.logAllRefUpdates=false", "update-ref", "-z", "--stdin", "--no-deref")
        git(*line, given="".join((*old, *new)))
    return len(new) + len(old)


def bring_shallow(users: Git, git: Git) -> None:
    """Have history end in a repository where the user's lets it end.

    Of a commit that the user doesn't have, the repository's own list decides: the agent may have fetched it without its
    parents.
    """
    path = f"{git.variables['GIT_DIR']}/shallow"
    present, theirs = set(files.read(path).split()), set(files.read(f"{users.variables['GIT_DIR']}/shallow").split())
    kept = theirs | (present - theirs - known(present - theirs, users))
    if kept and kept != present:
        files.write(path, "".join(f"{commit}\n" for commit in sorted(kept)))
    elif present and not kept:
        os.unlink(path)


def known(commits: Iterable[str], git: Git) -> set[str]:
    """Return those of some objects that are there."""
    given = "".join(f"{commit}\n" for commit in set(commits))
    said = given and git("cat-file", "--batch-check=%(objectname)", given=given)
    return {line for line in said.splitlines() if not line.endswith(" missing")}


def copy_settings(git_dir: str, git: Git) -> None:
    """Copy into a repository what decides about files, and the remotes without passwords."""
    said = git("config", "--file", f"{git_dir}/config", "--no-includes", "--list", "-z")
    for entry in said.split("\0"):
        key, _, value = entry.partition("\n")
        if key.startswith(_COPIED):
            git("config", "--add", key, value)
        elif key.startswith("remote.") and key.endswith((".url", ".fetch")) and not key.startswith("remote.workspace."):
            value = without_password(value) if key.endswith(".url") else value
            git("config", "--add", key, value)


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
