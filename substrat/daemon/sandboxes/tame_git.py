"""The settings that keep git tame: it starts no program of a repository's choice, and does nothing that nobody asked for.

There is one table, in two forms. `PERSONS` is for a person's repository; the index there keeps its extensions (an untracked
cache, a split or a sparse index), so git goes on as fast as the person has made it. `AGENTS` is for a repository that an
agent may have written: there git also obeys no setting that makes it pass over changed files, and stays within bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PERSONS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.alternateRefsCommand": "",
    "core.sshCommand": "false",
    "core.pager": "cat",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}
"""Settings under which git starts no program that a repository names but filters and merge drivers (git-config(1))."""

AGENTS = {
    **PERSONS,
    "safe.directory": "*",
    "core.bigFileThreshold": "16m",
    "core.looseCompression": "1",
    "pack.compression": "1",
    "pack.threads": "1",
    "pack.windowMemory": "64m",
    "core.commitGraph": "false",
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "index.sparse": "false",
    "index.skipHash": "false",
    "core.ignoreStat": "false",
    "core.trustctime": "true",
    "core.checkStat": "default",
    "core.ignoreCase": "false",
}
"""`PERSONS`, and settings under which git stays within its limits and passes over no file that has changed.

A large file is compressed as fast as can be, and once: packs take it over as it is. An agent's `commit-graph` could leave
commits out."""


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which git takes settings before those of all files (git-config(1), GIT_CONFIG_COUNT)."""
    found = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        found[f"GIT_CONFIG_KEY_{number}"] = key
        found[f"GIT_CONFIG_VALUE_{number}"] = value
    return found
