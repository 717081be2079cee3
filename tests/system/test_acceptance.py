"""Acceptance of findings, which holds for content and not for a path, and the protection of many repositories."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

FOUND = {  # a nested repository, a shell's file, an editor's directory, a hook
    "lib": ("git init -q lib; printf '{0}' >> lib/.git/config", "[core]\\nfsmonitor = {0}\\n"),
    ".bashrc": ("printf '{0}' > .bashrc", "echo {0}\\n"),
    "sub": ("mkdir -p sub/.vscode; printf '{0}' > sub/.vscode/tasks.json", '{{"{0}": 1}}\\n'),
    "other": ("git init -q other; printf '{0}' > other/.git/hooks/x; chmod +x other/.git/hooks/x", "touch {0}\\n"),
}


@pytest.fixture
def scene(daemon):
    """An agent in a repository whose turns run commands, and all that a person sees of them."""
    daemon.workspace("work", git=True)
    daemon.start()
    daemon.ok("spawn", "agent", "-w", daemon.directory / "work")
    return Scene(daemon)


class Scene:
    def __init__(self, daemon):
        self.daemon = daemon
        self.work = daemon.directory / "work"

    def turn(self, script):
        self.daemon.ctl("send", "agent", f"/shell {script}", "--wait")
        return self.kind

    @property
    def kind(self):
        return self.daemon.show("agent")["attention"]["kind"]

    @property
    def findings(self):
        return self.daemon.show("agent").get("findings", [])


def test_other_content_at_an_accepted_path_asks_again_and_the_same_does_not(scene):
    for word, kind in (("one", "unsafe"), ("one", "idle"), ("two", "unsafe"), ("one", "idle")):
        assert scene.turn("; ".join(script.format(text.format(word)) for script, text in FOUND.values())) == kind, word
        if kind == "unsafe":
            (finding,) = scene.findings
            found = {os.path.relpath(path, scene.work).split("/")[0] for path in finding["difference"].splitlines()}
            assert found == set(FOUND), "each of them"
            assert scene.daemon.ok("accept", "agent")["attention"]["kind"] == "idle"
        for path in FOUND:
            place = scene.work / path
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def test_what_is_swapped_between_the_look_and_the_acceptance_is_refused_and_found_anew(scene):
    script = "mkdir -p sub/.vscode; echo harmless > sub/.vscode/tasks.json"
    assert scene.turn(script) == "unsafe"
    (first,) = scene.findings
    # As another agent in this directory does whose turn began before.
    (scene.work / "sub/.vscode/tasks.json").write_text("evil")
    for arguments in (("agent", str(first["number"])), ("agent",)):
        done = scene.daemon.ctl("accept", *arguments)
        (second,) = scene.findings
        if second["number"] != first["number"]:
            break
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "`substratctl show agent`" in done.err
    assert second["path"] == first["path"]
    assert scene.kind == "unsafe"
    assert scene.daemon.ctl("accept", "agent", str(first["number"])).code == 4
    assert scene.daemon.ok("accept", "agent", str(second["number"]))["attention"]["kind"] == "idle"
    (event,) = scene.daemon.events("agent", "workspace:accepted")
    assert event["data"] == {"by": "ctl", "findings": [second["number"]]}


def test_what_an_agent_writes_behind_an_accepted_link_asks_again(scene):
    assert scene.turn("mkdir tools sub; ln -s ../tools sub/.vscode") == "unsafe"
    scene.daemon.ok("accept", "agent")
    assert scene.turn("true") == "unsafe", "it can't be protected"
    scene.daemon.ok("accept", "agent")
    assert scene.turn("true") == "idle"
    assert scene.turn("echo evil > tools/tasks.json") == "unsafe"


def test_a_pipe_in_the_place_of_an_accepted_file_holds_nobody_up(scene):
    assert scene.turn("mkdir sub; echo a > sub/.envrc") == "unsafe"
    (scene.work / "sub/.envrc").unlink()
    os.mkfifo(scene.work / "sub/.envrc")
    assert scene.daemon.ctl("accept", "agent").code == 1
    (finding,) = scene.findings
    assert "can't be compared" in finding["text"]
    assert scene.daemon.ok("accept", "agent")["attention"]["kind"] == "idle"


def test_a_finding_goes_with_its_repository(scene):
    assert scene.turn("git init -q sub") == "unsafe"
    (scene.work / "sub").rename(scene.daemon.directory / "sub")
    wait_until(lambda: scene.kind == "idle", "the end of the finding")
    (event,) = scene.daemon.events("agent", "workspace:closed")
    assert event["text"] == f"gone, or as it was before: {scene.work}/sub/.git"
    assert scene.turn("true") == "idle"
    (scene.daemon.directory / "sub").rename(scene.work / "sub")
    wait_until(lambda: scene.kind == "unsafe", "the finding")


def test_an_accepted_failure_is_that_of_its_turn(daemon):
    work = daemon.workspace("work")
    daemon.start()
    for number in range(2):
        if number:
            daemon.ctl("send", "agent", "/fail plan", "--wait")
        else:
            daemon.spawn("agent", work, "/fail plan")
        assert daemon.show("agent")["attention"]["kind"] == "failed"
        assert daemon.ok("accept", "agent")["attention"]["kind"] == "idle"


WRITE = "for d in {0}; do for f in config hooks/post-checkout; do echo '[core] fsmonitor = x' >> $d/$f; done; done; true"


def submodules(daemon, count):
    """Return a repository with submodules, and their git directories."""
    library, work = daemon.workspace("library", git=True), daemon.workspace("work", git=True)
    daemon.git(library, "commit", "-q", "--allow-empty", "-m", "x")
    daemon.git(work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "sub")
    module = work / ".git/modules/sub"
    (work / "sub").rename(daemon.directory / "sub")
    module.rename(daemon.directory / "module")
    for number in range(count):
        shutil.copytree(daemon.directory / "module", work / f".git/modules/m{number}")
        shutil.copytree(daemon.directory / "sub", work / f"m{number}")
        (work / f"m{number}/.git").write_text(f"gitdir: ../.git/modules/m{number}\n")
    return work, [f".git/modules/m{number}" for number in range(count)]


def repositories(daemon, count):
    """Return a repository with others in it, and their git directories."""
    work = daemon.workspace("work", git=True)
    daemon.git(work, "init", "-q", "r0")
    for number in range(1, count):
        shutil.copytree(work / "r0", work / f"r{number}")
    return work, [f"r{number}/.git" for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("make", [submodules, repositories])
def test_many_repositories_are_all_protected_and_the_read_only_ones_are_named(daemon, make):
    work, directories = make(daemon, 20)
    daemon.start()
    script = WRITE.format(" ".join(directories)) + "; for d in " + " ".join(directories) + "; do touch $d/mine; done; true"
    daemon.spawn("agent", work, f"/shell {script}; cat .cursor/rules/substrat.mdc")
    shown = daemon.show("agent")
    assert shown["attention"]["kind"] == "idle"
    touched = [one for one in directories for name in ("config", "hooks/post-checkout") if is_written(work / one / name)]
    assert touched == []
    free = [one for one in directories if (work / one / "mine").exists()]
    assert len(free) == 16
    assert sorted(shown["read_only"]) == sorted(str(work / one) for one in directories if one not in free)
    assert f"no commit works there: {Path(shown['read_only'][0]).relative_to(work)}, " in daemon.shell("agent")
    assert "4 git directories" in daemon.ctl("show", "agent").out


def is_written(path):
    return path.exists() and "fsmonitor" in path.read_text()
