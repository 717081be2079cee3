"""The page's token: 32 random bytes in `<runtime>/web.token`, for its owner's eyes only."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from substrat import errors, paths


def path() -> str:
    """Return where the token lies: beside the operator socket, which agents aren't shown."""
    return os.path.join(os.path.dirname(paths.operator_socket()), "web.token")


def read() -> str:
    """Return the token; empty where there is none."""
    try:
        with open(path(), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def make(*, anew: bool) -> str:
    """Return the token, made first if there is none or another is wanted; raises `StateUnusable` if it can't be written."""
    if not anew and (found := read()):
        return found
    token, target = secrets.token_urlsafe(32), path()
    part = f"{target}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        os.replace(part, target)
    except OSError as problem:
        with suppress(OSError):
            os.unlink(part)
        raise errors.StateUnusable(
            f"can't write {target}: {problem.strerror}; look at its directory and its owner"
        ) from None
    return token
