"""The `filtered` network as agents find it: allowed names work with ordinary programs, all else fails fast and is told."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORLD = Path(__file__).with_name("world.py")
ALLOW = ("--network", "filtered", "--allow", "*.allowed.test", "--allow", "port.test:8443")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small internet; gives the command that runs something in it, and who was connected to."""
    directory = tmp_path_factory.mktemp("world")
    certificate = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "9",
    )
    subprocess.run(
        [*certificate, "-subj", "/CN=www.allowed.test", "-addext", "subjectAltName=DNS:www.allowed.test",
         "-keyout", directory / "cert.pem", "-out", directory / "only.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    (directory / "cert.pem").write_text((directory / "cert.pem").read_text() + (directory / "only.pem").read_text())
    made = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    process = subprocess.Popen(
        ["unshare", *made, "--net", "--mount", sys.executable, WORLD, directory], stdin=subprocess.PIPE
    )
    while not (directory / "ready").exists():
        assert process.poll() is None
        time.sleep(0.01)
    joined = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
    yield ("nsenter", "--target", str(process.pid), *joined, "--net", "--mount"), directory
    process.stdin.close()
    process.wait()


@pytest.fixture
def net(house, world):
    """A daemon in that internet."""
    house.prefix = world[0]
    return house.start()


def run(house, name, *commands, options=ALLOW):
    """Run shell commands in an agent's sandbox, return what they printed."""
    if not (house.directory / "work").exists():
        house.workspace()
    script = "\n".join(f"/shell {command}" for command in commands)
    house.spawn(name, house.directory / "work", script + "\n", *options)
    return house.shell(name)


def told(house, name, kind):
    return [event["text"] for event in house.events(name, f"network:{kind}")]


CURL = "curl -sS --max-time 10 "


def test_an_allowed_name_works(net):
    said = run(
        net,
        "anna",
        CURL + "http://www.allowed.test/",
        CURL + "-k https://www.allowed.test/",
        CURL + "http://www.allowed.test/",
    )
    assert said.count("hello from 9.9.9.9") == 3, said
    assert sorted(told(net, "anna", "allowed")) == [
        "www.allowed.test:443: on the allow-list", "www.allowed.test:80: on the allow-list",
    ]  # fmt: skip
    assert told(net, "anna", "denied") == []


def test_ipv6_and_ports(net):
    said = run(
        net, "anna", CURL + "http://six.allowed.test/", CURL + "-k https://port.test:8443/",
        CURL + "https://port.test/ 2>&1",
        CURL + "http://www.allowed.test:9000/ 2>&1",
    )  # fmt: skip
    assert "hello from 2606:4700::9" in said
    assert said.count("hello from 9.9.9.9") == 1, said
    assert told(net, "anna", "denied") == ["port.test:443: the name isn't allowed at this port"]


UNKNOWN = "53: the name isn't looked up: it isn't on the allow-list"
# fmt: off
REFUSED = {
    "http://evil.test/": "evil.test:" + UNKNOWN,
    "http://allowed.test/": "allowed.test:" + UNKNOWN,
    "http://www.allowed.test.evil.test/": "www.allowed.test.evil.test:" + UNKNOWN,
    "http://9.9.9.9/": "9.9.9.9:80: no allowed name has this address",
    "http://127.0.0.1/": "127.0.0.1:80: no allowed name has this address",
    "http://169.254.169.254/": "169.254.169.254:80: no allowed name has this address",
    "http://[2606:4700::9]/": "[2606:4700::9]:80: no allowed name has this address",
    "http://[::ffff:9.9.9.9]/": "9.9.9.9:80: no allowed name has this address",
    "http://[::1]/": "[::1]:80: no allowed name has this address",
    "http://198.18.77.77/": "198.18.77.77:80: no allowed name has this address",
    "http://inner.allowed.test/": "inner.allowed.test:80: it leads to 10.0.0.1, a private address",
    "http://loop.allowed.test/": "loop.allowed.test:80: it leads to 127.0.0.1, a loopback address",
    "http://meta.allowed.test/":
        "meta.allowed.test:80: it leads to 169.254.169.254, a link-local or metadata address",
    "http://mapped.allowed.test/": "mapped.allowed.test:80: it leads to 10.0.0.1, a private address",
    "-k --connect-to evil.test:443:www.allowed.test:443 https://evil.test/":
        "www.allowed.test:443: its TLS handshake names evil.test instead",
}
# fmt: on


def test_what_is_refused(net, world):
    before = (world[1] / "hits").read_text()
    # The control: every place answers somebody who isn't in a sandbox.
    for url in (
        "http://9.9.9.9/",
        "http://10.0.0.1/",
        "http://127.0.0.1/",
        "http://169.254.169.254/",
        "http://[2606:4700::9]/",
    ):
        done = subprocess.run([*world[0], "curl", "-sSg", url], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("hello from")
    controls = (world[1] / "hits").read_text()
    assert len(controls) > len(before)
    said = run(
        net,
        "anna",
        *(f"{CURL} -g {url} || echo refused" for url in REFUSED),
    )
    assert "hello" not in said
    assert said.count("refused\n") >= len(REFUSED)
    assert "timed out" not in said
    denied = told(net, "anna", "denied")
    assert set(denied) >= set(REFUSED.values()), json.dumps(sorted(set(REFUSED.values()) - set(denied)))
    # The one with the wrong name got a connection to its allowed server, and not a byte through it.
    assert set((world[1] / "hits").read_text()[len(controls) :].split()) <= {"9.9.9.9:443"}


def test_an_address_may_be_named(net):
    options = (
        "--network",
        "filtered",
        "--allow",
        "127.0.0.1:9000",
        "--allow",
        "inner.allowed.test",
        "--allow",
        "10.0.0.1:80",
    )
    said = run(net, "anna", CURL + "http://127.0.0.1:9000/", CURL + "http://inner.allowed.test/", options=options)
    assert "hello from 127.0.0.1" in said
    assert "hello from 10.0.0.1" in said


def test_udp_and_other_name_servers_are_refused(net):
    script = (
        "import socket, struct\n"
        "q = struct.pack('!6H', 7, 256, 1, 0, 0, 0) + b'\\\\3www\\\\7allowed\\\\4test\\\\0\\\\0\\\\1\\\\0\\\\1'\n"
        "for place in (('198.18.0.1', 53), ('9.9.9.9', 53), ('9.9.9.9', 443)):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(place); s.send(q)\n"
        "    try: print(place[0], len(s.recv(999)))\n"
        "    except OSError as problem: print(place[0], type(problem).__name__)\n"
    )
    net.workspace()
    (net.directory / "work" / "ask.py").write_text(script.replace("\\\\", "\\"))
    assert (
        run(net, "anna", "python3 ask.py")
        == "198.18.0.1 50\n9.9.9.9 ConnectionRefusedError\n9.9.9.9 ConnectionRefusedError\n"
    )


def test_a_restarted_daemon_serves_it_again(net, until):
    work = net.workspace()
    net.ok(
        "spawn", "anna", "-w", work, *ALLOW, "--prompt-file", "-",
        stdin=f"/shell {CURL} http://www.allowed.test/one; getent ahostsv4 www.allowed.test | head -1 > before; "
        f"touch ready; while [ ! -e go ]; do sleep 0.02; done; {CURL} --retry 20 --retry-delay 1 --retry-all-errors "
        f"http://www.allowed.test/two; "
        f"getent ahostsv4 www.allowed.test | head -1 > after; {CURL} http://evil.test/".encode(),
    )  # fmt: skip
    until((work / "ready").exists)
    net.kill()
    net.start()
    (work / "go").touch()
    assert net.wait("anna")["turn"]["outcome"] == "success"
    assert net.shell("anna").count("hello from 9.9.9.9") == 2
    assert (work / "before").read_text() == (work / "after").read_text() != ""
    assert any("evil.test" in text for text in told(net, "anna", "denied"))


def test_nothing_is_left(net, until):
    descriptors = Path(f"/proc/{net.daemon.pid}/fd")
    run(net, "anna", CURL + "http://www.allowed.test/")
    before = len(list(descriptors.iterdir()))
    run(net, "bert", CURL + "http://www.allowed.test/", CURL + "http://evil.test/")
    until(lambda: len(list(descriptors.iterdir())) <= before, "the end of its descriptors")
    assert not net.sandboxed()


def test_a_persons_command_has_the_agents_network(net):
    work = net.workspace()
    net.spawn("anna", work, None, *ALLOW)
    urls = ("www.allowed.test", "evil.test", "10.0.0.1", "inner.allowed.test")
    script = "; ".join(f"{CURL} http://{url}/" for url in urls)
    done = net.ctl("exec", "anna", "--", "sh", "-c", script)
    assert done.out == "hello from 9.9.9.9"
    assert told(net, "anna", "allowed") == ["www.allowed.test:80: on the allow-list"]
    assert set(told(net, "anna", "denied")) >= {
        "evil.test:" + UNKNOWN, "10.0.0.1:80: no allowed name has this address",
        "inner.allowed.test:80: it leads to 10.0.0.1, a private address",
    }  # fmt: skip
    assert {event["turn"] for event in net.events("anna") if event["kind"].startswith("network:")} == {None}
