"""Looks, in a sandbox, at the refs below `refs/substrat` in a user's repository, and how they stand to its branches."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrat.core.workspaces.clones import PREFIX
from substrat.core.workspaces.left_refs import RefsLook
from substrat.daemon.clones.repository import IN_BRANCH
from substrat.names import is_agent_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.core.workspaces.left_refs import LeftRefs
    from substrat.daemon.clones.repository import Repositories

_SECONDS = 300.0
"""A hundred agents take some seconds; one whose history is searched for the same changes takes up to 15."""
_AT_ONCE = 100
"""Agents that git is asked about at once."""

# `look NAME TARGET HEAD TIP` prints how an agent's refs stand, a fact a line, and then those that hold something of their
# own. TARGET is its branch; HEAD and TIP are the work that was found in a branch earlier, and the tip of that branch.
# `content` is a commit of files, or its parent where it adds nothing to that. `holds` says whether a turn has a file of a
# name that the landed work hasn't, with a content that is in no branch: an earlier state of a file that landed is none.
_LOOK = f"""\
{IN_BRANCH}there() {{ git rev-parse --quiet --verify "$1" >/dev/null; }}
content() {{
    if [ "$(commit "$1^2")" = - ] && git diff-tree --quiet --ignore-submodules=none "$1^1" "$1" 2>/dev/null
    then commit "$1^1"; else commit "$1"; fi
}}
has_landed() {{
    [ "$1" != - ] && {{ [ "$1" = "$base" ] || in_branch "$1" || {{ [ "$1" = "$noted" ] && in_branch "$where"; }} ||
        {{ [ "$target" != - ] && by_content "$target" "$1"; }}; }}
}}
holds() {{
    [ "$work" != - ] || return 0
    git diff-tree -r --no-renames --diff-filter=A "$work" "$1" >/tmp/added 2>/dev/null || return 0
    [ -s /tmp/added ] || return 1
    git rev-list --objects-edge-aggressive "$1" --not "$work" --branches --remotes >/tmp/reachable 2>/dev/null || return 0
    cut -d ' ' -f 4 /tmp/added | grep -qFf - /tmp/reachable
}}
look() {{
    at=refs/substrat/$1 noted=$3 where=$4
    rm -rf /tmp/objects
    base=$(commit "$at/base"); target=$(commit "$2")
    [ "$target" != - ] || target=$(commit "$(git symbolic-ref --quiet HEAD)")
    work=$(content "$at/wip"); [ "$work" != - ] || work=$(commit "$at/head")
    asides=0
    if there "$at/asides"
    then asides=$(git rev-list --count "$at/asides^@" --not "$at/wip" --branches --remotes 2>/dev/null) || asides=1
    fi
    landed=-
    if [ "$asides" = 0 ] && {{ has_landed "$work" || ! {{ there "$at/wip" || there "$at/head"; }}; }}
    then landed=landed
    fi
    echo "$landed"; echo "$work"; echo "$target"
    git rev-list --count "$at/head" --not --branches 2>/dev/null || echo 0
    git diff-tree -r --name-only "$at/head" "$at/wip" 2>/dev/null | wc -l
    echo "$asides"
    git for-each-ref '--format=%(refname)' "$at/turns" "$at/before-restore" | while read -r ref
    do
        case $ref in
        "$at"/turns/*) [ "$landed" = landed ] && holds "$ref" && echo "$ref" ;;
        *) has_landed "$(content "$ref")" || echo "$ref" ;;
        esac
    done
}}
while [ $# -ge 4 ]; do look "$1" "$2" "$3" "$4"; echo .; shift 4; done
"""


async def refs_by_name(repositories: Repositories, common: str) -> dict[str, dict[str, str]]:
    """Return the refs of agents in a repository, by agents' names, with the commits that they name."""
    found: dict[str, dict[str, str]] = {}
    for ref, commit in (await repositories.refs(common, PREFIX)).items():
        name, slash, _ = ref.removeprefix(PREFIX).partition("/")
        if slash and is_agent_name(name):
            found.setdefault(name, {})[ref] = commit
    return found


async def look(repositories: Repositories, common: str, agents: Sequence[LeftRefs]) -> Mapping[str, RefsLook]:
    """Return how the refs of agents stand to a repository's branches, by their names; raises `SandboxFailed`."""
    found: dict[str, RefsLook] = {}
    for first in range(0, len(agents), _AT_ONCE):
        some = agents[first : first + _AT_ONCE]
        words = [word for left in some for word in (left.name, _branch(left), left.head, left.tip)]
        said = await repositories.script(common, _LOOK, *(word or "-" for word in words), seconds=_SECONDS)
        answers = os.fsdecode(said).split(".\n")[:-1]
        found |= {left.name: _parsed(answer.splitlines()) for left, answer in zip(some, answers, strict=True)}
    return found


def _branch(left: LeftRefs) -> str | None:
    return f"refs/heads/{left.target}" if left.target is not None else None


def _parsed(lines: list[str]) -> RefsLook:
    landed, head, tip, commits, files, asides, *holding = lines
    return RefsLook(
        landed == "landed", None if head == "-" else head, None if tip == "-" else tip, int(commits), int(files),
        int(asides), frozenset(holding),
    )  # fmt: skip
