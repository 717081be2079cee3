"""Finds files that a turn has committed or staged as content, for want of a filter such as git-lfs's in its sandbox.

An example: without git-lfs a pointer that was only touched is committed as whatever file stands there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox.spec import Bind
from substrat.core.workspaces import drivers
from substrat.daemon.agents.findings import UNFILTERED, Found
from substrat.daemon.sandboxes import oneshot
from substrat.daemon.sandboxes.git import TAME
from substrat.daemon.workspaces.protected_paths import listed
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from collections.abc import Collection

    from sandbox.host import Bubblewrap
    from sandbox.spec import Mount
    from substrat.core.agents.records import Agent
    from substrat.daemon.kernel.files import Files

_PATIENCE_S = 4.0
"""The end of a turn waits for this."""
_MOST = 50
"""Files whose beginning is looked at: each costs some 5 ms."""
_FILTERED = tuple(drivers.FORMS.values())
# Prints the files that differ from a commit, each with the filter that its attributes name. $1 is the commit, or empty.
_CHANGED = """\
since=${1:-$(git hash-object -t tree /dev/null)}
git diff-index --cached --no-renames --diff-filter=d --name-only -z "$since" -- | head -c 4000000 |
    git check-attr --cached -z --stdin filter
"""
# Prints how files of the index begin, in hexadecimal digits, a line each.
_BEGINNINGS = """\
for path; do git cat-file blob ":0:$path" | head -c 64 | od -An -v -tx1 | tr -d ' \\n'; echo; done
"""


async def find(
    files: Files,
    bubblewrap: Bubblewrap,
    agent: Agent,
    since: str | None,
    filters: Collection[str],
    *,
    git_dirs: tuple[str, ...],
    lent: tuple[Mount, ...],
    system: tuple[Mount, ...],
) -> list[Found]:
    """Return findings about files that were committed or staged since a commit without a filter.

    git runs in a sandbox without a network that sees the workspace and its repository, and writes nothing.

    Args:
        files: opens the files that git sees.
        bubblewrap: bubblewrap.
        agent: the agent.
        since: the commit that HEAD was at; None: there was none.
        filters: the filters that its sandbox didn't have.
        git_dirs: the git directories elsewhere that its repository is in.
        lent: the mounts of the objects that its clone borrows.
        system: the mounts of the operating system.

    Raises:
        SandboxFailed: git couldn't be asked.
    """
    top, named_as = (agent.workspace,) * 2 if agent.clone is None else (agent.clone.tree, agent.clone.repository)
    shown = (Bind(path, path, held=True) for path in (top, *git_dirs))
    mounts: tuple[Mount, ...] = (*shown, *lent)

    async def ask(script: str, *words: str) -> bytes:
        command = ("/bin/sh", "-c", script, "sh", *words)
        done = await oneshot.run(
            files, bubblewrap, command, mounts, top, system=system, seconds=_PATIENCE_S, variables=TAME
        )
        if done.status:
            raise SandboxFailed(done.errors.decode("utf-8", "replace").strip()[:200])
        return done.output

    words = (await ask(_CHANGED, since or "")).split(b"\0")
    named = zip(words[::3], words[2::3], strict=False)
    found = [(os.fsdecode(path), os.fsdecode(name)) for path, name in named if os.fsdecode(name) in filters][:_MOST]
    begins = (await ask(_BEGINNINGS, *(path for path, _ in found))).split(b"\n") if found else []
    whole = [
        (path, name)
        for (path, name), begin in zip(found, begins, strict=False)
        if not bytes.fromhex(begin.decode()).startswith(_FILTERED)
    ]
    return [
        Found(
            f"{named_as}/{whole[0][0]}",
            f"committed or staged as content, because the sandbox doesn't have git's filter {name}: "
            f"{listed([path for path, its in whole if its == name])}; `git add --renormalize .` on the host filters them",
            kind=UNFILTERED,
        )
        for name in dict.fromkeys(name for _, name in whole)
    ]
