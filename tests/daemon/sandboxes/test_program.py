"""The agent program and the paths that it sees: enough to run, never a whole home."""

import os
import stat
import sys

import pytest

from substrat.core.programs.table import PROGRAMS
from substrat.daemon.sandboxes import program
from substrat.errors import AgentProgramMissing


@pytest.fixture
def home(tmp_path, monkeypatch):
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


def executable(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def shows(visible, path):
    """Say whether one of the visible paths shows another."""
    return any((str(path) + "/").startswith(shown.rstrip("/") + "/") for shown in visible)


def test_a_program_on_path(tmp_path, home, monkeypatch):
    path = executable(tmp_path / "bin" / "my-agent")
    monkeypatch.setenv("PATH", f"/nonexistent:{path.parent}")
    assert program.find("my-agent") == program.Program(str(path), (str(path.parent),))


@pytest.mark.parametrize("name", ["no-such-agent", ""])
def test_a_program_that_is_not_on_path(home, monkeypatch, name):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(AgentProgramMissing, match="SUBSTRAT_AGENT_BINARY"):
        program.find(name)


def test_the_remedy_names_the_key_of_the_program_that_is_missing(home, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(AgentProgramMissing, match=r"or name it with programs\.claude\.binary in config\.toml"):
        program.find("claude", of=PROGRAMS["claude"])


def test_a_program_that_lies_where_its_agents_write_is_refused(home):
    path = executable(home / ".claude" / "local" / "claude")
    with pytest.raises(AgentProgramMissing, match="where its agents write: install it elsewhere"):
        program.find(str(path), of=PROGRAMS["claude"])
    assert program.find(str(path), of=PROGRAMS["codex"]).path == str(path)


def test_a_program_by_its_path_shows_its_directory(tmp_path, home, monkeypatch):
    path = executable(tmp_path / "opt" / "agent", "#!/usr/bin/env python3\n")
    monkeypatch.chdir(tmp_path)
    for name in (str(path), "./opt/agent"):
        assert program.find(name) == program.Program(str(path), (str(path.parent),)), "its interpreter is the system's"
    path = executable(home / "tools" / "agent")
    assert program.find("~/tools/agent") == program.Program(str(path), (str(path.parent),))


@pytest.mark.parametrize("what", ["missing", "directory", "plain", "dangling"])
def test_a_path_that_is_no_program(tmp_path, home, what):
    path = tmp_path / what
    if what == "directory":
        path.mkdir()
    elif what == "plain":
        path.touch()
    elif what == "dangling":
        path.symlink_to(tmp_path / "gone")
    with pytest.raises(AgentProgramMissing) as refusal:
        program.find(str(path))
    assert what in refusal.value.message or "gone" in refusal.value.message


def test_a_link_shows_where_the_real_file_is(tmp_path, home):
    real = executable(tmp_path / "versions" / "1.2" / "agent")
    link = home / ".local" / "bin" / "agent"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    found = program.find(str(link))
    assert found.path == str(real)
    assert found.visible == (str(real.parent),)


@pytest.mark.parametrize("place", ["home/agent", "agent"])
def test_a_program_in_the_home_itself_or_above_shows_only_its_file(tmp_path, home, place):
    path = executable(tmp_path / place)
    found = program.find(str(path))
    assert found.visible == (str(path),)


def test_a_home_that_is_a_link_is_not_shown_either(tmp_path, monkeypatch):
    real = tmp_path / "data" / "user"
    path = executable(real / "agent")
    (tmp_path / "home").symlink_to(real)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert not shows(program.find(str(path)).visible, real / ".ssh")


def test_an_interpreter_elsewhere_shows_its_installation(tmp_path, home):
    interpreter = executable(tmp_path / "node" / "bin" / "node")
    path = executable(tmp_path / "opt" / "agent", f"#!{interpreter} --flag\n")
    assert program.find(str(path)).visible == (str(path.parent), str(tmp_path / "node"))


@pytest.mark.parametrize("place", ["home/bin/node", "home/node", "bin/node"])
def test_an_interpreter_in_the_home_does_not_show_the_home(tmp_path, home, place):
    interpreter = executable(tmp_path / place)
    path = executable(tmp_path / "opt" / "agent", f"#!{interpreter}\n")
    visible = program.find(str(path)).visible
    assert shows(visible, interpreter)
    assert not shows(visible, home / ".ssh")
    assert "/" not in visible


def test_an_interpreter_with_a_space_in_its_path_is_found_where_pip_names_it(tmp_path, home):
    interpreter = executable(tmp_path / "my tools" / "bin" / "python3", "\x7fELF")
    head = f"#!/bin/sh\n'''exec' \"{interpreter}\" \"$0\" \"$@\"\n' '''\nimport sys\n"
    path = executable(tmp_path / "opt" / "agent", head)
    assert shows(program.find(str(path)).visible, interpreter)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!",
        "#!\n",
        "#!   \n",
        "#!/gone/python\n",
        "\x7fELF",
        "#!relative\n",
        "#! /bin/sh\n",
        "#!/bin/sh\n'''exec' \"open\n",
        "#!/bin/sh\n'''exec' ",
    ],
)
def test_odd_beginnings(tmp_path, home, text):
    path = executable(tmp_path / "opt" / "agent", text)
    assert program.find(str(path)).visible == (str(path.parent),)


def test_a_virtual_environment_shows_what_it_imports_from(tmp_path, home):
    base = executable(tmp_path / "python" / "bin" / "python3")
    environment, source, other = tmp_path / "venv", tmp_path / "source", tmp_path / "other"
    packages = environment / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    source.mkdir()
    (environment / "bin").mkdir()
    (environment / "pyvenv.cfg").touch()
    (environment / "bin" / "python").symlink_to(base)
    (packages / "editable.pth").write_text(f"{source}\nimport sys\nrelative\n{other}\n\n")
    path = executable(environment / "bin" / "agent", f"#!{environment}/bin/python\n")
    visible = program.find(str(path)).visible
    assert set(visible) == {str(path.parent), str(environment), str(source), str(tmp_path / "python")}
    assert len(visible) == len(set(visible))


def test_the_companions_python_is_visible_in_every_sandbox(home):
    path, needs = program.find_python()
    assert os.access(path, os.X_OK)
    assert all(os.path.isabs(need) for need in needs)


def test_without_a_system_python_the_one_on_path_is_taken(tmp_path, home, monkeypatch):
    monkeypatch.setattr(program, "system_covers", lambda _path: False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path, needs = program.find_python()
    assert path == os.path.realpath(sys.executable)
    assert shows(needs, path)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(AgentProgramMissing, match="python3"):
        program.find_python()


def test_finding_changes_nothing(tmp_path, home):
    path = executable(tmp_path / "opt" / "agent")
    program.find(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert os.listdir(home) == []
