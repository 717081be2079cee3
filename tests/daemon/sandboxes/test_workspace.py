"""Workspaces: which can be used, and which files of a hostile `.cursor` reach an agent."""

import errno
import os
import socket
import stat
import warnings
from pathlib import Path

import pytest

from sandbox.spec import Bind
from substrat.core.programs.cursor.command_line import chats_folder
from substrat.daemon.kernel import nofollow
from substrat.daemon.sandboxes import sources, workspace
from substrat.daemon.sandboxes.generated import generate
from substrat.daemon.sandboxes.person_git import PersonGit
from substrat.daemon.sandboxes.workspace import User
from substrat.daemon.state.layout import AgentDir, Layout
from substrat.errors import WorkspaceUnusable

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


@pytest.fixture
def user(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return User("me", os.geteuid(), os.getegid(), str(home))


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work"
    path.mkdir()
    return path


def check(path, user, *forbidden):
    return workspace.check_workspace(str(path), user, tuple(map(str, forbidden)))


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


# Chats


def test_a_session_is_stored_when_its_database_is_there(user):
    folder = Path(user.home, ".cursor", "chats", chats_folder("/w"))
    assert not workspace.session_is_stored(user, "/w", SESSION)
    (folder / SESSION).mkdir(parents=True)
    assert not workspace.session_is_stored(user, "/w", SESSION)
    (folder / SESSION / "store.db").touch()
    assert workspace.session_is_stored(user, "/w", SESSION)
    assert not workspace.session_is_stored(user, "/v", SESSION)


@pytest.mark.parametrize("what", ["chat", "store", "directory"])
def test_a_session_made_of_links_is_none(user, tmp_path, what):
    folder = Path(user.home, ".cursor", "chats", chats_folder("/w"))
    folder.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "store.db").touch()
    if what == "chat":
        (folder / SESSION).symlink_to(elsewhere)
    else:
        (folder / SESSION).mkdir()
        if what == "store":
            (folder / SESSION / "store.db").symlink_to(elsewhere / "store.db")
        else:
            (folder / SESSION / "store.db").mkdir()
    assert not workspace.session_is_stored(user, "/w", SESSION)


def test_the_chats_folder_is_made_once(user):
    path = workspace.make_chats_folder(user, "/w")
    assert path == os.path.join(user.home, ".cursor", "chats", chats_folder("/w"))
    assert os.path.isdir(path)
    assert workspace.make_chats_folder(user, "/w") == path


@pytest.mark.parametrize("what", ["file", "dangling"])
def test_a_chats_folder_that_cannot_be_made(user, tmp_path, what):
    if what == "file":
        Path(user.home, ".cursor").touch()
    else:
        Path(user.home, ".cursor").symlink_to(tmp_path / "gone")
    with pytest.raises(WorkspaceUnusable, match=r"\.cursor"):
        workspace.make_chats_folder(user, "/w")


# The copy of a workspace's `.cursor`


@pytest.fixture
def source(work):
    path = work / ".cursor"
    path.mkdir()
    return path


def copy(source, tmp_path):
    target = tmp_path / "copy"
    note = workspace.copy_cursor_directory(str(source), str(target))
    if note is not None:
        note.encode()
    files = {str(path.relative_to(target)): path for path in target.rglob("*")} if target.exists() else {}
    return files, note


def test_there_is_nothing_to_copy(work, tmp_path):
    assert copy(work / ".cursor", tmp_path) == ({}, None)


def test_files_and_directories_are_copied(source, tmp_path):
    (source / "rules" / "deep").mkdir(parents=True)
    (source / "rules" / "deep" / "a.mdc").write_bytes(b"\x00\xff" * 100_000)
    (source / "hook.sh").write_text("x")
    (source / "hook.sh").chmod(0o755)
    (source / "secret").write_text("x")
    (source / "secret").chmod(0o600)
    (source / "everybody").write_text("x")
    (source / "everybody").chmod(0o6777)
    files, note = copy(source, tmp_path)
    assert note is None
    assert set(files) == {"rules", "rules/deep", "rules/deep/a.mdc", "hook.sh", "secret", "everybody"}
    assert files["rules/deep/a.mdc"].read_bytes() == b"\x00\xff" * 100_000
    modes = {name: stat.S_IMODE(files[name].stat().st_mode) for name in ("hook.sh", "secret", "everybody")}
    assert modes == {"hook.sh": 0o755, "secret": 0o600, "everybody": 0o755}


def test_no_link_is_followed(source, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "inner").write_text("secret")
    (source / "file").symlink_to(tmp_path / "secret")
    (source / "directory").symlink_to(tmp_path / "secrets")
    (source / "loop").symlink_to(".")
    (source / "dangling").symlink_to("gone")
    (source / "real").write_text("x")
    files, note = copy(source, tmp_path)
    assert set(files) == {"real"}
    for name in ("file", "directory", "loop", "dangling"):
        assert name in note


def test_a_cursor_directory_that_is_a_link_is_not_followed(work, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").touch()
    (work / ".cursor").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r".*") as refused:
        copy(work / ".cursor", tmp_path)
    assert refused.value.errno in {errno.ELOOP, errno.ENOTDIR}


def test_a_link_on_the_way_to_a_cursor_directory_is_not_followed(work, source, tmp_path):
    """A directory above the workspace was swapped for a link to another one after the workspace was checked."""
    (source / "mcp.json").write_text("the workspace's")
    home = tmp_path / "elsewhere"
    (home / "work" / ".cursor").mkdir(parents=True)
    (home / "work" / ".cursor" / "mcp.json").write_text("canary")
    outer = work.parent / "outer"
    outer.mkdir()
    work.rename(outer / "work")
    assert set(copy(outer / "work" / ".cursor", tmp_path / "before")[0]) == {"mcp.json"}, "the control"
    outer.rename(tmp_path / "aside")
    outer.symlink_to(home)
    with pytest.raises(OSError, match=r".*") as refused:
        copy(outer / "work" / ".cursor", tmp_path)
    assert refused.value.errno in {errno.ELOOP, errno.ENOTDIR}
    assert not (tmp_path / "copy").exists()


def test_a_workspace_that_was_replaced_meanwhile_is_refused(work, source, tmp_path):
    """By a real directory this time, which no look for links would find."""
    before = workspace.identify(str(work))
    assert workspace.copy_cursor_directory(str(source), str(tmp_path / "copy"), before) is None, "the control"
    work.rename(tmp_path / "aside")
    (work / ".cursor").mkdir(parents=True)
    with pytest.raises(WorkspaceUnusable, match="replaced"):
        workspace.copy_cursor_directory(str(source), str(tmp_path / "other"), before)


def test_all_of_a_workspace_is_opened_from_one_directory(work, tmp_path, monkeypatch):
    """Another directory takes the workspace's name between two of its mounts."""
    (work / ".git").mkdir()
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    real = nofollow.open_path

    def swap_afterwards(path, beneath=None):
        descriptor = real(path, beneath)
        if path == str(work):
            work.rename(tmp_path / "aside")
            other.rename(work)
        return descriptor

    inode = (work / ".git").stat().st_ino
    monkeypatch.setattr(nofollow, "open_path", swap_afterwards)
    opened = sources.open_all([Bind(str(path), str(path), held=True) for path in (work, work / ".git")])
    assert (work / ".git").stat().st_ino != inode, "the control: it was swapped"
    assert os.fstat(opened[1]).st_ino == inode
    sources.close_all(opened)


def test_pipes_sockets_and_devices_do_not_hold_it_up(source, tmp_path):
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        descriptor = os.open(source, os.O_PATH)
        sock.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        (source / "real").write_text("x")
        files, note = copy(source, tmp_path)
    assert set(files) == {"real"}
    assert "pipe" in note
    assert "socket" in note


def test_too_many_files(source, tmp_path):
    for number in range(2100):
        (source / f"{number:05}").touch()
    files, note = copy(source, tmp_path)
    assert len(files) == 2000
    assert note is not None
    assert len(note) < 500


def test_too_many_bytes(source, tmp_path):
    for number in range(5):
        with (source / f"{number}").open("wb") as file:
            file.truncate(10 << 20)
    files, note = copy(source, tmp_path)
    assert set(files) == {"0", "1", "2"}
    assert note is not None


def test_a_file_that_does_not_fit_takes_nobody_elses_room(source, tmp_path):
    with (source / "a-big-one").open("wb") as file:
        file.truncate(40 << 20)
    (source / "mcp.json").write_text("{}")
    files, note = copy(source, tmp_path)
    assert set(files) == {"mcp.json"}
    assert "a-big-one" in note


def test_too_deep(source, tmp_path):
    path = source
    for _ in range(40):
        path = path / "d"
        path.mkdir()
        (path / "f").touch()
    files, note = copy(source, tmp_path)
    assert 10 < sum(name.endswith("f") for name in files) < 20
    assert note is not None


def test_names_in_no_encoding_can_be_told(source, tmp_path):
    os.symlink(b"gone", os.fsencode(source) + b"/\xff\xfe")
    with open(os.fsencode(source) + b"/\xfd", "wb") as file:
        file.write(b"x")
    files, note = copy(source, tmp_path)
    assert len(files) == 1
    assert note is not None


# The files of an agent


@pytest.fixture
def place(tmp_path):
    return Layout(str(tmp_path / "state"), str(tmp_path / "run")).agent("a-1")


def prepare(place, agent, user, **changes):
    given = {"parent": "boss", "python": "/usr/bin/python3", "person": PersonGit(), **changes}
    return generate(place, agent, given["parent"], user, given["python"], given["person"])


def test_an_agents_places(place, tmp_path):
    assert place == AgentDir(str(tmp_path / "state/agents/a-1"), str(tmp_path / "run/agents/a-1"))
    for path in (place.cursor, place.dot_cursor, place.chats, place.cache, place.etc, place.gitconfig):
        assert path.startswith(place.root + "/")
    assert place.socket.startswith(place.socket_dir + "/")
    assert place.turn(7).root == f"{place.root}/turns/7"


def test_what_an_agent_is_shown(place, new_agent, user, work):
    agent = new_agent("bob", workspace=str(work))
    assert prepare(place, agent, user) is None
    assert '"substrat"' in Path(place.mcp_json).read_text()
    rules = Path(place.cursor, "rules", "substrat.mdc").read_text()
    assert "`bob`" in rules
    assert "`boss`" in rules
    assert f"{user.inside.name}:x:{user.inside.uid}:" in Path(place.etc, "passwd").read_text()
    assert "bob" in Path(place.etc, "hosts").read_text()
    assert stat.S_IMODE(os.stat(place.socket_dir).st_mode) == 0o700
    assert os.listdir(work) == []


def test_it_is_made_anew_for_every_turn(place, new_agent, user, source):
    agent = new_agent(workspace=str(source.parent))
    (source / "old").touch()
    prepare(place, agent, user)
    (source / "old").unlink()
    (source / "new").touch()
    Path(place.dot_cursor, "kept").touch()
    prepare(place, agent, user)
    assert set(os.listdir(place.cursor)) == {"new", "mcp.json", "rules", ".gitignore"}
    (source / ".gitignore").write_text("x")
    prepare(place, agent, user)
    assert Path(place.cursor, ".gitignore").read_text() == "x"
    assert os.path.exists(os.path.join(place.dot_cursor, "kept"))


def test_what_says_the_same_is_not_made_again_and_what_does_not_is(place, new_agent, user, work):
    agent = new_agent("bob", workspace=str(work))
    prepare(place, agent, user)
    same, changed, link = (Path(place.etc, name) for name in ("hosts", "passwd", "group"))
    group = link.read_text()
    inode = same.stat().st_ino
    changed.write_text("root::0:0::/:/bin/sh\n")
    link.unlink()
    link.symlink_to("/etc/group")
    prepare(place, agent, user)
    assert same.stat().st_ino == inode
    assert f"{user.inside.name}:x:{user.inside.uid}:" in changed.read_text()
    assert not link.is_symlink()
    assert link.read_text() == group


def test_the_workspaces_own_servers_stay(place, new_agent, user, source):
    (source / "mcp.json").write_text('{"mcpServers": {"own": {"command": "x"}}} // comment')
    assert prepare(place, new_agent(workspace=str(source.parent)), user) is None
    assert '"own"' in Path(place.mcp_json).read_text()


def test_a_broken_configuration_of_the_workspace_is_told(place, new_agent, user, source):
    (source / "mcp.json").write_text("{")
    assert "mcp.json" in prepare(place, new_agent(workspace=str(source.parent)), user)
    assert '"substrat"' in Path(place.mcp_json).read_text()


ODD = [
    "rules is a file",
    "mcp.json is a directory",
    "substrat.mdc is a directory",
    "mcp.json is a link",
    "mcp.json is a pipe",
]


@pytest.mark.parametrize("what", ODD)
def test_a_workspace_in_which_things_are_not_what_they_should_be(place, new_agent, user, source, what):
    path = source / what.split()[0]
    if what.startswith("substrat.mdc"):
        path = source / "rules" / "substrat.mdc"
        path.parent.mkdir()
    if what.endswith("directory"):
        path.mkdir()
        (path / "inner").touch()
    elif what.endswith("link"):
        path.symlink_to("/etc/passwd")
    elif what.endswith("pipe"):
        os.mkfifo(path)
    else:
        path.write_text("x")
    prepare(place, new_agent(workspace=str(source.parent)), user)
    assert '"substrat"' in Path(place.mcp_json).read_text()
    assert Path(place.cursor, "rules", "substrat.mdc").is_file()


def test_a_read_only_configuration_can_be_replaced(place, new_agent, user, source):
    (source / "mcp.json").write_text("{}")
    (source / "mcp.json").chmod(0o444)
    (source / "rules").mkdir()
    (source / "rules" / "substrat.mdc").write_text("an older one")
    (source / "rules" / "substrat.mdc").chmod(0o444)

    def replace():
        generate(AgentDir("state/a", "run/a"), new_agent(workspace="work"), None, user, "python3", PersonGit())

    if os.geteuid() == 0:  # the superuser may write anything, so somebody else has to try
        for path in (source.parents[1], *source.parents[1].rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        assert as_nobody(source.parents[1], replace) == ""
    else:
        prepare(place, new_agent(workspace=str(source.parent)), user)


def as_nobody(directory, action):
    """Do something in a process without privileges, and return its error."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the child does nothing that another thread's lock could hold up
        pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.chdir(directory)  # its parents belong to the superuser alone
            os.setuid(65534)
            action()
        except BaseException as problem:
            os.write(write, str(problem).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read) as file:
        return file.read()


def test_a_turns_files(place):
    turn = place.turn(1)
    assert (turn.read_status(), turn.has_output(), turn.read_errors()) == (b"", False, "")
    turn.make("the prompt ü\udcff")
    assert Path(turn.prompt).read_bytes() == "the prompt ü?".encode()
    assert stat.S_IMODE(os.stat(turn.root).st_mode) == 0o700
    Path(turn.stdout).write_bytes(b"x")
    Path(turn.stderr).write_bytes(b"\xff" * 100_000 + b"the end")
    assert turn.has_output()
    assert turn.read_errors().endswith("the end")
    assert len(turn.read_errors()) <= 65536
    turn.make("again")
    assert os.listdir(turn.root) == ["prompt"]


def test_a_removed_agents_socket_is_gone(place, new_agent, user, work):
    prepare(place, new_agent(workspace=str(work)), user)
    place.remove_sockets()
    assert not os.path.exists(place.socket_dir)
    place.remove_sockets()
