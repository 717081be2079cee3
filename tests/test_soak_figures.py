"""The soak's figures: a finding excuses one watch of its directory, and no watch that leaks."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from substrat.daemon.kernel.inotify import EntryWatcher


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    yield __import__("soaking.figures").figures
    for name in ("soaking.figures", "soaking", "harness"):
        sys.modules.pop(name, None)


def test_a_finding_excuses_one_watch_of_its_directory(figures, tmp_path):
    (tmp_path / "other").mkdir()
    excused = [str(tmp_path), str(tmp_path / "gone")]

    def counted():
        return figures.watches(os.getpid(), excused).total() - before

    before = 0
    before = counted()
    with closing(EntryWatcher()) as findings, closing(EntryWatcher()) as leaking:
        findings.watch(str(tmp_path))
        assert counted() == 0
        leaking.watch(str(tmp_path))
        assert counted() == 1
        findings.watch(str(tmp_path / "other"))
        assert counted() == 2
