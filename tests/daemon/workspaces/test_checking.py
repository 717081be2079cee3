"""Which directories can be workspaces."""

import os
from pathlib import Path

import pytest

from substrat.core.programs.table import CURSOR, PROGRAMS
from substrat.daemon.workspaces import checking
from substrat.daemon.workspaces.user import User
from substrat.errors import WorkspaceUnusable

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


def check(path, user, *forbidden):
    return checking.check_workspace(str(path), user, tuple(map(str, forbidden)))


def refusal(path, user, *forbidden):
    with pytest.raises(WorkspaceUnusable) as refused:
        check(path, user, *forbidden)
    return refused.value.message


# Which directories can be used


def test_a_directory_of_ones_own(work, user):
    assert check(work, user) == str(work)


def test_a_link_is_resolved(work, user, tmp_path):
    (tmp_path / "link").symlink_to(work)
    assert check(tmp_path / "link", user) == str(work)
    assert check(f"{work}/../work/.", user) == str(work)


def test_a_directory_inside_the_home(user):
    path = Path(user.home, "projects", "x")
    path.mkdir(parents=True)
    assert check(path, user) == str(path)


def test_no_program_s_own_directory_is_one_to_work_in(user, monkeypatch):
    path = Path(user.home, ".other", "x")
    path.mkdir(parents=True)
    assert check(path, user) == str(path)
    monkeypatch.setitem(PROGRAMS, "other", CURSOR._replace(places=CURSOR.places._replace(home=".other")))
    assert f"would open {user.home}/.other" in refusal(path, user)


@pytest.mark.parametrize("path", ["work", "./work", "~/work", ""])
def test_a_path_must_be_absolute(user, path):
    assert "absolute" in refusal(path, user)


def test_what_is_no_directory(user, tmp_path):
    assert "make it first" in refusal(tmp_path / "missing", user)
    (tmp_path / "file").touch()
    assert "isn't a directory" in refusal(tmp_path / "file", user)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refusal(tmp_path / "loop", user)


@pytest.mark.parametrize(
    "path", ["/", "/usr", "/usr/lib", "/etc", "/tmp", "/proc/self", "/sys/kernel", "/dev", "/home", "/var"]
)
def test_what_belongs_to_the_system(user, path):
    assert "system" in refusal(path, user)


def test_the_home_itself_and_what_holds_it(user, tmp_path):
    assert user.home in refusal(user.home, user)
    assert user.home in refusal(tmp_path, user)


@pytest.mark.parametrize("name", [".cursor", ".cursor/chats", ".config/cursor", ".config", ".ssh", ".gnupg"])
def test_what_decides_about_logins_and_chats(user, name):
    path = Path(user.home, name)
    path.mkdir(parents=True)
    refusal(path, user)


def test_the_daemons_own_directories(user, work):
    state = work / "state"
    (state / "agents").mkdir(parents=True)
    for path in (work, state, state / "agents"):
        assert str(state) in refusal(path, user, state)
    (work / "state-not").mkdir()
    assert check(work / "state-not", user, state)


MODES = [(0o700, True), (0o755, True), (0o500, False), (0o300, False), (0o600, False), (0o077, False)]


@pytest.mark.parametrize(("mode", "usable"), MODES)
def test_an_agent_without_capabilities_must_be_able_to_work_there(work, user, mode, usable):
    work.chmod(mode)
    if usable:
        assert check(work, user)
    else:
        assert f"has the mode {mode:04o}, which doesn't let" in refusal(work, user)
    work.chmod(0o755)


def test_a_directory_of_somebody_else(work, user):
    stranger = user._replace(name="stranger", uid=user.uid + 12345, gid=user.gid + 12345)
    work.chmod(0o700)
    assert "stranger" in refusal(work, stranger)
    work.chmod(0o777)
    assert check(work, stranger)


@pytest.mark.parametrize("what", ["file", "link", "dangling"])
def test_a_cursor_directory_that_could_not_be_protected(work, user, tmp_path, what):
    if what == "file":
        (work / ".cursor").touch()
    else:
        target = tmp_path / "elsewhere"
        if what == "link":
            target.mkdir()
        (work / ".cursor").symlink_to(target)
    assert ".cursor" in refusal(work, user)


def test_who_agents_are(tmp_path):
    found = User.current({"HOME": str(tmp_path)})
    assert (found.uid, found.home) == (os.geteuid(), str(tmp_path))
    assert found.has_home
    assert User.current({}).name
    assert not found._replace(home="/").has_home
    assert not found._replace(home="/usr").has_home
    (tmp_path / "link").symlink_to(tmp_path)
    assert User.current({"HOME": str(tmp_path / "link")}).home == str(tmp_path)
