"""Small programs in a sandbox of their own: what they see, and that they end, whatever they do."""

import os
from pathlib import Path

import pytest
import trio

from sandbox import host
from sandbox.spec import Bind
from substrat.daemon import errand
from substrat.errors import SandboxFailed


@pytest.fixture(scope="module")
def bubblewrap():
    found = host.find_bubblewrap()
    if found is None or host.sandbox_obstacle(found) is not None:
        pytest.skip("no sandbox can be made here")
    return found


def run(bubblewrap, script, *shows):
    return trio.run(errand.run, bubblewrap, ("/bin/sh", "-c", script), shows, "/")


def test_it_says_what_came_of_it(bubblewrap):
    assert run(bubblewrap, "echo out; echo err >&2; exit 3") == errand.Done(3, b"out\n", b"err\n")


def test_it_sees_what_it_is_shown_and_nothing_else(bubblewrap, tmp_path):
    (tmp_path / "shown").write_text("yes")
    done = run(bubblewrap, f"cat /s/shown; touch /s/new; ls {tmp_path}; ls /sys/class/net", Bind(str(tmp_path), "/s"))
    assert done.output.startswith(b"yes")
    assert b"Read-only" in done.errors
    assert done.errors.count(b"No such file") == 2
    assert not (tmp_path / "new").exists()


def processes_with(mark):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += [entry.name] if mark in (entry / "cmdline").read_bytes() else []
            except OSError:
                continue
    return found


@pytest.mark.parametrize("script", ["trap '' TERM INT; sleep {}", "setsid sleep {} & sleep {}"])
def test_one_that_takes_too_long_is_killed_with_all_it_started(bubblewrap, monkeypatch, script):
    monkeypatch.setattr(errand, "_PATIENCE_S", 0.5)
    mark = f"1000{os.getpid()}"
    with pytest.raises(SandboxFailed, match="didn't end"):
        run(bubblewrap, script.replace("{}", mark))
    assert processes_with(mark.encode()) == []


def test_one_that_prints_without_end_is_killed(bubblewrap, monkeypatch):
    monkeypatch.setattr(errand, "_MAX_OUTPUT", 1 << 16)
    with pytest.raises(SandboxFailed, match="printed more"):
        run(bubblewrap, "yes")
    with pytest.raises(SandboxFailed, match="printed more"):
        run(bubblewrap, "yes >&2")


def test_one_that_cannot_be_started():
    with pytest.raises(SandboxFailed, match="can't be started"):
        run(host.Bubblewrap("/nonexistent/bwrap", (0, 8, 0)), "true")


def test_it_runs_under_the_filter(bubblewrap):
    done = run(bubblewrap, "grep Seccomp: /proc/1/status /proc/self/status; unshare -U true; ls /proc/self/fd | wc -l")
    assert done.output.split()[1::2][:2] == [b"2", b"2"]
    assert b"not permitted" in done.errors
    assert done.output.split()[-1] == b"4", "standard streams and the directory, no descriptor of the filter"


def test_it_does_not_run_on_a_machine_whose_calls_are_unknown(bubblewrap, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6.1", "v", "riscv64")))
    with pytest.raises(SandboxFailed, match="filter can't be made: there is no table of system calls for riscv64"):
        run(bubblewrap, "true")
