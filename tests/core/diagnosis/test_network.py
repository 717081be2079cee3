"""The host that is tried in a turn's network, and the verdicts about the answers."""

import pytest

from substrat.core.diagnosis.machine import BROKEN, GOOD, WEAKER
from substrat.core.diagnosis.network import NetworkProbes, host_to_try, judge

GOOD_ONE = NetworkProbes(None, None, None, ())
HOST = ("a.test", 443)
RENEW = "substratctl suspend anna && substratctl resume anna"


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        (("*.test", "b.test:22", "a.test"), HOST),
        (("10.0.0.0/8", "b.test:22"), ("b.test", 22)),
        (("*.test",), None),
        ((), None),
    ],
)
def test_the_first_host_with_tls_is_tried(allow, host):
    assert host_to_try(allow) == host


def test_a_network_as_it_should_be():
    assert {one.state for one in judge("anna", HOST, GOOD_ONE, None)} == {GOOD}


@pytest.mark.parametrize(
    ("name", "changed", "remedy"),
    [
        ("name", {"name": "timed out"}, RENEW),
        ("connection", {"connection": "timed out"}, "substratctl logs anna"),
        ("refusal", {"refusal": "it answers"}, RENEW),
        ("ways out", {"ways_out": ("the link eth0",)}, RENEW),
    ],
)
def test_a_probe_that_fails(name, changed, remedy):
    (found,) = [one for one in judge("anna", HOST, GOOD_ONE._replace(**changed), None) if one.state == BROKEN]
    assert (found.name, found.remedy) == (name, remedy)


def test_a_list_without_a_host():
    (found, *_) = judge("anna", None, GOOD_ONE, None)
    assert (found.state, found.remedy) == (WEAKER, "substratctl allow anna HOST")
