"""Git on the host for tests, and the protected paths that a scan finds in a workspace."""

import os
import subprocess

from substrat.daemon.workspaces.workspace_scan import scan


def git(path, *arguments):
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "protocol.file.allow=always")
    environment = {"HOME": str(path), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", path, *identity, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def found(work, **how):
    """What was found, with paths from the workspace."""
    seen = scan(str(work), **how)
    return {
        name: {os.path.relpath(path, work) for path in getattr(seen, name)} for name in ("pinned", "read_only", "missing")
    } | {"notes": seen.notes}
