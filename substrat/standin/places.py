"""Where cursor-agent keeps its files, and the small ones among them; the chats' databases are in `store`."""

from __future__ import annotations

import json
import os
import re
import time

from substrat.standin import digests, ids, models
from substrat.standin.errors import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from substrat.standin.stream import Json


class Places:
    """The directories of one run, from its environment; nothing is created by naming them.

    Args:
        environ: The process's environment.
        workspace: The physical path of the workspace.
        data_dir: `--data-dir`, or nothing.
    """

    def __init__(self, environ: Mapping[str, str], workspace: str, data_dir: str) -> None:
        home = environ.get("HOME") or "/"
        xdg = environ.get("XDG_CONFIG_HOME")
        self.workspace: Final = workspace
        self.user_dir: Final = os.path.join(home, ".cursor")
        self.config_dir: Final = environ.get("CURSOR_CONFIG_DIR") or (os.path.join(xdg, "cursor") if xdg else self.user_dir)
        self.data_dir: Final = data_dir or environ.get("CURSOR_DATA_DIR") or self.user_dir
        self.chats: Final = os.path.join(self.config_dir, "chats", digests.md5(os.fsencode(workspace)).hex())
        self.project: Final = os.path.join(self.data_dir, "projects", slug(workspace))
        self.log: Final = os.path.join(
            environ.get("TMPDIR") or "/tmp",  # noqa: S108 - cursor-agent's own place for its logs
            f"cursor-agent-logs-{os.getuid()}",
            f"session-{os.getpid()}.log",
        )


def slug(workspace: str) -> str:
    """The name of a workspace's folder under `projects`."""
    return re.sub(r"[^A-Za-z0-9]+", "-", workspace).strip("-")


def write_file(path: str, data: bytes) -> None:
    """Replace a file in one step, through a staging file with a name of its own.

    Raises:
        RefusalError: It can't be written; the text names the file and the reason.
    """
    staging = f"{path}.{ids.new_uuid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(staging, "wb") as file:
            file.write(data)
        os.replace(staging, path)
    except OSError as error:
        raise RefusalError(f"Error: cannot write {path}: {error.strerror}") from error


def read_json(path: str) -> object:
    """A JSON file's value; None if there is no file or it holds no JSON."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None  # cursor-agent starts over from a settings file it can't read


class CliConfig:
    """`cli-config.json`: the remembered model."""

    def __init__(self, places: Places) -> None:
        self._path = os.path.join(places.config_dir, "cli-config.json")
        value = read_json(self._path)
        self._exists = isinstance(value, dict)
        self._values: Json = value if isinstance(value, dict) else _first_settings()

    def remember_model(self, chosen: str) -> str:
        """The model of this run; a chosen one is written down for the runs to come, and every run's first too."""
        before = self._values.get("model")
        remembered = before.get("modelId") if isinstance(before, dict) else None
        model = chosen or (remembered if isinstance(remembered, str) else models.DEFAULT_MODEL)
        if chosen or not self._exists:
            name = models.display_name(model)
            entry = {"modelId": model, "displayModelId": model, "displayName": name, "displayNameShort": name}
            self._values = self._values | {"model": entry, "hasChangedDefaultModel": model != models.DEFAULT_MODEL}
            write_file(self._path, json.dumps(self._values, indent=2, ensure_ascii=False).encode())
        return model


def _first_settings() -> Json:
    return {
        "version": 1,
        "editor": {"vimMode": False},
        "permissions": {"allow": ["Shell(ls)"], "deny": []},
        "approvalMode": "allowlist",
        "sandbox": {"mode": "disabled"},
    }


def prepare_project(places: Places, *, trusted: bool) -> None:
    """Create the workspace's folder under `projects`, as every run does, also one that then fails.

    Raises:
        RefusalError: It can't be created or written.
    """
    try:
        os.makedirs(places.project, exist_ok=True)
    except OSError as error:
        raise RefusalError(f"Error: cannot write {places.project}: {error.strerror}") from error
    marker = os.path.join(places.project, ".workspace-trusted")
    if trusted and not os.path.exists(marker):
        at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        fields = {"trustedAt": at, "workspacePath": places.workspace, "trustMethod": "cli-flag"}
        write_file(marker, json.dumps(fields, indent=2).encode())


def logger(places: Places) -> Callable[[str], None]:
    """A function that adds a line to the session's log; the file appears with the first line."""

    def warn(text: str) -> None:
        try:
            os.makedirs(os.path.dirname(places.log), mode=0o700, exist_ok=True)
            with open(places.log, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
        except OSError:
            return  # a log that can't be written has nowhere to say so, and the run goes on without it

    return warn
