"""The files of a commit that are git-lfs's: whole where the user has their objects, and counted where not."""

from __future__ import annotations

import os
import re
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.inside.clone.git import Git

_POINTER = re.compile(r"^version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})$", re.MULTILINE)
"""How a file of git-lfs begins whose content is elsewhere (git-lfs, docs/spec.md); it has fewer than 1,000 bytes."""

OFFLINE = {"lfs.url": "http://127.0.0.1:0/", "lfs.standalonetransferagent": ""}
"""Settings under which git-lfs asks no server, and with `GIT_LFS_SKIP_DOWNLOAD_ERRORS` leaves a pointer."""


def write_files(git: Git, lfs: dict[str, str]) -> None:
    """Write the files of HEAD; git-lfs asks no server for those whose objects aren't there."""
    settings = {**lfs, **OFFLINE} if lfs else {}
    given = tuple(word for key, value in settings.items() for word in ("-c", f"{key}={value}"))
    git = git.given(GIT_LFS_SKIP_DOWNLOAD_ERRORS="1")
    git("-c", "checkout.workers=0", *given, "reset", "-q", "--hard")
    # git takes a file for changed that is as new as its index (technical/racy-git in its documentation), and the agent's
    # first `add` would write its object anew, because those of the user are read-only. git counts whole seconds.
    second = int(os.stat(f"{git.variables['GIT_DIR']}/index").st_mtime)
    for name in git("ls-files", "-z").split("\0"):
        path = f"{git.variables['GIT_WORK_TREE']}/{name}"
        with suppress(OSError):
            if name and os.lstat(path).st_mtime >= second:
                os.utime(path, (second - 1, second - 1), follow_symlinks=False)
    git(*given, "update-index", "-q", "--refresh", fine=(0, 1))


def count_pointers(commit: str, git: Git, *, can_fill: bool) -> int:
    """Count the files of git-lfs in a commit that are pointers in a clone, for want of their objects or of git-lfs."""
    listed = tree_entries(commit, git)
    if not any(os.path.basename(path) == ".gitattributes" for _, path in listed):
        return 0
    git = git.given(GIT_INDEX_FILE="/tmp/index")  # noqa: S108 - the sandbox's own
    git("read-tree", commit)
    paths = "\0".join(path for _, path in listed)
    words = git("check-attr", "--cached", "-z", "--stdin", "filter", given=paths).split("\0")
    filters = dict(zip(words[::3], words[2::3], strict=False))
    blobs = "".join(f"{facts.split()[2]}\n" for facts, path in listed if filters.get(path) == "lfs")
    sizes = git("cat-file", "--batch-check=%(objectsize) %(objectname)", given=blobs)
    small = "".join(f"{blob}\n" for size, _, blob in (line.partition(" ") for line in sizes.splitlines()) if len(size) < 4)
    found = _POINTER.findall(git("cat-file", "--batch", given=small))
    places = (f"{git.variables['GIT_DIR']}/lfs/objects/{name[:2]}/{name[2:4]}/{name}" for name in found)
    return sum(not can_fill or not os.path.isfile(place) for place in places)


def tree_entries(commit: str, git: Git) -> list[tuple[str, str]]:
    """Return the entries of a commit's tree, each as `100644 blob 1f…` and its path."""
    entries = (line.partition("\t") for line in git("ls-tree", "-r", "-z", "--full-tree", commit).split("\0"))
    return [(facts, path) for facts, _, path in entries if path]
