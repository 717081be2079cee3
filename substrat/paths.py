"""Where things are: the state, runtime and configuration directories and the sockets in them; it creates nothing.

Standard library only on the usual path. The rules are platformdirs' for the application name `substrat`; the one
common case of the runtime directory is answered here, because importing platformdirs costs `substratctl` 19 ms.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

APPLICATION = "substrat"


def state_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the state directory (`SUBSTRAT_STATE_DIR`, else the user's state directory)."""
    if given := environ.get("SUBSTRAT_STATE_DIR"):
        return os.path.abspath(given)
    return _platform_dir("user_state_dir")


def config_file(environ: Mapping[str, str] = os.environ) -> str:
    """Return the configuration file's path (`SUBSTRAT_CONFIG`, else `config.toml` in the configuration directory)."""
    if given := environ.get("SUBSTRAT_CONFIG"):
        return os.path.abspath(given)
    return os.path.join(_platform_dir("user_config_dir"), "config.toml")


def runtime_dir(environ: Mapping[str, str] = os.environ) -> str:
    """Return the runtime directory (`SUBSTRAT_RUNTIME_DIR`, else the user's runtime directory)."""
    if given := environ.get("SUBSTRAT_RUNTIME_DIR"):
        return os.path.abspath(given)
    parent = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(parent) and os.path.dirname(parent.rstrip("/")) == "/run/user" and _is_private_dir(parent):
        return os.path.join(parent, APPLICATION)
    return _platform_dir("user_runtime_dir")


def operator_socket(environ: Mapping[str, str] = os.environ) -> str:
    """Return the operator socket's path (`SUBSTRAT_SOCKET`, else `daemon.sock` in the runtime directory)."""
    if given := environ.get("SUBSTRAT_SOCKET"):
        return os.path.abspath(given)
    return os.path.join(runtime_dir(environ), "daemon.sock")


def short_socket_path(path: str) -> tuple[str, int | None]:
    """Give a spelling of a socket's path that fits into `sockaddr_un` (108 bytes, unix(7)).

    Args:
        path: where the socket is or will be.

    Returns:
        The path to pass to bind or connect, and a descriptor the caller must close afterwards, or None.
    """
    if len(os.fsencode(path)) < 108:
        return path, None
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{directory}/{os.path.basename(path)}", directory


def _is_private_dir(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700


def _platform_dir(which: str) -> str:
    import warnings

    import platformdirs

    with warnings.catch_warnings():
        # Without a login session there is no XDG_RUNTIME_DIR; the fallback in the temporary directory is right then.
        warnings.simplefilter("ignore")
        try:
            return str(getattr(platformdirs.PlatformDirs(APPLICATION, appauthor=False), which))
        except PermissionError as problem:
            from substrat.errors import StateUnusable

            # Everybody may make a directory with that name in the temporary one.
            raise StateUnusable(f"{problem}; or set SUBSTRAT_RUNTIME_DIR to a directory of your own") from None


def is_within(path: str, directory: str) -> bool:
    """Say whether an absolute path is a directory's or leads into it; nothing is looked up."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
