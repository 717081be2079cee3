"""What each test comes to, in the file that `--record` names, one JSON object a line: `.ci/stages.py` reads it.

`{"event": "failed", "id": "tests/test_x.py::test_y[a b]", "error": "AssertionError: assert 1 == 2"}` is such a line. Other
events are `passed` and `skipped` with an id, `uncollected` with a file's id and the error, `crashed` for a worker of xdist,
and `finished`. A test with two of them, for example `passed` and then `failed` in a fixture's end, has failed. Pytest loads
this with `-p tests.support.record`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    LongReport = pytest.TestReport | pytest.CollectReport


def last_line(report: LongReport) -> str:
    """The last line of an error, without what pytest adds: an assertion that has a message, and indented explanations."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).splitlines()
    if not crash:
        lines = [line[1:].strip() for line in lines if line.startswith("E ")] or lines
    lines = [line for line in lines if line.strip()] or ["no message"]
    last = max((number for number, line in enumerate(lines) if not line[0].isspace()), default=0)
    if last and lines[last].startswith("assert "):
        last -= 1
    return lines[last].strip()


class Recorder:
    """Appends to the file. It keeps no descriptor open, which a test would find or a child inherit."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _write(self, event: str, **said: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"event": event, **said}) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write("failed", id=report.nodeid, error=last_line(report))
        elif report.skipped or report.when == "call":
            self._write(report.outcome, id=report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("uncollected", id=report.nodeid, error=last_line(report))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        if error:
            self._write("crashed")

    def pytest_sessionfinish(self) -> None:
        self._write("finished")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FILE", help="append what each test comes to")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--record")
    if path and not hasattr(config, "workerinput"):  # not in a worker of xdist: its reports come to the controller
        config.pluginmanager.register(Recorder(Path(path).resolve()))
