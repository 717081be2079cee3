"""Reads how a new clone is set up, and copies the files that it gets besides.

The sandbox shows the clone, the user's checkout and git directory (read-only), and the directory that is written to. The
commands and the list of files are read from a commit, never from a checkout: an agent could have changed them there.
`substrat.daemon.clones.setting_up` runs it.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager, suppress

from substrat.inside.clone.git import CHECKOUT, CLONE, OUT, REPOSITORY, TREE, Failed, Git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

FILES, SCRIPT = "files", "script"
SCRIPT_IN_SANDBOX = "/run/substrat/setup-script"

SETTINGS = ("setup-worktree-unix", "setup-worktree")
"""The members of `.cursor/worktrees.json` with the commands, the first there counts (cursor.com/docs, Worktrees)."""
INCLUDE = ".worktreeinclude"
_MOST_TEXT = 64 * 1024
"""Bytes of `worktrees.json`, of `.worktreeinclude` and of a script: people write them by hand."""
_MOST_FILES, _MOST_BYTES = 2000, 256 << 20
"""Logins, certificates and local settings are a few small files. A directory of dependencies is what set-up commands are
for: copying it for every agent would fill the disk."""
_PATTERNS = "/tmp/patterns"  # noqa: S108 - the sandbox's own
_PIECE = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def set_up(request: dict[str, Any]) -> dict[str, object]:
    """Copy the included files into the clone and `OUT/files`, a script to `OUT/script`, and return the commands.

    Args:
        request: `base`, the commit for commands; `include`, the one for the list of files, or null; `is_strange`, whether
            nothing is done that `base` asks for; `places`, the directories that may hold `worktrees.json`, the first one
            counts; `own`, the checkout's git directory from the common one; `refused`, paths in the checkout that no agent
            may have.
    """
    os.mkdir(f"{OUT}/{FILES}", 0o755)
    included = 0
    left_out: list[str] = []
    include = request["include"]
    if request["is_strange"]:
        asking = (INCLUDE, *(f"{place}/worktrees.json" for place in request["places"]))
        asks = any(_blob(request["base"], name) is not None for name in asking)
        return {"commands": [], "included": 0, "left_out": [], "is_strange": asks}
    if include is not None and (patterns := _blob(include, INCLUDE)) is not None:
        names = [name for name in _wanted(patterns, request) if not _is_refused(name, request["refused"])]
        included, left_out = _copy_all(names)
    return {"commands": _commands(request), "included": included, "left_out": left_out[:20]}


def _commands(request: dict[str, Any]) -> list[str]:
    for place in request["places"]:
        path = f"{place}/worktrees.json"
        if (text := _blob(request["base"], path)) is not None:
            return _commands_of(text, path, request["base"])
    return []


def _commands_of(text: bytes, path: str, base: str) -> list[str]:
    try:
        settings = json.loads(text)
    except ValueError as problem:
        raise Failed(f"{path} is no JSON ({problem})") from None
    if not isinstance(settings, dict):
        raise Failed(f"{path} must be an object with a member {SETTINGS[0]!r}")
    name = next((name for name in SETTINGS if settings.get(name) is not None), None)
    found = settings[name] if name is not None else []
    if isinstance(found, str):
        return [_script(os.path.normpath(f"{os.path.dirname(path)}/{found}"), base, f"{path}: {name!r}")]
    if not isinstance(found, list) or not all(isinstance(word, str) and "\0" not in word for word in found):
        raise Failed(f"{path}: {name!r} must be a list of commands, or the path of a script beside it")
    return found


def _script(path: str, base: str, where: str) -> str:
    """Copy a script out of the commit, and return the command that runs it."""
    if path.startswith(("/", "../")) or (text := _blob(base, path)) is None:
        raise Failed(f"{where} names {path}, which is no file of the commit {base[:12]}")
    with open(f"{OUT}/{SCRIPT}", "wb") as file:
        file.write(text)
    if not text.startswith(b"#!"):
        return f"sh {SCRIPT_IN_SANDBOX}"
    os.chmod(f"{OUT}/{SCRIPT}", 0o700)
    return SCRIPT_IN_SANDBOX


def _blob(commit: str, path: str) -> bytes | None:
    """Return a file of a commit, None when there is none."""
    name = f"{commit}:{path}"
    if CLONE("cat-file", "-t", name, fine=(0, 128)).strip() != "blob":
        return None
    if int(CLONE("cat-file", "-s", name)) > _MOST_TEXT:
        raise Failed(f"{path} has more than {_MOST_TEXT >> 10} KiB")
    return os.fsencode(CLONE("cat-file", "blob", name))


def _wanted(patterns: bytes, request: dict[str, Any]) -> Iterator[str]:
    """Give the files of the checkout that the patterns name and that git ignores there."""
    with open(_PATTERNS, "wb") as file:
        file.write(patterns)
    own = os.path.join(REPOSITORY, request["own"])
    checkout = Git({"GIT_DIR": own, "GIT_COMMON_DIR": REPOSITORY, "GIT_WORK_TREE": CHECKOUT}, CHECKOUT)
    named = checkout("ls-files", "-z", "--others", "--ignored", f"--exclude-from={_PATTERNS}")
    if named:
        for name in checkout("check-ignore", "-z", "--stdin", given=named, fine=(0, 1)).split("\0"):
            if name and not name.endswith("/"):
                yield name


def _is_refused(name: str, refused: list[str]) -> bool:
    first, parts = name.partition("/")[0], set(name.split("/"))
    return first == ".cursor" or ".git" in parts or any(name == path or name.startswith(f"{path}/") for path in refused)


def _copy_all(names: list[str]) -> tuple[int, list[str]]:
    """Copy files; returns how many were, and those that were left out because they are links or no plain files."""
    narrower = f"{INCLUDE} names %s: leave directories of dependencies to the commands of .cursor/worktrees.json"
    if len(names) > _MOST_FILES:
        raise Failed(narrower % f"more than {_MOST_FILES} files")
    left, copied, left_out = _MOST_BYTES, 0, []
    for name in names:
        try:
            size = _copy(name, left)
        except OSError:
            left_out.append(name)
            continue
        left -= size
        if left < 0:
            raise Failed(narrower % f"more than {_MOST_BYTES >> 20} MiB")
        copied += 1
    return copied, left_out


def _copy(name: str, most: int) -> int:
    """Copy one file into `OUT/files` and into the clone, and return its size; no link is followed on any way."""
    folder, _, last = name.rpartition("/")
    with _held(_folder(CHECKOUT, folder, make=False)) as source_folder:
        source = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source_folder)
    with open(source, "rb") as file:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(name)
        if found.st_size > most:
            return most + 1
        mode = 0o600 | found.st_mode & 0o755
        for root in (f"{OUT}/{FILES}", TREE):
            with _held(_folder(root, folder, make=True)) as into:
                file.seek(0)
                with suppress(FileExistsError):
                    _write(file, last, into, mode, most)
        return file.tell()


def _write(file: Any, name: str, into: int, mode: int, most: int) -> None:
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=into)
    with open(made, "wb") as copy:
        while (piece := file.read(_PIECE)) and file.tell() <= most:
            copy.write(piece)


@contextmanager
def _held(descriptor: int) -> Iterator[int]:
    """Close a descriptor in the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _folder(root: str, path: str, *, make: bool) -> int:
    """Open a directory below another, a name at a time, and make what is missing of it."""
    opened = os.open(root, _DIRECTORY)
    for name in path.split("/") if path else ():
        with _held(opened):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=opened)
            opened = os.open(name, _DIRECTORY, dir_fd=opened)
    return opened
