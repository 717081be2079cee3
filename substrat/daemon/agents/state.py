"""Defines `State`: the agents of one daemon with their findings, and the places of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from substrat.daemon.agents.findings import Findings
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.kernel.inotify import Watcher
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.state.trash import Trash


@attrs.frozen(kw_only=True, eq=False)
class State:
    """What all rooms of one daemon work on.

    Args:
        environ: the daemon's own environment.
        layout: its directories.
        registry: the agents.
        findings: the findings that wait for a person.
        trash: deletes directories.
        watcher: inotify.
        files: looks at files of others.
    """

    environ: dict[str, str]
    layout: Layout
    registry: Registry
    findings: Findings
    trash: Trash
    watcher: Watcher
    files: Files
