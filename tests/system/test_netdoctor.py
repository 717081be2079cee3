"""The network of a running turn as pyroute2 reads it: an independent check of the launcher's own netlink, and `doctor`."""

import subprocess
import sys

import pytest

from sandbox.netrelay import PORT

ALLOW = ("--network", "filtered", "--allow", "port.test:8443")
ONE_FORM = pytest.mark.parametrize("form", ["transparent", pytest.param("proxy", marks=pytest.mark.slow)])
"""`make test` looks at the form that is chosen where both are there."""

KERNELS_RULES = [("IPv4", 0, 255), ("IPv4", 32766, 254), ("IPv4", 32767, 253), ("IPv6", 0, 255), ("IPv6", 32766, 254)]

# Enters a process's network namespace and makes a change there, with the same library as the reader.
CHANGE = "import sys; from pyroute2 import IPRoute; from substrat import netreader; netreader.enter(int(sys.argv[1]))\n"


@pytest.fixture
def net(house, form):
    return house.start(config=f'[sandbox]\nfiltered = "{form}"\n')


def read(house, name="anna", code=0):
    done = house.ctl("doctor", "--network", name, "--json")
    assert (done.code, done.err) == (code, ""), done
    return done.json


def of_family(rows, *, has_ipv6):
    return {row for row in rows if has_ipv6 or ":" not in str(row)}


def check_facts(facts, form):
    has_ipv6 = facts["ipv6"]
    assert facts["form"] == form
    assert facts["links"] == [{"name": "lo", "up": True}]

    ours = {("lo", "198.18.0.1", 32), ("lo", "fd53:7562:7374::1", 128)} if form == "transparent" else set()
    addresses = {(row["link"], row["address"], row["prefix"]) for row in facts["addresses"]}
    assert addresses == of_family({("lo", "127.0.0.1", 8), ("lo", "::1", 128)} | ours, has_ipv6=has_ipv6)

    assert all((row["link"], row["gateway"]) == ("lo", None) for row in facts["routes"])
    local = {row["to"] for row in facts["routes"] if (row["kind"], row["table"]) == ("local", 255)}
    anywhere = of_family({"0.0.0.0/0", "::/0"}, has_ipv6=has_ipv6) if form == "transparent" else set()
    assert {to for to in local if to.endswith("/0")} == anywhere
    assert "127.0.0.0/8" in local
    # Beside the table of local addresses there is the kernel's own route to an IPv6 address, and nothing leads out.
    assert {row["to"] for row in facts["routes"] if row["kind"] == "unicast"} <= {"fd53:7562:7374::1/128", "::1/128"}

    if facts["rules"] is not None:
        rules = [(row["family"], row["priority"], row["table"]) for row in facts["rules"]]
        assert rules == [row for row in KERNELS_RULES if has_ipv6 or row[0] == "IPv4"]

    if form == "transparent":
        dns = {("udp", "198.18.0.1", 53), ("tcp", "198.18.0.1", 53)}
        expected = dns | {("tcp", address, port) for address in ("0.0.0.0", "::") for port in (80, 443, 8443)}
    else:
        expected = {("tcp", "127.0.0.1", PORT)}
    sockets = [(row["protocol"], row["address"], row["port"]) for row in facts["sockets"]]
    assert sorted(sockets) == sorted(of_family(expected, has_ipv6=has_ipv6))


@ONE_FORM
def test_what_the_launcher_makes_and_what_a_new_daemon_finds(net, form, until):
    work = net.workspace()
    net.held("anna", work, *ALLOW)
    facts = read(net)
    check_facts(facts, form)
    assert facts["allow"][-1] == "port.test:8443"
    assert facts["network_works"] is True
    assert [check["state"] for check in facts["checks"]] == ["good"] * 7

    net.kill()
    net.start()
    until(lambda: net.ctl("doctor", "--network", "anna").code == 0, "the network's listeners")
    check_facts(read(net), form)
    (work / "go").touch()
    assert net.wait("anna")["turn"]["outcome"] == "success"


@ONE_FORM
def test_a_network_that_is_broken_says_where(net, form, until):
    net.held("anna", net.workspace(), *ALLOW)
    net.ok("allow", "anna", "more.test:9443")
    until(lambda: net.ctl("doctor", "--network", "anna").code == 0, "the further port's listener")
    down = CHANGE + "with IPRoute() as ip: ip.link('set', index=1, state='down')"
    subprocess.run([sys.executable, "-c", down, str(net.network("anna")["process"])], check=True)
    facts = read(net, code=1)
    assert facts["network_works"] is False
    (links, *_) = facts["checks"]
    goal = "the daemon" if form == "transparent" else "the relay"
    assert (links["state"], links["detail"]) == ("broken", f"lo is down: nothing reaches {goal}")
    assert links["remedy"] == "substratctl suspend anna && substratctl resume anna"
    done = net.ctl("doctor", "--network", "anna")
    assert (done.code, done.err, done.out.splitlines()[-1]) == (1, "", "the network doesn't work")
    assert f"✗ links          lo is down: nothing reaches {goal}\n" in done.out
    assert "                 lo down\n" in done.out


@pytest.mark.parametrize("form", ["transparent"])
def test_a_refusal_names_the_command_that_allows_it(net):
    look = "/shell python3 -c 'import socket; socket.getaddrinfo(\"evil.test\", 80)'\n"
    net.held("anna", net.workspace(), *ALLOW, before=look)
    facts = read(net)
    assert [denial["text"].partition(";")[0] for denial in facts["denials"]] == [
        "evil.test:53: the name isn't looked up: it isn't on the allow-list"
    ]
    last = facts["checks"][-1]
    assert (last["name"], last["state"], last["remedy"]) == ("denials", "weaker", "substratctl allow anna evil.test")


def test_where_there_is_nothing_to_look_at(daemon, tmp_path):
    work = daemon.workspace()
    daemon.held("none", work, "--network", "none")
    daemon.ok("spawn", "idle", "-w", work, "--network", "none")
    daemon.workspace("other")
    daemon.ok("spawn", "filtered", "-w", daemon.directory / "other")
    daemon.workspace("third")
    daemon.ok("spawn", "host", "-w", daemon.directory / "third", "--network", "host")

    def refused(name, code):
        done = daemon.ctl("doctor", "--network", name)
        assert (done.code, done.out) == (code, "")
        return done.error

    assert "none has the network 'none'" in refused("none", 1)
    assert "host has the network 'host', which is this machine's own" in refused("host", 1)
    assert "filtered runs no turn" in refused("filtered", 1)
    assert "nobody" in refused("nobody", 4)


@pytest.mark.parametrize("form", ["proxy"])
def test_without_the_library_doctor_says_how_to_get_it(net, tmp_path):
    net.held("anna", net.workspace(), *ALLOW)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "pyroute2.py").write_text("raise ImportError('it is hidden')\n")
    environment = net.environment(SUBSTRAT_SOCKET=str(net.socket), PYTHONPATH=str(tmp_path / "hidden"))
    done = net.ctl("doctor", "--network", "anna", environment=environment)
    assert (done.code, done.out) == (4, "")
    assert "the extra 'net' (pyroute2) isn't installed: pipx inject substrat pyroute2" in done.error
