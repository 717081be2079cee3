"""What a hostile program finds of the host's sockets (item 28), with every network; each is there outside."""

import contextlib
import json
import os
import socket

import pytest

from tests.redteam.hostile import PROGRAM

KNOCK = """
import errno, socket, stat
def knock(path):
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(path)
        return "reached"
    except OSError as problem:
        return errno.errorcode[problem.errno]
answer = {path: knock(path) for path in json.load(open("sockets"))}
found = []
for top, directories, names in os.walk("/"):
    directories[:] = [one for one in directories if os.path.join(top, one) not in ("/proc", "/usr", "/sys")]
    for name in names:
        try:
            if stat.S_ISSOCK(os.lstat(os.path.join(top, name)).st_mode):
                found.append(os.path.join(top, name))
        except OSError:
            pass
answer = {"knocks": answer, "found": found, "variables": sorted(os.environ)}
"""
USUAL = (
    "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
    "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/user/{uid}/bus",
    "/run/user/{uid}/systemd/private", "/run/user/{uid}/gnupg/S.gpg-agent", "/run/user/{uid}/wayland-0",
    "/tmp/.X11-unix/X0", "/tmp/tmux-{uid}/default", "/run/snapd.socket", "/dev/log",
)  # fmt: skip
VARIABLES = {
    "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DISPLAY",
    "WAYLAND_DISPLAY", "XAUTHORITY", "TMUX", "XDG_RUNTIME_DIR", "NOTIFY_SOCKET", "LISTEN_FDS",
}  # fmt: skip


@pytest.fixture
def planted(daemon):
    """Sockets where such services have theirs, in the home and the runtime directory, and one in `/tmp`; their paths."""
    with contextlib.ExitStack() as opened:

        def listen(path):
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            directory = os.open(os.path.dirname(path) or "/", os.O_RDONLY)
            try:
                # A path in pytest's own directories can be longer than an address.
                listener.bind(f"/proc/self/fd/{directory}/{os.path.basename(path)}" if path[0] != "\0" else path)
            finally:
                os.close(directory)
            listener.listen()
            return path

        (daemon.home / ".gnupg").mkdir()
        (daemon.home / ".ssh").mkdir()
        paths = [daemon.home / ".gnupg" / "S.gpg-agent", daemon.home / ".ssh" / "agent", daemon.runtime / "tmux"]
        found = [listen(str(path)) for path in paths]
        with socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind("")
            abstract.listen()
            yield [*found, abstract.getsockname().decode()]


def reachable(path):
    with socket.socket(socket.AF_UNIX) as one:
        if path[0] == "\0":
            one.connect(path)
            return True
        directory = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            one.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        finally:
            os.close(directory)
        return True


@pytest.mark.parametrize("network", ["none", "filtered"])
def test_no_socket_of_the_host_is_there(daemon, planted, network):
    daemon.start(agent=daemon.program(PROGRAM), environment=dict.fromkeys(VARIABLES - {"LISTEN_FDS"}, "/planted"))
    assert all(reachable(path) for path in planted), "the control"
    work = daemon.workspace()
    usual = [path.format(uid=os.getuid()) for path in USUAL]
    (work / "sockets").write_text(json.dumps([*planted, *usual, str(daemon.socket)]))
    agent = daemon.spawn("anna", work, KNOCK, "--network", network)
    fresh = agent["turn"]["result"]
    daemon.ok("suspend", "anna")
    daemon.ok("resume", "anna", KNOCK, "--wait")
    for said in map(json.loads, (fresh, daemon.wait("anna")["turn"]["result"])):
        assert set(said["knocks"].values()) <= {"ENOENT", "ECONNREFUSED"}, said["knocks"]
        assert all(place == "ENOENT" for path, place in said["knocks"].items() if path[0] != "\0")
        assert [path for path in said["found"] if not path.endswith("/agent.sock")] == []
        assert VARIABLES.isdisjoint(said["variables"])
