"""The proxy form of the `filtered` network: programs in it, ends of the daemon and of the relay, and its choice.

`test_network` has the tests of both forms.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import host
from sandbox.netrelay import PORT
from tests.support.optional import present
from tests.support.processes import arguments_of
from tests.system.test_limits import kill_outer
from tests.system.test_network import ALLOW, CURL, net, run, told, world  # noqa: F401 - fixtures


@pytest.fixture
def form():
    return "proxy"


def relays(daemon):
    """The relays of a daemon's sandboxes."""
    return [pid for pid in daemon.sandboxed() if arguments_of(pid)[1:4] == ["-I", "-S", "/run/substrat/netrelay.py"]]


# fmt: off
REFUSED = {
    "http://evil.test/": "evil.test:80: it isn't on the allow-list",
    "https://www.allowed.test:9000/": "www.allowed.test:9000: the name isn't allowed at this port",
    "http://9.9.9.9/": "9.9.9.9:80: no allowed name has this address",
    "--noproxy '' http://127.0.0.1/": "127.0.0.1:80: no allowed name has this address",
    "http://inner.allowed.test/": "inner.allowed.test:80: it leads to 10.0.0.1, a private address",
    "-k --connect-to evil.test:443:www.allowed.test:443 https://evil.test/":
        "www.allowed.test:443: its TLS handshake names evil.test instead",
}
# fmt: on


@pytest.mark.slow
def test_what_is_refused(net, world):  # noqa: F811 - fixtures
    before = (world[1] / "hits").read_text()
    said = run(net, "anna", *(f"{CURL} -fg {url} || echo refused" for url in REFUSED))
    assert "hello" not in said
    assert said.count("refused\n") >= len(REFUSED)
    assert "timed out" not in said
    assert set(told(net, "anna", "denied")) >= set(REFUSED.values())
    assert set((world[1] / "hits").read_text()[len(before) :].split()) <= {"9.9.9.9:443"}


def test_a_refusal_says_why(net):  # noqa: F811 - fixtures
    said = run(
        net, "anna", CURL + "http://evil.test/", CURL + "-D - http://inner.allowed.test/",
        CURL + "-v https://evil.test/", CURL + "-x '' http://www.allowed.test/", CURL + "http://gone.allowed.test/",
    )  # fmt: skip
    assert "substrat: evil.test:80 is refused: it isn't on the allow-list\n" in said
    assert "HTTP/1.1 403 Forbidden" in said
    assert "substrat: inner.allowed.test:80 is refused: it leads to 10.0.0.1, a private address\n" in said
    assert "substrat: gone.allowed.test:80 can't be reached: the name can't be looked up" in said
    assert "Could not resolve host: www.allowed.test" in said


DIRECT = r"""
import socket
def attempt(name, do):
    try: do()
    except OSError as problem: print(name, type(problem).__name__)
    else: print(name, "reached")
attempt("address", lambda: socket.create_connection(("9.9.9.9", 80), 5))
attempt("ipv6", lambda: socket.create_connection(("2606:4700::9", 80), 5))
attempt("name", lambda: socket.create_connection(("www.allowed.test", 80), 5))
attempt("own", lambda: socket.create_connection(("127.0.0.1", 9000), 5))
def datagram():
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.settimeout(5); s.connect(("9.9.9.9", 53)); s.send(b"x"); s.recv(9)
attempt("udp", datagram)
print([name for _, name in socket.if_nameindex()])
"""


def test_what_doesnt_ask_the_proxy_has_no_network(net):  # noqa: F811 - fixtures
    work = net.workspace()
    (work / "direct.py").write_text(DIRECT)
    said = run(net, "anna", "python3 direct.py; env | grep -i proxy | sort; test -e /etc/resolv.conf || echo no resolver")
    assert "reached" not in said
    assert "TimeoutError" not in said
    assert "['lo']" in said
    here = f"http://127.0.0.1:{PORT}"
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        assert f"{name}={here}\n" in said
    for line in ("NO_PROXY=localhost,127.0.0.1,::1\n", "NODE_USE_ENV_PROXY=1\n", "no resolver\n"):
        assert line in said


@pytest.mark.slow
def test_a_restarted_daemon_serves_it_again(net, until):  # noqa: F811 - fixtures
    work = net.workspace()
    script = (
        f"{CURL} http://www.allowed.test/one; touch ready; while [ ! -e killed ]; do sleep 0.02; done; "
        f"{CURL} http://www.allowed.test/ || touch alone; while [ ! -e go ]; do sleep 0.02; done; "
        f"{CURL} -k https://www.allowed.test/two; {CURL} http://evil.test/"
    )
    net.ok("spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-", stdin=f"/shell {script}".encode())
    until((work / "ready").exists)
    net.kill()
    (work / "killed").touch()
    until((work / "alone").exists, "a refusal at once, with no daemon there")
    # The next turn gets another form; this turn keeps its own.
    net.start(config='[sandbox]\nfiltered = "transparent"\n')
    assert net.network("anna")["form"] == "proxy"
    (work / "go").touch()
    assert net.wait("anna")["turn"]["outcome"] == "success"
    assert net.shell("anna").count("hello from 9.9.9.9") == 2
    assert "substrat: evil.test:80 is refused" in net.shell("anna")
    net.ok("send", "anna", f"/shell {CURL} http://www.allowed.test/", "--wait")
    assert net.network("anna")["form"] == "transparent"


@pytest.mark.slow
def test_a_visit_beside_a_turn(net, until):  # noqa: F811 - fixtures
    work = net.workspace()
    script = (
        f"touch ready; while [ ! -e go ]; do sleep 0.02; done; {CURL} http://www.allowed.test/; {CURL} http://evil.test/"
    )
    net.ok("spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-", stdin=f"/shell {script}".encode())
    until((work / "ready").exists)
    ask = f"{CURL} http://api.allowed.test/; {CURL} http://other.test/"
    for _ in range(2):
        done = net.ctl("exec", "anna", "--", "sh", "-c", ask)
        assert "hello from 9.9.9.9" in done.out
        assert "other.test:80 is refused" in done.out
    (work / "go").touch()
    net.wait("anna")
    assert "hello from 9.9.9.9" in net.shell("anna")
    turn = net.show("anna")["turn"]["id"]
    events = [event for event in net.events("anna") if event["kind"].startswith("network:")]
    assert {(event["turn"], event["text"].partition(":")[0]) for event in events} == {
        (None, "api.allowed.test"), (None, "other.test"), (turn, "www.allowed.test"), (turn, "evil.test"),
    }  # fmt: skip
    doors = (net.runtime / "agents" / net.show("anna")["id"], net.runtime / "visits")
    until(lambda: not [path for door in doors for path in door.glob("**/network*")], "the end of the sockets")


def test_a_visit_of_a_killed_daemon_leaves_no_socket(net, until):  # noqa: F811 - fixtures
    work = net.workspace()
    net.spawn("anna", work, None, *ALLOW)
    doors = net.runtime / "visits"
    net.follow("exec", "anna", "--", "sh", "-c", "touch there; sleep 600")
    until((work / "there").exists, "the command's start")
    assert {path.name for path in doors.glob("*/*")} == {"agent.sock", "network.sock"}
    net.kill()
    net.start()
    until(lambda: not doors.exists(), "the removal of its sockets")
    until(lambda: not net.sandboxed(), "the end of its sandbox")


def test_an_agent_that_kills_the_relay_harms_itself_only(net, until):  # noqa: F811 - fixtures
    work = net.workspace()
    (work / "kill.py").write_text(
        "import os, signal\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    words = open(f'/proc/{pid}/cmdline').read().split('\\0')\n"
        "    if words[1:4] == ['-I', '-S', '/run/substrat/netrelay.py']: os.kill(int(pid), signal.SIGKILL)\n"
    )
    net.held("bert", work, *ALLOW)
    before = relays(net)
    assert len(before) == 1
    said = run(net, "anna", "python3 kill.py", CURL + "http://www.allowed.test/ || echo alone")
    assert "alone\n" in said
    assert net.wait("anna")["turn"]["outcome"] == "success"
    assert relays(net) == before
    assert "hello" in net.ctl("exec", "anna", "--", "sh", "-c", CURL + "http://www.allowed.test/").out
    (work / "go").touch()
    net.wait("bert")
    until(lambda: not net.sandboxed(), "the end of the sandboxes")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ends", "fails", "leaves something behind", "is suspended", "is killed"])
def test_a_turn_ends_as_without_it(net, until, how):  # noqa: F811 - fixtures
    """The same outcomes and exit codes as with no network at all, and nothing is left."""
    work = net.workspace()
    found = {}
    for network in (("--network", "none"), ALLOW):
        name = f"a-{network[1]}"
        before = {"fails": "/exit 3\n", "leaves something behind": "/shell setsid sleep 600 >/dev/null 2>&1 &\n"}.get(
            how, ""
        )
        if how in {"is suspended", "is killed"}:
            (work / "go").unlink(missing_ok=True)
            net.held(name, work, *network)
            if how == "is killed":
                kill_outer(net)  # its exit code is lost, in any order of deaths
            else:
                net.ok("suspend", name)
        else:
            net.spawn(name, work, before + "/say hi", *network)
        turn = net.wait(name, "idle", "failed", "suspended")["turn"]
        found[network[1]] = (turn["outcome"], turn["exit_code"], turn["error"])
        until(lambda: not net.sandboxed(), "the end of the sandbox")
    assert found["none"] == found["filtered"]


@pytest.mark.slow
def test_a_sandbox_ends_with_its_program_also_without_a_daemon(daemon, world, until):  # noqa: F811 - fixtures
    daemon.prefix = world[0]
    agent = daemon.program("begin()\nmark('ready')\nwait_for('go')\nfinish()\n")
    daemon.start(agent=agent, config='[sandbox]\nfiltered = "proxy"\n')
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-", stdin=b"x")
    until((work / "ready").exists)
    assert len(relays(daemon)) == 1
    daemon.kill()
    (work / "go").touch()
    until(lambda: not daemon.sandboxed(), "the end of the sandbox")
    daemon.start()
    assert daemon.wait("anna")["turn"]["outcome"] == "success"


@pytest.mark.slow
def test_a_visit_ends_as_without_it(net, until):  # noqa: F811 - fixtures
    net.spawn("anna", net.workspace(), None, *ALLOW)
    for words, code in (
        (("false",), 1),
        (("no-such-program",), 127),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -9 $$"), 137),
    ):
        done = net.ctl("exec", "anna", "--", *words)
        assert done.code == code, (words, done)
    look = (
        "sh",
        "-c",
        "sleep 600 & sed -n 's/^SigIgn:.//p' /proc/self/status; ls -l /proc/self/fd | grep -v pipe: | wc -l",
    )
    net.spawn("bert", net.directory / "work", None, "--network", "none")
    assert net.ctl("exec", "anna", "--", *look).out == net.ctl("exec", "bert", "--", *look).out
    until(lambda: not net.sandboxed(), "the end of the processes that it left behind")


def test_the_program_is_the_first_and_the_relay_holds_nothing(net, until):  # noqa: F811 - fixtures
    work = net.workspace()
    net.held("anna", work, *ALLOW)
    (relay,) = relays(net)
    links = [os.readlink(f"/proc/{relay}/fd/{number}") for number in os.listdir(f"/proc/{relay}/fd")]
    assert not [link for link in links if link.startswith(str(net.state))]
    assert os.readlink(f"/proc/{relay}/cwd") == "/"
    status = dict(line.split(":\t") for line in Path(f"/proc/{relay}/status").read_text().splitlines() if ":\t" in line)
    first = int(status["PPid"])
    assert Path(f"/proc/{first}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()[-1] == "1"
    assert status["CapEff"] == "0000000000000000"
    assert status["Seccomp"] == "2"
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    assert int(children[0]) != relay
    # It is frozen with the agent, and goes on with it.
    net.ok("suspend", "anna", "--freeze")
    until(lambda: Path(f"/proc/{relay}/stat").read_text().rpartition(")")[2].split()[0] == "T", "the relay's halt")
    net.ok("resume", "anna")
    (work / "go").touch()
    assert net.wait("anna")["turn"]["outcome"] == "success"


# Which form it is


FORBID = r"""
import ctypes, os, struct, sys
unshare, newnet = {"x86_64": 272, "aarch64": 97}[os.uname().machine], 0x40000000
# unshare(2) answers EPERM to a request for a network namespace; bubblewrap makes its own with clone(2).
steps = ((0x20, 0, 0, 0), (0x15, 0, 3, unshare), (0x20, 0, 0, 16), (0x45, 0, 1, newnet))
steps += ((6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def no_launcher():
    """A command that starts a program where bubblewrap can make its namespaces, and our launcher can't (seccomp(2))."""
    if os.uname().machine not in {"x86_64", "aarch64"}:
        pytest.skip("the number of unshare(2) isn't known here")
    return (sys.executable, "-c", FORBID)


def test_it_is_chosen_by_itself_and_told(daemon, no_launcher):
    daemon.start(prefix=no_launcher)
    work = daemon.workspace()
    daemon.spawn("anna", work, "/shell curl -sS http://evil.test/; ls /sys/class/net", *ALLOW)
    assert "substrat: evil.test:80 is refused: it isn't on the allow-list" in daemon.shell("anna")
    assert daemon.network("anna")["form"] == "proxy"
    assert "filtered networks have the proxy form" in daemon.log
    doctor = subprocess.run(
        [*no_launcher, Path(sys.executable).parent / "substratctl", "doctor"], env=daemon.environment(),
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    (line,) = (line for line in doctor.splitlines() if "network " in line)
    assert "filtered networks have the proxy form" in line
    assert "unshare: Operation not permitted" in line
    # A configuration that insists on the transparent form gets no network, and never the machine's own.
    daemon.stop()
    daemon.start(config='[sandbox]\nfiltered = "transparent"\n', prefix=no_launcher)
    daemon.spawn("bert", work, "/shell curl -sS http://evil.test/", *ALLOW)
    assert daemon.show("bert")["turn"]["outcome"] == "error"
    assert "no filtered network can be made here" in daemon.show("bert")["turn"]["error"]
    assert daemon.shell("bert") == ""


def test_where_the_launcher_works_it_is_the_other_one(daemon):
    tried = subprocess.run(
        ["unshare", "--net", *(() if os.geteuid() == 0 else ("--user",)), "true"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(tried.stderr.decode())
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), "/say hi", *ALLOW)
    assert daemon.network("anna")["form"] == "transparent"
    daemon.spawn("bert", daemon.directory / "work", "/say hi", "--network", "none")
    assert daemon.network("bert")["form"] is None


def test_a_look_that_is_killed_chooses_no_form(daemon, tmp_path, until):
    """One SIGKILL at the look for the transparent form: the turn is tried again, and has the form that can be made."""
    killed, real = tmp_path / "killed", present(host.find_bubblewrap()).path
    fake = tmp_path / "bwrap"
    fake.write_text(
        f'#!/bin/sh\ncase " $* " in *" --unshare-pid "*) [ -e {killed} ] || {{ touch {killed}; kill -KILL $$; }};; esac\n'
        f'exec "{real}" "$@"\n'
    )
    fake.chmod(0o755)
    daemon.start(config=f'[sandbox]\nbwrap = "{fake}"\n')
    with daemon.wire() as wire:
        assert wire.call("daemon.status")["filtered"] is None
        daemon.spawn("anna", daemon.workspace(), None, *ALLOW)
        daemon.ok("send", "anna", "/say hi")
        until(lambda: daemon.show("anna")["state"] == "idle" and daemon.show("anna")["turn"]["number"] == 2, "another try")
        assert killed.exists()
        assert "was ended by a signal (Killed)" in daemon.log
        form = daemon.network("anna")["form"]
        assert form == wire.call("daemon.status")["filtered"]
        found = host.filtered(present(host.find_bubblewrap()), sys.executable)
        assert found.mode is not None
        assert form == found.mode.value


def test_without_a_relay_there_is_no_network_and_no_turn(daemon, tmp_path):
    """With a bubblewrap that can't make an empty network neither form can be made, and no network is chosen silently."""
    real = host.find_bubblewrap().path
    fake = tmp_path / "bwrap"
    fake.write_text(
        f'#!/bin/sh\ncase " $* " in *" --unshare-net "*) echo "no network" >&2; exit 1;; esac\nexec "{real}" "$@"\n'
    )
    fake.chmod(0o755)
    daemon.start(config=f'[sandbox]\nfiltered = "proxy"\nbwrap = "{fake}"\n')
    daemon.spawn("anna", daemon.workspace(), "/shell ls", *ALLOW)
    assert "no filtered network can be made here (no network)" in daemon.show("anna")["turn"]["error"]
    assert daemon.ok("ls")[0]["name"] == "anna"
