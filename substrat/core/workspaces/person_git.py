"""Chooses which of a person's own git settings hold in an agent's sandbox, and writes them down for git there. Pure.

An example: with `core.excludesFile = ~/.ignore` in `~/.gitconfig` the sandbox has `[core] excludesFile = …/person-1`, and
`person-1` is a copy of `~/.ignore`. Conditions (`includeIf`) are written as they stand, so git in the sandbox decides them.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.workspaces import drivers, git_config
from substrat.core.workspaces.git_config import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

EXCLUDES, ATTRIBUTES = "excludesfile", "attributesfile"
"""The keys of `core` that name a file of rules."""


class Rules(NamedTuple):
    """A file of rules that a setting of `core` names.

    Args:
        key: `EXCLUDES` or `ATTRIBUTES`.
        content: all of it; empty where there is no such file.
    """

    key: str
    content: bytes


class Layer(NamedTuple):
    """A person's settings, in their order.

    Args:
        items: settings, files of rules, and settings that hold under a condition.
        condition: the subsection of its `includeIf`, such as `gitdir:~/work/`; empty for those that always hold.
    """

    items: tuple[Setting | Rules | Layer, ...] = ()
    condition: str = ""


_SIGNS = frozenset({"gpgsign", "forcesignannotated", "showsignature"})
"""They run gpg, whose keys no agent has."""
_LEFT_OUT = frozenset({"remote", "submodule", "gui", "color", "column"})
"""Sections of addresses, which may hold passwords, and of forms for people's eyes; an agent program reads git's words."""
_FILTER = frozenset({"clean", "smudge", "process", "required"})
_READ_BY_A_SHELL = re.compile(r"[;&|<>()$`\n]")


def holds_inside(setting: Setting) -> bool:
    """Say whether a setting of a person's holds in a sandbox as it is: it runs no program and names no place."""
    if setting.section in _LEFT_OUT or setting.key in _SIGNS or "://" in (setting.value or ""):
        return False
    return git_config.is_harmless(setting) and not git_config.is_command(setting)


def is_filter(setting: Setting) -> bool:
    """Say whether a setting is part of a filter, such as `filter.lfs.clean`."""
    return setting.section == "filter" and setting.subsection is not None and setting.key in _FILTER


def lfs_filter(layer: Layer) -> dict[str, str]:
    """Return the commands of the filter `lfs` that always hold and are git-lfs's own, such as `git-lfs smudge -- %f`."""
    found = {
        f"filter.lfs.{one.key}": one.value or ""
        for one in layer.items
        if isinstance(one, Setting) and is_filter(one) and one.subsection == "lfs" and one.key in {"smudge", "process"}
    }
    return found if all(map(drivers.LFS.fullmatch, found.values())) else {}


def absent_filters(layer: Layer, is_visible: Callable[[str], bool]) -> dict[str, str]:
    """Return the filters that can't run in a sandbox, each with its command."""
    return {
        str(one.subsection): one.value or ""
        for one in _settings(layer)
        if is_filter(one) and one.key != "required" and one.value and not _can_run(one.value, is_visible)
    }


def _can_run(command: str, is_visible: Callable[[str], bool]) -> bool:
    """Say whether all that a command names is visible; one that only a shell understands counts as one that isn't."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    if not words or _READ_BY_A_SHELL.search(command) or "=" in words[0]:
        return False
    return is_visible(words[0]) and all(is_visible(word) for word in words[1:] if word.startswith(("/", "~")))


def _settings(layer: Layer) -> Iterator[Setting]:
    for item in layer.items:
        if isinstance(item, Layer):
            yield from _settings(item)
        elif isinstance(item, Setting):
            yield item


def files(name: str, layer: Layer, place: str, without: Mapping[str, str], more: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files by which git in a sandbox has a person's settings.

    Args:
        name: the file with the settings; those that it leads to are called `NAME-0`, `NAME-1-0` and so on.
        layer: the settings.
        place: the directory that the files lie in, as seen from inside.
        without: the filters that are left out (`absent_filters`).
        more: further rules by the key of their file; with them only the files of rules are written.
    """
    found: dict[str, bytes] = {}
    lines: list[str] = []
    for number, item in enumerate(layer.items):
        inner = f"{name}-{number}"
        if isinstance(item, Layer):
            found |= files(inner, item, place, without, more)
            lines.append(_written(Setting("includeIf", item.condition, "path", f"{place}/{inner}")))
        elif isinstance(item, Rules):
            found[inner] = b"\n".join(filter(None, (item.content, more.get(item.key))))
            lines.append(_written(Setting("core", None, item.key, f"{place}/{inner}")))
        elif not more and not (is_filter(item) and item.subsection in without):
            lines.append(_written(item))
    found[name] = "".join(lines).encode("utf-8", "surrogateescape")
    return found


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})


def _written(setting: Setting) -> str:
    """Write a setting in git's syntax."""
    subsection = "" if setting.subsection is None else ' "' + re.sub(r'(["\\])', r"\\\1", setting.subsection) + '"'
    value = "" if setting.value is None else f' = "{setting.value.translate(_ESCAPES)}"'
    return f"[{setting.section}{subsection}]\n\t{setting.key}{value}\n"
