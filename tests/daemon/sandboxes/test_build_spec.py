"""An agent's sandbox as a value: its mounts, the paths that it never sees, its command line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import bwrap, launch
from sandbox.spec import Bind, Devices, Network, NetworkMode, Processes, Symlink, Tmpfs
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent, AgentSettings
from substrat.core.agents.rights import Policy
from substrat.core.programs import table
from substrat.core.programs.cursor import command_line
from substrat.core.programs.table import CURSOR, PROGRAMS
from substrat.daemon.sandboxes import build_spec
from substrat.daemon.sandboxes.build_spec import HostFacts
from substrat.daemon.sandboxes.program import Program
from substrat.daemon.state.layout import AgentDir, Layout
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from substrat.daemon.workspaces.user import User

HOME, STATE, RUNTIME = "/home/me", "/home/me/.local/state/substrat", "/run/user/1000/substrat"
SECRETS = {"CURSOR_API_KEY": "key_123456", "CURSOR_AUTH_TOKEN": "token_123456", "AWS_SECRET": "aws", "LANG": "de_DE.UTF-8",
           "PATH": "/odd", "LD_PRELOAD": "/evil.so", "SUBSTRAT_STATE_DIR": STATE, "HOME": "/elsewhere"}  # fmt: skip
PLACE = AgentDir(f"{STATE}/agents/a-1", f"{RUNTIME}/agents/a-1")


def agent_with(network=Network.HOST, workspace="/home/me/work", name="bob"):
    return Agent("a-1", name, Phase.RUNNING, workspace, "auto", Policy(network), 0.0)


def surroundings(**changes):
    given_values = {
        "user": User("me", 1000, 1000, HOME), "program": Program("/opt/cursor/agent", ("/opt/cursor",)),
        "companion": "/opt/substrat/relay.py", "hook": "/opt/substrat/hook.py", "companion_needs": (), "bind_ro": (),
        "hidden": (STATE, RUNTIME),
        "system": (Bind("/usr", "/usr"), Symlink("/bin", "usr/bin"), Bind("/etc/ssl", "/etc/ssl", optional=True)),
        "memory_dir_bytes": 1 << 30, "environ": SECRETS, "resolv_conf": "/run/systemd/resolve/stub-resolv.conf",
    }  # fmt: skip
    return HostFacts(**{**given_values, **changes})


NOTHING = ProtectedPaths()
ROOT = User("root", 0, 0, "/root")


def spec(agent=None, guard=NOTHING, chat=None, **changes):
    agent = agent or agent_with()
    command = command_line.command("/opt/cursor/agent", agent.workspace, "auto", None)
    return build_spec.spec(agent, PLACE, surroundings(**changes), command, guard, chat=chat)


def source_of(built, path):
    """Follow the mounts in bubblewrap's order: which host path shows at a path, or None when it is in memory."""
    found = None
    for mount in bwrap.ordered(built.mounts):
        target = mount.target.rstrip("/")
        if (path + "/").startswith(target + "/"):
            if isinstance(mount, Bind):
                found = (mount.source.rstrip("/") + path[len(target) :], mount.writable)
            elif isinstance(mount, Tmpfs | Processes | Devices):
                found = None
    return found


def is_shown(built, host_path):
    """Say whether a host path can be seen anywhere in the sandbox."""
    for mount in built.mounts:
        if isinstance(mount, Bind) and (host_path + "/").startswith(mount.source.rstrip("/") + "/"):
            place = mount.target.rstrip("/") + host_path[len(mount.source.rstrip("/")) :]
            shown = source_of(built, place)
            if shown is not None and shown[0] == host_path:
                return True
    return False


def test_the_workspace_is_writable_and_its_cursor_directory_is_ours():
    closed = ("/home/me/work/.git/config", "/home/me/work/.git/hooks", "/home/me/work/.cursor")
    built = spec(guard=ProtectedPaths(pinned=("/home/me/work/.git",), read_only=closed, missing=("/home/me/work/.envrc",)))
    assert (built.workdir, built.hostname) == ("/home/me/work", "bob")
    assert source_of(built, "/home/me/work/src") == ("/home/me/work/src", True)
    assert source_of(built, "/home/me/work/.cursor/mcp.json") == (PLACE.mcp_json, False)
    for name in ("config", "hooks/pre-commit"):
        assert source_of(built, f"/home/me/work/.git/{name}") == (f"/home/me/work/.git/{name}", False)
    assert source_of(built, "/home/me/work/.git/HEAD") == ("/home/me/work/.git/HEAD", True)
    assert source_of(built, "/home/me/work/.envrc") == ("/home/me/work/.envrc", False)
    assert Bind("/home/me/work/.git", "/home/me/work/.git", writable=True, held=True, late=True) in built.mounts


def test_a_worktree_has_its_repositorys_git_directory_but_not_the_other_worktrees():
    git = "/home/me/main/.git"
    own = f"{git}/worktrees/mine"
    closed = (f"{git}/config", f"{git}/worktrees", f"{own}/commondir")
    built = spec(guard=ProtectedPaths(pinned=(git, own), read_only=closed, git_dirs=(git,), own_git_dirs=(own,)))
    assert len(set(built.mounts)) == len(built.mounts)
    writable = {f"{git}/objects": True, f"{git}/config": False, f"{git}/worktrees/theirs/HEAD": False, f"{own}/HEAD": True,
                f"{own}/commondir": False}  # fmt: skip
    assert {path: source_of(built, path)[1] for path in writable} == writable


def test_what_an_agent_could_swap_is_bound_by_descriptor():
    built = spec(guard=ProtectedPaths(pinned=("/home/me/work/.git",), read_only=("/home/me/work/.git/hooks",)))
    for mount in built.mounts:
        if isinstance(mount, Bind) and mount.source.startswith(("/home/me/work", f"{HOME}/.cursor/chats")):
            assert mount.held


def test_the_home_is_in_memory_with_little_in_it():
    built = spec()
    for path in (".ssh/id_rsa", ".bashrc", ".aws/credentials", ".local/share/x", ".config/gh/hosts.yml", "other-work"):
        assert source_of(built, f"{HOME}/{path}") is None
        assert not is_shown(built, f"{HOME}/{path}")
    folder = command_line.chats_folder("/home/me/work")
    assert source_of(built, f"{HOME}/.cursor/chats/{folder}/x") == (f"{PLACE.chats}/{folder}/x", True)
    assert source_of(built, f"{HOME}/.cursor/x") == (f"{PLACE.home('.cursor')}/x", True)
    assert source_of(built, f"{HOME}/.config/cursor/auth.json") == (f"{HOME}/.config/cursor/auth.json", False)


def test_a_program_with_a_directory_of_its_own_gets_it_with_its_files_and_its_login(monkeypatch):
    other = CURSOR._replace(
        places=CURSOR.places._replace(
            home=".other", chats="", settings=(".other/login.json",), variable="OTHER_HOME",
            shown=(("RULES.md", "RULES.md"),),
        ),
        login=CURSOR.login._replace(variables=("AWS_SECRET",)), environment=(("OTHER_TRIES", "2"),),
        generate=lambda companion, rules: {},
    )  # fmt: skip
    monkeypatch.setitem(PROGRAMS, "other", other)
    built = spec(replace(agent_with(), settings=AgentSettings(program="other")))
    assert source_of(built, f"{HOME}/.other/x") == (f"{PLACE.home('.other')}/x", True)
    assert source_of(built, f"{HOME}/.other/RULES.md") == (f"{PLACE.program}/RULES.md", False)
    assert source_of(built, f"{HOME}/.other/login.json") == (f"{HOME}/.other/login.json", False)
    assert source_of(built, "/run/substrat/program/x") == (f"{PLACE.program}/x", False)
    assert source_of(built, f"{HOME}/.cursor/x") is None
    given = dict(built.environment)
    assert (given["OTHER_HOME"], given["OTHER_TRIES"], given["AWS_SECRET"]) == (f"{HOME}/.other", "2", "aws")
    assert "CURSOR_API_KEY" not in given
    assert source_of(spec(), "/run/substrat/program/x") is None


def test_of_the_users_chats_only_its_own_is_there():
    chats = f"{HOME}/.cursor/chats"
    folder = command_line.chats_folder("/home/me/work")
    for chat in (None, f"{chats}/{folder}/mine"):
        built = spec(chat=chat)
        for other in (
            f"{chats}/{command_line.chats_folder('/home/me/other')}/x/store.db",
            f"{chats}/{folder}/theirs/store.db",
        ):
            assert not is_shown(built, other)
            assert source_of(built, other)[0].startswith(PLACE.chats)
        assert is_shown(built, f"{chats}/{folder}/mine/store.db") == (chat is not None)
    assert source_of(built, f"{chats}/{folder}/mine/store.db") == (f"{chats}/{folder}/mine/store.db", True)


def test_what_a_writable_directory_holds_mounted_is_a_mount_all_the_way():
    """Otherwise an agent could put a link where its next turn mounts."""
    built = spec()
    writable = [m.target for m in built.mounts if isinstance(m, Bind) and m.writable and m.target != built.workdir]
    targets = {mount.target for mount in built.mounts}
    for mount in built.mounts:
        for outer in writable:
            if mount.target.startswith(outer + "/"):
                parent = mount.target.rpartition("/")[0]
                assert parent in targets or parent == outer


def test_nothing_is_writable_but_its_own():
    for mount in spec().mounts:
        if isinstance(mount, Bind) and mount.writable:
            assert mount.source.startswith((PLACE.root, "/home/me/work")), mount


VISIBLE = st.sampled_from(["/home/me/.local", "/home", "/home/me", "/run", "/run/user/1000", STATE, RUNTIME, "/opt", "/"])


@given(
    st.lists(VISIBLE, max_size=3), st.lists(VISIBLE, max_size=2), st.lists(VISIBLE, max_size=2), st.sampled_from(Network)
)
def test_the_daemons_directories_are_never_seen(bind_ro, program, needs, network):
    built = spec(
        agent_with(network), bind_ro=tuple(bind_ro), program=Program("/opt/a", tuple(program)), companion_needs=tuple(needs)
    )
    for path in (f"{STATE}/substrat.db", f"{STATE}/agents/other/turns/1/prompt", f"{RUNTIME}/daemon.sock"):
        assert not is_shown(built, path)
    assert not is_shown(built, f"{RUNTIME}/agents/other/agent.sock")


def test_nor_are_they_below_the_systems_own():
    assert not is_shown(spec(hidden=("/usr/local/substrat",)), "/usr/local/substrat/substrat.db")


def test_its_own_door_is_there_all_the_same():
    built = spec(bind_ro=("/run", "/home"))
    assert source_of(built, "/run/substrat/door/agent.sock") == (PLACE.socket, False)
    assert source_of(built, "/run/substrat/companion.py") == ("/opt/substrat/relay.py", False)
    assert source_of(built, "/home/me/work/x") == ("/home/me/work/x", True)


@pytest.mark.parametrize("workspace", ["/srv/w", "/tmp/w", "/run/w", "/var/tmp/w", "/home/me/.local/w", "/opt/cursor/w"])
def test_a_workspace_anywhere_is_shown(workspace):
    built = spec(agent_with(workspace=workspace))
    assert source_of(built, f"{workspace}/x") == (f"{workspace}/x", True)


# The environment and the command line


def test_the_environment_is_built_and_not_inherited():
    environment = dict(spec().environment)
    assert environment["HOME"] == HOME
    assert environment["USER"] == "me"
    assert environment["CURSOR_API_KEY"] == "key_123456"
    assert environment["LANG"] == "de_DE.UTF-8"
    assert environment["PATH"].startswith("/usr/local/bin:")
    for name in ("AWS_SECRET", "LD_PRELOAD", "SUBSTRAT_STATE_DIR"):
        assert name not in environment
    environment = dict(spec(environ={"CURSOR_API_KEY": ""}).environment)
    assert "CURSOR_API_KEY" not in environment
    assert environment["LANG"] == "C.UTF-8"


@given(
    st.sampled_from([Network.NONE, Network.HOST]), st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8)
)
def test_no_secret_is_on_the_command_line(network, secret):
    secret = f"S{secret}S"
    built = spec(agent_with(network), environ=dict.fromkeys(SECRETS, secret))
    assert secret not in " ".join(launch.command("/usr/bin/bwrap", built))


# The network


def targets(built):
    return {mount.target for mount in built.mounts}


@pytest.mark.parametrize(
    ("network", "resolver", "hosts"),
    [
        (Network.FILTERED, f"{PLACE.etc}/resolv.conf", f"{PLACE.etc}/hosts"),
        (Network.NONE, None, f"{PLACE.etc}/hosts"),
        (Network.HOST, "/run/systemd/resolve/stub-resolv.conf", "/etc/hosts"),
    ],
)
def test_names_are_looked_up_as_the_network_is_and_users_are_made_up(network, resolver, hosts):
    built = spec(agent_with(network))
    assert (built.network, built.ports) == (network, (80, 443) if network is Network.FILTERED else ())
    assert ("/etc/resolv.conf" in targets(built)) == (resolver is not None)
    assert resolver is None or source_of(built, "/etc/resolv.conf") == (resolver, False)
    for path, source in (("hosts", hosts), ("passwd", f"{PLACE.etc}/passwd"), ("group", f"{PLACE.etc}/group")):
        assert source_of(built, f"/etc/{path}") == (source, False)
    assert source_of(built, "/etc/shadow") is None


def proxied(network=Network.FILTERED, **changes):
    around = surroundings(python="/usr/bin/python3", relay="/opt/substrat/netrelay.py", **changes)
    return build_spec.spec(agent_with(network), PLACE, around, ("/opt/cursor/agent",), NOTHING, NetworkMode.PROXY)


def test_the_proxy_form_has_a_relay_and_tells_of_it_in_the_environment():
    built = proxied()
    assert source_of(built, "/run/substrat/netrelay.py") == ("/opt/substrat/netrelay.py", False)
    assert built.relay == (
        "/usr/bin/python3", "-I", "-S", "/run/substrat/netrelay.py", "61280", "/run/substrat/door/network.sock",
    )  # fmt: skip
    assert "/etc/resolv.conf" not in targets(built)
    assert built.ports == ()
    environment = dict(built.environment)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        assert environment[name] == "http://127.0.0.1:61280"
    assert environment["NO_PROXY"] == environment["no_proxy"] == "localhost,127.0.0.1,::1"
    assert environment["NODE_USE_ENV_PROXY"] == "1"


def test_a_command_beside_a_turn_has_sockets_of_its_own():
    place, _ = Layout(STATE, RUNTIME).exec_session("a-1", "v1")
    assert place.network_socket == f"{RUNTIME}/visits/v1/network.sock"
    assert place.socket == f"{RUNTIME}/visits/v1/agent.sock"
    assert place.network_socket_in_sandbox == "/run/substrat/door/network.sock"


@pytest.mark.parametrize("network", [Network.NONE, Network.HOST])
def test_other_networks_have_nothing_of_the_proxy_form(network):
    built = proxied(network)
    assert built.relay == ()
    assert "/run/substrat/netrelay.py" not in targets(built)
    assert not [name for name, _ in built.environment if "PROXY" in name.upper()]
    assert not [name for name, _ in spec(agent_with(Network.FILTERED)).environment if "PROXY" in name.upper()]


def test_memory_is_bounded():
    sizes = {mount.target: mount.size for mount in spec(memory_dir_bytes=5 << 20).mounts if isinstance(mount, Tmpfs)}
    for path in ("/tmp", "/var/tmp", "/dev/shm", HOME):
        assert sizes[path] == 5 << 20
    assert 0 < sizes["/run"] <= 64 << 20


def test_roots_agents_find_an_ordinary_user_and_others_themselves():
    mine, roots = spec(), spec(user=ROOT)
    assert mine.ids is None
    assert "--uid" not in bwrap.options(mine)
    assert roots.ids == (1000, 1000)
    options = bwrap.options(roots)
    assert options[options.index("--uid") :][:4] == ["--uid", "1000", "--gid", "1000"]
    environment = dict(roots.environment)
    assert (environment["USER"], environment["LOGNAME"], environment["HOME"]) == ("agent", "agent", "/root")


def test_a_login_that_variables_have_moved_is_shown_without_the_chats_beside_it(tmp_path):
    moved = table.moved({"XDG_CONFIG_HOME": "/cfg", "CODEX_HOME": "/codex", "CLAUDE_CONFIG_DIR": "not/absolute"})
    user = User("me", 1000, 1000, HOME, moved)
    assert [user.place(path) for path in (".cursor/chats", ".cursor", ".codex/auth.json", ".claude")] == [
        "/cfg/cursor/chats", f"{HOME}/.cursor", "/codex/auth.json", f"{HOME}/.claude",
    ]  # fmt: skip
    built = spec(user=user)
    assert source_of(built, f"{HOME}/.config/cursor/auth.json") == ("/cfg/cursor/auth.json", False)
    assert source_of(built, f"{HOME}/.config/cursor/chats") is None
    only_login = spec(user=user._replace(moved=((".config/cursor", "/cfg/cursor"),)))
    assert source_of(only_login, f"{HOME}/.config/cursor/other") == ("/cfg/cursor/other", False)
    (tmp_path / "chats").mkdir()  # by a shell whose variables the daemon doesn't have
    by_a_shell = spec(user=user._replace(moved=((".config/cursor", str(tmp_path)),)))
    found = [source_of(by_a_shell, f"{HOME}/.config/cursor/{name}") for name in ("auth.json", "chats")]
    assert found == [(f"{tmp_path}/auth.json", False), None]
