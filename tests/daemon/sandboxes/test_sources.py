"""Mounts' sources that change between the look at a workspace and the start of its sandbox."""

import os

import pytest

from sandbox.spec import Bind
from substrat.daemon.kernel.files import close_all
from substrat.daemon.sandboxes import sources
from substrat.errors import WorkspaceUnusable


def test_a_source_that_is_gone_is_told_apart_from_one_that_has_become_a_link(tmp_path):
    gone, link, there = (tmp_path / name for name in ("gone", "link", "there"))
    there.write_text("")
    link.symlink_to(there)
    close_all(sources.open_all([Bind(str(there), str(there))]))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(sources.SourceGone, match="was removed while the sandbox was being made"):
        sources.open_all([Bind(str(there), str(there)), Bind(str(gone), str(gone))])
    with pytest.raises(WorkspaceUnusable, match="has become a link") as refused:
        sources.open_all([Bind(str(link), str(link))])
    assert not isinstance(refused.value, sources.SourceGone)
    assert len(os.listdir("/proc/self/fd")) == len(before)
