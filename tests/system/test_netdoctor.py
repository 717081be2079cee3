"""`doctor --network`: a running turn's network is tried from inside, and pyroute2 looks for ways past it."""

import subprocess
import sys

import pytest

from tests.system.test_network import ONE_FORM, world  # noqa: F401 - fixtures

# Enters a process's network namespace and makes a change there.
CHANGE = (
    "import os, sys; from pyroute2 import IPRoute; from substrat.inside import netjoiner\n"
    "netjoiner.enter(os.open(f'/proc/{sys.argv[1]}/ns/net', os.O_RDONLY)); ip = IPRoute()\n"
)


@pytest.fixture
def form():
    return "transparent"


@pytest.fixture
def net(daemon, world, form):  # noqa: F811 - a fixture
    daemon.prefix = world[0]
    return daemon.start(config=f'[sandbox]\nfiltered = "{form}"\nallow = ["*.test", "www.allowed.test"]\n')


def change(net, script):
    subprocess.run([sys.executable, "-c", CHANGE + script, str(net.network("anna")["process"])], check=True)


def checks(net, code):
    done = net.ctl("doctor", "--network", "anna", "--json")
    assert (done.code, done.err) == (code, ""), done
    assert done.json["network_works"] is (code == 0)
    return {check["name"]: check for check in done.json["checks"]}


@ONE_FORM
def test_a_network_works_and_works_again_under_a_new_daemon(net, form, until):
    net.held("anna", net.workspace(), "--network", "filtered")
    assert [(name, check["state"]) for name, check in checks(net, 0).items()] == [
        ("name", "good"), ("connection", "good"), ("refusal", "good"), ("ways out", "good"),
    ]  # fmt: skip
    done = net.ctl("doctor", "--network", "anna")
    assert done.out.startswith(f"anna: filtered ({form} form)\n✓ name           www.allowed.test is resolved\n")
    assert "✓ connection     www.allowed.test:443 answers\n" in done.out
    net.kill()
    net.start()
    until(lambda: net.ctl("doctor", "--network", "anna").code == 0, "the network's listeners")


@ONE_FORM
def test_a_network_whose_loopback_is_down_is_broken(net, form):
    net.held("anna", net.workspace(), "--network", "filtered")
    change(net, "ip.link('set', index=1, state='down')")
    done = net.ctl("doctor", "--network", "anna")
    assert (done.code, done.err, done.out.splitlines()[-1]) == (1, "", "the network doesn't work")
    why = "timed out" if form == "transparent" else "no relay listens in the sandbox (timed out)"
    assert f"✗ name           www.allowed.test isn't resolved: {why}\n" in done.out


@pytest.mark.parametrize("form", ["proxy"])
def test_a_link_that_leads_past_the_list_is_found(net):
    net.held("anna", net.workspace(), "--network", "filtered")
    change(net, "ip.link('add', ifname='leak', kind='veth', peer='other'); ip.link('set', ifname='leak', state='up')")
    found = checks(net, 1)["ways out"]
    assert (found["state"], found["remedy"]) == ("broken", "substratctl suspend anna && substratctl resume anna")
    assert found["detail"].startswith("the link leak")


@pytest.mark.parametrize("form", ["transparent", "proxy"])
def test_a_host_that_is_not_reached_is_told_with_the_daemons_reason(daemon, world, form):  # noqa: F811 - a fixture
    daemon.prefix = world[0]
    net = daemon.start(config=f'[sandbox]\nfiltered = "{form}"\nallow = ["inner.allowed.test"]\n')
    net.held("anna", net.workspace(), "--network", "filtered")
    found = checks(net, 1)
    assert found["connection"]["detail"].startswith("inner.allowed.test:443: it leads to 10.0.0.1, a private address")
    assert found["refusal"]["state"] == "good"


@pytest.mark.parametrize("form", ["proxy"])
def test_without_the_library_the_probes_are_made_all_the_same(net, tmp_path):
    net.held("anna", net.workspace(), "--network", "filtered")
    (tmp_path / "pyroute2.py").write_text("raise ImportError('it is hidden')\n")
    environment = net.environment(SUBSTRAT_SOCKET=str(net.socket), PYTHONPATH=str(tmp_path))
    done = net.ctl("doctor", "--network", "anna", "--json", environment=environment)
    assert [check["name"] for check in done.json["checks"]] == ["name", "connection", "refusal"]


def test_where_there_is_nothing_to_try(running):
    work = running.workspace()
    running.held("none", work, "--network", "none")
    running.ok("spawn", "filtered", "-w", running.workspace("other"))
    running.ok("spawn", "host", "-w", running.workspace("third"), "--network", "host")

    def refused(name, code):
        done = running.ctl("doctor", "--network", name)
        assert (done.code, done.out) == (code, "")
        return done.error

    assert "none has the network 'none'" in refused("none", 1)
    assert "host has the network 'host', which is this machine's own" in refused("host", 1)
    assert "filtered runs no turn" in refused("filtered", 1)
    assert "nobody" in refused("nobody", 4)
