"""Judges protected paths whose mounts have gone, and replaces those that the agent may have changed."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from typing import TYPE_CHECKING, NamedTuple

import structlog

from substrat.core.workspaces import git_config
from substrat.core.workspaces.protection import ABSENT, UNKNOWN, Copy, Treatment, decide
from substrat.daemon.agents.findings import Found
from substrat.daemon.workspaces import copies, replacing, tips
from substrat.daemon.workspaces.lost_mounts import placeholder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox

log = structlog.get_logger("substrat.protection")

_CONFIGURATIONS = frozenset({"config", "config.worktree"})
"""Names that git reads as configuration, in a git directory."""


_TOLD_LINES, _LONGEST_TOLD = 8, 2000
"""Changed lines and characters of an event, which is one line; `substratctl show` has the whole difference."""


_TOLD_SETTINGS, _LONGEST_SETTING = 5, 100
"""Settings that a finding names, and characters of each: it is one sentence."""


class Judgement(NamedTuple):
    """A path's copies before and now, and the verdict about it."""

    path: str
    before: Copy
    now: Copy
    verdict: Treatment


def judge_all(
    paths: list[str],
    sandboxes: list[ProtectedSandbox],
    before: Mapping[str, float],
    agreed: Mapping[tuple[str, str], Collection[bytes]],
) -> list[Judgement]:
    """Judge each path; runs in a thread, because an agent decides how much there is to read.

    Args:
        paths: protected paths that aren't mounted, outer ones first.
        sandboxes: those that show them.
        before: since when an agent may have put objects into the repository, by the sandbox's name.
        agreed: the digests of what was at paths in the turn before, as a person's work, by the sandbox's name and the path.
    """
    judged = []
    writable = {path for one in sandboxes for path in (*one.protected.pinned, *one.protected.own_git_dirs)}
    for path in paths:
        if path in writable:
            if os.path.lexists(path) and not (os.path.isdir(path) and not os.path.islink(path)):
                # A file `.git` would lead git to another repository, and a link to another directory.
                judged.append(Judgement(path, ABSENT, copies.take(path), Treatment.REACHED))
            continue
        if not os.path.isdir(os.path.dirname(path)):
            continue
        sandbox = next(one for one in sandboxes if path in one.protected.mounts)
        was = sandbox.copies.get(path, ABSENT if path in sandbox.protected.missing else UNKNOWN)
        now = copies.take(path)
        # As it was before: after `git stash` and `git stash pop`, for example, or a checkout of another branch and back.
        is_known = now.kind in {"file", "directory"} and copies.digest(now) in agreed.get((sandbox.name, path), ())
        is_known = is_known or _is_committed(path, now, sandbox, before[sandbox.name])
        is_git_config = os.path.basename(path) in _CONFIGURATIONS
        verdict = decide(was, now, is_known=is_known, is_git_config=is_git_config, placeholder=placeholder(path))
        judged.append(Judgement(path, was, now, verdict))
    return judged


def is_outdated(judged: list[Judgement]) -> bool:
    """Say whether a path has changed since it was judged, for example by a git that was just finishing it."""
    return any(copies.take(one.path) != one.now for one in judged)


def _is_committed(path: str, now: Copy, sandbox: ProtectedSandbox, before: float) -> bool:
    """Say whether all that is at a path was in the workspace's repository before a moment, as after a checkout."""
    if now.kind not in {"file", "directory"} or "/.git/" in path:
        return False
    return any(copies.Objects(directory, before).hold(now) for directory in tips.objects_of(sandbox))


# Where the agent may have been faster


def finding_of(judged: Judgement, directory: str, stamp: str) -> Found:
    """Return the finding about a path that the agent may have changed.

    Args:
        judged: the path.
        directory: where its file is moved to.
        stamp: begins the file's new name, for example `20260102T030405Z-config-9f86d0`.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(judged.path)).lstrip(".") or "file"
    aside = os.path.join(directory, f"{stamp}-{name}-{secrets.token_hex(3)}") if judged.before.kind != "unknown" else None
    text = f"{judged.path} was changed while its protection was off, perhaps by the agent{_obeyed(judged)}"
    if aside is not None:
        command = f"`cp -aT {shlex.quote(aside)} {shlex.quote(judged.path)}`"
        text += f"; if the change is yours, {command} puts it back while no agent runs there"
    return Found(judged.path, text, aside, copies.difference(judged.path, judged.before, judged.now))


def _obeyed(judged: Judgement) -> str:
    """Name the new settings of git's configuration that count, which an agent may hide among many lines."""
    if os.path.basename(judged.path) not in _CONFIGURATIONS:
        return ""
    before = git_config.parse(judged.before.data).settings
    settings = (one for one in git_config.parse(judged.now.data).settings if not git_config.is_harmless(one))
    new = [_inert(repr(f"{one.name}={one.value}"[:_LONGEST_SETTING])) for one in settings if one not in before]
    more = f" and {len(new) - _TOLD_SETTINGS} more" if len(new) > _TOLD_SETTINGS else ""
    return f": git would obey {', '.join(new[:_TOLD_SETTINGS])}{more}" if new else ""


def event_text(found: Found) -> str:
    """Return a finding for the event about it, with the first lines that were changed."""
    changed = [line for line in found.difference.splitlines() if line[:1] in "+-" and line[:4] not in {"+++ ", "--- "}]
    more = " …" if len(changed) > _TOLD_LINES else ""
    return f"{found.text}; the change: {_inert(' '.join(changed[:_TOLD_LINES]))}{more}"[:_LONGEST_TOLD]


def _inert(text: str) -> str:
    """Return text of an agent's without the marks in which a sentence encloses a command."""
    return text.replace("`", "'")


def replace_all(targets: list[tuple[Judgement, str]], aside: str) -> None:
    """Move changed files aside and put the copies back; a file that can't be moved stays, and the log says so."""
    os.makedirs(aside, mode=0o700, exist_ok=True)
    for one, target in targets:
        try:
            replacing.set_aside(one.path, one.before, target)
        except OSError as problem:
            log.error("a changed file stays", path=one.path, reason=problem.strerror)  # noqa: TRY400 - it says it all


def replace_rest(moves: Mapping[str, str], kept: Mapping[str, Copy], aside: str) -> None:
    """Do the moves that an earlier daemon noted and didn't do; a path that equals its copy stays."""
    judged = [
        (Judgement(path, before, now, Treatment.REACHED), target)
        for path, target in moves.items()
        for before in [kept.get(path, ABSENT)]
        if not os.path.lexists(target) and (now := copies.take(path)) != before
    ]
    if judged:
        replace_all(judged, aside)
