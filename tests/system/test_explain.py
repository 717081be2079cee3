"""`explain`: its text runs, also for an agent that never had a turn, and leaves nothing behind."""

import os
import subprocess

SHELL = """
begin()
subprocess.run(["sh", "-c", prompt], check=True)
finish()
"""


def started(daemon, text, prompt):
    return subprocess.run(
        ["sh", "-c", text], input=prompt, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, check=False,
        timeout=30,
    )  # fmt: skip


def test_its_text_runs_in_an_idle_workspace(daemon, until):
    # The stand-in would wait for its tools, which only a turn has.
    daemon.start(agent=daemon.program(SHELL), environment={"CURSOR_API_KEY": "key-that-nobody-sees"})
    work = daemon.workspace(git=True)
    daemon.ok("spawn", "none", "-w", work, "--network", "none")
    daemon.ok("spawn", "anna", "-w", work, "--network", "filtered")
    for name, round_ in (("none", "before the first turn"), ("anna", "before the first turn"), ("anna", "after it")):
        shown = daemon.ctl("explain", name)
        assert shown.code == 0, shown
        assert "key-that-nobody-sees" not in shown.out
        assert "CURSOR_API_KEY" in shown.out.partition("\n(")[0], "its absence is told"
        assert f"{work}/.envrc" in shown.out.partition("\n(")[0]
        done = started(daemon, shown.out, "echo here > there")
        assert done.returncode == 0, (name, round_, done.stderr)
        assert '"result"' in done.stdout
        assert (work / "there").read_text() == "here\n"
        (work / "there").unlink()
        assert sorted(os.listdir(work)) == [".git", "README.md"]
        if round_ == "before the first turn" and name == "anna":
            daemon.ok("send", "anna", "--wait", "true")
    daemon.ok("send", "anna", "touch runs; until rm go; do sleep 0.1; done; rm runs")
    until((work / "runs").exists, "the turn")
    shown = daemon.ctl("explain", "anna")
    (work / "go").touch()
    daemon.wait("anna")
    done = started(daemon, shown.out, "true")
    assert done.returncode == 0, ("asked during a turn, run after it", done.stderr)
    assert sorted(os.listdir(work)) == [".git", "README.md"]
    found = daemon.ok("explain", "anna")
    assert set(found) == {"command", "environment", "program", "missing"}
    assert found["environment"]["CURSOR_API_KEY"] == "…"
    assert daemon.ctl("explain", "nobody").code == 4
