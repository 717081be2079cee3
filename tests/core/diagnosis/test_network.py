"""The verdicts about a turn's network, part by part, over namespaces made by hand."""

import pytest

from substrat.core.diagnosis.machine import BROKEN, GOOD, WEAKER
from substrat.core.diagnosis.network import Address, Namespace, NetworkLink, NetworkPlan, Route, RoutingRule, Socket, judge

DNS = (Socket("udp", "198.18.0.1", 53), Socket("tcp", "198.18.0.1", 53))
WEB = (Socket("tcp", "0.0.0.0", 443), Socket("tcp", "::", 443))
TRANSPARENT = NetworkPlan("anna", transparent=True, addresses=("198.18.0.1", "fd53::1"), sockets=(*DNS, *WEB))
PROXY = NetworkPlan("anna", transparent=False, addresses=("127.0.0.1",), sockets=(Socket("tcp", "127.0.0.1", 61280),))
RENEW = "substratctl suspend anna && substratctl resume anna"

GOOD_ONE = Namespace(
    links=(NetworkLink("lo", True),),
    addresses=(Address("lo", "127.0.0.1", 8), Address("lo", "198.18.0.1", 32), Address("lo", "fd53::1", 128)),
    routes=(
        Route("IPv4", "local", "0.0.0.0/0", "lo", None, 255), Route("IPv6", "local", "::/0", "lo", None, 255),
        Route("IPv6", "unicast", "fd53::1/128", "lo", None, 254),
    ),
    rules=(RoutingRule("IPv4", 0, False, "to_tbl", 255), RoutingRule("IPv6", 0, False, "to_tbl", 255)),
    sockets=(*DNS, *WEB, Socket("tcp", "127.0.0.1", 61280)),
    ipv6=True,
)  # fmt: skip
NO_IPV6 = GOOD_ONE._replace(
    ipv6=False, addresses=GOOD_ONE.addresses[:2], routes=GOOD_ONE.routes[:1], rules=GOOD_ONE.rules[:1],
    sockets=(*DNS, WEB[0]),
)  # fmt: skip


def verdict(name, plan=TRANSPARENT, allow=("a.test",), denials=(), **changed):
    (found,) = [one for one in judge(GOOD_ONE._replace(**changed), plan, allow, denials) if one.name == name]
    return found


@pytest.mark.parametrize(("found", "plan"), [(GOOD_ONE, TRANSPARENT), (GOOD_ONE, PROXY), (NO_IPV6, TRANSPARENT)])
def test_a_network_as_it_should_be(found, plan):
    findings = judge(found, plan, ("a.test",), ())
    assert [one.name for one in findings] == [
        "links", "addresses", "routes", "rules", "sockets", "allow-list", "denials",
    ]  # fmt: skip
    assert [(one.state, one.remedy) for one in findings] == [(GOOD, "")] * 7


# fmt: off
BROKEN_ONES = [
    ("links", TRANSPARENT, {"links": ()}, "there is no lo: nothing reaches the daemon"),
    ("links", PROXY, {"links": (NetworkLink("lo", False),)}, "lo is down: nothing reaches the relay"),
    ("links", TRANSPARENT, {"links": (NetworkLink("lo", True), NetworkLink("sit0", False), NetworkLink("eth0", True))},
     "eth0 is up beside lo: traffic may leave past the allow-list"),
    ("addresses", TRANSPARENT, {"addresses": GOOD_ONE.addresses[:1]},
     "lo hasn't got 198.18.0.1, fd53::1: the daemon isn't where programs look for it"),
    ("addresses", PROXY, {"addresses": (Address("eth0", "127.0.0.1", 8),)},
     "lo hasn't got 127.0.0.1: the relay isn't where programs look for it"),
    ("routes", TRANSPARENT, {"routes": GOOD_ONE.routes[:1]},
     "there is no local ::/0 dev lo: IPv6 connections don't reach the daemon"),
    ("routes", TRANSPARENT, {"routes": ()},
     "there is no local 0.0.0.0/0 dev lo and no local ::/0 dev lo: IPv4 and IPv6 connections don't reach the daemon"),
    ("routes", PROXY, {"routes": (Route("IPv4", "unicast", "0.0.0.0/0", "eth0", "10.0.0.1", 254),)},
     "unicast 0.0.0.0/0 via 10.0.0.1 dev eth0 table 254: it leads out past the allow-list"),
    ("rules", TRANSPARENT, {"rules": GOOD_ONE.rules[:1]},
     "there is no IPv6 rule: connections may miss the daemon"),
    ("rules", PROXY, {"rules": (RoutingRule("IPv4", 0, True, "to_tbl", 255),)},
     "the first IPv4 rule isn't the local table's (IPv4 0: from some to_tbl 255): connections may miss the relay"),
    ("sockets", TRANSPARENT, {"sockets": DNS},
     "the daemon doesn't listen at tcp 0.0.0.0:443, tcp [::]:443: connections there are refused"),
    ("sockets", PROXY, {"sockets": ()},
     "the relay doesn't listen at tcp 127.0.0.1:61280: programs find no proxy (the agent can end its relay)"),
]
# fmt: on


@pytest.mark.parametrize(("name", "plan", "changed", "detail"), BROKEN_ONES)
def test_a_part_that_is_broken(name, plan, changed, detail):
    found = verdict(name, plan, **changed)
    assert (found.state, found.detail, found.remedy) == (BROKEN, detail, RENEW)


def test_a_kernel_that_tells_less():
    assert verdict("rules", rules=None).state == GOOD
    found = verdict("sockets", sockets=None)
    assert (found.state, "CONFIG_INET_DIAG" in found.remedy) == (WEAKER, True)


def test_an_empty_list():
    found = verdict("allow-list", allow=())
    assert (found.state, found.remedy) == (WEAKER, "substratctl allow anna HOST")


@pytest.mark.parametrize(
    ("denials", "remedy"),
    [
        (["a.test:80: not allowed; substratctl allow anna a.test"], "substratctl allow anna a.test"),
        (["a.test:53: no; substratctl allow anna @python (3 times)"], "substratctl allow anna @python"),
        (["a.test:80: no; substratctl allow anna a.test", "b.test:80: no; substratctl allow anna b.test:8443=private"],
         "substratctl allow anna a.test b.test:8443=private"),
        (["a.test:80: its TLS handshake names b.test instead"], "substratctl logs anna"),
        # An agent chooses the names: nothing but an entry gets into a command to paste.
        (["a.test:80: no; substratctl allow anna $(reboot)"], "substratctl logs anna"),
        (["a.test:80: no; substratctl allow anna *.test"], "substratctl logs anna"),
        (["a.test:80: no; substratctl allow anna a.test:99999"], "substratctl logs anna"),
    ],
)  # fmt: skip
def test_refusals(denials, remedy):
    found = verdict("denials", denials=tuple(denials))
    assert (found.state, found.remedy) == (WEAKER, remedy)
    assert found.detail == f"the last thing refused was {denials[-1].partition('; ')[0]}"


def test_a_network_that_the_daemon_could_not_serve_again():
    text = "ports 443: the network can't be entered again; resume the agent"
    found = verdict("denials", denials=(text, "a.test:80: it isn't on the allow-list"))
    assert (found.state, found.detail, found.remedy) == (BROKEN, text, RENEW)
