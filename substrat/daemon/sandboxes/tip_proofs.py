"""Asks git, in sandboxes, whether a file stood at one of the tips that were noted at an agent's spawn (`workspaces.tips`).

No time shows how old an object is that git has written anew since, in a pack for example. But an agent can't make a file
for which a commit vouches that was there before it, because a commit's id is the hash of all its files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog
import trio

from sandbox.spec import Bind
from substrat.core.workspaces import git_proof
from substrat.daemon.kernel import nofollow
from substrat.daemon.sandboxes import oneshot
from substrat.daemon.workspaces.tips import MOST, objects_of
from substrat.errors import SubstratError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sandbox.host import Bubblewrap
    from substrat.core.workspaces.protection import Copy
    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox

log = structlog.get_logger("substrat.protection")

_PATIENCE_S = 4.0
"""Agents are stopped in memory meanwhile, others too whose files change. It takes some 40 ms; an agent may slow it down."""
# Prints, for each file, the commit of the first tip that it stands at, and the trees down to it. $1 are the objects, then
# come each file's blob and its path. Nothing of the repository but its objects is read.
_PROVE = """\
git init -q --bare --template= /tmp/git || exit
export GIT_DIR=/tmp/git GIT_OBJECT_DIRECTORY="$1"
shift
while [ $# -gt 0 ]; do
    line=$(
        while read -r tip; do printf '%s:%s\\n' "$tip" "$2"; done < /tmp/tips |
            git cat-file --batch-check='%(objectname)' | grep -n -x -m 1 -- "$1"
    ) || { shift 2; continue; }
    tip=$(sed -n "${line%%:*}p" /tmp/tips) path=$2
    printf '%s\\n' "$tip" "$tip^{commit}" "$tip^{tree}"
    while [ "$path" != "${path%/*}" ]; do path=${path%/*}; printf '%s:%s\\n' "$tip" "$path"; done
    shift 2
done | git cat-file --batch
"""


class TipProofs:
    """Asks git, in sandboxes, whether files stood at noted tips.

    Args:
        find_bubblewrap: returns bubblewrap.
        unreadable: returns the paths of the operating system that git doesn't see.
    """

    def __init__(
        self, find_bubblewrap: Callable[[], Awaitable[Bubblewrap]], unreadable: Callable[[], Awaitable[tuple[str, ...]]]
    ) -> None:
        self._find_bubblewrap = find_bubblewrap
        self._unreadable = unreadable

    async def known(self, noted: str, sandbox: ProtectedSandbox, found: Mapping[str, Copy]) -> list[str]:
        """Return those of some paths of which all files stood at tips, each under its own path.

        Args:
            noted: the file of `tips.note`.
            sandbox: the sandbox that shows them, which may have put anything into its repository.
            found: copies of the files and directories that are there now.
        """
        files = {
            path: {
                os.path.relpath(f"{path}/{name}" if name else path, sandbox.workspace): file.data
                for name, file in copy.files.items()
            }
            for path, copy in found.items()
            if "/.git/" not in f"{path}/"
        }
        tips = (nofollow.read_own(noted, MOST * 41) or b"").decode("ascii", "replace").split()
        if not tips:
            return []
        proof: dict[str, git_proof.GitObject] = {}
        for objects in await trio.to_thread.run_sync(objects_of, sandbox):
            proof |= await self._prove(noted, objects, {name: data for its in files.values() for name, data in its.items()})

        def stands(name: str, data: bytes) -> bool:
            return git_proof.stands_at(tips, os.fsencode(name), data, proof)

        return [path for path, its in files.items() if its and all(stands(name, data) for name, data in its.items())]

    async def _prove(self, noted: str, objects: str, files: Mapping[str, bytes]) -> dict[str, git_proof.GitObject]:
        """Return the commits at which files stood, and the trees from there to them; where git can't be asked, nothing."""
        words = (
            word for name, data in files.items() if "\n" not in name for word in (git_proof.object_id(b"blob", data), name)
        )
        command = ("/bin/sh", "-c", _PROVE, "sh", objects, *words)
        mounts = (Bind(objects, objects, held=True), Bind(noted, "/tmp/tips"))  # noqa: S108 - the sandbox's own
        try:
            bubblewrap, unreadable = await self._find_bubblewrap(), await self._unreadable()
            done = await oneshot.run(bubblewrap, command, mounts, "/", unreadable, _PATIENCE_S)
        except (SubstratError, OSError) as problem:
            log.info("git wasn't asked about files", objects=objects, reason=str(problem))
            return {}
        return git_proof.read(done.output)
