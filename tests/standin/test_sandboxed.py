"""The stand-in in a bubblewrap sandbox, where most of the file system is read-only and processes are numbered anew."""

import os
import subprocess
import sys

import pytest

from sandbox import host


def sandbox(standin):
    """A command prefix: only the home and the workspace can be written, and not the workspace's `.cursor`."""
    cursor = standin.workspace / ".cursor"
    cursor.mkdir(exist_ok=True)
    command = [
        host.find_bubblewrap().path,
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--clearenv",
    ]
    for path in (standin.temporary, standin.home, standin.workspace):
        command += ["--bind", str(path), str(path)]
    command += ["--ro-bind", str(cursor), str(cursor)]
    for name, value in standin.environ.items():
        command += ["--setenv", name, value]
    return command


def can_sandbox():
    if host.find_bubblewrap() is None:
        return False
    return (
        subprocess.run(
            [host.find_bubblewrap().path, "--unshare-all", "--ro-bind", "/", "/", "true"], check=False
        ).returncode
        == 0
    )


@pytest.mark.skipif(not can_sandbox(), reason="bubblewrap can't make a sandbox here")
def test_a_turn_in_a_sandbox(standin, outcome_of):
    standin.use_mcp()
    script = "/tool echo {}\n/shell echo $$ > pid\n/write .cursor/x text\n/write y text\n/recall"
    program = [sys.executable, "-m", "substrat.standin.main", "-p", "--force", "--approve-mcps"]
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    command = [*sandbox(standin), "--setenv", "PYTHONPATH", root, "--chdir", str(standin.workspace), *program]
    run = subprocess.run(
        [*command, "--output-format", "stream-json"], input=script.encode(), capture_output=True, check=False
    )
    outcome = outcome_of(run)
    assert outcome.text == "I remember 0 earlier turns."
    refused, written = outcome.calls("edit")
    assert refused["writePermissionDenied"]["isReadonly"] is True
    assert "success" in written
    assert "success" in outcome.calls("mcp")[0]
    assert len(standin.chats) == 1
