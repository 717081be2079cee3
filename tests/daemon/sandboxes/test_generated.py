"""The files that are generated for an agent."""

import json
import os
import stat
import warnings
from pathlib import Path

import pytest

from substrat.core.agents.records import AgentSettings
from substrat.core.programs.table import CURSOR, PROGRAMS
from substrat.daemon.sandboxes.generated import generate
from substrat.daemon.sandboxes.person_git import PersonGit
from substrat.daemon.state.layout import AgentDir, Layout

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


@pytest.fixture
def source(work):
    path = work / ".cursor"
    path.mkdir()
    return path


@pytest.fixture
def place(tmp_path):
    return Layout(str(tmp_path / "state"), str(tmp_path / "run")).agent("a-1")


LIMITS = {"children_left": 1, "depth_left": 1, "message_bytes": 1, "turn_s": None, "silence_s": None}


def prepare(place, agent, user, **changes):
    given = {"parent": "boss", "python": "/usr/bin/python3", "person": PersonGit(), **changes}
    return generate(place, agent, given["parent"], LIMITS, user, given["python"], given["person"])


def test_an_agents_places(place, tmp_path):
    assert place == AgentDir(str(tmp_path / "state/agents/a-1"), str(tmp_path / "run/agents/a-1"))
    for path in (place.cursor, place.home(".cursor"), place.chats, place.cache, place.etc, place.gitconfig):
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


def test_a_programs_own_files_are_made_and_mounted_over_files_only(place, new_agent, user, work, monkeypatch):
    other = CURSOR._replace(
        places=CURSOR.places._replace(home=".other", chats="", settings=(".other/login",), shown=(("RULES", "RULES"),)),
        generate=lambda companion, rules: {"mcp": json.dumps(companion), "RULES": rules},
    )
    monkeypatch.setitem(PROGRAMS, "other", other)
    agent = new_agent("bob", workspace=str(work), settings=AgentSettings(program="other", instructions="Be quick."))
    home, elsewhere = Path(place.home(".other")), work / "elsewhere"
    home.mkdir(parents=True)
    (home / "RULES").symlink_to(elsewhere)
    prepare(place, agent, user)
    assert (home / "RULES").read_text() == ""
    assert not (home / "RULES").is_symlink()
    assert not elsewhere.exists()
    assert not (home / "login").exists()  # the person isn't logged in
    rules = Path(place.program, "RULES").read_text()
    assert "`bob`" in rules
    assert rules.endswith("Be quick.\n")
    assert "alwaysApply" not in rules
    assert "SUBSTRAT_SOCKET" in Path(place.program, "mcp").read_text()


def test_it_is_made_anew_for_every_turn(place, new_agent, user, source):
    agent = new_agent(workspace=str(source.parent))
    (source / "old").touch()
    prepare(place, agent, user)
    (source / "old").unlink()
    (source / "new").touch()
    Path(place.home(".cursor"), "kept").touch()
    prepare(place, agent, user)
    assert set(os.listdir(place.cursor)) == {"new", "mcp.json", "rules", ".gitignore"}
    (source / ".gitignore").write_text("x")
    prepare(place, agent, user)
    assert Path(place.cursor, ".gitignore").read_text() == "x"
    assert os.path.exists(os.path.join(place.home(".cursor"), "kept"))


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
        generate(AgentDir("state/a", "run/a"), new_agent(workspace="work"), None, LIMITS, user, "python3", PersonGit())

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
