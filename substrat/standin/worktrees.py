"""`--worktree`: the run works in a git worktree of its workspace; git does the work."""

from __future__ import annotations

import os

from substrat.standin import ids, places, processes
from substrat.standin.errors import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.standin.flags import ParsedFlags
    from substrat.standin.places import Places


def move(run_places: Places, environ: Mapping[str, str], arguments: ParsedFlags) -> Places:
    """The directories of a run in the worktree that is asked for, which is made unless it is there.

    Raises:
        RefusalError: git can't make it.
    """
    repository = run_places.workspace
    name = arguments.text("worktree") or ids.new_uuid()[:8]
    path = os.path.join(run_places.data_dir, "worktrees", os.path.basename(repository), name)
    if not os.path.isdir(path):
        base = arguments.text("worktree-base")
        command = ("git", "-C", repository, "worktree", "add", "--quiet", "--detach", path, *((base,) if base else ()))
        if _run(command, environ) != 0:
            raise RefusalError(f"Error: cannot create the worktree {path}")
    return places.Places(environ, os.path.realpath(path), arguments.text("data-dir"))


def _run(command: tuple[str, ...], environ: Mapping[str, str]) -> int:
    """Run a program to its end; its output goes to stderr, because stdout is the stream's."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pid = processes.spawn(command, environ, "/", (null, 2, 2), new_session=False)
    except OSError as error:
        raise RefusalError(f"Error: cannot run git: {error}") from error
    finally:
        os.close(null)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
